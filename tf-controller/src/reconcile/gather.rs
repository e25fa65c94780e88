//! Puts what was seen into the words of the decision. Pure.

use super::{history, observe::Observed, report::phase};
use crate::{
    decide::{
        Approval, Dependencies, Facts, Glass, Guard, History, Inputs, LockWish, Policy, RetryPolicy,
        RunAction, Strategy, guard,
    },
    inputs,
};
use jiff::{SignedDuration, Timestamp};
use kube::{Resource, ResourceExt};
use sluice_api::{
    annotation::{BREAK_THE_GLASS, REQUESTED_AT},
    interval::Interval,
    run::{Phase, TerraformRun},
    terraform::{RetryStrategy, Terraform, TerraformSpec, Unlock, approval},
};

/// Everything but the inputs and the stacks around this one, which cost more to know, the approval, which is held against a
/// plan, and the phase, which is the controller's.
pub(super) fn gather(stack: &Terraform, observed: &Observed, now: Timestamp) -> Facts {
    let spec = &stack.spec;
    let history = known_history(stack, observed);
    Facts {
        deleting: stack.meta().deletion_timestamp.is_some(),
        suspended: spec.suspend,
        refused: inputs::refused(spec).filter(|_| stack.meta().deletion_timestamp.is_none()),
        contradiction: spec.on_deletion().err().map(|error| error.to_string()),
        generation: stack.meta().generation.unwrap_or(0),
        policy: Policy {
            plan_only: spec.plan_only && !is_forced(spec),
            forced: is_forced(spec),
            destroy: spec.destroy,
            destroy_on_deletion: spec.destroys_on_deletion(),
            lock: lock_wish(stack, history.lock.as_deref()),
            glass: Glass::Whole,
        },
        approval: Approval::None,
        dependencies: Dependencies::Ready,
        dependants: Vec::new(),
        source: observed.source.clone(),
        inputs: Inputs::Unresolved,
        history,
        request: request(stack, &observed.runs),
        interval: signed(&spec.interval),
        phase: None,
        retry: RetryPolicy {
            interval: spec
                .retry_interval
                .as_ref()
                .map_or(SignedDuration::from_secs(15), signed),
            strategy: match spec.retry_strategy {
                RetryStrategy::StaticInterval => Strategy::Static,
                RetryStrategy::ExponentialBackoff => Strategy::Exponential,
            },
            longest: spec
                .max_retry_interval
                .as_ref()
                .map_or(SignedDuration::from_hours(24), signed),
            retries: spec
                .remediation
                .as_ref()
                .and_then(|r| u32::try_from(r.retries.unwrap_or(0)).ok()),
        },
        now,
    }
}

/// What the runs amount to for this spec.
fn known_history(stack: &Terraform, observed: &Observed) -> History {
    let mut history = history::history(&observed.runs);
    history.outputs_gone = observed.outputs_gone;
    if stack.spec.disable_drift_detection {
        // Plans are made at the interval all the same, as upstream; none of them is called drift.
        history.checked = false;
        if let Some(pending) = &mut history.pending {
            pending.drift = false;
        }
    }
    if let Some(pending) = &mut history.pending {
        let judged = approval::judge(&stack.spec, history::made(pending, &observed.runs));
        pending.held = matches!(judged, approval::Approval::Held(_));
    }
    if history.last_started_apply.is_none() {
        // Somebody deleted the runs: plan ids must not begin anew, or an old approval would count again.
        let plan = stack.status.as_ref().and_then(|status| status.plan.as_ref());
        let id = plan
            .map(|plan| plan.last_applied.clone())
            .filter(|id| !id.is_empty());
        history.last_started_apply = id;
    }
    history
}

/// Whether the spec asks for the release of just this lock. `auto` adds nothing to what is released without asking: a lock that
/// a dead run of ours holds.
fn lock_wish(stack: &Terraform, met: Option<&str>) -> LockWish {
    let options = stack.spec.tfstate.as_ref();
    let named = options.filter(|options| options.force_unlock == Unlock::Yes);
    if met.is_some() && named.map(|options| options.lock_identifier.as_str()) == met {
        LockWish::Released
    } else {
        LockWish::Stays
    }
}

/// How it stands with a session.
pub(super) fn glass(stack: &Terraform, observed: &Observed, is_allowed: bool) -> Glass {
    let token = stack
        .annotations()
        .get(BREAK_THE_GLASS)
        .filter(|token| !token.is_empty());
    let held = |test: &dyn Fn(&TerraformRun) -> bool| {
        let sessions = observed
            .runs
            .iter()
            .filter(|run| run.spec.action == RunAction::BreakTheGlass);
        sessions
            .filter(|run| matches!(phase(run), Phase::Succeeded | Phase::Lost))
            .any(test)
    };
    let asked = match token {
        Some(token) if !held(&|run| run.annotations().get(BREAK_THE_GLASS) == Some(token)) => Glass::Wanted,
        _ if !stack.spec.break_the_glass => Glass::Whole,
        _ if held(&|run| Some(run.spec.terraform.generation) == stack.meta().generation) => Glass::Over,
        _ => Glass::Wanted,
    };
    if asked == Glass::Wanted && !is_allowed {
        return Glass::Refused;
    }
    asked
}

fn signed(interval: &Interval) -> SignedDuration {
    SignedDuration::try_from(interval.to_duration()).unwrap_or(SignedDuration::MAX)
}

/// A reconcile request that no run has taken up, and that no status has echoed. One that met dependencies which are not ready, or
/// a source or an input that was away, was echoed at once, as Flux and tofu-controller do, and is still owed
/// ([`TerraformStatus::owed_reconcile_at`]).
///
/// [`TerraformStatus::owed_reconcile_at`]: sluice_api::terraform::TerraformStatus::owed_reconcile_at
fn request(stack: &Terraform, runs: &[TerraformRun]) -> Option<String> {
    let token = stack
        .annotations()
        .get(REQUESTED_AT)
        .filter(|token| !token.is_empty())?;
    let status = stack.status.as_ref();
    let handled = status.is_some_and(|status| status.last_handled_reconcile_at == *token);
    let owed = status.is_some_and(|status| status.owed_reconcile_at == *token);
    let taken_up = guard(Guard::TakenUp, is_taken_up(token, runs));
    ((!handled || owed) && !taken_up).then(|| token.clone())
}

/// Whether a run carries this request. One that was given up before it did anything has not taken it up.
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

/// `force`, unless `approvePlan: disable` or a withheld destroy comes first.
fn is_forced(spec: &TerraformSpec) -> bool {
    approval::decide(approval::Ask::from(spec), "") == approval::Approval::Forced
}

/// What `approvePlan` says of the plan that waits. What the guard rails hold of it is said by the plan ([`Pending::held`]), as
/// they say nothing of plans to come.
///
/// [`Pending::held`]: crate::decide::Pending::held
pub(super) fn approval_of(stack: &Terraform, runs: &[TerraformRun], facts: &Facts) -> Approval {
    let made = facts
        .history
        .pending
        .as_ref()
        .map(|pending| history::made(pending, runs));
    let nothing = approval::Made {
        id: "",
        effects: None,
        entries: &[],
    };
    match approval::judge(&stack.spec, made.unwrap_or(nothing)) {
        approval::Approval::Disabled => Approval::Disabled,
        approval::Approval::Auto | approval::Approval::Forced | approval::Approval::Held(_) => Approval::Auto,
        approval::Approval::Replan => Approval::Replan,
        approval::Approval::Approves(_) => Approval::Given { by: approver(stack) },
        approval::Approval::PlanOnly | approval::Approval::Wait | approval::Approval::NotThis(_) => {
            Approval::None
        }
    }
}

/// Who wrote `approvePlan`, as far as Kubernetes tells: the manager of the field.
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
