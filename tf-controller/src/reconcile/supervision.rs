//! The supervision of an active run: starts a run that has no runner yet, reports why one cannot begin, and ends one whose runner
//! is gone.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use sluice_api::run::{Phase, TerraformRun, Trigger};
use sluice_api::terraform::{Reason, Terraform};
use tokio::time::Instant;

use super::Context;
use super::account::replacement;
use super::dispatch::{DispatchError, end, restart};
use super::end_reason::{EndReason, failed_start_reason, lost_reason, no_account_reason, not_started_reason};
use super::resolve::Resolved;
use crate::decide::{Facts, MutationPoint, RunAction, holds};
use crate::executor::{Liveness, RunRef, is_without_account};

/// The time that a runner has after its deadline to interrupt the CLI and to report.
const REPORT_GRACE: Duration = Duration::from_secs(60);

/// What is known about the runner of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunnerState {
    /// It is alive, or sent a heartbeat a moment ago.
    Alive,
    /// It is accepted and has not begun.
    Pending,
    /// It cannot begin, because its ServiceAccount does not exist, and another account may replace it.
    WithoutAccount,
    /// It has ended.
    Ended,
    /// There is no trace of it.
    Gone,
}

/// An active run as read last.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunState<'a> {
    /// Its runner.
    pub(super) runner: RunnerState,
    /// Whether it has ended since the facts were read.
    pub(super) ended: bool,
    /// Whether a runner has claimed it.
    pub(super) claimed: bool,
    /// Digest of the inputs that it was created for.
    pub(super) created_for: &'a str,
    /// Digest of the current inputs; `None`: they are not available.
    pub(super) current: Option<&'a str>,
    /// The spec, compared with the one that it was created for.
    pub(super) spec: SpecState,
}

/// The spec of the stack of an active run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpecState {
    /// As at the creation of the run.
    Unchanged,
    /// It was edited since.
    Edited,
    /// The stack must not run now: it is suspended, deleted, or its spec is not valid.
    Stopped,
}

impl SpecState {
    fn of(run: &TerraformRun, facts: &Facts) -> Self {
        // A destroy is part of the deletion, and so is the release of the lock before it: an edit replaces them, unless it makes the
        // destroy unnecessary.
        let destroys = run.spec.trigger == Trigger::Deletion || run.spec.action == RunAction::Unlock;
        let is_destroy = destroys && facts.policy.destroy_on_deletion;
        let is_stopped = facts.suspended || facts.unsupported_field.is_some();
        if is_stopped || facts.deleting && !is_destroy {
            Self::Stopped
        } else if run.spec.terraform.generation == facts.generation {
            Self::Unchanged
        } else {
            Self::Edited
        }
    }
}

/// What to do with an active run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Supervision {
    /// Wait for it.
    Wait,
    /// Report what its runner waits for.
    ReportPending,
    /// Mark it as lost: its runner is gone.
    MarkLost,
    /// Mark it as failed: its runner ended before it claimed the run.
    MarkFailed,
    /// Start its runner: no runner has claimed it.
    Launch,
    /// End it: no runner has claimed it, and its inputs or the spec have changed.
    EndOutdated,
    /// End it: no runner has claimed it, and its inputs are not available, or the stack must not run now.
    EndWithoutInputs,
    /// End it: it cannot begin under its ServiceAccount, and the next run has another one.
    EndWithoutAccount,
}

/// Decides what to do with an active run. Pure.
pub(super) fn decide_supervision(run: RunState<'_>) -> Supervision {
    let is_alive = match run.runner {
        RunnerState::Alive => true,
        RunnerState::Pending | RunnerState::WithoutAccount => run.claimed,
        RunnerState::Ended | RunnerState::Gone => false,
    };
    if holds(MutationPoint::ProcessAlive, is_alive) || run.ended {
        return Supervision::Wait;
    }
    if holds(MutationPoint::Claimed, run.claimed) {
        return Supervision::MarkLost;
    }
    let is_outdated = |current| holds(MutationPoint::InputsOutdated, current != run.created_for);
    match (run.current, run.runner) {
        (Some(current), _) if is_outdated(current) => Supervision::EndOutdated,
        (_, RunnerState::Ended) => Supervision::MarkFailed,
        // Also with its inputs: the destroy of a deletion does not wait for a run before it.
        _ if run.spec == SpecState::Stopped => Supervision::EndWithoutInputs,
        // What it waits for may be in the pod template, which is no input of the plan.
        (Some(_), RunnerState::Pending | RunnerState::WithoutAccount) if run.spec == SpecState::Edited => {
            Supervision::EndOutdated
        }
        (_, RunnerState::WithoutAccount) => Supervision::EndWithoutAccount,
        (_, RunnerState::Pending) => Supervision::ReportPending,
        (Some(_), _) => Supervision::Launch,
        (None, _) => Supervision::EndWithoutInputs,
    }
}

/// Starts the active run if it was not started, reports why its runner cannot begin, and ends it as lost if its runner is gone or
/// sent no heartbeat for too long.
pub(super) async fn supervise(
    run: &TerraformRun,
    stack: &Terraform,
    resolved: Option<&Resolved>,
    facts: &Facts,
    context: &Context,
) -> Result<(), DispatchError> {
    let liveness = liveness(run, context).await?;
    if is_known_alive(&liveness, run, context) {
        return Ok(());
    }
    // Read the run, then check its liveness again: its last report may be newer than the first read, and another
    // controller may have started it meanwhile.
    let api: Api<TerraformRun> = context.api_of(run);
    let Some(live) = api.get_opt(&run.name_any()).await? else {
        return Ok(());
    };
    let status = live.status.clone().unwrap_or_default();
    let liveness = self::liveness(&live, context).await?;
    let step = decide_supervision(RunState {
        runner: runner_state(&liveness, &live, stack, context).await?,
        ended: status.phase.is_final(),
        claimed: status.claim.is_some(),
        created_for: &live.spec.inputs_digest,
        current: resolved.map(|resolved| resolved.inputs.as_str()),
        spec: SpecState::of(&live, facts),
    });
    let end_of_runner = match &liveness {
        Liveness::Ended(end) => Some(end.clone()),
        _ => None,
    };
    let (phase, why) = match (step, resolved) {
        (Supervision::Launch, Some(resolved)) => {
            return restart(&live, stack, resolved, &facts.history, context).await;
        }
        (Supervision::Wait | Supervision::Launch, _) => return Ok(()),
        (Supervision::ReportPending, _) => return report_pending(&live, &liveness, context).await,
        (Supervision::MarkLost, _) => (Phase::Lost, lost_reason(end_of_runner)),
        (Supervision::MarkFailed, _) => (Phase::Failed, failed_start_reason(end_of_runner)),
        (Supervision::EndOutdated, _) => (
            Phase::Superseded,
            EndReason::new(
                Reason::InputsChanged.as_str(),
                "its inputs changed before the run started",
            ),
        ),
        (Supervision::EndWithoutInputs, _) => (Phase::Superseded, not_started_reason(facts)),
        (Supervision::EndWithoutAccount, _) => {
            let (own, other) = (context.account_of_pods(stack), context.destroy_account.as_deref());
            (
                Phase::Superseded,
                no_account_reason(own, other.unwrap_or_default()),
            )
        }
    };
    let has_ended = end(&live, phase, why.reason, &why.message, context).await?;
    if has_ended && matches!(liveness, Liveness::Pending(_)) {
        // Its runner would find that the run has ended.
        context.executor.cancel(RunRef::of(&live)).await?;
    }
    Ok(())
}

/// Writes what the runner of a run waits for into the run's status, unless it is there.
async fn report_pending(
    run: &TerraformRun,
    liveness: &Liveness,
    context: &Context,
) -> Result<(), DispatchError> {
    if is_reported(run, liveness) {
        return Ok(());
    }
    let reason = match liveness {
        Liveness::Pending(reason) => reason.as_ref(),
        _ => None,
    };
    let body = json!({
        "metadata": { "resourceVersion": run.resource_version() },
        "status": { "reason": reason.map(|why| &why.reason), "message": reason.map(|why| &why.message) },
    });
    let (api, patch): (Api<TerraformRun>, _) = (context.api_of(run), Patch::Merge(body));
    match api
        .patch_status(&run.name_any(), &PatchParams::default(), &patch)
        .await
    {
        Ok(_) => Ok(()),
        // A runner has claimed the run, or it was deleted.
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Returns whether the run's status says what its runner waits for.
fn is_reported(run: &TerraformRun, liveness: &Liveness) -> bool {
    let status = run.status.as_ref();
    let reported = status.map(|status| (status.reason.as_str(), status.message.as_str()));
    let expected = match liveness {
        Liveness::Pending(Some(why)) => (why.reason.as_str(), why.message.as_str()),
        _ => ("", ""),
    };
    reported.unwrap_or_default() == expected
}

/// Returns the lock domain of the runner; empty before it claims the run.
fn lock_domain(run: &TerraformRun) -> String {
    let claim = run.status.as_ref().and_then(|status| status.claim.as_ref());
    claim.map(|claim| claim.lock_domain.clone()).unwrap_or_default()
}

async fn liveness(run: &TerraformRun, context: &Context) -> Result<Liveness, DispatchError> {
    Ok(context
        .executor
        .liveness(RunRef::of(run), lock_domain(run))
        .await?)
}

/// Returns whether the run has to be started, ended, or reported as pending.
pub(super) async fn needs_supervision(
    run: &TerraformRun,
    stack: &Terraform,
    context: &Context,
) -> Result<bool, DispatchError> {
    let liveness = liveness(run, context).await?;
    Ok(match runner_state(&liveness, run, stack, context).await? {
        RunnerState::Alive => false,
        RunnerState::Pending => !is_reported(run, &liveness),
        RunnerState::WithoutAccount | RunnerState::Ended | RunnerState::Gone => true,
    })
}

/// Returns the state of the runner, as far as visible from here.
async fn runner_state(
    liveness: &Liveness,
    run: &TerraformRun,
    stack: &Terraform,
    context: &Context,
) -> Result<RunnerState, DispatchError> {
    Ok(match liveness {
        // The status of a pod lags: a runner that has claimed its run has begun.
        Liveness::Pending(_) if is_claimed(run) => RunnerState::Alive,
        Liveness::Pending(why) => {
            let mut why = why.iter();
            // An event is about the past: the account may exist again.
            let is_missing = why.any(|why| is_without_account(&why.reason, &why.message));
            if is_missing && replacement(&run.spec, stack, context).await?.is_some() {
                RunnerState::WithoutAccount
            } else {
                RunnerState::Pending
            }
        }
        Liveness::Ended(_) => RunnerState::Ended,
        Liveness::OtherLockDomain if has_recent_heartbeat(run, context) => RunnerState::Alive,
        _ if is_known_alive(liveness, run, context) => RunnerState::Alive,
        _ => RunnerState::Gone,
    })
}

fn is_claimed(run: &TerraformRun) -> bool {
    run.status.as_ref().is_some_and(|status| status.claim.is_some())
}

/// Returns whether the place of the runner shows that it is alive.
fn is_known_alive(liveness: &Liveness, run: &TerraformRun, context: &Context) -> bool {
    match liveness {
        Liveness::Alive => true,
        Liveness::Locked => !is_hung(run, context),
        Liveness::Pending(_) if is_claimed(run) => true,
        Liveness::Pending(_) | Liveness::Ended(_) | Liveness::Gone | Liveness::OtherLockDomain => false,
    }
}

/// Returns whether the run still sends heartbeats.
fn has_recent_heartbeat(run: &TerraformRun, context: &Context) -> bool {
    let heartbeat = run
        .status
        .as_ref()
        .and_then(|status| status.heartbeat_at.as_ref());
    let heartbeat = heartbeat.map(|time| time.0);
    context
        .heartbeats
        .is_alive(&RunRef::of(run), heartbeat, Instant::now())
}

/// Returns whether a run that holds its process lock is given up: its runner should have ended it at the deadline and
/// sends no heartbeats. The working directory stays locked while any process of it is alive.
fn is_hung(run: &TerraformRun, context: &Context) -> bool {
    is_overdue(run, context.clock.now()) && !has_recent_heartbeat(run, context)
}

/// Returns whether the run should have ended by now. Pure.
fn is_overdue(run: &TerraformRun, now: Timestamp) -> bool {
    let started = run.status.as_ref().and_then(|status| status.started_at.as_ref());
    let allowed = run.spec.deadline.to_duration().saturating_add(REPORT_GRACE);
    let passed = |started: &Time| Duration::try_from(now.duration_since(started.0)).unwrap_or_default();
    started.is_some_and(|started| passed(started) > allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::facts_of_a_new_stack;

    fn run_with(spec: &serde_json::Value) -> TerraformRun {
        let mut full_spec = serde_json::json!({ "action": "PlanAndApply", "attempt": 1, "deadline": "1h", "trigger": "Deletion",
            "destroy": true, "source": { "kind": "GitRepository", "name": "code", "namespace": "team" },
            "terraform": { "name": "net", "uid": "u", "generation": 1 } });
        let fields = spec.as_object().unwrap().clone();
        full_spec.as_object_mut().unwrap().extend(fields);
        serde_json::from_value(serde_json::json!({ "metadata": {}, "spec": full_spec })).unwrap()
    }

    #[test]
    fn an_edit_replaces_the_destroy_of_a_deletion_or_makes_it_unnecessary() {
        let state = |trigger: &str, edit: &dyn Fn(&mut Facts)| {
            let mut facts = facts_of_a_new_stack();
            (facts.deleting, facts.generation) = (true, 1);
            facts.policy.destroy_on_deletion = true;
            edit(&mut facts);
            let action = if trigger == "Retry" {
                "Unlock"
            } else {
                "PlanAndApply"
            };
            let run = run_with(&serde_json::json!({ "trigger": trigger, "action": action }));
            SpecState::of(&run, &facts)
        };
        assert_eq!(state("Deletion", &|_| ()), SpecState::Unchanged);
        assert_eq!(
            state("Deletion", &|facts| facts.generation = 2),
            SpecState::Edited
        );
        assert_eq!(
            state("Deletion", &|facts| facts.policy.destroy_on_deletion = false),
            SpecState::Stopped
        );
        // The release of a lock before the destroy.
        assert_eq!(state("Retry", &|facts| facts.generation = 2), SpecState::Edited);
        assert_eq!(
            state("Retry", &|facts| facts.policy.destroy_on_deletion = false),
            SpecState::Stopped
        );
        assert_eq!(
            state("Deletion", &|facts| facts.suspended = true),
            SpecState::Stopped
        );
        assert_eq!(
            state("Approval", &|_| ()),
            SpecState::Stopped,
            "a run before the deletion"
        );
    }

    #[test]
    fn a_run_is_overdue_after_its_deadline_and_the_grace() {
        let run = |status: serde_json::Value| -> TerraformRun {
            let spec = serde_json::json!({ "action": "Plan", "attempt": 1, "deadline": "1h", "trigger": "Revision",
                "source": { "kind": "GitRepository", "name": "code", "namespace": "team" },
                "terraform": { "name": "net", "uid": "u", "generation": 1 } });
            serde_json::from_value(serde_json::json!({ "metadata": {}, "spec": spec, "status": status }))
                .unwrap()
        };
        let active = run(serde_json::json!({ "startedAt": "2026-01-01T00:00:00Z" }));
        let overdue = |run, now: &str| is_overdue(run, now.parse().unwrap());
        assert!(!overdue(&active, "2026-01-01T01:01:00Z") && !overdue(&active, "2025-01-01T00:00:00Z"));
        assert!(overdue(&active, "2026-01-01T01:01:01Z"));
        assert!(
            !overdue(&run(serde_json::json!({})), "2027-01-01T00:00:00Z"),
            "it did not start"
        );
    }

    /// Every combination of what is known about a run.
    fn all_states() -> Vec<RunState<'static>> {
        let runners = [
            RunnerState::Alive,
            RunnerState::Pending,
            RunnerState::WithoutAccount,
            RunnerState::Ended,
            RunnerState::Gone,
        ];
        let specs = [SpecState::Unchanged, SpecState::Edited, SpecState::Stopped];
        let mut all = Vec::new();
        for (runner, spec) in runners
            .into_iter()
            .flat_map(|runner| specs.map(|spec| (runner, spec)))
        {
            for current in [None, Some("a"), Some("b")] {
                for (ended, claimed) in [(false, false), (false, true), (true, false), (true, true)] {
                    all.push(RunState {
                        runner,
                        ended,
                        claimed,
                        created_for: "a",
                        current,
                        spec,
                    });
                }
            }
        }
        all
    }

    /// The rules that keep a run from starting twice and from being lost without a proof.
    #[test]
    fn a_runner_is_started_only_where_there_is_no_trace_of_one() {
        let mut steps = std::collections::BTreeSet::new();
        for state in all_states() {
            let RunState {
                runner,
                claimed,
                current,
                spec,
                ..
            } = state;
            let (is_open, step) = (!state.ended, decide_supervision(state));
            let is_unclaimed = |of: RunnerState| runner == of && !claimed && is_open;
            let is_current = current == Some("a");
            let is_kept = match spec {
                SpecState::Unchanged => current != Some("b"),
                SpecState::Edited => current.is_none(),
                SpecState::Stopped => false,
            };
            let can_wait = matches!(runner, RunnerState::Pending | RunnerState::WithoutAccount);
            let has_begun = runner == RunnerState::Alive || can_wait && claimed;
            let is_gone = matches!(runner, RunnerState::Ended | RunnerState::Gone);
            let rules = [
                (
                    Supervision::Launch,
                    is_unclaimed(RunnerState::Gone) && is_current && spec != SpecState::Stopped,
                ),
                (Supervision::MarkLost, claimed && is_open && is_gone),
                (
                    Supervision::ReportPending,
                    is_unclaimed(RunnerState::Pending) && is_kept,
                ),
                (
                    Supervision::MarkFailed,
                    is_unclaimed(RunnerState::Ended) && current != Some("b"),
                ),
                (
                    Supervision::EndWithoutAccount,
                    is_unclaimed(RunnerState::WithoutAccount) && is_kept,
                ),
                (
                    Supervision::EndWithoutInputs,
                    match spec {
                        SpecState::Stopped => {
                            let can_start = can_wait || runner == RunnerState::Gone;
                            can_start && !claimed && is_open && current != Some("b")
                        }
                        _ => is_unclaimed(RunnerState::Gone) && current.is_none(),
                    },
                ),
                (Supervision::Wait, !is_open || has_begun),
            ];
            for (rule, expected) in rules {
                assert_eq!(step == rule, expected, "{step:?} of {state:?}");
            }
            steps.insert(format!("{step:?}"));
        }
        assert_eq!(steps.len(), 8, "each step is possible: {steps:?}");
    }
}
