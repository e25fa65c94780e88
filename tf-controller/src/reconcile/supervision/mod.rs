//! The supervision of an active run: starts a run that has no runner yet, reports why one cannot begin, and ends one whose runner
//! is gone.

mod decision;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use sluice_api::run::{Phase, TerraformRun};
use sluice_api::terraform::{Reason, Terraform};
use tokio::time::Instant;

pub(super) use decision::{RunState, RunnerState, SpecState, Supervision, decide_supervision};

use super::Context;
use super::account::replacement;
use super::dispatch::{DispatchError, end, restart};
use super::end_reason::{EndReason, end_before_claim, lost_reason, no_account_reason, not_started_reason};
use super::report::{phase, says_silent};
use super::resolve::Resolved;
use crate::decide::Facts;
use crate::executor::{Liveness, RunRef, RunnerRef, is_without_account};

/// The time that a runner has after its deadline to interrupt the CLI and to report.
const DEADLINE_GRACE: Duration = Duration::from_mins(1);

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
        (Supervision::MarkLost, _) => (Phase::Lost, lost_reason(&live, end_of_runner)),
        (Supervision::MarkFailed, _) => end_before_claim(&live, end_of_runner),
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
    let has_ended = end(&live, phase, &why, context).await?;
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
    let job = context.executor.has_pods().then(|| run.name_any());
    let body = json!({
        "metadata": { "resourceVersion": run.resource_version() },
        "status": { "reason": reason.map(|why| &why.reason), "message": reason.map(|why| &why.message), "jobName": job },
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

async fn liveness(run: &TerraformRun, context: &Context) -> Result<Liveness, DispatchError> {
    Ok(context.executor.liveness(RunnerRef::of(run)).await?)
}

/// Returns whether the run has to be started, ended, or reported as pending.
pub(super) async fn needs_supervision(
    run: &TerraformRun,
    stack: &Terraform,
    context: &Context,
) -> Result<bool, DispatchError> {
    let liveness = liveness(run, context).await?;
    Ok(match runner_state(&liveness, run, stack, context).await? {
        RunnerState::Alive => context.heartbeats.is_silent(&RunRef::of(run)) != says_silent(stack),
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

/// Returns whether the pod or the process lock of the runner shows that it is alive.
fn is_known_alive(liveness: &Liveness, run: &TerraformRun, context: &Context) -> bool {
    match liveness {
        Liveness::Alive => observe_heartbeat(run, context),
        Liveness::Locked => !is_hung(run, context),
        Liveness::Pending(_) if is_claimed(run) => observe_heartbeat(run, context),
        Liveness::Pending(_) | Liveness::Ended(_) | Liveness::Gone | Liveness::OtherLockDomain => false,
    }
}

/// Counts the silence of a run that is known to be alive. Returns true.
fn observe_heartbeat(run: &TerraformRun, context: &Context) -> bool {
    if is_claimed(run) {
        has_recent_heartbeat(run, context);
    }
    true
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

/// Returns whether one of these runs is active and has sent no heartbeat for long.
pub(super) fn has_silent_run(runs: &[TerraformRun], context: &Context) -> bool {
    let mut active = runs.iter().filter(|run| !phase(run).is_final());
    active.any(|run| context.heartbeats.is_silent(&RunRef::of(run)))
}

/// Returns whether a run that holds its process lock is given up: its runner should have ended it at the deadline and
/// sends no heartbeats. The working directory stays locked while any process of it is alive.
fn is_hung(run: &TerraformRun, context: &Context) -> bool {
    // The heartbeat first: the silence of a run is counted from its start.
    !has_recent_heartbeat(run, context) && is_overdue(run, context.clock.now())
}

/// Returns whether the run should have ended by now. Pure.
fn is_overdue(run: &TerraformRun, now: Timestamp) -> bool {
    let started = run.status.as_ref().and_then(|status| status.started_at.as_ref());
    let allowed = run.spec.deadline.to_duration().saturating_add(DEADLINE_GRACE);
    let passed = |started: &Time| Duration::try_from(now.duration_since(started.0)).unwrap_or_default();
    started.is_some_and(|started| passed(started) > allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
