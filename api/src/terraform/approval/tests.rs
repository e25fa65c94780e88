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
    let incomplete = |text: &str| ApprovalDecision::Mismatch(ApprovalMismatch::Incomplete(text.to_owned()));
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
        let mut spec = json!({ "interval": "1h", "sourceRef": { "kind": "GitRepository", "name": "repo" } });
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
    let mut refused = approvals.clone();
    refused[0].status = serde_json::from_value(json!({ "accepted": false, "reason": "ByAuthor" })).unwrap();
    assert_eq!(
        decide(json!({}), &refused, &id),
        ApprovalDecision::Pending,
        "rules that were removed refused it"
    );
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
