//! Executes the decided step and returns when to reconcile again.

use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use sluice_api::run::TerraformRun;
use sluice_api::terraform::Terraform;
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::watch::Requeue;

use super::active_run::poll_interval;
use super::dispatch::{self, DispatchError};
use super::history::find_run;
use super::observe::Observed;
use super::report::needs_change;
use super::resolve::Resolved;
use super::run_object::RunRequest;
use super::supervision::supervise;
use super::{Context, ReconcileError};
use crate::decide::{Dependencies, Facts, Idle, NewRun, RunAction, Step};
use crate::schedule::{Priority, RunUsage, SlotState};

/// How often a blocked deletion or destroy is checked at least.
const BLOCKED_POLL_INTERVAL: Duration = Duration::from_secs(10);
/// How soon a queued stack is reconciled without a grant: a safeguard, since grants are announced.
const SLOT_POLL_INTERVAL: Duration = Duration::from_mins(10);

/// The result of a step.
pub(super) struct Executed {
    /// The step: as decided, or what a start became that was not possible.
    pub(super) step: Step,
    /// When to reconcile again.
    pub(super) next: Requeue,
    /// The run that was started.
    pub(super) started: Option<TerraformRun>,
}

/// Executes the step. A start without a free slot becomes [`Step::WaitForSlot`].
pub(super) async fn execute(
    stack: &Terraform,
    observed: &Observed,
    facts: &Facts,
    resolved: Option<&Resolved>,
    step: Step,
    context: &Context,
) -> Result<Executed, ReconcileError> {
    let failed = |error: DispatchError| ReconcileError::Dispatch {
        stack: stack.name_any(),
        text: error.to_string(),
    };
    let (key, mut started) = (ObjectKey::of(stack), None);
    let next = match (&step, resolved) {
        (Step::Start(new), Some(resolved)) => {
            if let SlotState::Waiting(wait) = request_slot(stack, new, facts, context) {
                return Ok(Executed {
                    step: Step::WaitForSlot(wait.to_string()),
                    next: Requeue::After(SLOT_POLL_INTERVAL),
                    started,
                });
            }
            let run_request = RunRequest {
                stack,
                new,
                history: &facts.history,
                resolved,
                runs: &observed.runs,
                reconcile_request: facts.request.as_deref(),
            };
            match dispatch::start(&run_request, context).await {
                Ok(run) => started = Some(run),
                Err(error) => {
                    // Others can use the slot until the next attempt. If the run exists after all, that attempt adopts it.
                    context.run_slots.release(&key);
                    let why = error.refusal().ok_or_else(|| failed(error))?;
                    return Ok(Executed {
                        step: Step::CreateFailed(why),
                        next: Requeue::After(retry_interval(facts)),
                        started,
                    });
                }
            }
            poll(started.as_ref(), facts)
        }
        (Step::Start(_), None) | (Step::Release | Step::WaitForSlot(_) | Step::CreateFailed(_), _) => {
            Requeue::OnChange
        }
        (Step::Follow, resolved) => {
            follow(stack, observed, facts, resolved, context)
                .await
                .map_err(failed)?;
            poll(active(observed, facts), facts)
        }
        (Step::Idle(idle), _) => next_after(idle, facts),
    };
    Ok(Executed { step, next, started })
}

/// Requests a slot for a new run. A break-glass session uses few resources for a long time: it occupies none.
fn request_slot(stack: &Terraform, new: &NewRun, facts: &Facts, context: &Context) -> SlotState {
    if new.action == RunAction::BreakTheGlass {
        return SlotState::Occupied;
    }
    let (key, priority) = (ObjectKey::of(stack), Priority::from_trigger(new.trigger));
    context
        .run_slots
        .request(&key, priority, usage(stack, facts, context))
}

/// Returns what a run of the stack uses of the limits.
fn usage(stack: &Terraform, facts: &Facts, context: &Context) -> RunUsage {
    let memory = facts.history.memory.estimate();
    context.run_slots.usage(stack.labels(), memory)
}

/// Returns whether a run counts among the concurrent runs from its creation to its end. A break-glass session does not, nor does a
/// run that cannot begin until a user changes something.
pub(crate) fn occupies_slot(run: &TerraformRun) -> bool {
    let has_ended = run.status.as_ref().is_some_and(|status| status.phase.is_final());
    !has_ended && run.spec.action != RunAction::BreakTheGlass && !needs_change(run)
}

/// Counts the active run among the occupied slots, and supervises it.
async fn follow(
    stack: &Terraform,
    observed: &Observed,
    facts: &Facts,
    resolved: Option<&Resolved>,
    context: &Context,
) -> Result<(), DispatchError> {
    let key = &ObjectKey::of(stack);
    if active(observed, facts).is_none_or(occupies_slot) {
        context.run_slots.occupy(key, usage(stack, facts, context));
    } else {
        context.run_slots.release(key);
    }
    match active(observed, facts) {
        Some(run) => supervise(run, stack, resolved, facts, context).await,
        None => Ok(()),
    }
}

/// Returns the active run.
fn active<'a>(observed: &'a Observed, facts: &Facts) -> Option<&'a TerraformRun> {
    find_run(&observed.runs, &facts.history.active.as_ref()?.name)
}

/// Returns when to check an active run again.
fn poll(run: Option<&TerraformRun>, facts: &Facts) -> Requeue {
    run.map_or(Requeue::OnChange, |run| {
        Requeue::After(poll_interval(run, facts.now))
    })
}

/// Returns when to reconcile again if there is nothing to do now.
pub(super) fn next_after(idle: &Idle, facts: &Facts) -> Requeue {
    let until = |when: Timestamp| {
        let wait = Duration::try_from(when.duration_since(facts.now)).unwrap_or_default();
        Requeue::After(wait.max(Duration::from_millis(100)))
    };
    match idle {
        Idle::RetryAt(when)
        | Idle::InputPause(when)
        | Idle::InSync(when)
        | Idle::ShowPlan { again: Some(when) } => until(*when),
        // Members of a dependency cycle carry no finalizers of each other, so their deletion triggers nothing.
        Idle::Dependents(_) if matches!(facts.dependencies, Dependencies::Cycle(_)) => {
            Requeue::After(retry_interval(facts).min(BLOCKED_POLL_INTERVAL))
        }
        Idle::Source | Idle::InputsUnknown | Idle::Dependencies | Idle::Dependents(_) => {
            Requeue::After(retry_interval(facts))
        }
        // The request may be an annotation, whose removal triggers nothing.
        Idle::BreakGlassDenied => Requeue::After(retry_interval(facts)),
        Idle::AwaitApproval => match &facts.history.pending {
            Some(pending) if pending.drift => until(facts.due(pending.planned)),
            _ => Requeue::OnChange,
        },
        Idle::Suspended
        | Idle::DeletionSuspended
        | Idle::UnsupportedField
        | Idle::ContradictingFields
        | Idle::RetryLimit
        | Idle::BreakGlassCompleted
        | Idle::PlanRejected
        | Idle::ShowPlan { again: None } => Requeue::OnChange,
    }
}

/// Returns the time until a missing object is looked up again.
fn retry_interval(facts: &Facts) -> Duration {
    Duration::try_from(facts.retry.interval)
        .unwrap_or_default()
        .max(Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_run_occupies_a_slot_until_its_end_unless_it_waits_for_a_change() {
        let occupies = |action: &str, status: Value| {
            let run = json!({ "metadata": { "name": "net-1" }, "status": status,
                "spec": { "action": action, "attempt": 1, "deadline": "1h", "trigger": "Request",
                    "source": { "kind": "GitRepository", "name": "code", "namespace": "team" },
                    "terraform": { "name": "net", "uid": "u", "generation": 1 } } });
            occupies_slot(&serde_json::from_value(run).unwrap())
        };
        let claim = json!({ "holder": "pod-1" });
        for status in [
            Value::Null,
            json!({ "phase": "Pending" }),
            json!({ "phase": "Pending", "reason": "Unschedulable", "message": "0/1 nodes: 1 Insufficient memory." }),
            json!({ "phase": "Planning", "claim": claim }),
        ] {
            assert!(occupies("Plan", status.clone()), "{status}");
            assert!(!occupies("BreakTheGlass", status.clone()), "{status}");
        }
        for status in [
            json!({ "phase": "Pending", "reason": "ImagePullBackOff", "message": "image none" }),
            json!({ "phase": "Succeeded", "claim": claim }),
            json!({ "phase": "Lost" }),
        ] {
            assert!(!occupies("Plan", status.clone()), "{status}");
        }
    }
}
