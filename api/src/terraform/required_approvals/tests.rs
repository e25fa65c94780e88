use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const EFFECT: &str = "0123456789abcdef0123456789abcdef01234567";
const OTHER: &str = "1123456789abcdef0123456789abcdef01234567";
/// The creation of the run that planned: a Thursday, 10:00 in Berlin.
const PLANNED: &str = "2026-01-08T09:00:00Z";
const LATER: &str = "2026-01-08T09:05:00Z";
const AUTHOR: &str = "Carol Writer <carol@example.org>";

fn pending() -> PlanId {
    PlanId::new("main@sha1:b8e362c206", EFFECT.parse().unwrap())
}

fn required(fields: Value) -> RequiredApprovals {
    serde_json::from_value(fields).unwrap()
}

/// An approval of the pending plan, created after it, with these fields changed.
fn approval(approver: &str, change: &[(&str, Value)]) -> PlanApproval {
    let mut object = json!({ "apiVersion": "infra.sluice.dev/v1alpha1", "kind": "PlanApproval",
        "metadata": { "name": format!("of-{approver}"), "creationTimestamp": LATER },
        "spec": { "approver": approver, "groups": ["ops"], "planID": EFFECT, "terraformRef": { "name": "app" } } });
    for (pointer, value) in change {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[field] = value.clone();
    }
    serde_json::from_value(object).unwrap()
}

fn evidence(approvals: &[PlanApproval]) -> ApprovalEvidence<'_> {
    ApprovalEvidence {
        approvals,
        author: AUTHOR,
        since: Some(PLANNED.parse().unwrap()),
    }
}

/// The reason of one approval.
fn verdict(fields: Value, approval: PlanApproval) -> &'static str {
    let approvals = [approval];
    let judged = required(fields).judge(&pending(), evidence(&approvals));
    judged[0].verdict.reason()
}

fn evaluate(fields: Value, approvals: &[PlanApproval]) -> Result<Vec<String>, String> {
    let agreed = required(fields).evaluate(&pending(), evidence(approvals));
    let names = |agreed: Vec<RecordedApproval>| agreed.into_iter().map(|one| one.approver).collect();
    agreed.map(names).map_err(|missing| missing.to_string())
}

#[test]
fn an_approval_counts_only_for_the_effect_that_it_names() {
    for (id, reason) in [
        (EFFECT.to_owned(), "Counted"),
        (format!("plan-main-b8e362c206-{EFFECT}"), "Counted"),
        (format!("plan-moved-0000000000-{EFFECT}"), "Counted"),
        (OTHER.to_owned(), "OtherPlan"),
        (format!("plan-main-b8e362c206-{OTHER}"), "OtherPlan"),
        ("plan-main-b8e362c206".to_owned(), "IncompletePlanID"),
        (EFFECT[..39].to_owned(), "IncompletePlanID"),
        ("auto".to_owned(), "IncompletePlanID"),
    ] {
        let given = approval("alice", &[("/spec/planID", json!(id))]);
        assert_eq!(verdict(json!({}), given), reason, "{id}");
    }
}

#[test]
fn an_approval_counts_only_after_a_run_planned_it() {
    let at = |time: &str| approval("alice", &[("/metadata/creationTimestamp", json!(time))]);
    assert_eq!(verdict(json!({}), at("2026-01-08T08:59:59Z")), "BeforePlan");
    assert_eq!(verdict(json!({}), at(PLANNED)), "Counted");
    let without_time = approval("alice", &[("/metadata/creationTimestamp", Value::Null)]);
    assert_eq!(verdict(json!({}), without_time), "BeforePlan");
    let approvals = [approval("alice", &[])];
    let unknown = ApprovalEvidence {
        since: None,
        ..evidence(&approvals)
    };
    let judged = required(json!({})).judge(&pending(), unknown);
    assert_eq!(judged[0].verdict, Verdict::BeforePlan);
}

#[test]
fn a_withdrawn_approval_does_not_count() {
    let withdrawn = approval("alice", &[("/metadata/deletionTimestamp", json!(LATER))]);
    assert_eq!(verdict(json!({}), withdrawn), "Withdrawn");
}

#[test]
fn each_approver_is_in_one_of_the_groups() {
    let groups = |groups: Value| approval("alice", &[("/spec/groups", groups)]);
    let wanted = json!({ "groups": ["security", "ops"] });
    assert_eq!(verdict(wanted.clone(), groups(json!(["dev", "ops"]))), "Counted");
    for none in [json!([]), json!(["dev"]), json!(["OPS"])] {
        assert_eq!(verdict(wanted.clone(), groups(none)), "NotInGroups");
    }
}

#[test]
fn the_author_of_the_commit_does_not_approve() {
    let rule = || json!({ "notByAuthor": true });
    for author in [
        "carol@example.org",
        "CAROL@example.org",
        "carol",
        "Carol Writer",
        "oidc:carol",
        "https://issuer.example.org#carol",
        "arn:aws:iam::1:user/carol",
    ] {
        assert_eq!(verdict(rule(), approval(author, &[])), "ByAuthor", "{author}");
        assert_eq!(verdict(json!({}), approval(author, &[])), "Counted", "{author}");
    }
    for other in ["alice", "carola", "writer", "dave@example.org", "carol:alice"] {
        assert_eq!(verdict(rule(), approval(other, &[])), "Counted", "{other}");
    }
    let approvals = [approval("alice", &[])];
    let unknown = ApprovalEvidence {
        author: "",
        ..evidence(&approvals)
    };
    let judged = required(rule()).judge(&pending(), unknown);
    assert_eq!(judged[0].verdict, Verdict::UnknownAuthor);
}

#[test]
fn an_approval_is_created_within_the_hours_of_the_zone() {
    let at = |hours: Value, time: &str| {
        let given = approval("alice", &[("/metadata/creationTimestamp", json!(time))]);
        verdict(json!({ "hours": hours }), given)
    };
    let berlin = |from: &str, to: &str| json!({ "timeZone": "Europe/Berlin", "from": from, "to": to });
    // 10:05 in Berlin.
    assert_eq!(at(berlin("09:00", "17:00"), LATER), "Counted");
    assert_eq!(at(berlin("10:05", "10:06"), LATER), "Counted");
    assert_eq!(at(berlin("10:00", "10:05"), LATER), "OutsideHours");
    assert_eq!(
        at(json!({ "from": "10:00", "to": "24:00" }), LATER),
        "OutsideHours"
    );
    // In summer Berlin is two hours from UTC.
    assert_eq!(at(berlin("11:00", "11:10"), "2026-07-09T09:05:00Z"), "Counted");
    let days = |days: Value| json!({ "from": "00:00", "to": "24:00", "days": days });
    assert_eq!(at(days(json!(["Thursday"])), LATER), "Counted");
    assert_eq!(at(days(json!(["Monday", "Friday"])), LATER), "OutsideHours");
    for unusable in [
        berlin("17:00", "09:00"),
        berlin("09:00", "09:00"),
        berlin("9", "17:00"),
        berlin("09:00", "25:00"),
        json!({ "timeZone": "Europe/Nowhere", "from": "00:00", "to": "24:00" }),
    ] {
        assert_eq!(at(unusable.clone(), LATER), "UnusableHours", "{unusable}");
    }
}

#[test]
fn two_approvals_are_of_two_users() {
    let two = || json!({ "count": 2 });
    let again = |approver: &str| approval(approver, &[("/metadata/name", json!("again"))]);
    assert_eq!(
        evaluate(two(), &[]),
        Err("0 of 2 approvals, 2 missing".to_owned())
    );
    let one = [approval("alice", &[]), again("alice")];
    assert_eq!(
        evaluate(two(), &one),
        Err(
            "1 of 2 approvals (alice), 1 missing; PlanApproval of-alice of alice does not count: another approval of the \
             same user counts"
                .to_owned()
        )
    );
    let both = [approval("alice", &[]), approval("bob", &[])];
    assert_eq!(evaluate(two(), &both), Ok(vec!["alice".into(), "bob".into()]));
    assert_eq!(evaluate(json!({}), &both[1..]), Ok(vec!["bob".into()]));
    assert_eq!(
        evaluate(json!({ "count": 0 }), &[]),
        Err("0 of 1 approvals, 1 missing".to_owned()),
        "an older definition may have accepted it"
    );
}

#[test]
fn what_is_missing_is_said() {
    let hours = json!({ "from": "09:00", "to": "17:00", "days": ["Thursday"] });
    let policy = json!({ "count": 2, "groups": ["ops", "security"], "notByAuthor": true, "hours": hours });
    let given = [approval("alice", &[]), approval("carol", &[])];
    assert_eq!(
        evaluate(policy, &given),
        Err(
            "1 of 2 approvals (alice), 1 missing (of a user in ops or security, not of the author of the commit, created \
             from 09:00 to 17:00 UTC on Thursday); PlanApproval of-carol of carol does not count: its user is the author \
             of the planned commit, Carol Writer <carol@example.org>"
                .to_owned()
        )
    );
}

/// The reason of one approval of a stack without rules, whose status has this reason.
fn verdict_without_rules(status: Value) -> &'static str {
    let mut approval = approval("alice", &[]);
    approval.status = serde_json::from_value(status).unwrap();
    judge_without_rules(&pending(), evidence(&[approval]))[0]
        .verdict
        .reason()
}

#[test]
fn what_rules_refused_does_not_count_without_them() {
    let refused = |reason: &str| verdict_without_rules(json!({ "accepted": false, "reason": reason }));
    for reason in [
        "NotInGroups",
        "OutsideHours",
        "UnusableHours",
        "ByAuthor",
        "UnknownAuthor",
        "NoPolicy",
        "GivenUnderOtherRules",
    ] {
        assert_eq!(refused(reason), "GivenUnderOtherRules", "{reason}");
        let accepted = json!({ "accepted": true, "reason": reason });
        assert_eq!(verdict_without_rules(accepted), "Counted", "{reason}");
    }
    for reason in ["", "NoPlan", "OtherPlan", "BeforePlan", "Repeated"] {
        assert_eq!(refused(reason), "Counted", "{reason}");
    }
    assert_eq!(verdict_without_rules(Value::Null), "Counted");
}

#[test]
fn the_rules_in_force_decide_about_earlier_approvals() {
    // As it was reported under the rules of its creation, which another set of rules replaces.
    let given = |reason: &str| {
        let status = json!({ "accepted": reason == "Counted", "reason": reason, "message": "x" });
        approval("carol", &[("/status", status)])
    };
    let night = json!({ "hours": { "from": "22:00", "to": "23:00" } });
    for (strict, refusal) in [
        (json!({ "notByAuthor": true }), "ByAuthor"),
        (json!({ "groups": ["security"] }), "NotInGroups"),
        (night, "OutsideHours"),
    ] {
        assert_eq!(verdict(json!({}), given(refusal)), "Counted", "{refusal}");
        assert_eq!(verdict(strict, given("Counted")), refusal);
    }
    let one = [given("Counted")];
    assert_eq!(evaluate(json!({}), &one), Ok(vec!["carol".to_owned()]));
    assert!(evaluate(json!({ "count": 2 }), &one).is_err());
}

#[test]
fn a_new_approval_of_the_user_counts_in_place_of_a_refused_one() {
    let mut first = approval("alice", &[("/metadata/name", json!("a"))]);
    first.status = serde_json::from_value(json!({ "accepted": false, "reason": "ByAuthor" })).unwrap();
    let approvals = [first, approval("alice", &[("/metadata/name", json!("b"))])];
    let judged = judge_without_rules(&pending(), evidence(&approvals));
    let reasons: Vec<_> = judged.iter().map(|judged| judged.verdict.reason()).collect();
    assert_eq!(reasons, ["GivenUnderOtherRules", "Counted"]);
    assert_eq!(recorded(&judged)[0].name, "b");
    // Rules that the stack has decide by themselves.
    assert_eq!(evaluate(json!({}), &approvals[..1]), Ok(vec!["alice".into()]));
}

prop_compose! {
    /// An approval that differs from one that counts in any field.
    fn any_approval()(
        user in 0_u8..4,
        id in prop_oneof![3 => Just(EFFECT), 1 => Just(OTHER), 1 => Just(&EFFECT[..39])],
        group in prop_oneof![3 => Just("ops"), 1 => Just("dev")],
        time in prop_oneof![3 => Just(LATER), 1 => Just("2026-01-01T00:00:00Z")],
        withdrawn in proptest::bool::weighted(0.2),
        number in any::<u16>(),
    ) -> PlanApproval {
        let deleted = if withdrawn { json!(LATER) } else { Value::Null };
        approval(&format!("user-{user}"), &[
            ("/spec/planID", json!(id)), ("/spec/groups", json!([group])), ("/metadata/name", json!(format!("n{number}"))),
            ("/metadata/creationTimestamp", json!(time)), ("/metadata/deletionTimestamp", deleted),
        ])
    }
}

/// The approvals of a plan whose author is not known.
fn without_author(approvals: &[PlanApproval]) -> ApprovalEvidence<'_> {
    ApprovalEvidence {
        author: "",
        ..evidence(approvals)
    }
}

/// Whether one approval counts, written independently of the rules.
fn is_good(approval: &PlanApproval) -> bool {
    let spec = &approval.spec;
    spec.plan_id == EFFECT
        && spec.groups == ["ops"]
        && approval.metadata.deletion_timestamp.is_none()
        && approval.metadata.creation_timestamp.as_ref().unwrap().0 == LATER.parse::<Timestamp>().unwrap()
}

proptest! {
    #[test]
    fn as_many_different_users_approve_as_are_required(
        count in 1_i32..4,
        approvals in proptest::collection::vec(any_approval(), 0..8),
    ) {
        let users: BTreeSet<&str> =
            approvals.iter().filter(|one| is_good(one)).map(|one| one.spec.approver.as_str()).collect();
        let policy = required(json!({ "count": count, "groups": ["ops"] }));
        match policy.evaluate(&pending(), evidence(&approvals)) {
            Ok(agreed) => {
                prop_assert!(users.len() >= usize::try_from(count).unwrap());
                let recorded: BTreeSet<&str> = agreed.iter().map(|one| one.approver.as_str()).collect();
                prop_assert_eq!(recorded.len(), agreed.len(), "each user once");
                prop_assert_eq!(recorded, users);
            }
            Err(missing) => {
                prop_assert!(users.len() < usize::try_from(count).unwrap());
                prop_assert_eq!(missing.given.len(), users.len());
            }
        }
    }

    #[test]
    fn to_remove_the_rules_lets_no_refused_approval_count(
        mut approvals in proptest::collection::vec(any_approval(), 0..8),
        by_author in any::<bool>(),
    ) {
        let rules = required(json!({ "groups": ["ops"], "notByAuthor": by_author }));
        let statuses: Vec<_> = approvals.iter().map(|one| {
            let alone = [one.clone()];
            let verdict = rules.judge(&pending(), without_author(&alone))[0].verdict.clone();
            let (accepted, reason) = (verdict == Verdict::Counted, verdict.reason());
            serde_json::from_value(json!({ "accepted": accepted, "reason": reason })).unwrap()
        }).collect();
        for (approval, status) in approvals.iter_mut().zip(statuses) {
            approval.status = Some(status);
        }
        for judged in judge_without_rules(&pending(), without_author(&approvals)) {
            let was_accepted = judged.approval.status.as_ref().unwrap().accepted;
            prop_assert!(judged.verdict != Verdict::Counted || was_accepted);
        }
    }

    #[test]
    fn the_order_of_the_approvals_decides_nothing(
        (approvals, shuffled) in proptest::collection::vec(any_approval(), 0..6)
            .prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
    ) {
        let policy = required(json!({ "count": 2, "groups": ["ops"] }));
        let agreed = |all: &[PlanApproval]| policy.evaluate(&pending(), evidence(all)).is_ok();
        prop_assert_eq!(agreed(&approvals), agreed(&shuffled));
    }

    #[test]
    fn one_more_approval_takes_no_other_away(
        approvals in proptest::collection::vec(any_approval(), 0..6),
        more in any_approval(),
    ) {
        let policy = required(json!({ "count": 2, "groups": ["ops"] }));
        let agreed = |all: &[PlanApproval]| policy.evaluate(&pending(), evidence(all)).is_ok();
        let mut extended = approvals.clone();
        extended.push(more);
        prop_assert!(agreed(&extended) || !agreed(&approvals));
    }
}
