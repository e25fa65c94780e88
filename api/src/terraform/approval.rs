//! Evaluation of `spec.approvePlan` and `spec.approval` for the pending plan. Pure, and the only implementation of these rules.

use super::guard::{self, AutoApplyHold};
use super::plan_id::{EffectDigest, PlanId};
use super::required_approvals::{ApprovalEvidence, MissingApprovals, judge_without_rules, recorded};
use super::{RequiredApprovals, TerraformSpec};
use crate::run::{Change, PlanEffects, PlanRejection, RecordedApproval};

/// The fields of the spec that decide what happens with a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApprovalPolicy<'a> {
    /// `spec.approvePlan`.
    pub approve_plan: &'a str,
    /// `spec.force`.
    pub force: bool,
    /// `spec.planOnly`.
    pub plan_only: bool,
    /// `spec.destroy`.
    pub destroy: bool,
}

impl<'a> From<&'a TerraformSpec> for ApprovalPolicy<'a> {
    fn from(spec: &'a TerraformSpec) -> Self {
        Self {
            approve_plan: &spec.approve_plan,
            force: spec.force,
            plan_only: spec.plan_only,
            destroy: spec.destroy,
        }
    }
}

/// The decision about a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalDecision {
    /// `disable`: nothing is planned for an apply or applied; only drift is reported.
    Disabled,
    /// `force`: applied without an approval.
    Forced,
    /// `planOnly`: planned, never applied.
    PlanOnly,
    /// `auto`: applied without an approval.
    Auto,
    /// No approval is set, or there is no pending plan.
    Pending,
    /// `replan-…`: a new plan is requested.
    Replan,
    /// This plan is approved by its id.
    Approved(PlanId),
    /// `auto` or `force` would apply it, but it is held until it is approved by its id.
    OnHold(AutoApplyHold),
    /// `approvePlan` does not approve the pending plan.
    Mismatch(ApprovalMismatch),
    /// Users have approved it by PlanApprovals: as many as `spec.approval` requires, or one.
    Agreed(Vec<RecordedApproval>),
    /// Approvals that `spec.approval` requires are missing.
    Insufficient(MissingApprovals),
    /// A user rejected the plan. No approval of it counts any more.
    Rejected(PlanRejection),
}

impl ApprovalDecision {
    /// Returns whether the plan may be applied.
    #[must_use]
    pub const fn applies(&self) -> bool {
        matches!(
            self,
            Self::Forced | Self::Auto | Self::Approved(_) | Self::Agreed(_)
        )
    }
}

/// Why `approvePlan` does not approve the pending plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalMismatch {
    /// Neither a full plan id nor a full effect digest: a prefix, an id of tofu-controller, or other text.
    #[error("approvePlan {0:?} is not a complete plan id")]
    Incomplete(String),
    /// The id of a plan with another effect.
    #[error("approvePlan names another plan, with the effect {0}")]
    OtherEffect(EffectDigest),
    /// tofu-controller created the pending plan: it has no effect digest and cannot be approved.
    #[error("the pending plan {0:?} has no effect digest and must be planned again")]
    UnboundPlan(String),
}

/// The properties of a plan that the decision depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CandidatePlan<'a> {
    /// Its id.
    pub id: &'a str,
    /// Its effects, if they were recorded.
    pub effects: Option<&'a PlanEffects>,
    /// Its changes; the list may be truncated.
    pub entries: &'a [Change],
    /// How the state that it is made from differs from the one that the last apply left; empty: it does not.
    pub state_mismatch: &'a str,
    /// Its approvals by users, and what else `spec.approval` needs.
    pub evidence: ApprovalEvidence<'a>,
    /// Its rejection ([`crate::run::rejection_of`]).
    pub rejection: Option<&'a PlanRejection>,
}

/// Evaluates the spec for a plan, including the guard rails: a plan that `auto` or `force` would apply waits if `autoApply` holds it or it
/// is made from another state. A plan that waits is applied if `approvePlan` contains its id, or a user approves it by a
/// [`crate::run::PlanApproval`]. With `spec.approval`, a plan is applied only with the approvals that it requires: these name the plan, so
/// nothing else holds it. A rejected plan is not applied, whatever approves it.
#[must_use]
pub fn evaluate(spec: &TerraformSpec, plan: CandidatePlan<'_>) -> ApprovalDecision {
    let by_spec = evaluate_spec(ApprovalPolicy::from(spec), plan.id);
    // These apply nothing, and a requested plan replaces the rejected one.
    let is_withheld = matches!(
        by_spec,
        ApprovalDecision::Disabled | ApprovalDecision::PlanOnly | ApprovalDecision::Replan
    );
    if let Some(rejection) = plan.rejection.filter(|_| !is_withheld) {
        return ApprovalDecision::Rejected(rejection.clone());
    }
    if let Some(required) = &spec.approval {
        return require(by_spec, required, plan);
    }
    let by_fields = check_hold(by_spec, spec, plan);
    if is_withheld || by_fields.applies() {
        return by_fields;
    }
    agreed(plan).unwrap_or(by_fields)
}

/// Replaces the decision to apply a plan automatically, if a guard rail holds the plan and `approvePlan` does not contain its id.
fn check_hold(by_spec: ApprovalDecision, spec: &TerraformSpec, plan: CandidatePlan<'_>) -> ApprovalDecision {
    if !matches!(by_spec, ApprovalDecision::Auto | ApprovalDecision::Forced) {
        return by_spec;
    }
    let policy = spec.auto_apply.as_ref();
    let held = policy.and_then(|policy| guard::evaluate(policy, plan.effects, plan.entries));
    match AutoApplyHold::with_state_mismatch(held, plan.state_mismatch) {
        None => by_spec,
        Some(held) => match compare(&spec.approve_plan, plan.id) {
            approves @ ApprovalDecision::Approved(_) => approves,
            _ => ApprovalDecision::OnHold(held),
        },
    }
}

/// Returns the decision to apply a plan that users have approved, where the stack has no `spec.approval`: one approval suffices. `None`: no
/// approval of this plan counts.
fn agreed(plan: CandidatePlan<'_>) -> Option<ApprovalDecision> {
    let id = plan.id.parse::<PlanId>().ok()?;
    let given = recorded(&judge_without_rules(&id, plan.evidence));
    (!given.is_empty()).then_some(ApprovalDecision::Agreed(given))
}

/// Replaces each decision to apply a plan, or to wait for `approvePlan`, by that of the required approvals.
fn require(
    by_spec: ApprovalDecision,
    required: &RequiredApprovals,
    plan: CandidatePlan<'_>,
) -> ApprovalDecision {
    match by_spec {
        ApprovalDecision::Disabled | ApprovalDecision::PlanOnly | ApprovalDecision::Replan => by_spec,
        _ if plan.id.is_empty() => ApprovalDecision::Pending,
        _ => match plan.id.parse::<PlanId>() {
            Ok(id) => required
                .evaluate(&id, plan.evidence)
                .map_or_else(ApprovalDecision::Insufficient, ApprovalDecision::Agreed),
            Err(_) => ApprovalDecision::Mismatch(ApprovalMismatch::UnboundPlan(excerpt(plan.id))),
        },
    }
}

/// Evaluates the spec for the plan with this id, without the guard rails and without `spec.approval` (see [`evaluate`]). An empty id means that no plan
/// is pending.
///
/// Ids match if their effect digests are equal; the rest of an id is ignored.
#[must_use]
pub fn evaluate_spec(ask: ApprovalPolicy<'_>, pending: &str) -> ApprovalDecision {
    match ask.approve_plan {
        "disable" => ApprovalDecision::Disabled,
        // `force` overrides `planOnly` as upstream does, but never destroys what `planOnly` protects.
        _ if ask.force && !(ask.plan_only && ask.destroy) => ApprovalDecision::Forced,
        _ if ask.plan_only => ApprovalDecision::PlanOnly,
        "" => ApprovalDecision::Pending,
        "auto" => ApprovalDecision::Auto,
        _ if pending.is_empty() => ApprovalDecision::Pending,
        text if text.starts_with("replan") => replan(text, pending),
        text => compare(text, pending),
    }
}

/// Accepts `re<plan id or prefix>`, as upstream's client writes it, and `replan-<plan id or prefix>`, as users write it.
fn replan(text: &str, pending: &str) -> ApprovalDecision {
    let names_it = ["re", "replan-"]
        .iter()
        .filter_map(|front| text.strip_prefix(front))
        .any(|rest| pending.starts_with(rest));
    if names_it {
        ApprovalDecision::Replan
    } else {
        ApprovalDecision::Pending
    }
}

/// Compares a plan id or an effect digest with the pending plan.
fn compare(text: &str, pending: &str) -> ApprovalDecision {
    let Ok(pending_id) = pending.parse::<PlanId>() else {
        return ApprovalDecision::Mismatch(ApprovalMismatch::UnboundPlan(excerpt(pending)));
    };
    let approved = text
        .parse::<PlanId>()
        .map(|id| id.effect().clone())
        .or_else(|_| text.parse::<EffectDigest>());
    match approved {
        Ok(effect) if effect == *pending_id.effect() => ApprovalDecision::Approved(pending_id),
        Ok(effect) => ApprovalDecision::Mismatch(ApprovalMismatch::OtherEffect(effect)),
        Err(_) => ApprovalDecision::Mismatch(ApprovalMismatch::Incomplete(excerpt(text))),
    }
}

/// Returns whether `approvePlan` is the id of this plan, whatever the other fields of the spec say.
#[must_use]
pub fn approves_by_id(spec: &TerraformSpec, plan: CandidatePlan<'_>) -> bool {
    matches!(
        compare(&spec.approve_plan, plan.id),
        ApprovalDecision::Approved(_)
    )
}

/// Truncates user input for a message.
fn excerpt(text: &str) -> String {
    text.chars().take(120).collect()
}

#[cfg(test)]
mod tests;
