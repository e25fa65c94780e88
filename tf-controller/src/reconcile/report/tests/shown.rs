//! What is shown while nothing is to be applied, or somebody asked: drift, other plans, and nothing that is over.

use super::*;

/// Plan and drift in a few words.
fn words(spec: Value, runs: Vec<Value>) -> String {
    let told = told(&pass("it", spec, runs));
    let line = |start: &str| {
        told.lines()
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
fn under_disable_a_difference_is_drift_where_drift_is_looked_for() {
    let of = |more: Value| {
        let mut spec = json!({ "approvePlan": "disable" });
        merge(&mut spec, more);
        let run = json!({ "destroy": spec["destroy"] == true });
        let mut planned = planned(2, "Revision");
        merge(&mut planned["spec"], run);
        words(spec, vec![planned])
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
        let told = of(more.clone());
        assert!(
            told.starts_with(
                "Ready Unknown TerraformPlannedWithChanges: Plan generated: nothing is applied while"
            ),
            "{told}"
        );
        assert!(
            told.contains("event Normal TerraformPlanSucceed"),
            "{more} {told}"
        );
    }
}

#[test]
fn drift_of_a_stack_that_is_only_planned_is_told() {
    let steady = || vec![applied(1, &[]), planned(2, "Interval")];
    let told = words(json!({ "planOnly": true }), steady());
    assert!(told.starts_with("Ready False DriftDetected"), "{told}");
    assert!(told.contains("event Warning DriftDetected"), "{told}");
    let told = words(json!({ "planOnly": true }), vec![planned(2, "Revision")]);
    assert!(
        told.starts_with(
            "Ready Unknown TerraformPlannedWithChanges: Plan generated: This object is in the plan only mode."
        ),
        "{told}"
    );
}

#[test]
fn the_plan_that_a_request_replaces_is_not_shown_meanwhile() {
    let asked = |trigger: &str| {
        let mut run = going(2, "Plan", "Planning", json!({}));
        run["spec"]["trigger"] = json!(trigger);
        words(json!({}), vec![planned(1, "Revision"), run])
    };
    assert!(!asked("Request").contains("a plan waits"));
    assert!(asked("Revision").contains("a plan waits"));
}

#[test]
fn a_suspended_stack_that_was_as_wanted_has_observed_its_spec() {
    let observed = |ready: &str| {
        let held = json!({ "conditions": [{ "type": "Ready", "status": ready, "reason": "NoDrift", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z" }], "observedGeneration": 1 });
        let suspended = pass("it", json!({ "suspend": true }), vec![])
            .with(json!({ "metadata": { "generation": 3 }, "status": held }));
        carried_out(&suspended, &suspended.object()).0.observed_generation
    };
    assert_eq!(observed("True"), Some(3));
    assert_eq!(observed("False"), Some(1));
}

#[test]
fn drift_that_a_person_approved_counts_as_corrected() {
    let corrected = |is_drift: bool, pending: &str| {
        let mut apply = applied(3, &[]);
        merge(
            &mut apply["spec"],
            json!({ "action": "Apply", "trigger": "Approval", "plan": { "id": id(), "run": "net-u1-2" } }),
        );
        let held = json!({ "plan": { "pending": pending, "isDriftDetectionPlan": is_drift } });
        let runs = vec![applied(1, &[]), planned(2, "Interval"), apply];
        let pass = pass("it", json!({ "approvePlan": id() }), runs).with(json!({ "status": held }));
        carried_out(&pass, &pass.object())
            .0
            .last_applied_by_drift_detection_at
            .is_some()
    };
    assert!(corrected(true, &id()));
    assert!(!corrected(false, &id()));
    assert!(!corrected(true, "another"));
}

#[test]
fn the_outputs_that_were_chosen_are_named_by_their_keys() {
    let told = told(&pass(
        "it",
        json!({ "approvePlan": "auto", "writeOutputsToSecret": { "name": "out", "outputs": ["b:key.b", "a"] } }),
        vec![applied(1, &["a", "b", "c"])],
    ));
    assert!(
        told.contains("Outputs written.\\n2 output(s): key.b, a"),
        "{told}"
    );
}

/// A stack as wanted that was asked to look, with a run more perhaps.
fn asked(more: Option<Value>) -> Pass {
    let runs = [Some(clean(1, "Revision")), more].into_iter().flatten().collect();
    pass("it", json!({}), runs).with(json!({ "metadata": { "annotations": { REQUESTED_AT: "look" } } }))
}

/// The status after a pass that found this one.
fn after(pass: &Pass, held: &TerraformStatus) -> TerraformStatus {
    let mut stack = pass.object();
    stack.status = Some(held.clone());
    carried_out(pass, &stack).0
}

/// The status of [`asked`] after its source was away, then there, and no place free.
fn answered() -> TerraformStatus {
    let held = after(
        &asked(None).source(SourceFact::NoArtifact),
        &TerraformStatus::default(),
    );
    assert_eq!(
        (
            held.last_handled_reconcile_at.as_str(),
            held.owed_reconcile_at.as_str()
        ),
        ("look", "look")
    );
    let waits = Pass {
        place: false,
        ..asked(None)
    };
    after(&waits, &held)
}

#[test]
fn a_request_that_was_answered_while_nothing_could_run_is_owed_until_a_run_takes_it_up() {
    let held = answered();
    let says =
        |status: &TerraformStatus, text: &str| status.conditions.iter().any(|c| c.message.contains(text));
    assert!(says(&held, "free place"), "{held:?}");
    assert!(
        says(&after(&asked(None), &held), "Initializing"),
        "a run is made for it"
    );
    let owed = |phase: &str| {
        let spec = json!({ "action": "Plan", "trigger": "Request" });
        let mut run = run(2, spec, json!({ "phase": phase, "hasChanges": false }));
        run["metadata"]["annotations"] = json!({ REQUESTED_AT: "look" });
        after(&asked(Some(run)), &held).owed_reconcile_at
    };
    assert_eq!(
        owed("Superseded"),
        "look",
        "one that was given up has not taken it up"
    );
    assert_eq!(owed("Succeeded"), "");
}

#[test]
fn a_request_of_long_ago_is_not_owed_because_something_goes_away_now() {
    let past = TerraformStatus {
        last_handled_reconcile_at: "look".into(),
        ..TerraformStatus::default()
    };
    let away = after(&asked(None).source(SourceFact::NoArtifact), &past);
    assert_eq!(away.owed_reconcile_at, "");
}
