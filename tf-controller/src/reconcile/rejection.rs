//! The rejection of the pending plan: the annotation of the stack is copied to the run that made the plan. The record stays when the
//! annotation is changed or removed, and it is part of the history.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use sluice_api::run::{PlanRejection, TerraformRun};
use sluice_api::terraform::Terraform;

use super::history::find_run;
use super::{Context, ReconcileError};
use crate::decide::Facts;

/// Records the rejection of the pending plan in its run, unless it is there. This comes before a new run is created: the ids of later
/// plans depend on the record. During a run nothing is recorded, because that run may have begun to apply the plan.
///
/// # Errors
/// The API does not accept the record.
pub(super) async fn record(
    stack: &Terraform,
    facts: &Facts,
    runs: &[TerraformRun],
    context: &Context,
) -> Result<(), ReconcileError> {
    let Some((run, rejection)) = unrecorded(facts, runs) else {
        return Ok(());
    };
    let rejection = PlanRejection {
        rejected_at: rejection.rejected_at.clone().or(Some(Time(facts.now))),
        ..rejection.clone()
    };
    let name = run.name_any();
    let api: Api<TerraformRun> = context.api_of(stack);
    let message = format!("Plan {rejection}");
    let patch = Patch::Merge(json!({ "status": { "rejection": rejection, "message": message } }));
    match api.patch_status(&name, &PatchParams::default(), &patch).await {
        Ok(_) => {
            tracing::info!(run = name, "the plan is {rejection}");
            Ok(())
        }
        // Without its run there is no plan.
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(ReconcileError::Dispatch {
            stack: stack.name_any(),
            text: format!("the rejection of the plan of {name} cannot be recorded: {error}"),
        }),
    }
}

/// Returns the run whose plan is rejected without a record, with the rejection. Pure.
fn unrecorded<'a>(
    facts: &'a Facts,
    runs: &'a [TerraformRun],
) -> Option<(&'a TerraformRun, &'a PlanRejection)> {
    let pending = facts.history.pending.as_ref()?;
    let rejection = pending.rejection.as_ref()?;
    let run = find_run(runs, &pending.run)?;
    let is_recorded = run
        .status
        .as_ref()
        .is_some_and(|status| status.rejection.is_some());
    (!is_recorded && facts.history.active.is_none()).then_some((run, rejection))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::decide::{Outcome, Pending, RunAction, RunFact, Trigger, facts_of_a_new_stack};

    fn run(status: &Value) -> TerraformRun {
        serde_json::from_value(json!({
            "metadata": { "name": "net-u1-3", "namespace": "team" },
            "spec": { "action": "Plan", "attempt": 1, "deadline": "2h", "trigger": "Revision",
                "source": { "kind": "GitRepository", "name": "code", "namespace": "team" },
                "terraform": { "name": "net", "uid": "u1", "generation": 1 } },
            "status": status,
        }))
        .unwrap()
    }

    fn with_plan(rejection: Option<PlanRejection>) -> Facts {
        let mut facts = facts_of_a_new_stack();
        facts.history.pending = Some(Pending {
            plan_id: "plan-main-aa-ee".into(),
            run: "net-u1-3".into(),
            drift: false,
            held: false,
            rejection,
            planned: facts.now,
        });
        facts
    }

    fn apply(finished: jiff::Timestamp) -> RunFact {
        RunFact {
            name: "net-u1-4".into(),
            action: RunAction::Apply,
            trigger: Trigger::Approval,
            destroy: false,
            generation: 1,
            inputs: "i1".into(),
            source: "sha256:bb".into(),
            attempt: 1,
            outcome: Outcome::Active,
            stale: false,
            needs_change: false,
            disrupted: false,
            finished,
        }
    }

    #[test]
    fn a_rejection_is_recorded_once_and_not_during_a_run() {
        let planned = [run(&json!({ "phase": "Succeeded" }))];
        let rejected = with_plan(Some(PlanRejection::default()));
        let found = unrecorded(&rejected, &planned).map(|(run, _)| run.name_any());
        assert_eq!(found.as_deref(), Some("net-u1-3"));
        assert!(unrecorded(&with_plan(None), &planned).is_none());
        assert!(unrecorded(&rejected, &[]).is_none());
        let recorded = [run(
            &json!({ "phase": "Succeeded", "rejection": { "rejectedBy": "alice" } }),
        )];
        assert!(unrecorded(&rejected, &recorded).is_none());
        let mut applying = rejected.clone();
        applying.history.active = Some(apply(applying.now));
        assert!(unrecorded(&applying, &planned).is_none());
    }
}
