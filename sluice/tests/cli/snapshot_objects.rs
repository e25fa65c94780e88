//! The objects of the snapshots: a stack in each state that a user meets.

use k8s_openapi::api::core::v1::{Event, Secret};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_tf_core::plan::store::RUN;
use sluice_tf_core::state_copy::{ID, LABEL, LINEAGE, RESOURCES, REVISION, SERIAL, TIME, WORKSPACE};

use crate::fixture::{PLAN, TestEnvironment, ready};
use crate::local_plan::applied_state;
use crate::outputs::create_outputs;

/// The day of all times in the objects, and the day that the program reads instead. Ages since then change once a year.
const DAYS: (&str, &str) = ("2026-01-01", "2000-01-01");
/// When all objects were created.
const CREATED: &str = "2000-01-01T00:00:00Z";
/// The age of all objects, as wide as all ages until the year 2100.
pub(crate) const AGE: &str = "26y";

impl TestEnvironment {
    /// Serves the API of [`TestEnvironment::with_stacks`] with more: the stacks `cache` (drifted), `held` (a state lock), `new` (without
    /// a status), `old` (suspended), `site` (a plan waits) and `web` (a run in progress, with outputs), a state, and events. The
    /// source `broken` fails.
    pub(crate) async fn with_all_states() -> Self {
        let environment = Self::with_stacks().await;
        let failed = ready(
            "False",
            "GitOperationFailed",
            "failed to clone: connection refused",
        );
        environment.create_source("broken", &failed).await;
        environment.create_idle_stacks().await;
        environment.create_running_stack().await;
        environment.create_earlier_runs().await;
        environment.create_states().await;
        environment.create_events().await;
        environment
    }

    async fn create_idle_stacks(&self) {
        let mut drifted = ready("False", "DriftDetected", "Drift detected: 1 in-place");
        drifted["drift"] = json!({ "updates": 1, "types": ["terraform_data"] });
        let mut held = ready("False", "TFExecPlanFailed", "Error acquiring the state lock");
        held["lock"] = json!({ "pending": "6a1f0c0e" });
        let applied = ready("True", "TerraformAppliedSucceed", "Applied");
        let mut waits = ready("Unknown", "TerraformPlannedWithChanges", "Plan generated");
        waits["plan"] = json!({ "pending": PLAN });
        let suspended = json!({ "suspend": true });
        let none = json!({});
        for (name, spec, status) in [
            ("cache", &none, &drifted),
            ("held", &none, &held),
            ("new", &none, &none),
            ("old", &suspended, &applied),
            ("site", &none, &waits),
        ] {
            self.create_stack(name, spec, status).await;
        }
        self.create_run("site", 1).await;
    }

    async fn create_running_stack(&self) {
        let mut progressing = ready("Unknown", "Progressing", "Applying");
        progressing["availableOutputs"] = json!(["host", "ports", "token"]);
        let spec = json!({ "writeOutputsToSecret": { "name": "web-outputs" } });
        self.create_stack("web", &spec, &progressing).await;
        let run = self.create_apply("web", 5).await;
        let log = "$ tofu apply\nterraform_data.new: Creating...\n";
        let status = json!({ "startedAt": format!("{}T00:00:00Z", DAYS.0), "logTail": log });
        self.report(&run, &status).await;
        create_outputs(self, Some(&["host", "ports"])).await;
    }

    /// Creates the run that was applied last, and the one that met a state lock.
    async fn create_earlier_runs(&self) {
        let applied = self.create_run("app", 2).await;
        let changes = json!([{ "action": "update", "address": "terraform_data.old" }]);
        let status = json!({ "applied": true, "changes": "+0 ~1 -0", "changeEntries": changes, "planId": "plan-main-1" });
        self.report(&applied, &status).await;
        let locked = self.create_run("held", 4).await;
        let lock = json!({ "id": "6a1f0c0e", "who": "anna@laptop", "operation": "OperationTypeApply",
            "created": format!("{} 00:00:00.5 +0000 UTC", DAYS.0) });
        let status = json!({ "phase": "Failed", "message": "Error acquiring the state lock", "lock": lock,
            "changes": "", "changeEntries": null, "hasChanges": false, "planId": "" });
        self.report(&locked, &status).await;
    }

    /// Creates the state of the stack `net`, and a copy of an earlier one.
    async fn create_states(&self) {
        self.create_state("net", &applied_state()).await;
        let inventory = json!({ "entries": [{ "n": "it", "t": "terraform_data", "id": "3f9a0c1b" }] });
        let revision = "main@sha1:b8e362c206f0d1c9a7e5b3d1f9e7c5a3b1d9f7e5";
        let status = json!({ "inventory": inventory, "lastAppliedRevision": revision });
        let patch = Patch::Merge(json!({ "status": status }));
        self.stacks()
            .patch_status("net", &PatchParams::default(), &patch)
            .await
            .unwrap();
        let labels = json!({ (LABEL): "net", (WORKSPACE): "default", (ID): "3f9a0c1b2d", (SERIAL): "6" });
        let annotations = json!({ (LINEAGE): "7d0f6a0e", (RESOURCES): "1", (REVISION): revision, (RUN): "net-0123456789-6",
            (TIME): format!("{}T00:00:00Z", DAYS.0) });
        let metadata = json!({ "name": "tfcopy-net", "labels": labels, "annotations": annotations });
        let copy: Secret = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        let secrets: Api<Secret> = Api::namespaced(self.client(), "default");
        secrets.create(&PostParams::default(), &copy).await.unwrap();
    }

    async fn create_events(&self) {
        let events: Api<Event> = Api::namespaced(self.client(), "default");
        for (second, kind, name, reason, message) in [
            (
                1,
                "GitRepository",
                "infra",
                "NewArtifact",
                "stored artifact for commit 'Add a bucket'",
            ),
            (
                2,
                "Terraform",
                "app",
                "TerraformPlannedWithChanges",
                "Plan generated",
            ),
            (
                3,
                "Terraform",
                "db",
                "TFExecPlanFailed",
                "error running Plan: exit status 1",
            ),
        ] {
            let (api, severity) = match (kind, name) {
                ("GitRepository", _) => ("source.toolkit.fluxcd.io/v1", "Normal"),
                (_, "db") => ("infra.contrib.fluxcd.io/v1alpha2", "Warning"),
                _ => ("infra.contrib.fluxcd.io/v1alpha2", "Normal"),
            };
            let object = json!({ "apiVersion": api, "kind": kind, "name": name, "namespace": "default" });
            let time = format!("{}T00:00:0{second}Z", DAYS.0);
            let event = json!({ "metadata": { "name": format!("{name}.1") }, "involvedObject": object, "type": severity,
                "reason": reason, "message": message, "firstTimestamp": time, "lastTimestamp": time, "count": second });
            let event: Event = serde_json::from_value(event).unwrap();
            events.create(&PostParams::default(), &event).await.unwrap();
        }
    }
}

/// Moves all times of an answer of the API into the past: the server sets the time of a creation itself, and ages of seconds would
/// differ from execution to execution.
pub(crate) fn make_old(answer: &mut Value) {
    if answer["kind"] == "Table" {
        set_ages(answer);
    }
    set_times(answer);
}

/// Sets the cells of the column AGE, which the server calculates.
fn set_ages(table: &mut Value) {
    let columns = table["columnDefinitions"].as_array();
    let Some(age) = columns.and_then(|columns| columns.iter().position(|column| column["name"] == "Age"))
    else {
        return;
    };
    for row in table["rows"].as_array_mut().into_iter().flatten() {
        row["cells"][age] = json!(AGE);
    }
}

fn set_times(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                if name == "creationTimestamp" && field.is_string() {
                    *field = json!(CREATED);
                } else {
                    set_times(field);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(set_times),
        Value::String(text) if text.starts_with(DAYS.0) => *text = text.replacen(DAYS.0, DAYS.1, 1),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
