//! A stored plan is applied only while the spec and the approvals are those that approve it.

use super::*;

/// Checks a stored plan without a `PlanApproval`.
fn recheck(
    run: &TerraformRunSpec,
    terraform: Option<&Terraform>,
    plan: Option<&TerraformRunStatus>,
) -> Result<Vec<RecordedApproval>, WaitReason> {
    check_stored_plan(run, terraform, plan, ApprovalEvidence::default())
}

#[test]
fn a_stored_plan_is_not_applied_after_a_change_of_the_spec() {
    let id = format!("plan-main-b8e362c206-{EFFECT}");
    let vars = [
        ("/spec/vars", json!([{ "name": "size", "value": 2 }])),
        ("/metadata/generation", json!(4)),
    ];
    // Any approval: `auto` for drift or for a held plan, or the plan's id.
    for (trigger, approve) in [("Drift", "auto"), ("Approval", "auto"), ("Approval", id.as_str())] {
        let apply = apply_run(trigger, &id);
        let approved = ("/spec/approvePlan", json!(approve));
        let check = |change: &[(&str, Value)]| recheck(&apply, Some(&terraform(change)), None).map(|_| ());
        assert_eq!(
            check(std::slice::from_ref(&approved)),
            Ok(()),
            "{trigger} {approve}"
        );
        let [edit, generation] = vars.clone();
        let edited = Err(WaitReason::SpecChanged { planned: 3, now: 4 });
        assert_eq!(
            check(&[approved, edit, generation]),
            edited,
            "{trigger} {approve}"
        );
    }
}

#[test]
fn a_stored_plan_is_applied_only_while_it_is_approved() {
    let id = format!("plan-main-b8e362c206-{EFFECT}");
    let apply = apply_run("Approval", &id);
    let plan: TerraformRunStatus = serde_json::from_value(json!({ "effects": { "deletes": 1 } })).unwrap();
    let allows = |change: &[(&str, Value)]| {
        let mut all = vec![("/spec/approvePlan", json!(id))];
        all.extend_from_slice(change);
        recheck(&apply, Some(&terraform(&all)), Some(&plan)).is_ok()
    };
    assert!(allows(&[]));
    assert!(allows(&[("/spec/approvePlan", json!("auto"))]));
    for change in [
        ("/spec/approvePlan", json!("")),
        (
            "/spec/approvePlan",
            json!(format!("plan-main-b8e362c206-{}", EFFECT.replace('0', "1"))),
        ),
        ("/spec/planOnly", json!(true)),
        ("/spec/suspend", json!(true)),
        ("/spec/destroy", json!(true)),
        ("/metadata/generation", json!(9)),
        ("/metadata/uid", json!("another")),
        ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
    ] {
        assert!(!allows(std::slice::from_ref(&change)), "{change:?}");
    }
    assert!(recheck(&apply, None, Some(&plan)).is_err());
    // A guard rail that was put up since the decision takes the word from auto, and not from a person.
    let (auto, held) = (
        ("/spec/approvePlan", json!("auto")),
        ("/spec/autoApply", json!({ "hold": ["delete"] })),
    );
    assert!(allows(std::slice::from_ref(&held)) && !allows(&[auto.clone(), held.clone()]));
    assert!(allows(&[
        auto.clone(),
        ("/spec/autoApply", json!({ "hold": ["create"] }))
    ]));
    let unknown = recheck(&apply, Some(&terraform(&[auto, held])), None);
    assert!(
        matches!(unknown, Err(WaitReason::OnHold(_))),
        "what it does is not on record"
    );
}

#[test]
fn a_stored_plan_needs_the_required_approvals_as_they_are_now() {
    let id = format!("plan-main-b8e362c206-{EFFECT}");
    let apply = apply_run("Approval", &id);
    let approvals = approvals(&id);
    let check = |count: u8, approvals: &[PlanApproval], change: &[(&str, Value)]| {
        let mut all = vec![("/spec/approval", json!({ "count": count }))];
        all.extend_from_slice(change);
        check_stored_plan(&apply, Some(&terraform(&all)), None, evidence(approvals))
    };
    let recorded = check(1, &approvals, &[]).unwrap();
    assert_eq!(recorded[0].approver, "alice");
    for missing in [check(1, &[], &[]), check(2, &approvals, &[])] {
        assert!(
            matches!(missing, Err(WaitReason::ApprovalsMissing(_))),
            "{missing:?}"
        );
    }
    assert_eq!(
        check(1, &approvals, &[("/metadata/generation", json!(4))]),
        Err(WaitReason::SpecChanged { planned: 3, now: 4 })
    );
    assert_eq!(
        check(1, &approvals, &[("/spec/suspend", json!(true))]),
        Err(WaitReason::Suspended)
    );
}

#[test]
fn a_stored_plan_that_one_user_approved_is_applied_and_the_user_recorded() {
    let id = format!("plan-main-b8e362c206-{EFFECT}");
    let apply = apply_run("Approval", &id);
    let approvals = approvals(&id);
    let check = |approvals: &[PlanApproval], change: &[(&str, Value)]| {
        let mut all = vec![("/spec/approvePlan", json!(""))];
        all.extend_from_slice(change);
        check_stored_plan(&apply, Some(&terraform(&all)), None, evidence(approvals))
    };
    let recorded = check(&approvals, &[]).unwrap();
    assert_eq!(
        (recorded[0].approver.as_str(), recorded[0].comment.as_str()),
        ("alice", "reviewed")
    );
    // An approval that was withdrawn since the decision.
    let missing = check(&[], &[]).unwrap_err();
    assert!(missing.lacks_approval(), "{missing:?}");
    // What `approvePlan` approves needs no approval of a user, and records none.
    assert_eq!(check(&[], &[("/spec/approvePlan", json!(id))]), Ok(Vec::new()));
    let suspended = check(&approvals, &[("/spec/suspend", json!(true))]).unwrap_err();
    assert_eq!(suspended, WaitReason::Suspended);
    assert!(!suspended.lacks_approval());
}
