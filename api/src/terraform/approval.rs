//! Evaluation of `spec.approvePlan` and `spec.approval` for the pending plan. Pure, and the only implementation of these rules.

use super::guard::{self, AutoApplyHold};
use super::plan_id::{EffectDigest, PlanId};
use super::required_approvals::{ApprovalEvidence, MissingApprovals};
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

/// Returns the decision to apply a plan that users have approved, where `spec.approval` requires nothing: one approval suffices. `None`: no
/// approval of this plan counts.
fn agreed(plan: CandidatePlan<'_>) -> Option<ApprovalDecision> {
    let id = plan.id.parse::<PlanId>().ok()?;
    let given = RequiredApprovals::default().evaluate(&id, plan.evidence).ok()?;
    Some(ApprovalDecision::Agreed(given))
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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::run::PlanApproval;

    const EFFECT: &str = "0123456789abcdef0123456789abcdef01234567";
    const OTHER: &str = "1123456789abcdef0123456789abcdef01234567";

    fn pending() -> String {
        format!("plan-main-b8e362c206-{EFFECT}")
    }

    fn policy(approve_plan: &str) -> ApprovalPolicy<'_> {
        ApprovalPolicy {
            approve_plan,
            force: false,
            plan_only: false,
            destroy: false,
        }
    }

    #[test]
    fn keywords_have_upstreams_meaning() {
        for (word, waiting, approval) in [
            ("", "", ApprovalDecision::Pending),
            ("", pending().as_str(), ApprovalDecision::Pending),
            ("auto", "", ApprovalDecision::Auto),
            ("auto", &pending(), ApprovalDecision::Auto),
            ("auto", "plan-main-b8e362c206", ApprovalDecision::Auto),
            ("disable", &pending(), ApprovalDecision::Disabled),
            ("replan-main-b8e362c206", &pending(), ApprovalDecision::Replan),
            ("replan", &pending(), ApprovalDecision::Replan),
            ("replan-plan-main-b8e36", &pending(), ApprovalDecision::Replan),
            ("replan-plan-other", &pending(), ApprovalDecision::Pending),
            ("replan-other", &pending(), ApprovalDecision::Pending),
            ("replan-main-b8e362c206", "", ApprovalDecision::Pending),
            (&pending(), "", ApprovalDecision::Pending),
        ] {
            assert_eq!(
                evaluate_spec(policy(word), waiting),
                approval,
                "{word:?} {waiting:?}"
            );
        }
    }

    #[test]
    fn only_the_whole_effect_digest_approves() {
        let approves = ApprovalDecision::Approved(pending().parse().unwrap());
        let incomplete =
            |text: &str| ApprovalDecision::Mismatch(ApprovalMismatch::Incomplete(text.to_owned()));
        let other = || ApprovalDecision::Mismatch(ApprovalMismatch::OtherEffect(OTHER.parse().unwrap()));
        for (text, approval) in [
            (pending(), approves.clone()),
            (EFFECT.to_owned(), approves.clone()),
            (format!("plan-moved-0000000000-{EFFECT}"), approves.clone()),
            (format!("plan-main-b8e362c206-{OTHER}"), other()),
            (OTHER.to_owned(), other()),
            ("plan-main-b8e362c206".into(), incomplete("plan-main-b8e362c206")),
            ("p".into(), incomplete("p")),
            (EFFECT[..39].into(), incomplete(&EFFECT[..39])),
            (EFFECT.to_uppercase(), incomplete(&EFFECT.to_uppercase())),
            ("yes".into(), incomplete("yes")),
            ("AUTO".into(), incomplete("AUTO")),
        ] {
            assert_eq!(evaluate_spec(policy(&text), &pending()), approval, "{text}");
        }
    }

    #[test]
    fn a_plan_of_tofu_controller_cannot_be_approved_by_its_id() {
        let unbound = "plan-main-b8e362c206";
        assert_eq!(
            evaluate_spec(policy(unbound), unbound),
            ApprovalDecision::Mismatch(ApprovalMismatch::UnboundPlan(unbound.into()))
        );
    }

    #[test]
    fn force_and_plan_only_come_before_approval() {
        for (approve_plan, force, plan_only, destroy, approval) in [
            ("", true, false, false, ApprovalDecision::Forced),
            ("", true, false, true, ApprovalDecision::Forced),
            ("", true, true, false, ApprovalDecision::Forced),
            ("", true, true, true, ApprovalDecision::PlanOnly),
            ("auto", false, true, false, ApprovalDecision::PlanOnly),
            (pending().as_str(), false, true, false, ApprovalDecision::PlanOnly),
            ("disable", true, false, false, ApprovalDecision::Disabled),
        ] {
            let policy = ApprovalPolicy {
                approve_plan,
                force,
                plan_only,
                destroy,
            };
            assert_eq!(evaluate_spec(policy, &pending()), approval, "{policy:?}");
        }
    }

    #[test]
    fn a_plan_on_hold_is_applied_only_when_its_id_is_approved() {
        use serde_json::json;
        let spec = |change: serde_json::Value| {
            let mut spec = serde_json::json!({ "interval": "1h", "approvePlan": "auto", "autoApply": { "hold": ["delete"] },
                "sourceRef": { "kind": "GitRepository", "name": "x" } });
            for (field, value) in change.as_object().unwrap() {
                spec[field] = value.clone();
            }
            serde_json::from_value::<TerraformSpec>(spec).unwrap()
        };
        let deletes = PlanEffects {
            deletes: 1,
            ..PlanEffects::default()
        };
        let creates = PlanEffects {
            creates: 1,
            ..PlanEffects::default()
        };
        let id = pending();
        let decision = |change: serde_json::Value, effects: Option<&PlanEffects>| {
            evaluate(
                &spec(change),
                CandidatePlan {
                    id: &id,
                    effects,
                    entries: &[],
                    ..CandidatePlan::default()
                },
            )
        };
        let held = |approval: ApprovalDecision| matches!(approval, ApprovalDecision::OnHold(_));
        assert!(held(decision(json!({}), Some(&deletes))));
        assert!(
            held(decision(json!({}), None)),
            "a plan without recorded effects is held"
        );
        assert_eq!(decision(json!({}), Some(&creates)), ApprovalDecision::Auto);
        assert_eq!(
            decision(json!({ "autoApply": null }), Some(&deletes)),
            ApprovalDecision::Auto
        );
        assert!(held(decision(
            json!({ "approvePlan": "", "force": true }),
            Some(&deletes)
        )));
        assert!(decision(json!({ "approvePlan": id }), Some(&deletes)).applies());
        assert!(decision(json!({ "approvePlan": id, "force": true }), Some(&deletes)).applies());
        assert!(held(decision(
            json!({ "approvePlan": OTHER, "force": true }),
            Some(&deletes)
        )));
        assert_eq!(
            decision(json!({ "planOnly": true }), Some(&deletes)),
            ApprovalDecision::PlanOnly
        );
        assert_eq!(
            decision(json!({ "approvePlan": "disable" }), Some(&deletes)),
            ApprovalDecision::Disabled
        );
    }

    #[test]
    fn a_plan_from_another_state_needs_its_id() {
        use serde_json::json;
        let id = pending();
        let decision = |change: serde_json::Value| {
            let mut spec =
                json!({ "interval": "1h", "sourceRef": { "kind": "GitRepository", "name": "repo" } });
            spec.as_object_mut()
                .unwrap()
                .extend(change.as_object().unwrap().clone());
            let spec: TerraformSpec = serde_json::from_value(spec).unwrap();
            let plan = CandidatePlan {
                id: &id,
                state_mismatch: "the CLI finds no state",
                ..CandidatePlan::default()
            };
            evaluate(&spec, plan)
        };
        for held in [
            json!({ "approvePlan": "auto" }),
            json!({ "approvePlan": "auto", "autoApply": { "maxChanges": 9 } }),
            json!({ "force": true }),
            json!({ "force": true, "approvePlan": OTHER }),
        ] {
            let ApprovalDecision::OnHold(hold) = decision(held.clone()) else {
                panic!("{held}")
            };
            assert!(
                hold.to_string().starts_with("the CLI finds no state"),
                "{held}: {hold}"
            );
        }
        assert!(decision(json!({ "approvePlan": id })).applies());
        assert!(decision(json!({ "approvePlan": id, "force": true })).applies());
        assert_eq!(decision(json!({})), ApprovalDecision::Pending);
    }

    /// Evaluates a spec that requires an approval for the plan with this id; `change` replaces fields of the spec.
    fn decide_required(change: &serde_json::Value, approvals: &[PlanApproval], id: &str) -> ApprovalDecision {
        let mut spec = serde_json::json!({ "interval": "1h", "sourceRef": { "kind": "GitRepository", "name": "repo" },
            "approval": {} });
        let fields = change.as_object().unwrap().clone();
        spec.as_object_mut().unwrap().extend(fields);
        let spec: TerraformSpec = serde_json::from_value(spec).unwrap();
        let plan = CandidatePlan {
            id,
            state_mismatch: "the CLI finds another state",
            evidence: ApprovalEvidence {
                approvals,
                author: "",
                since: Some("2026-01-08T09:00:00Z".parse().unwrap()),
            },
            ..CandidatePlan::default()
        };
        evaluate(&spec, plan)
    }

    /// An approval of the pending plan by alice.
    fn approval_of_alice() -> PlanApproval {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "infra.sluice.dev/v1alpha1", "kind": "PlanApproval",
            "metadata": { "name": "of-alice", "creationTimestamp": "2026-01-08T09:05:00Z" },
            "spec": { "approver": "alice", "planID": pending(), "terraformRef": { "name": "app" } } }))
        .unwrap()
    }

    #[test]
    fn required_approvals_replace_approve_plan_and_force() {
        use serde_json::json;
        let (id, approvals) = (pending(), [approval_of_alice()]);
        for ask in [
            json!({}),
            json!({ "approvePlan": "auto" }),
            json!({ "approvePlan": id }),
            json!({ "approvePlan": OTHER }),
            json!({ "force": true }),
            json!({ "approvePlan": "auto", "autoApply": { "hold": ["delete"] } }),
        ] {
            let waits = decide_required(&ask, &[], &id);
            let is_missing = matches!(waits, ApprovalDecision::Insufficient(_)) && !waits.applies();
            assert!(is_missing, "{ask}: {waits:?}");
            let agreed = decide_required(&ask, &approvals, &id);
            let is_given = matches!(&agreed, ApprovalDecision::Agreed(given) if given[0].approver == "alice");
            assert!(is_given && agreed.applies(), "{ask}: {agreed:?}");
            assert_eq!(decide_required(&ask, &approvals, ""), ApprovalDecision::Pending);
        }
    }

    #[test]
    fn required_approvals_apply_nothing_that_the_spec_excludes() {
        use serde_json::json;
        let (id, approvals) = (pending(), [approval_of_alice()]);
        for (ask, expected) in [
            (json!({ "approvePlan": "disable" }), ApprovalDecision::Disabled),
            (json!({ "planOnly": true }), ApprovalDecision::PlanOnly),
            (json!({ "approvePlan": "replan" }), ApprovalDecision::Replan),
        ] {
            assert_eq!(decide_required(&ask, &approvals, &id), expected, "{ask}");
        }
        assert_eq!(
            decide_required(&json!({}), &approvals, "plan-main-b8e362c206"),
            ApprovalDecision::Mismatch(ApprovalMismatch::UnboundPlan("plan-main-b8e362c206".into()))
        );
    }

    #[test]
    fn without_required_approvals_that_of_one_user_applies_a_plan_that_waits() {
        use serde_json::json;
        let (id, approvals) = (pending(), [approval_of_alice()]);
        let decide = |mut ask: serde_json::Value, approvals: &[PlanApproval], id: &str| {
            ask["approval"] = json!(null);
            decide_required(&ask, approvals, id)
        };
        // The plan is made from another state, which holds it from `auto` and `force`.
        for ask in [
            json!({}),
            json!({ "approvePlan": OTHER }),
            json!({ "approvePlan": "yes" }),
            json!({ "approvePlan": "auto" }),
            json!({ "approvePlan": "auto", "autoApply": { "hold": ["delete"] } }),
            json!({ "force": true }),
        ] {
            assert!(!decide(ask.clone(), &[], &id).applies(), "{ask}");
            let agreed = decide(ask.clone(), &approvals, &id);
            let is_given = matches!(&agreed, ApprovalDecision::Agreed(given) if given[0].approver == "alice");
            assert!(is_given && agreed.applies(), "{ask}: {agreed:?}");
            assert!(!decide(ask.clone(), &approvals, &other_plan()).applies(), "{ask}");
        }
        for (ask, expected) in [
            (json!({ "approvePlan": "disable" }), ApprovalDecision::Disabled),
            (json!({ "planOnly": true }), ApprovalDecision::PlanOnly),
            (json!({ "approvePlan": "replan" }), ApprovalDecision::Replan),
        ] {
            assert_eq!(decide(ask.clone(), &approvals, &id), expected, "{ask}");
        }
        assert_eq!(
            decide(json!({}), &approvals, "plan-main-b8e362c206"),
            ApprovalDecision::Pending
        );
        assert_eq!(decide(json!({}), &approvals, ""), ApprovalDecision::Pending);
    }

    /// The id of a plan of the same commit with another effect.
    fn other_plan() -> String {
        format!("plan-main-b8e362c206-{}", EFFECT.replace('0', "2"))
    }

    proptest! {
        #[test]
        fn no_prefix_of_an_id_approves(length in 0usize..61) {
            prop_assert!(!evaluate_spec(policy(&pending()[..length]), &pending()).applies());
        }

        #[test]
        fn no_other_text_approves(text in "(plan-)?[a-z0-9-]{0,60}") {
            let applies = evaluate_spec(policy(&text), &pending()).applies();
            prop_assert_eq!(applies, text == "auto" || text.ends_with(EFFECT) && text.starts_with("plan-"));
        }
    }
}
