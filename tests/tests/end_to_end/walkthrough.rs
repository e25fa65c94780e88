//! Runs the main scenario and checks its results, on either API.

use std::sync::{Arc, Mutex};

use futures::{StreamExt, TryStreamExt};
use kube::api::DynamicObject;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use serde_json::Value;
use sluice_harness::git::Repository;
use sluice_tests::BoxError;
use sluice_tests::scenario::{Commit, Scenario};

/// The successive values of `Ready` as `status/reason message`.
#[derive(Clone, Default)]
pub(crate) struct ConditionTrace(Arc<Mutex<Vec<String>>>);

impl ConditionTrace {
    /// Follows `Ready` of the stack until the runtime ends.
    pub(crate) fn follow(client: Client) -> Self {
        let trace = Self::default();
        let observed = trace.clone();
        tokio::spawn(async move {
            let stacks: Api<DynamicObject> = Scenario::new(client).stacks();
            let mut changes = watcher(stacks, watcher::Config::default())
                .default_backoff()
                .touched_objects()
                .boxed();
            loop {
                if let Ok(Some(object)) = changes.try_next().await {
                    observed.add(&object.data);
                }
            }
        });
        trace
    }

    fn add(&self, object: &Value) {
        let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
        let Some(ready) = conditions.into_iter().flatten().find(|c| c["type"] == "Ready") else {
            return;
        };
        let text = |field: &str| ready[field].as_str().unwrap_or_default().to_owned();
        let line = format!("{}/{} {}", text("status"), text("reason"), text("message"));
        let mut observed = self.0.lock().unwrap();
        if observed.last() != Some(&line) {
            observed.push(line);
        }
    }

    /// Returns the values so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// Asserts that the values match `golden` (prefixes) in order, and that each value marked `!` occurs exactly once. A watch may miss
    /// a short-lived value, but never those for which the scenario waits.
    pub(crate) fn check(&self, golden: &[String]) {
        let lines = self.lines();
        let mut expected = golden.iter();
        let details = || {
            format!(
                "observed:\n{}\n\ngolden:\n{}",
                lines.join("\n"),
                golden.join("\n")
            )
        };
        for line in &lines {
            loop {
                let Some(next) = expected.next() else {
                    panic!("{line:?} was not expected here; {}", details());
                };
                let (must, start) = next
                    .strip_prefix('!')
                    .map_or((false, next.as_str()), |n| (true, n));
                if line.starts_with(start) {
                    break;
                }
                assert!(!must, "{next:?} did not occur before {line:?}; {}", details());
            }
        }
        let missing: Vec<_> = expected.filter(|next| next.starts_with('!')).collect();
        assert!(missing.is_empty(), "{missing:?} did not occur; {}", details());
    }
}

/// Returns the expected values of `Ready` for the whole scenario.
pub(crate) fn expected_conditions(walkthrough: &Walkthrough) -> Vec<String> {
    let planning = |next: &str| {
        vec![
            "Unknown/Progressing Initializing".to_owned(),
            "Unknown/Progressing Terraform Planning".to_owned(),
            next.to_owned(),
        ]
    };
    let apply = |revision: &str| {
        vec![
            "Unknown/Progressing Initializing".to_owned(),
            "Unknown/Progressing Applying".to_owned(),
            "Unknown/TerraformAppliedSucceed".to_owned(),
            format!("!True/TerraformOutputsWritten Outputs written: {revision}"),
        ]
    };
    let pending = |plan: &str| {
        format!("!Unknown/TerraformPlannedWithChanges Plan generated: set approvePlan: \"{plan}\"")
    };
    let mut golden = vec![
        "Unknown/Progressing".to_owned(),
        "False/ArtifactFailed".to_owned(),
        "Unknown/Progressing Reconciliation in progress".to_owned(),
    ];
    golden.extend(planning(&pending(&walkthrough.plans[0])));
    golden.extend(apply(&walkthrough.revisions[0]));
    golden.extend(planning(&pending(&walkthrough.plans[1])));
    golden.extend(apply(&walkthrough.revisions[1]));
    golden.push(format!(
        "True/TerraformOutputsWritten Outputs written: {}",
        walkthrough.revisions[2]
    ));
    golden.push("Unknown/Progressing Deletion in progress".to_owned());
    golden.extend(planning("Unknown/TerraformPlannedWithChanges"));
    golden.push("Unknown/Progressing Applying".to_owned());
    golden.push("Unknown/TerraformAppliedSucceed".to_owned());
    golden
}

/// The result of the scenario.
#[derive(Clone, Debug)]
pub(crate) struct Walkthrough {
    /// The revisions and plans of a scenario.
    pub(crate) revisions: [String; 3],
    /// The two plans that were approved.
    pub(crate) plans: [String; 2],
}

/// Runs the scenario up to the third commit; the first commit exists already.
pub(crate) async fn run(scenario: &Scenario, repository: &Repository) -> Result<Walkthrough, BoxError> {
    let first = format!("main@sha1:{}", repository.head()?);
    let one = scenario.wait_for_plan(None).await?;
    scenario.approve(&one).await?;
    scenario.wait_until_applied(&first).await?;
    assert_outputs(scenario, "1.0.0").await?;
    let ids = instance_ids(&scenario.state().await?);
    assert_eq!(ids.len(), 2, "{ids:?}");

    let second = scenario.push(repository, Commit::NewVersion).await?;
    let two = scenario.wait_for_plan(Some(&one)).await?;
    assert_ne!(one, two);
    scenario.approve(&two).await?;
    scenario.wait_until_applied(&second).await?;
    assert_outputs(scenario, "1.1.0").await?;
    assert_eq!(
        instance_ids(&scenario.state().await?),
        ids,
        "instances must be updated in place"
    );

    let before = runs(scenario).await?;
    let third = scenario.push(repository, Commit::Docs).await?;
    scenario.wait_until_attempted(&third).await?;
    assert_eq!(
        runs(scenario).await?,
        before,
        "a commit that does not touch the inputs starts no run"
    );
    let expected = [
        "Plan/Revision Succeeded",
        "Apply/Approval Succeeded",
        "Plan/Revision Succeeded",
        "Apply/Approval Succeeded",
    ];
    assert_eq!(before, expected);
    Ok(Walkthrough {
        revisions: [first, second, third],
        plans: [one, two],
    })
}

/// Returns `action/trigger phase` of each run, oldest first.
pub(crate) async fn runs(scenario: &Scenario) -> Result<Vec<String>, BoxError> {
    let describe =
        |run: &sluice_tests::scenario::Run| format!("{}/{} {}", run.action, run.trigger, run.phase);
    Ok(scenario.runs().await?.iter().map(describe).collect())
}

/// Asserts the outputs Secret.
pub(crate) async fn assert_outputs(scenario: &Scenario, version: &str) -> Result<(), BoxError> {
    let outputs = scenario.outputs().await?;
    let instances: Value = serde_json::from_str(&outputs["instances"])?;
    assert_eq!(instances, serde_json::json!(["shop-0", "shop-1"]));
    assert_eq!(outputs["version"], version);
    Ok(())
}

/// Returns the ids of the instances, which a repeated apply would change.
pub(crate) fn instance_ids(state: &Value) -> Vec<String> {
    let resources = state["resources"].as_array().into_iter().flatten();
    let instances = resources.flat_map(|resource| resource["instances"].as_array().into_iter().flatten());
    instances
        .filter_map(|instance| instance.pointer("/attributes/id").and_then(Value::as_str))
        .map(str::to_owned)
        .collect()
}

/// Deletes stack and source; only the (empty) Terraform state may remain.
pub(crate) async fn delete_all(scenario: &Scenario) -> Result<(), BoxError> {
    scenario.delete_stack().await?;
    let state = scenario.state().await?;
    assert_eq!(instance_ids(&state), Vec::<String>::new(), "destroyed");
    scenario.delete_source().await?;
    // The garbage collector deletes runs and their bundles after their owner, with a delay.
    let mut remaining = Vec::new();
    for _ in 0..600 {
        remaining = scenario.runs().await?.into_iter().map(|run| run.name).collect();
        remaining.extend(
            scenario
                .secrets()
                .await?
                .into_iter()
                .filter(|name| name != "tfstate-default-app"),
        );
        if remaining.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("not deleted: {remaining:?}");
}

/// Asserts that no stored plan was applied by two runs.
pub(crate) async fn assert_applied_once(scenario: &Scenario) -> Result<(), BoxError> {
    let runs = scenario.runs().await?;
    let mut applied: Vec<_> = runs
        .iter()
        .filter(|r| r.attempted_apply)
        .map(|r| r.plan.clone())
        .collect();
    let all = applied.len();
    applied.sort();
    applied.dedup();
    assert_eq!(applied.len(), all, "a plan was applied twice: {runs:#?}");
    Ok(())
}

/// Asserts that each program is a field manager of the objects that it writes.
pub(crate) async fn assert_field_managers(scenario: &Scenario) -> Result<(), BoxError> {
    for (api, programs) in [
        (scenario.sources(), ["source-controller"].as_slice()),
        (scenario.stacks(), ["tf-controller"].as_slice()),
        (scenario.runs_api(), ["tf-controller", "tf-runner"].as_slice()),
    ] {
        let objects = api.list(&kube::api::ListParams::default()).await?.items;
        assert!(!objects.is_empty());
        for object in objects {
            let entries = object.metadata.managed_fields.unwrap_or_default();
            let managers: Vec<_> = entries.into_iter().filter_map(|entry| entry.manager).collect();
            for program in programs {
                let is_manager = managers.iter().any(|manager| manager == program);
                assert!(is_manager, "{:?}: {managers:?}", object.metadata.name);
            }
        }
    }
    Ok(())
}

/// Waits for an event with this reason; returns its message.
pub(crate) async fn wait_for_event(client: &Client, reason: &str) -> Result<String, BoxError> {
    let api: Api<k8s_openapi::api::core::v1::Event> = Api::namespaced(client.clone(), "default");
    for _ in 0..300 {
        let list = api.list(&kube::api::ListParams::default()).await?;
        if let Some(found) = list
            .items
            .into_iter()
            .find(|e| e.reason.as_deref() == Some(reason))
        {
            return Ok(found.message.unwrap_or_default());
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    Err(format!("no event {reason}").into())
}
