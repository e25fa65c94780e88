//! Plans that are shown but not applied, and drift.

use super::*;

/// Plan and drift in a few words.
fn summary(spec: Value, runs: Vec<Value>) -> String {
    let text = describe(&case("it", spec, runs));
    let line = |start: &str| {
        text.lines()
            .find(|line| line.trim_start().starts_with(start))
            .map(str::trim)
    };
    [line("Ready"), line("event"), line("a plan waits")]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn under_disable_a_difference_is_drift_unless_drift_detection_is_disabled() {
    let of = |more: Value| {
        let mut spec = json!({ "approvePlan": "disable" });
        merge(&mut spec, more);
        let run = json!({ "destroy": spec["destroy"] == true });
        let mut planned = planned(2, "Revision");
        merge(&mut planned["spec"], run);
        summary(spec, vec![planned])
    };
    assert!(
        of(json!({})).starts_with("Ready False DriftDetected"),
        "{}",
        of(json!({}))
    );
    for more in [
        json!({ "disableDriftDetection": true }),
        json!({ "destroy": true }),
    ] {
        let text = of(more.clone());
        assert!(
            text.starts_with(
                "Ready Unknown TerraformPlannedWithChanges: Plan generated: it is not applied while"
            ),
            "{text}"
        );
        assert!(
            text.contains("event Normal TerraformPlanSucceed"),
            "{more} {text}"
        );
    }
}

#[test]
fn a_run_that_refuses_an_approved_plan_is_not_repeated_at_once() {
    let of = |retry_interval: &str| {
        let plan = json!({ "id": id(), "run": "net-u1-1" });
        let refused = run(
            9,
            json!({ "action": "Apply", "trigger": "Approval", "plan": plan }),
            json!({ "phase": "Superseded", "claim": { "holder": "h" }, "message": "not applied: the plan waits for approval" }),
        );
        let spec = json!({ "approvePlan": id(), "retryInterval": retry_interval });
        summary(spec, vec![planned(1, "Revision"), refused])
    };
    let text = of("1h");
    assert!(
        text.starts_with("Ready False Superseded: Run net-u1-9 did not apply the approved plan"),
        "{text}"
    );
    assert!(
        text.contains("not applied: the plan waits for approval"),
        "{text}"
    );
    assert!(text.contains("event Warning Superseded"), "{text}");
    // It ended a minute ago.
    let text = of("30s");
    assert!(
        text.starts_with("Ready Unknown Progressing: Initializing"),
        "{text}"
    );
}

#[test]
fn a_plan_says_which_approvals_are_missing() {
    let of = |approvers: &[&str]| {
        let approval = |approver: &&str| {
            json!({ "apiVersion": "infra.sluice.dev/v1alpha1", "kind": "PlanApproval",
                "metadata": { "name": approver, "namespace": "team",
                    "creationTimestamp": Timestamp::from_second(NOW).unwrap().to_string() },
                "spec": { "approver": approver, "planID": id(), "terraformRef": { "name": "net" } } })
        };
        let policy = json!({ "approvePlan": "auto", "approval": { "count": 2 } });
        let case = Case {
            approvals: approvers.iter().map(approval).collect(),
            ..case("it", policy, vec![planned(2, "Revision")])
        };
        describe(&case)
    };
    let create = "Create a PlanApproval with planID: \"ID\" to approve this plan.";
    for (approvers, missing) in [
        (&[][..], "Plan generated: 0 of 2 approvals, 2 missing. "),
        (
            &["alice"][..],
            "Plan generated: 1 of 2 approvals (alice), 1 missing. ",
        ),
    ] {
        let text = of(approvers);
        assert!(text.contains(&format!("{missing}{create}")), "{text}");
    }
    let applies = of(&["alice", "bob"]);
    assert!(!applies.contains("missing"), "{applies}");
}

#[test]
fn a_plan_from_another_state_is_held_and_its_approver_is_warned() {
    let of = |spec: Value| {
        let mut planned = planned(2, "Spec");
        merge(
            &mut planned["status"],
            json!({ "stateMismatch": "the CLI finds no state with resources" }),
        );
        summary(spec, vec![applied(1, &[]), planned])
    };
    let set = "set approvePlan: \"ID\" to approve this plan.";
    for spec in [json!({ "approvePlan": "auto" }), json!({ "force": true })] {
        let held = format!("{set} It is not applied automatically: the CLI finds no state with resources.");
        assert!(of(spec.clone()).contains(&held), "{}", of(spec));
    }
    for spec in [json!({}), json!({ "approvePlan": "plan-main-aaaaaaaaaa" })] {
        let warned = format!("{set} Check the state first: the CLI finds no state with resources.");
        assert!(of(spec.clone()).contains(&warned), "{}", of(spec));
    }
}

#[test]
fn drift_of_a_plan_only_stack_is_reported() {
    let steady = || vec![applied(1, &[]), planned(2, "Interval")];
    let text = summary(json!({ "planOnly": true }), steady());
    assert!(text.starts_with("Ready False DriftDetected"), "{text}");
    assert!(text.contains("event Warning DriftDetected"), "{text}");
    let text = summary(json!({ "planOnly": true }), vec![planned(2, "Revision")]);
    assert!(
        text.starts_with(
            "Ready Unknown TerraformPlannedWithChanges: Plan generated: This object is in the plan only mode."
        ),
        "{text}"
    );
}

#[test]
fn a_plan_that_a_request_replaces_is_hidden() {
    let requested = |trigger: &str| {
        let mut run = going(2, "Plan", "Planning", json!({}));
        run["spec"]["trigger"] = json!(trigger);
        summary(json!({}), vec![planned(1, "Revision"), run])
    };
    assert!(!requested("Request").contains("a plan waits"));
    assert!(requested("Revision").contains("a plan waits"));
}

#[test]
fn a_suspended_stack_that_was_in_sync_has_observed_its_spec() {
    let observed = |ready: &str| {
        let stored = json!({ "conditions": [{ "type": "Ready", "status": ready, "reason": "NoDrift", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z" }], "observedGeneration": 1 });
        let suspended = case("it", json!({ "suspend": true }), vec![])
            .with(json!({ "metadata": { "generation": 3 }, "status": stored }));
        reconcile(&suspended, &suspended.object()).0.observed_generation
    };
    assert_eq!(observed("True"), Some(3));
    assert_eq!(observed("False"), Some(1));
}

#[test]
fn drift_that_a_user_approved_counts_as_corrected() {
    let corrected = |is_drift: bool, pending: &str| {
        let mut apply = applied(3, &[]);
        merge(
            &mut apply["spec"],
            json!({ "action": "Apply", "trigger": "Approval", "plan": { "id": id(), "run": "net-u1-2" } }),
        );
        let stored = json!({ "plan": { "pending": pending, "isDriftDetectionPlan": is_drift } });
        let runs = vec![applied(1, &[]), planned(2, "Interval"), apply];
        let case = case("it", json!({ "approvePlan": id() }), runs).with(json!({ "status": stored }));
        reconcile(&case, &case.object())
            .0
            .last_applied_by_drift_detection_at
            .is_some()
    };
    assert!(corrected(true, &id()));
    assert!(!corrected(false, &id()));
    assert!(!corrected(true, "another"));
}

#[test]
fn selected_outputs_are_listed_by_their_keys() {
    let text = describe(&case(
        "it",
        json!({ "approvePlan": "auto", "writeOutputsToSecret": { "name": "out", "outputs": ["b:key.b", "a"] } }),
        vec![applied(1, &["a", "b", "c"])],
    ));
    assert!(
        text.contains("Outputs written.\\n2 output(s): key.b, a"),
        "{text}"
    );
}

/// A stack in sync with a reconcile request, and with this additional run.
fn requested(more: Option<Value>) -> Case {
    let runs = [Some(clean(1, "Revision")), more].into_iter().flatten().collect();
    case("it", json!({}), runs).with(json!({ "metadata": { "annotations": { REQUESTED_AT: "token" } } }))
}

/// Returns the status after a reconciliation with this stored status.
fn after(case: &Case, stored: &TerraformStatus) -> TerraformStatus {
    let mut stack = case.object();
    stack.status = Some(stored.clone());
    reconcile(case, &stack).0
}

/// Returns the status of [`requested`] after its source was missing, then present without a free run slot.
fn echoed() -> TerraformStatus {
    let stored = after(
        &requested(None).source(SourceFact::NoArtifact),
        &TerraformStatus::default(),
    );
    assert_eq!(
        (
            stored.last_handled_reconcile_at.as_str(),
            stored.pending_reconcile_request.as_str()
        ),
        ("token", "token")
    );
    let queued = Case {
        has_slot: false,
        ..requested(None)
    };
    after(&queued, &stored)
}

#[test]
fn an_acknowledged_request_stays_pending_until_a_run_handles_it() {
    let stored = echoed();
    let reports =
        |status: &TerraformStatus, text: &str| status.conditions.iter().any(|c| c.message.contains(text));
    assert!(reports(&stored, "free run slot"), "{stored:?}");
    assert!(
        reports(&after(&requested(None), &stored), "Initializing"),
        "a run is created for it"
    );
    let pending = |phase: &str| {
        let spec = json!({ "action": "Plan", "trigger": "Request" });
        let mut run = run(2, spec, json!({ "phase": phase, "hasChanges": false }));
        run["metadata"]["annotations"] = json!({ REQUESTED_AT: "token" });
        after(&requested(Some(run)), &stored).pending_reconcile_request
    };
    assert_eq!(
        pending("Superseded"),
        "token",
        "a superseded run has not handled it"
    );
    assert_eq!(pending("Succeeded"), "");
}

#[test]
fn an_old_request_does_not_become_pending_again() {
    let past = TerraformStatus {
        last_handled_reconcile_at: "token".into(),
        ..TerraformStatus::default()
    };
    let away = after(&requested(None).source(SourceFact::NoArtifact), &past);
    assert_eq!(away.pending_reconcile_request, "");
}
