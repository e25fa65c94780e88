//! Builds the facts of the decision: first an [`Outline`] of the objects as read, then, with the inputs and dependencies,
//! the [`Facts`]. Pure.

use jiff::{SignedDuration, Timestamp};
use kube::{Resource, ResourceExt};
use sluice_api::annotation::{BREAK_THE_GLASS, REQUESTED_AT};
use sluice_api::interval::Interval;
use sluice_api::run::{Phase, RecordedApproval, TerraformRun, rejection_of};
use sluice_api::terraform::{ForceUnlockMode, RetryStrategy, Terraform, TerraformSpec, approval};

use super::observe::{Observed, claimed_runs};
use super::report::phase;
use super::resolution::Resolution;
use super::{Context, history};
use crate::decide::{
    Approval, BreakGlass, Dependencies, Facts, ForceUnlock, History, IntervalOffset, MutationPoint, Policy,
    RetryPolicy, RunAction, RunFact, Strategy, UnsupportedField, holds,
};
use crate::inputs;

/// The settings of the controller that the facts depend on.
pub(super) struct Settings {
    pub(super) now: Timestamp,
    /// Whether break-glass sessions are allowed.
    pub(super) allows_break_glass: bool,
    /// Whether stacks with `spec.serviceAccountName` run without that ServiceAccount.
    pub(super) ignore_account: bool,
    /// The offset of this stack.
    pub(super) interval_offset: Option<IntervalOffset>,
}

impl Settings {
    pub(super) fn new(stack: &Terraform, context: &Context) -> Self {
        let uid = stack.uid().unwrap_or_default();
        Self {
            now: context.clock.now(),
            allows_break_glass: context.break_glass_limit.is_some(),
            ignore_account: context.ignore_account,
            interval_offset: Some(IntervalOffset::from_uid(&uid, context.started_at)),
        }
    }
}

/// The stack and its runs as read, with what follows from them alone: whether the inputs and the dependencies matter. With
/// both it becomes the [`Facts`].
pub(super) struct Outline<'a> {
    pub(super) stack: &'a Terraform,
    pub(super) observed: &'a Observed,
    pub(super) deleting: bool,
    pub(super) unsupported_field: Option<UnsupportedField>,
    pub(super) policy: Policy,
    pub(super) history: History,
    settings: Settings,
}

impl<'a> Outline<'a> {
    pub(super) fn new(stack: &'a Terraform, observed: &'a Observed, settings: Settings) -> Self {
        let spec = &stack.spec;
        let deleting = stack.meta().deletion_timestamp.is_some();
        // A deletion without a run needs no ServiceAccount.
        let needs_account = (!deleting || spec.destroys_on_deletion()) && !settings.ignore_account;
        let history = build_history(stack, observed);
        Self {
            stack,
            observed,
            deleting,
            unsupported_field: inputs::unsupported_field(spec)
                .filter(|_| !deleting)
                .or_else(|| inputs::unsupported_account(spec).filter(|_| needs_account)),
            policy: Policy {
                plan_only: spec.plan_only && !is_forced(spec),
                forced: is_forced(spec),
                destroy: spec.destroy,
                destroy_on_deletion: spec.destroys_on_deletion(),
                force_unlock: force_unlock(stack, history.lock.as_deref()),
                break_glass: break_glass(stack, observed, settings.allows_break_glass),
            },
            history,
            settings,
        }
    }

    /// Returns the active run if a runner has claimed it: then there is nothing to decide until the run changes.
    pub(super) fn claimed_run(&self) -> Option<&'a TerraformRun> {
        let active = self.history.active.as_ref()?;
        claimed_runs(&self.observed.runs).find(|run| run.name_any() == active.name)
    }
}

/// Builds the facts. `adopted` is the newest run of an object without runs.
pub(super) fn build_facts(
    outline: Outline<'_>,
    resolution: &Resolution,
    adopted: Option<RunFact>,
    dependencies: Dependencies,
) -> Facts {
    let (stack, observed, mut history) = (outline.stack, outline.observed, outline.history);
    let spec = &stack.spec;
    if let Some(run) = adopted {
        history.last_success = Some(run.finished);
        history.last = Some(run);
    }
    Facts {
        deleting: outline.deleting,
        suspended: spec.suspend,
        unsupported_field: outline.unsupported_field,
        contradiction: spec.on_deletion().err().map(|error| error.to_string()),
        generation: stack.meta().generation.unwrap_or(0),
        policy: Policy {
            destroy_on_deletion: outline.policy.destroy_on_deletion && !resolution.never_applied,
            ..outline.policy
        },
        approval: approval_of(stack, observed, &history),
        dependencies,
        source: observed.source.clone(),
        inputs: resolution.inputs.clone(),
        history,
        request: request(stack, &observed.runs),
        interval: signed_duration(&spec.interval),
        interval_offset: outline.settings.interval_offset,
        retry: retry_policy(spec),
        now: outline.settings.now,
    }
}

fn retry_policy(spec: &TerraformSpec) -> RetryPolicy {
    let or_default = |interval: Option<&Interval>, default| interval.map_or(default, signed_duration);
    let remediation = spec.remediation.as_ref();
    RetryPolicy {
        interval: or_default(spec.retry_interval.as_ref(), SignedDuration::from_secs(15)),
        strategy: match spec.retry_strategy {
            RetryStrategy::StaticInterval => Strategy::Static,
            RetryStrategy::ExponentialBackoff => Strategy::Exponential,
        },
        longest: or_default(spec.max_retry_interval.as_ref(), SignedDuration::from_hours(24)),
        retries: remediation.and_then(|r| u32::try_from(r.retries.unwrap_or(0)).ok()),
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
        let made_by = history::find_run(&observed.runs, &pending.run).and_then(|run| run.status.as_ref());
        pending.rejection = rejection_of(stack, &pending.plan_id, made_by);
        // During a run the bundle stays as it was made.
        if pending.rejection.is_some() && history.active.is_none() {
            history.last_rejected = Some(pending.run.clone());
        }
        let evaluated = approval::evaluate(
            &stack.spec,
            history::candidate_plan(pending, &observed.runs, &observed.approvals),
        );
        pending.held = matches!(evaluated, approval::ApprovalDecision::OnHold(_));
        history.refused_apply = history::refused_apply(&observed.runs, pending, stack.meta().generation);
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
fn break_glass(stack: &Terraform, observed: &Observed, is_allowed: bool) -> BreakGlass {
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
    approval::evaluate_spec(approval::ApprovalPolicy::from(spec), "") == approval::ApprovalDecision::Forced
}

/// Returns the approval of the pending plan by `approvePlan`, or by PlanApprovals of users. Holds are part of the plan
/// ([`Pending::held`]), since they do not concern later plans.
///
/// [`Pending::held`]: crate::decide::Pending::held
fn approval_of(stack: &Terraform, observed: &Observed, history: &History) -> Approval {
    let candidate = history
        .pending
        .as_ref()
        .map(|pending| history::candidate_plan(pending, &observed.runs, &observed.approvals));
    match approval::evaluate(&stack.spec, candidate.unwrap_or_default()) {
        approval::ApprovalDecision::Disabled => Approval::Disabled,
        approval::ApprovalDecision::Auto
        | approval::ApprovalDecision::Forced
        | approval::ApprovalDecision::OnHold(_) => Approval::Auto,
        approval::ApprovalDecision::Replan => Approval::Replan,
        approval::ApprovalDecision::Approved(_) => Approval::Given { by: approver(stack) },
        approval::ApprovalDecision::Agreed(given) => Approval::Given {
            by: approvers(&given),
        },
        // A rejection is about one plan: later ones are applied automatically as before.
        approval::ApprovalDecision::Rejected(_) if is_automatic(&stack.spec) => Approval::Auto,
        approval::ApprovalDecision::PlanOnly
        | approval::ApprovalDecision::Pending
        | approval::ApprovalDecision::Insufficient(_)
        | approval::ApprovalDecision::Mismatch(_)
        | approval::ApprovalDecision::Rejected(_) => Approval::None,
    }
}

/// Returns whether plans that nothing holds are applied without an approval.
fn is_automatic(spec: &TerraformSpec) -> bool {
    let by_spec = approval::evaluate_spec(approval::ApprovalPolicy::from(spec), "");
    let applies = matches!(
        by_spec,
        approval::ApprovalDecision::Auto | approval::ApprovalDecision::Forced
    );
    applies && spec.approval.is_none()
}

/// Returns the names of users whose approvals count.
fn approvers(given: &[RecordedApproval]) -> String {
    let names: Vec<&str> = given.iter().map(|given| given.approver.as_str()).collect();
    names.join(", ")
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
