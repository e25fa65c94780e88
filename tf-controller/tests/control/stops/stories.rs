//! The stories. Each goes on where a person would: it waits for what it wants to see, and approves what asks for it.

use super::stage::{Stage, is};
use crate::locks;
use serde_json::{Value, json};
use sluice_api::terraform::Terraform;
use std::collections::BTreeMap;

/// Two resources, the second after the first, and an output.
fn two(content: &str) -> String {
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

/// A stack's own resource, for stories of two stacks.
fn own(name: &str) -> String {
    format!(
        "resource \"trial_thing\" \"{name}\" {{ name = \"{name}\" }}\n\
         output \"id\" {{ value = trial_thing.{name}.id }}\n"
    )
}

/// One story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Story {
    FirstApply,
    Approve,
    Drift,
    DriftApproved,
    FailedApply,
    LockHeld,
    Destroy,
    DeleteWithDependants,
}

impl Story {
    /// Tells it. What goes wrong goes wrong after `arm`.
    pub(crate) async fn tell(self, stage: &Stage) {
        match self {
            Self::FirstApply => first_apply(stage).await,
            Self::Approve => approve(stage).await,
            Self::Drift => drift(stage).await,
            Self::DriftApproved => drift_approved(stage).await,
            Self::FailedApply => failed_apply(stage).await,
            Self::LockHeld => lock_held(stage).await,
            Self::Destroy => destroy(stage).await,
            Self::DeleteWithDependants => delete_with_dependants(stage).await,
        }
    }

    /// The end of a story whose stack lives: one more look finds it as it is wanted.
    pub(crate) async fn look(self, stage: &Stage) {
        if self == Self::DeleteWithDependants {
            return;
        }
        stage.world.request("net", "look").await;
        let looked = |stack: &Terraform| {
            let status = stack.status.as_ref();
            status.is_some_and(|status| status.last_handled_reconcile_at == "look")
        };
        stage.world.until("net", "looked at", looked).await;
    }

    /// A part of what it ends with.
    pub(crate) const fn ends_with(self) -> &'static str {
        match self {
            Self::FirstApply | Self::FailedApply | Self::Drift | Self::DriftApproved => {
                "[first=one second=first]"
            }
            Self::Approve | Self::LockHeld => "[first=two second=first]",
            Self::Destroy | Self::DeleteWithDependants => "things []",
        }
    }

    /// What the provider was told more often than the story allows. Nobody can know what an apply did whose machine stopped
    /// before it could write its state.
    pub(crate) fn repeated(self, stage: &Stage) -> Vec<String> {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for call in stage.trial.calls() {
            *counts.entry(call).or_default() += 1;
        }
        let most = usize::from(stage.fate.machine_died()) + 1;
        let again = |call: &str| self == Self::FailedApply && call == "create second";
        let once = |call: &str| call.starts_with("create ") || call.starts_with("delete ");
        let often = counts.into_iter().filter(|(call, _)| once(call) && !again(call));
        often
            .filter(|(_, count)| *count > most)
            .map(|(call, count)| format!("{call}: {count} times"))
            .collect()
    }
}

/// A stack that is applied, without anything going wrong yet.
async fn begun(stage: &Stage, spec: Value) {
    stage.commit("a", &two("one")).await;
    stage.stack("net", spec).await;
    stage.until("net", "True ").await;
    stage.fate.arm();
}

async fn first_apply(stage: &Stage) {
    stage.fate.arm();
    stage.commit("a", &two("one")).await;
    stage.stack("net", json!({})).await;
    stage.until("net", "True ").await;
}

async fn approve(stage: &Stage) {
    let revision = stage.commit("a", &two("one")).await;
    stage.stack("net", json!({ "approvePlan": "" })).await;
    stage.fate.arm();
    stage.approve_until("net", &revision).await;
    let revision = stage.commit("b", &two("two")).await;
    stage.approve_until("net", &revision).await;
}

/// Somebody changes a thing by hand, and somebody asks for a look.
async fn drifts(stage: &Stage) {
    stage.trial.drift("first", "by hand").unwrap();
    stage.world.request("net", "drifted").await;
}

fn corrected(stage: &Stage, stack: &Terraform) -> bool {
    let status = stack.status.as_ref();
    let handled = status.is_some_and(|status| status.last_handled_reconcile_at == "drifted");
    handled && is(stack, "True ") && stage.trial.content("first").as_deref() == Some("one")
}

async fn drift(stage: &Stage) {
    begun(stage, json!({})).await;
    drifts(stage).await;
    let corrected = |stack: &Terraform| corrected(stage, stack);
    stage.world.until("net", "corrected", corrected).await;
}

async fn drift_approved(stage: &Stage) {
    let revision = stage.commit("a", &two("one")).await;
    stage.stack("net", json!({ "approvePlan": "" })).await;
    stage.approve_until("net", &revision).await;
    stage.fate.arm();
    drifts(stage).await;
    stage.approve_while("net", |stack| corrected(stage, stack)).await;
}

async fn failed_apply(stage: &Stage) {
    let full = json!({ "steps": { "create second": { "fail": "quota exceeded" } } });
    stage.trial.order(&full).unwrap();
    stage.fate.arm();
    stage.commit("a", &two("one")).await;
    stage.stack("net", json!({})).await;
    stage.until("net", "False TFExecApplyFailed").await;
    stage.trial.order(&json!({})).unwrap();
    stage.until("net", "True ").await;
}

async fn lock_held(stage: &Stage) {
    begun(stage, json!({})).await;
    locks::hold(&stage.world, "net").await;
    let revision = stage.commit("b", &two("two")).await;
    stage.until("net", "False TFExecPlanFailed").await;
    let named = json!({ "forceUnlock": "yes", "lockIdentifier": locks::ID });
    stage.world.edit("net", json!({ "tfstate": named })).await;
    stage.approve_until("net", &revision).await;
}

async fn destroy(stage: &Stage) {
    begun(stage, json!({})).await;
    stage.fate.laws.ask_to_destroy();
    stage.world.edit("net", json!({ "destroy": true })).await;
    let gone = |stack: &Terraform| is(stack, "True ") && stage.trial.things().unwrap().is_empty();
    stage.world.until("net", "destroyed", gone).await;
}

async fn delete_with_dependants(stage: &Stage) {
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
    stage.until("top", "True ").await;
    stage.fate.arm();
    stage.fate.laws.ask_to_destroy();
    stage.world.delete("base").await;
    stage.world.delete("top").await;
    stage.world.gone("base").await;
    stage.world.gone("top").await;
    let calls = stage.trial.calls();
    let first = |wanted: &str| calls.iter().position(|call| call == wanted);
    if first("delete base") < first("delete top") {
        stage.fate.broken(format!("the base went first: {calls:?}"));
    }
}
