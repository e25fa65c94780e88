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

#[test]
fn a_request_that_was_answered_while_nothing_could_run_is_owed_until_a_run_takes_it_up() {
    let asked = || json!({ "metadata": { "annotations": { REQUESTED_AT: "look" } } });
    let steady = || pass("it", json!({}), vec![clean(1, "Revision")]).with(asked());
    let go = |pass: &Pass, held: &TerraformStatus| {
        let mut stack = pass.object();
        stack.status = Some(held.clone());
        carried_out(pass, &stack).0
    };
    let told = |status: &TerraformStatus| {
        (
            status.last_handled_reconcile_at.clone(),
            status.owed_reconcile_at.clone(),
        )
    };
    let (answered, owed) = (
        ("look".to_owned(), "look".to_owned()),
        ("look".to_owned(), String::new()),
    );
    let new = TerraformStatus::default();
    let away = || steady().source(SourceFact::NoArtifact);
    let held = go(&away(), &new);
    assert_eq!(told(&held), answered);
    // There again, and no place is free.
    let waits = Pass {
        place: false,
        ..steady()
    };
    let held = go(&waits, &held);
    assert!(
        held.conditions.iter().any(|c| c.message.contains("free place")),
        "{held:?}"
    );
    assert_eq!(told(&held), answered);
    assert!(
        carried_out(&steady(), &{
            let mut stack = steady().object();
            stack.status = Some(held.clone());
            stack
        })
        .0
        .conditions
        .iter()
        .any(|c| c.message == "Initializing"),
        "a run is made for it"
    );
    // A run that was given up has not taken it up; the next one has.
    let carried = |phase: &str| {
        let mut run = run(
            2,
            json!({ "action": "Plan", "trigger": "Request" }),
            json!({ "phase": phase, "hasChanges": false }),
        );
        run["metadata"]["annotations"] = json!({ REQUESTED_AT: "look" });
        let mut pass = steady();
        pass.runs.push(run);
        pass
    };
    assert_eq!(told(&go(&carried("Superseded"), &held)), answered);
    assert_eq!(told(&go(&carried("Succeeded"), &held)), owed);
    // What was answered in another way, long ago, is not owed because something goes away now.
    let past = TerraformStatus {
        last_handled_reconcile_at: "look".into(),
        ..new
    };
    assert_eq!(told(&go(&away(), &past)), owed);
}
