//! Builds the facts of the decision from the observed objects. Pure.

use super::{history, observe::Observed, report::phase};
use crate::{
    decide::{
        Approval, BreakGlass, Dependencies, Facts, ForceUnlock, History, Inputs, MutationPoint, Policy,
        RetryPolicy, RunAction, Strategy, holds,
    },
    inputs,
};
use jiff::{SignedDuration, Timestamp};
use kube::{Resource, ResourceExt};
use sluice_api::{
    annotation::{BREAK_THE_GLASS, REQUESTED_AT},
    interval::Interval,
    run::{Phase, TerraformRun},
    terraform::{ForceUnlockMode, RetryStrategy, Terraform, TerraformSpec, approval},
};

/// Builds the facts except those that need more reads: the inputs, the dependencies and dependents, the approval,
/// which needs the history, and the interval offset, which needs the controller.
pub(super) fn build_facts(stack: &Terraform, observed: &Observed, now: Timestamp) -> Facts {
    let spec = &stack.spec;
    let history = build_history(stack, observed);
    Facts {
        deleting: stack.meta().deletion_timestamp.is_some(),
        suspended: spec.suspend,
        unsupported_field: inputs::refused(spec).filter(|_| stack.meta().deletion_timestamp.is_none()),
        contradiction: spec.on_deletion().err().map(|error| error.to_string()),
        generation: stack.meta().generation.unwrap_or(0),
        policy: Policy {
            plan_only: spec.plan_only && !is_forced(spec),
            forced: is_forced(spec),
            destroy: spec.destroy,
            destroy_on_deletion: spec.destroys_on_deletion(),
            force_unlock: force_unlock(stack, history.lock.as_deref()),
            break_glass: BreakGlass::NotRequested,
        },
        approval: Approval::None,
        dependencies: Dependencies::Ready,
        dependants: Vec::new(),
        source: observed.source.clone(),
        inputs: Inputs::Unresolved,
        history,
        request: request(stack, &observed.runs),
        interval: signed_duration(&spec.interval),
        interval_offset: None,
        retry: RetryPolicy {
            interval: spec
                .retry_interval
                .as_ref()
                .map_or(SignedDuration::from_secs(15), signed_duration),
            strategy: match spec.retry_strategy {
                RetryStrategy::StaticInterval => Strategy::Static,
                RetryStrategy::ExponentialBackoff => Strategy::Exponential,
            },
            longest: spec
                .max_retry_interval
                .as_ref()
                .map_or(SignedDuration::from_hours(24), signed_duration),
            retries: spec
                .remediation
                .as_ref()
                .and_then(|r| u32::try_from(r.retries.unwrap_or(0)).ok()),
        },
        now,
    }
}

/// Returns the history of the runs under this spec.
fn build_history(stack: &Terraform, observed: &Observed) -> History {
    let mut history = history::history(&observed.runs);
    history.outputs_gone = observed.outputs_gone;
    if stack.spec.disable_drift_detection {
        // As upstream, plans are still made at the interval; none of them counts as drift.
        history.checked = false;
        if let Some(pending) = &mut history.pending {
            pending.drift = false;
        }
    }
    if let Some(pending) = &mut history.pending {
        let evaluated = approval::evaluate(&stack.spec, history::candidate_plan(pending, &observed.runs));
        pending.held = matches!(evaluated, approval::PlanApproval::OnHold(_));
    }
    if history.last_started_apply.is_none() {
        // The runs were deleted: plan ids must not start over, or an old approval would count again.
        let plan = stack.status.as_ref().and_then(|status| status.plan.as_ref());
        let id = plan
            .map(|plan| plan.last_applied.clone())
            .filter(|id| !id.is_empty());
        history.last_started_apply = id;
    }
    history
}

/// Returns whether the spec requests the release of exactly this lock. `auto` changes nothing: a lock of a dead run
/// of ours is released without a request.
fn force_unlock(stack: &Terraform, lock_id: Option<&str>) -> ForceUnlock {
    let options = stack.spec.tfstate.as_ref();
    let named = options.filter(|options| options.force_unlock == ForceUnlockMode::Yes);
    if lock_id.is_some() && named.map(|options| options.lock_identifier.as_str()) == lock_id {
        ForceUnlock::Yes
    } else {
        ForceUnlock::No
    }
}

/// Returns the state of the break-glass session.
pub(super) fn break_glass(stack: &Terraform, observed: &Observed, is_allowed: bool) -> BreakGlass {
    let token = stack
        .annotations()
        .get(BREAK_THE_GLASS)
        .filter(|token| !token.is_empty());
    let has_session = |test: &dyn Fn(&TerraformRun) -> bool| {
        let sessions = observed
            .runs
            .iter()
            .filter(|run| run.spec.action == RunAction::BreakTheGlass);
        sessions
            .filter(|run| matches!(phase(run), Phase::Succeeded | Phase::Lost))
            .any(test)
    };
    let session = match token {
        Some(token) if !has_session(&|run| run.annotations().get(BREAK_THE_GLASS) == Some(token)) => {
            BreakGlass::Requested
        }
        _ if !stack.spec.break_the_glass => BreakGlass::NotRequested,
        _ if has_session(&|run| Some(run.spec.terraform.generation) == stack.meta().generation) => {
            BreakGlass::Completed
        }
        _ => BreakGlass::Requested,
    };
    if session == BreakGlass::Requested && !is_allowed {
        return BreakGlass::Denied;
    }
    session
}

fn signed_duration(interval: &Interval) -> SignedDuration {
    SignedDuration::try_from(interval.to_duration()).unwrap_or(SignedDuration::MAX)
}

/// Returns the reconcile request that no run has handled and no status has echoed. A request that met unready
/// dependencies, a missing source or missing inputs was echoed at once, as in Flux and tofu-controller, and stays
/// pending ([`TerraformStatus::pending_reconcile_request`]).
///
/// [`TerraformStatus::pending_reconcile_request`]: sluice_api::terraform::TerraformStatus::pending_reconcile_request
fn request(stack: &Terraform, runs: &[TerraformRun]) -> Option<String> {
    let token = stack
        .annotations()
        .get(REQUESTED_AT)
        .filter(|token| !token.is_empty())?;
    let status = stack.status.as_ref();
    let is_handled = status.is_some_and(|status| status.last_handled_reconcile_at == *token);
    let is_pending = status.is_some_and(|status| status.pending_reconcile_request == *token);
    let is_taken_up = holds(MutationPoint::RequestHandled, is_taken_up(token, runs));
    ((!is_handled || is_pending) && !is_taken_up).then(|| token.clone())
}

/// Returns whether a run handles this request. A superseded run does not.
pub(super) fn is_taken_up(token: &str, runs: &[TerraformRun]) -> bool {
    let carries = |run: &&TerraformRun| {
        run.annotations()
            .get(REQUESTED_AT)
            .is_some_and(|carried| carried == token)
    };
    runs.iter()
        .filter(carries)
        .any(|run| phase(run) != Phase::Superseded)
}

/// Returns whether `force` applies: `approvePlan: disable` and a held destroy override it.
fn is_forced(spec: &TerraformSpec) -> bool {
    approval::evaluate_spec(approval::ApprovalPolicy::from(spec), "") == approval::PlanApproval::Forced
}

/// Returns the approval of the pending plan by `approvePlan`. Holds of `autoApply` are part of the plan
/// ([`Pending::held`]), since they do not concern later plans.
///
/// [`Pending::held`]: crate::decide::Pending::held
pub(super) fn approval_of(stack: &Terraform, runs: &[TerraformRun], facts: &Facts) -> Approval {
    let candidate = facts
        .history
        .pending
        .as_ref()
        .map(|pending| history::candidate_plan(pending, runs));
    let no_plan = approval::CandidatePlan {
        id: "",
        effects: None,
        entries: &[],
    };
    match approval::evaluate(&stack.spec, candidate.unwrap_or(no_plan)) {
        approval::PlanApproval::Disabled => Approval::Disabled,
        approval::PlanApproval::Auto | approval::PlanApproval::Forced | approval::PlanApproval::OnHold(_) => {
            Approval::Auto
        }
        approval::PlanApproval::Replan => Approval::Replan,
        approval::PlanApproval::Approved(_) => Approval::Given { by: approver(stack) },
        approval::PlanApproval::PlanOnly
        | approval::PlanApproval::Pending
        | approval::PlanApproval::Mismatch(_) => Approval::None,
    }
}

/// Returns the field manager of `approvePlan`.
fn approver(stack: &Terraform) -> String {
    let owns = |fields: &serde_json::Value| fields.pointer("/f:spec/f:approvePlan").is_some();
    let entries = stack.meta().managed_fields.as_deref().unwrap_or_default();
    let manager = entries
        .iter()
        .rev()
        .find(|entry| entry.fields_v1.as_ref().is_some_and(|f| owns(&f.0)));
    manager
        .and_then(|entry| entry.manager.clone())
        .unwrap_or_else(|| "spec.approvePlan".to_owned())
}
