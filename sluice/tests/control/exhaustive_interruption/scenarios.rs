//! The scenarios. Each acts as a user: it waits for conditions and approves pending plans.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_api::run::TerraformRun;
use sluice_api::terraform::Terraform;

use super::stage::{ScenarioEnvironment, ready_begins_with};
use crate::locks;

/// Two resources, the second depends on the first, and an output.
fn two_resources(content: &str) -> String {
    format!(
        r#"
resource "trial_thing" "first" {{
  name    = "first"
  content = "{content}"
}}
resource "trial_thing" "second" {{
  name    = "second"
  content = trial_thing.first.id
}}
output "content" {{ value = trial_thing.first.content }}
"#
    )
}

/// The resource of a stack in scenarios with two stacks.
fn own(name: &str) -> String {
    format!(
        "resource \"trial_thing\" \"{name}\" {{ name = \"{name}\" }}\n\
         output \"id\" {{ value = trial_thing.{name}.id }}\n"
    )
}

/// A scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scenario {
    FirstApply,
    Approve,
    Drift,
    DriftApproved,
    FailedApply,
    LockHeld,
    Destroy,
    DeleteWithDependants,
}

impl Scenario {
    /// Runs it. Faults are injected after `arm`.
    pub(crate) async fn run(self, stage: &ScenarioEnvironment) {
        match self {
            Self::FirstApply => first_apply(stage).await,
            Self::Approve => approve(stage).await,
            Self::Drift => drift(stage).await,
            Self::DriftApproved => approve_drift(stage).await,
            Self::FailedApply => failed_apply(stage).await,
            Self::LockHeld => state_lock_conflict(stage).await,
            Self::Destroy => destroy(stage).await,
            Self::DeleteWithDependants => delete_with_dependants(stage).await,
        }
    }

    /// Ends a scenario whose stack exists: drift detection finds it in sync.
    pub(crate) async fn check(self, stage: &ScenarioEnvironment) {
        if self == Self::DeleteWithDependants {
            return;
        }
        stage.env.request("net", "drift-detection").await;
        let is_checked = |stack: &Terraform| {
            let status = stack.status.as_ref();
            status.is_some_and(|status| status.last_handled_reconcile_at == "drift-detection")
        };
        stage.env.wait_for("net", "drift detection", is_checked).await;
    }

    /// Returns a part of its outcome.
    pub(crate) const fn ends_with(self) -> &'static str {
        match self {
            Self::FirstApply | Self::FailedApply | Self::Drift | Self::DriftApproved => {
                "[first=one second=first]"
            }
            Self::Approve | Self::LockHeld => "[first=two second=first]",
            Self::Destroy | Self::DeleteWithDependants => "things []",
        }
    }

    /// Returns provider calls beyond those of the scenario, except after a machine stopped during an apply, whose calls cannot be known.
    pub(crate) fn extra_calls(self, stage: &ScenarioEnvironment) -> Vec<String> {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for call in stage.trial.calls() {
            *counts.entry(call).or_default() += 1;
        }
        let most = usize::from(stage.fault_state.machine_died()) + 1;
        let again = |call: &str| self == Self::FailedApply && call == "create second";
        let once = |call: &str| call.starts_with("create ") || call.starts_with("delete ");
        let often = counts.into_iter().filter(|(call, _)| once(call) && !again(call));
        often
            .filter(|(_, count)| *count > most)
            .map(|(call, count)| format!("{call}: {count} times"))
            .collect()
    }
}

/// Creates an applied stack, before any fault.
async fn create_applied(stage: &ScenarioEnvironment, spec: Value) {
    stage.commit("a", &two_resources("one")).await;
    stage.stack("net", spec).await;
    stage.wait_ready("net", "True ").await;
    stage.fault_state.arm();
}

async fn first_apply(stage: &ScenarioEnvironment) {
    stage.fault_state.arm();
    stage.commit("a", &two_resources("one")).await;
    stage.stack("net", json!({})).await;
    stage.wait_ready("net", "True ").await;
}

async fn approve(stage: &ScenarioEnvironment) {
    let revision = stage.commit("a", &two_resources("one")).await;
    stage.stack("net", json!({ "approvePlan": "" })).await;
    stage.fault_state.arm();
    stage.approve_until("net", &revision).await;
    let revision = stage.commit("b", &two_resources("two")).await;
    stage.approve_until("net", &revision).await;
}

/// Changes a resource manually and requests drift detection.
async fn cause_drift(stage: &ScenarioEnvironment) {
    stage.trial.drift("first", "by hand").unwrap();
    stage.env.request("net", "drifted").await;
}

fn is_corrected(stage: &ScenarioEnvironment, stack: &Terraform) -> bool {
    let status = stack.status.as_ref();
    let handled = status.is_some_and(|status| status.last_handled_reconcile_at == "drifted");
    handled && ready_begins_with(stack, "True ") && stage.trial.content("first").as_deref() == Some("one")
}

async fn drift(stage: &ScenarioEnvironment) {
    create_applied(stage, json!({})).await;
    cause_drift(stage).await;
    let corrected = |stack: &Terraform| is_corrected(stage, stack);
    stage.env.wait_for("net", "corrected", corrected).await;
}

async fn approve_drift(stage: &ScenarioEnvironment) {
    let revision = stage.commit("a", &two_resources("one")).await;
    stage.stack("net", json!({ "approvePlan": "" })).await;
    stage.approve_until("net", &revision).await;
    stage.fault_state.arm();
    cause_drift(stage).await;
    stage
        .approve_while("net", |stack| is_corrected(stage, stack))
        .await;
}

async fn failed_apply(stage: &ScenarioEnvironment) {
    let full = json!({ "steps": { "create second": { "fail": "quota exceeded" } } });
    stage.trial.set_behaviour(&full).unwrap();
    stage.fault_state.arm();
    stage.commit("a", &two_resources("one")).await;
    stage.stack("net", json!({})).await;
    // The run, not the stack's status: on a busy machine the retry is due before that is written, and fails as well.
    let has_failed = |run: &TerraformRun| {
        let status = run.status.as_ref();
        status.is_some_and(|status| status.reason == "TFExecApplyFailed")
    };
    stage.env.wait_run("net", "a failed apply", has_failed).await;
    stage.trial.set_behaviour(&json!({})).unwrap();
    stage.wait_ready("net", "True ").await;
}

async fn state_lock_conflict(stage: &ScenarioEnvironment) {
    create_applied(stage, json!({})).await;
    locks::lock_state(&stage.env, "net").await;
    let revision = stage.commit("b", &two_resources("two")).await;
    stage.wait_ready("net", "False TFExecPlanFailed").await;
    let named = json!({ "forceUnlock": "yes", "lockIdentifier": locks::ID });
    stage.env.edit("net", json!({ "tfstate": named })).await;
    stage.approve_until("net", &revision).await;
}

async fn destroy(stage: &ScenarioEnvironment) {
    create_applied(stage, json!({})).await;
    stage.fault_state.invariants.request_destroy();
    stage.env.edit("net", json!({ "destroy": true })).await;
    let is_destroyed =
        |stack: &Terraform| ready_begins_with(stack, "True ") && stage.trial.resources().unwrap().is_empty();
    stage.env.wait_for("net", "destroyed", is_destroyed).await;
}

async fn delete_with_dependants(stage: &ScenarioEnvironment) {
    stage
        .commit_all(
            "a",
            &[("base/main.tf", &own("base")), ("top/main.tf", &own("top"))],
        )
        .await;
    let spec = |path: &str| json!({ "path": path, "destroyResourcesOnDeletion": true });
    stage.stack("base", spec("base")).await;
    let mut top = spec("top");
    top["dependsOn"] = json!([{ "name": "base" }]);
    stage.stack("top", top).await;
    stage.wait_ready("top", "True ").await;
    stage.fault_state.arm();
    stage.fault_state.invariants.request_destroy();
    stage.env.delete("base").await;
    stage.env.delete("top").await;
    stage.env.wait_gone("base").await;
    stage.env.wait_gone("top").await;
    let calls = stage.trial.calls();
    let first = |expected: &str| calls.iter().position(|call| call == expected);
    if first("delete base") < first("delete top") {
        stage
            .fault_state
            .report_violation(format!("the base went first: {calls:?}"));
    }
}
