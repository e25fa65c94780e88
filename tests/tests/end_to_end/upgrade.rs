//! An upgrade from the definition of TerraformRun before runs were Jobs (`tests/assets/definitions-2026-11-23`): records of that form keep
//! their meaning, the upgrade plans no stack, and an approval from before it is valid.
//!
//! The records are those of this build, without the fields that the earlier definition does not declare.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use sluice_tests::scenario::{Commit, NAME, Scenario, TIMEOUT, manifests, retry, wait_for};
use sluice_tests::wait_for_definitions;
use tokio::time::Instant;

use crate::environment::{Origin, TestEnvironment, config, kubectl, ready};
use crate::walkthrough::instance_ids;
use crate::{with_timeout, without_cluster};

/// The earlier definition.
const EARLIER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/assets/definitions-2026-11-23/infra.sluice.dev_terraformruns.yaml"
);
/// The fields of a run's status that it does not declare.
const LATER_FIELDS: [&str; 11] = [
    "defaultMemoryRequestBytes",
    "jobName",
    "logError",
    "logSecret",
    "logTail",
    "memoryLimitBytes",
    "releasedLock",
    "state",
    "stateCopy",
    "stateCopyError",
    "stateMismatch",
];
/// A stack that applies its plans, beside [`NAME`], whose plans are approved.
const AUTO: &str = "auto";
/// A stack whose first plan waits.
const WAITING: &str = "waiting";

/// Uid, spec and status of each run by name.
type Records = BTreeMap<String, Value>;

/// Three stacks of one source, with the controllers of a cluster.
struct Upgrade {
    env: TestEnvironment,
    scenario: Scenario,
    origin: Origin,
}

impl Upgrade {
    /// Creates the stacks. Returns the id of the plan that waits.
    async fn create_stacks(&self) -> String {
        let [source, stack] = manifests(&self.origin.url);
        let variant = |name: &str, approval: &str| {
            let mut stack = stack.clone();
            stack["metadata"]["name"] = json!(name);
            stack["spec"]["approvePlan"] = json!(approval);
            stack["spec"]["writeOutputsToSecret"]["name"] = json!(format!("{name}-outputs"));
            stack
        };
        for stack in [variant(AUTO, "auto"), variant(WAITING, "")] {
            self.env.plane.apply(&stack.to_string()).await.unwrap();
        }
        self.scenario.create(&[source, stack]).await.unwrap();
        let revision = format!("main@sha1:{}", self.origin.repository.head().unwrap());
        let applied = self.scenario.approve_until_applied(&revision).await;
        applied.unwrap_or_else(|error| panic!("{error}\n{}", self.env.logs()));
        self.wait_until_applied(AUTO, &revision).await;
        let has_plan = |stack: &Value| !pending(stack).is_empty();
        let waiting = self.wait_for(WAITING, "a plan that waits", has_plan).await;
        pending(&waiting).to_owned()
    }

    async fn wait_for(&self, stack: &str, what: &'static str, pass: impl Fn(&Value) -> bool) -> Value {
        let result = wait_for(&self.scenario.stacks(), stack, what, pass).await;
        result.unwrap_or_else(|error| panic!("{error}\n{}", self.env.logs()))
    }

    async fn wait_until_applied(&self, stack: &str, revision: &str) {
        let is_applied = |object: &Value| {
            object["status"]["lastAppliedRevision"] == revision && ready(object).starts_with("True ")
        };
        self.wait_for(stack, "the revision applied", is_applied).await;
    }

    async fn records(&self) -> Records {
        let (api, all) = (self.scenario.runs_api(), ListParams::default());
        let runs = retry(|| api.list(&all)).await.unwrap().items;
        let record = |run: &DynamicObject| {
            let record = json!({ "uid": run.uid(), "spec": run.data["spec"], "status": run.data["status"] });
            (run.name_any(), record)
        };
        runs.iter().map(record).collect()
    }

    /// Returns the versions of the stacks and of the source.
    async fn versions(&self) -> Vec<Option<String>> {
        let mut versions = Vec::new();
        for api in [self.scenario.stacks(), self.scenario.sources()] {
            let all = ListParams::default();
            let objects = retry(|| api.list(&all)).await.unwrap().items;
            versions.extend(objects.iter().map(DynamicObject::resource_version));
        }
        versions
    }

    /// Stores the records as an API server with the earlier definition does. Returns them.
    async fn store_in_earlier_form(&self) -> Records {
        let folder = self.env.folder.path();
        kubectl(folder, &["apply", "-f", EARLIER]).await;
        // The API server uses a changed definition a moment later.
        let deadline = Instant::now() + TIMEOUT;
        let records = loop {
            let records = self.records().await;
            if records.values().all(|record| later_fields(record).is_empty()) {
                break records;
            }
            assert!(Instant::now() < deadline, "{records:#?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        // A write drops the fields from the store too.
        let write = ["annotate", "terraformruns", "--all", "example.com/stored=earlier"];
        kubectl(folder, &write).await;
        records
    }

    /// Applies the definitions of this build, as docs/operations.md says. No object changes.
    async fn apply_definitions(&self) {
        let before = self.versions().await;
        assert_eq!(before.len(), 4, "{before:?}");
        let setup = config("overlays/standalone/setup");
        kubectl(self.env.folder.path(), &["apply", "-k", &setup]).await;
        let client = self.env.plane.admin().client().await.unwrap();
        wait_for_definitions(client).await.unwrap();
        assert_eq!(self.versions().await, before);
    }

    async fn approve(&self, stack: &str, plan: &str) {
        let patch = Patch::Merge(json!({ "spec": { "approvePlan": plan } }));
        let stacks = self.scenario.stacks();
        stacks
            .patch(stack, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// A commit that no stack reads: each stack moves to it by its earlier records, and has no run.
    async fn move_stacks(&self) {
        let revision = self.scenario.push(&self.origin.repository, Commit::Docs).await;
        let revision = revision.unwrap_or_else(|error| panic!("{error}\n{}", self.env.logs()));
        let is_moved = |stack: &Value| stack["status"]["lastAttemptedRevision"] == revision.as_str();
        for stack in [NAME, AUTO, WAITING] {
            self.wait_for(stack, "the revision attempted", is_moved).await;
        }
    }

    /// The earlier records stay as they were, and the only new run applies the approved plan and records the state.
    async fn check_records(&self, earlier: &Records, plan: &str) {
        let mut records = self.records().await;
        for (name, record) in earlier {
            assert_eq!(records.remove(name).as_ref(), Some(record), "{name}");
        }
        let names: Vec<_> = records.keys().cloned().collect();
        assert_eq!(names.len(), 1, "{names:?}");
        let apply = &records[&names[0]];
        assert!(names[0].starts_with(WAITING), "{names:?}");
        let (spec, status) = (&apply["spec"], &apply["status"]);
        assert_eq!(
            [&spec["action"], &spec["trigger"], &status["phase"]],
            ["Apply", "Approval", "Succeeded"]
        );
        assert_eq!(spec["plan"]["id"], plan);
        assert!(status["state"]["lineage"].is_string(), "{status:#}");
    }

    /// The next change is applied in place, and a deletion destroys.
    async fn check_later_changes(&self) {
        let revision = self
            .scenario
            .push(&self.origin.repository, Commit::NewVersion)
            .await;
        let revision = revision.unwrap_or_else(|error| panic!("{error}\n{}", self.env.logs()));
        self.wait_until_applied(AUTO, &revision).await;
        let changes = self.records().await.into_values().filter_map(|run| {
            let is_update =
                run["spec"]["terraform"]["name"] == AUTO && run["spec"]["source"]["revision"] == revision;
            is_update.then(|| run["status"]["changes"].clone())
        });
        assert_eq!(changes.collect::<Vec<_>>(), ["+0 ~2 -0"]);
        let deleted = self.scenario.delete_stack().await;
        deleted.unwrap_or_else(|error| panic!("{error}\n{}", self.env.logs()));
        let state = self.scenario.state().await.unwrap();
        assert_eq!(instance_ids(&state), Vec::<String>::new(), "destroyed");
    }

    async fn end_controllers(&mut self) {
        for controller in [&mut self.env.source_controller, &mut self.env.tf_controller] {
            controller.end().await.unwrap();
        }
    }
}

/// Returns the fields of a record that the earlier definition does not declare.
fn later_fields(record: &Value) -> Vec<&str> {
    let Some(status) = record["status"].as_object() else {
        return Vec::new();
    };
    let fields = status.keys().map(String::as_str);
    fields.filter(|field| LATER_FIELDS.contains(field)).collect()
}

/// Returns the id of the pending plan.
fn pending(stack: &Value) -> &str {
    let id = stack.pointer("/status/plan/pending").and_then(Value::as_str);
    id.unwrap_or_default()
}

#[test]
fn records_of_the_earlier_definition_keep_their_meaning_and_start_no_run() {
    if without_cluster() {
        return;
    }
    with_timeout(async {
        let env = TestEnvironment::start().await;
        let scenario = env.scenario().await;
        let origin = Origin::start().await;
        let mut upgrade = Upgrade {
            env,
            scenario,
            origin,
        };
        upgrade.env.start_controllers();
        let plan = upgrade.create_stacks().await;
        upgrade.end_controllers().await;
        let state = upgrade.scenario.state().await.unwrap();
        let records = upgrade.records().await;
        let has_state = |record: &&Value| record["status"]["state"].is_object();
        assert!(records.values().filter(has_state).count() >= 2, "{records:#?}");

        let earlier = upgrade.store_in_earlier_form().await;
        assert_eq!(earlier.len(), records.len());
        upgrade.apply_definitions().await;
        upgrade.approve(WAITING, &plan).await;
        upgrade.env.start_controllers();
        let is_applied = |stack: &Value| {
            stack["status"]["plan"]["lastApplied"] == plan.as_str() && ready(stack).starts_with("True ")
        };
        upgrade
            .wait_for(WAITING, "the approved plan applied", is_applied)
            .await;
        upgrade.move_stacks().await;
        upgrade.check_records(&earlier, &plan).await;
        assert_eq!(upgrade.scenario.state().await.unwrap(), state);
        upgrade.check_later_changes().await;
        upgrade.end_controllers().await;
    });
}
