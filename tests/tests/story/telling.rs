//! The story told once, with all that must be true of it on either API.

use futures::{StreamExt, TryStreamExt};
use kube::{
    Api, Client,
    api::DynamicObject,
    runtime::{WatchStreamExt, watcher},
};
use serde_json::Value;
use sluice_harness::git::Repository;
use sluice_tests::{
    Failed,
    story::{Commit, Story},
};
use std::sync::{Arc, Mutex};

/// The values of `Ready` that were seen, each once while it stood: `status/reason message`, and with them nothing else.
#[derive(Clone, Default)]
pub(crate) struct Trace(Arc<Mutex<Vec<String>>>);

impl Trace {
    /// Follows the stack's `Ready` from now on, for as long as the runtime lives.
    pub(crate) fn follow(client: Client) -> Self {
        let trace = Self::default();
        let seen = trace.clone();
        tokio::spawn(async move {
            let stacks: Api<DynamicObject> = Story::new(client).stacks();
            let mut changes = watcher(stacks, watcher::Config::default())
                .default_backoff()
                .touched_objects()
                .boxed();
            loop {
                if let Ok(Some(object)) = changes.try_next().await {
                    seen.add(&object.data);
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
        let mut seen = self.0.lock().unwrap();
        if seen.last() != Some(&line) {
            seen.push(line);
        }
    }

    /// What was seen so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// Each value that was seen stands in `golden` (by its beginning), in this order; the values marked `!` were seen,
    /// exactly once. A watch may miss a value that stood for a moment only, never those at which the story waits.
    pub(crate) fn check(&self, golden: &[String]) {
        let lines = self.lines();
        let mut expected = golden.iter();
        let told = || format!("seen:\n{}\n\ngolden:\n{}", lines.join("\n"), golden.join("\n"));
        for line in &lines {
            loop {
                let Some(next) = expected.next() else {
                    panic!("{line:?} was not expected at this place; {}", told());
                };
                let (must, start) = next
                    .strip_prefix('!')
                    .map_or((false, next.as_str()), |n| (true, n));
                if line.starts_with(start) {
                    break;
                }
                assert!(!must, "{next:?} was not seen before {line:?}; {}", told());
            }
        }
        let left: Vec<_> = expected.filter(|next| next.starts_with('!')).collect();
        assert!(left.is_empty(), "{left:?} was not seen; {}", told());
    }
}

/// What a watcher of `Ready` sees of the whole story.
pub(crate) fn golden(told: &Told) -> Vec<String> {
    let working = |next: &str| {
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
    let asks = |plan: &str| {
        format!("!Unknown/TerraformPlannedWithChanges Plan generated: set approvePlan: \"{plan}\"")
    };
    let mut golden = vec![
        "Unknown/Progressing".to_owned(),
        "False/ArtifactFailed".to_owned(),
        "Unknown/Progressing Reconciliation in progress".to_owned(),
    ];
    golden.extend(working(&asks(&told.plans[0])));
    golden.extend(apply(&told.revisions[0]));
    golden.extend(working(&asks(&told.plans[1])));
    golden.extend(apply(&told.revisions[1]));
    golden.push(format!(
        "True/TerraformOutputsWritten Outputs written: {}",
        told.revisions[2]
    ));
    golden.push("Unknown/Progressing Deletion in progress".to_owned());
    golden.extend(working("Unknown/TerraformPlannedWithChanges"));
    golden.push("Unknown/Progressing Applying".to_owned());
    golden.push("Unknown/TerraformAppliedSucceed".to_owned());
    golden
}

/// What the story gave.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    /// The revisions of the three commits.
    pub(crate) revisions: [String; 3],
    /// The two plans that were approved.
    pub(crate) plans: [String; 2],
}

/// Tells the story up to the third commit; the first commit is made already.
pub(crate) async fn tell(story: &Story, repository: &Repository) -> Result<Told, Failed> {
    let first = format!("main@sha1:{}", repository.head()?);
    let one = story.pending_plan(None).await?;
    story.approve(&one).await?;
    story.applied(&first).await?;
    assert_outputs(story, "1.0.0").await?;
    let ids = instance_ids(&story.state().await?);
    assert_eq!(ids.len(), 2, "{ids:?}");

    let second = story.push(repository, Commit::NewVersion).await?;
    let two = story.pending_plan(Some(&one)).await?;
    assert_ne!(one, two);
    story.approve(&two).await?;
    story.applied(&second).await?;
    assert_outputs(story, "1.1.0").await?;
    assert_eq!(
        instance_ids(&story.state().await?),
        ids,
        "the same instances, changed in place"
    );

    let before = runs(story).await?;
    let third = story.push(repository, Commit::Docs).await?;
    story.attempted(&third).await?;
    assert_eq!(
        runs(story).await?,
        before,
        "a commit that nothing reads starts no run"
    );
    let expected = [
        "Plan/Revision Succeeded",
        "Apply/Approval Succeeded",
        "Plan/Revision Succeeded",
        "Apply/Approval Succeeded",
    ];
    assert_eq!(before, expected);
    Ok(Told {
        revisions: [first, second, third],
        plans: [one, two],
    })
}

/// `action/trigger phase` of each run, oldest first.
pub(crate) async fn runs(story: &Story) -> Result<Vec<String>, Failed> {
    let told = |run: &sluice_tests::story::Run| format!("{}/{} {}", run.action, run.trigger, run.phase);
    Ok(story.runs().await?.iter().map(told).collect())
}

/// The outputs Secret says what the stack does.
pub(crate) async fn assert_outputs(story: &Story, version: &str) -> Result<(), Failed> {
    let outputs = story.outputs().await?;
    let instances: Value = serde_json::from_str(&outputs["instances"])?;
    assert_eq!(instances, serde_json::json!(["shop-0", "shop-1"]));
    assert_eq!(outputs["version"], version);
    Ok(())
}

/// The ids of the instances: an apply that is done anew makes others.
pub(crate) fn instance_ids(state: &Value) -> Vec<String> {
    let resources = state["resources"].as_array().into_iter().flatten();
    let instances = resources.flat_map(|resource| resource["instances"].as_array().into_iter().flatten());
    instances
        .filter_map(|instance| instance.pointer("/attributes/id").and_then(Value::as_str))
        .map(str::to_owned)
        .collect()
}

/// Deletes stack and source; of what was made for them only the (empty) Terraform state is left.
pub(crate) async fn end(story: &Story) -> Result<(), Failed> {
    story.delete_stack().await?;
    let state = story.state().await?;
    assert_eq!(instance_ids(&state), Vec::<String>::new(), "destroyed");
    story.delete_source().await?;
    // Runs and their bundles go with their owner, which the garbage collector does in its own time.
    let mut left = Vec::new();
    for _ in 0..600 {
        left = story.runs().await?.into_iter().map(|run| run.name).collect();
        left.extend(
            story
                .secrets()
                .await?
                .into_iter()
                .filter(|name| name != "tfstate-default-app"),
        );
        if left.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("left behind: {left:?}");
}

/// No stored plan was applied by two runs, and no run for a plan that another applied began its apply.
pub(crate) async fn assert_applied_once(story: &Story) -> Result<(), Failed> {
    let runs = story.runs().await?;
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

/// Waits for the event of this reason and returns its text.
pub(crate) async fn event(client: &Client, reason: &str) -> Result<String, Failed> {
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
