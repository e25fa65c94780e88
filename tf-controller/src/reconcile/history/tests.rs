//! Tests of the history of a stack.

use serde_json::{Value, json};
use sluice_api::annotation::CANCEL;

use super::*;

fn run(number: u32, action: &str, trigger: &str, inputs: &str, status: &Value) -> TerraformRun {
    let mut run = json!({
        "metadata": { "name": format!("net-u1-{number}"), "namespace": "team" },
        "spec": { "action": action, "attempt": 1, "deadline": "2h", "trigger": trigger, "inputsDigest": inputs,
            "source": { "kind": "GitRepository", "name": "code", "namespace": "team" },
            "terraform": { "name": "net", "uid": "u1", "generation": 1 } },
        "status": { "phase": "Succeeded", "hasChanges": false, "finishedAt": format!("2026-01-{number:02}T00:00:00Z") },
    });
    for (key, value) in status.as_object().unwrap() {
        run["status"][key] = value.clone();
    }
    serde_json::from_value(run).unwrap()
}

/// Returns whether the last run is a drift check.
fn is_last_drift_check(runs: &[TerraformRun]) -> bool {
    let (last, before) = runs.split_last().unwrap();
    is_drift_check(&history(before), &run_fact(last, false))
}

#[test]
fn a_plan_after_a_session_is_a_drift_check_only_if_the_stack_was_in_sync() {
    let clean = json!({});
    let pending = json!({ "hasChanges": true, "planId": "plan-main-aa-ee" });
    let failed = json!({ "phase": "Failed", "hasChanges": null });
    let session = || {
        run(
            3,
            "BreakTheGlass",
            "Request",
            "i2",
            &json!({ "hasChanges": null }),
        )
    };
    let after = || run(4, "Plan", "Request", "i2", &clean);
    let first = || run(1, "PlanAndApply", "Revision", "i1", &clean);
    for commit in [pending, failed] {
        let runs = [
            first(),
            run(2, "Plan", "Revision", "i2", &commit),
            session(),
            after(),
        ];
        assert!(
            !is_last_drift_check(&runs),
            "{commit}: the commit was never applied"
        );
    }
    let in_sync = [
        first(),
        run(2, "Plan", "Revision", "i2", &clean),
        session(),
        after(),
    ];
    assert!(is_last_drift_check(&in_sync));
}

#[test]
fn a_rejection_uses_up_the_id_of_its_plan_until_the_next_apply() {
    let plan =
        json!({ "hasChanges": true, "planId": "plan-main-aa-ee", "rejection": { "rejectedBy": "alice" } });
    let rejected = || run(2, "Plan", "Revision", "i2", &plan);
    let applied = |number: u32| {
        let status = json!({ "hasChanges": true, "attemptedApply": true });
        run(number, "PlanAndApply", "Revision", "i1", &status)
    };
    let spent = |runs: &[TerraformRun]| {
        let history = history(runs);
        (history.last_started_apply, history.last_rejected)
    };
    let named = |number: u32| Some(format!("net-u1-{number}"));
    assert_eq!(spent(&[rejected()]), (None, named(2)));
    assert_eq!(spent(&[applied(1), rejected()]), (named(1), named(2)));
    let clean = run(3, "Plan", "Interval", "i2", &json!({}));
    assert_eq!(spent(&[applied(1), rejected(), clean]), (named(1), named(2)));
    assert_eq!(spent(&[rejected(), applied(3)]), (named(3), None));
    let pending = history(&[rejected()]).pending.unwrap();
    assert_eq!(pending.rejection.unwrap().rejected_by, "alice");
}

#[test]
fn a_refused_apply_is_that_of_the_pending_plan_by_the_newest_run() {
    let plan = || {
        let status = json!({ "hasChanges": true, "planId": "plan-main-aa-ee" });
        run(1, "Plan", "Revision", "i1", &status)
    };
    let refused = |change: &Value| {
        let mut status = json!({ "phase": "Superseded", "claim": { "holder": "h" }, "hasChanges": null });
        for (key, value) in change.as_object().unwrap() {
            status[key] = value.clone();
        }
        let mut run = run(2, "Apply", "Approval", "i1", &status);
        run.spec.plan =
            serde_json::from_value(json!({ "id": "plan-main-aa-ee", "run": "net-u1-1" })).unwrap();
        run
    };
    let since = |runs: &[TerraformRun], generation: i64| {
        let pending = history(runs).pending.unwrap();
        refused_apply(runs, &pending, Some(generation))
    };
    let superseded = || refused(&json!({}));
    let ended: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
    assert_eq!(since(&[plan(), superseded()], 1), Some(ended));
    assert_eq!(since(&[superseded(), plan()], 1), Some(ended), "in any order");
    assert_eq!(
        since(&[plan(), superseded()], 2),
        None,
        "the spec was edited since"
    );
    assert_eq!(since(&[plan()], 1), None);
    let unclaimed = refused(&json!({ "claim": null }));
    assert_eq!(since(&[plan(), unclaimed], 1), None, "the controller ended it");
    let interrupted = refused(&json!({ "reason": "Interrupted" }));
    assert_eq!(since(&[plan(), interrupted], 1), None, "it is repeated at once");
    let mut other = superseded();
    other.spec.plan.as_mut().unwrap().id = "plan-main-aa-ff".to_owned();
    assert_eq!(since(&[plan(), other], 1), None);
    let mut newer = plan();
    newer.metadata.name = Some("net-u1-3".to_owned());
    assert_eq!(since(&[plan(), superseded(), newer], 1), None);
}

#[test]
fn runs_caused_only_by_inputs_are_counted() {
    let count = |runs: &[TerraformRun]| history(runs).input_runs.map(|runs| runs.count);
    let made = |number: u32, trigger: &str, inputs: &str, digest: &str| {
        let mut run = run(number, "PlanAndApply", trigger, inputs, &json!({}));
        let at = |minute: u32| json!(format!("2026-01-01T00:{minute:02}:00Z"));
        run.metadata.creation_timestamp = serde_json::from_value(at(number)).unwrap();
        run.status.as_mut().unwrap().finished_at = serde_json::from_value(at(number)).unwrap();
        run.spec.source.digest = digest.to_owned();
        run
    };
    let runs = [
        made(1, "Revision", "i1", "a"),
        made(2, "Revision", "i2", "a"),
        made(3, "Interval", "i2", "a"),
        made(4, "Revision", "i3", "a"),
    ];
    assert_eq!(
        (count(&runs[..1]), count(&runs[..2]), count(&runs)),
        (None, Some(1), Some(2))
    );
    let later = |trigger, digest| [&runs[..], &[made(28, trigger, "i4", digest)]].concat();
    assert_eq!(count(&later("Revision", "a")), Some(1), "after a pause");
    assert_eq!(
        count(&later("Revision", "b")),
        Some(2),
        "a commit is another cause"
    );
    assert_eq!(count(&later("Request", "a")), Some(2));
}

#[test]
fn a_commit_counts_for_a_stack_whose_downloaded_modules_may_read_the_artifact() {
    let reads = |whole: bool| json!({ "moduleReads": { "wholeArtifact": whole } });
    let inputs = |runs: &[TerraformRun]| history(runs).last.unwrap().inputs;
    let of = |number, digest: &str, status: &Value| {
        let mut run = run(number, "Plan", "Revision", "i1", status);
        run.spec.source.digest = digest.to_owned();
        run
    };
    let (first, failed) = (
        of(1, "a", &reads(true)),
        of(2, "b", &json!({ "phase": "Failed" })),
    );
    assert_eq!(
        inputs(std::slice::from_ref(&first)),
        effective_inputs("i1", "a", true)
    );
    // A run that failed before the end of init does not know it.
    assert_eq!(
        inputs(&[first.clone(), failed.clone()]),
        effective_inputs("i1", "b", true)
    );
    assert_eq!(inputs(&[failed]), "i1");
    assert_eq!(inputs(&[first, of(3, "b", &reads(false))]), "i1");
}

#[test]
fn a_plan_that_is_made_again_with_the_same_effect_waits_since_the_first() {
    let plan = |number, effect: &str| {
        let status = json!({ "hasChanges": true, "planId": effect, "effectDigest": effect });
        run(number, "Plan", "Interval", "i1", &status)
    };
    let other = |number, action: &str, status: Value| run(number, action, "Interval", "i1", &status);
    // The number of the run since whose end the plan of the last run waits.
    let since = |between: &[TerraformRun]| {
        let runs = [&[plan(1, "aa")][..], between, &[plan(9, "aa")]].concat();
        let effect = history(&runs).planned_effect.unwrap();
        let ended = |run: &&TerraformRun| {
            run.status.as_ref().unwrap().finished_at.as_ref().unwrap().0 == effect.since
        };
        sequence(runs.iter().find(ended).unwrap())
    };
    assert_eq!(since(&[]), 1);
    assert_eq!(since(&[plan(2, "aa"), plan(3, "aa")]), 1);
    assert_eq!(since(&[plan(2, "bb"), plan(3, "aa")]), 3);
    for skipped in [
        other(2, "Plan", json!({ "phase": "Failed", "hasChanges": null })),
        other(2, "Plan", json!({ "phase": "Lost", "hasChanges": null })),
        other(2, "Plan", json!({ "phase": "Superseded", "hasChanges": null })),
        other(2, "Unlock", json!({ "hasChanges": null })),
        other(
            2,
            "Apply",
            json!({ "phase": "Failed", "reason": "PlanStale", "attemptedApply": true }),
        ),
    ] {
        assert_eq!(since(std::slice::from_ref(&skipped)), 1, "{:?}", skipped.status);
    }
    for stop in [
        other(2, "Plan", json!({})),
        other(2, "BreakTheGlass", json!({ "hasChanges": null })),
        other(2, "Apply", json!({ "attemptedApply": true })),
        other(2, "Apply", json!({ "phase": "Failed", "attemptedApply": true })),
    ] {
        assert_eq!(since(std::slice::from_ref(&stop)), 9, "{:?}", stop.status);
    }
    let unknown = plan(1, "");
    assert_eq!(history(&[unknown]).planned_effect, None);
}

#[test]
fn the_memory_is_the_highest_peak_and_the_limit_of_the_newest_pod() {
    let of = |number, peak: i64, limit: i64| {
        let status = json!({ "peakMemoryBytes": peak, "memoryLimitBytes": limit });
        run(number, "Plan", "Interval", "i1", &status)
    };
    // In any order.
    let memory = history(&[of(3, 20, 400), of(1, 10, 500), of(2, 30, 600)]).memory;
    assert_eq!((memory.peak, memory.limit), (Some(30), Some(400)));
    assert_eq!(memory.default_request, None);
    assert_eq!(history(&[]).memory.peak, None);
}

#[test]
fn a_destroy_that_finds_another_state_needs_a_change() {
    let needs = |trigger: &str, reason: &str, mismatch: &str| {
        let status =
            json!({ "phase": "Failed", "hasChanges": null, "reason": reason, "stateMismatch": mismatch });
        run_fact(&run(1, "PlanAndApply", trigger, "i1", &status), false).needs_change
    };
    assert!(needs("Deletion", "TFExecPlanFailed", "another lineage"));
    assert!(needs("Revision", "ToolNotInstalled", ""));
    assert!(!needs("Deletion", "TFExecPlanFailed", ""));
    assert!(!needs("Deletion", "TFExecApplyFailed", "another lineage"));
    assert!(!needs("Revision", "TFExecPlanFailed", "another lineage"));
}

#[test]
fn a_plan_after_a_force_unlock_is_a_drift_check_only_with_the_same_inputs() {
    let failed = json!({ "phase": "Failed", "hasChanges": null });
    let runs = |inputs: &str| {
        [
            run(1, "PlanAndApply", "Revision", "i1", &json!({})),
            run(2, "Plan", "Interval", "i1", &failed),
            run(3, "Unlock", "Retry", inputs, &json!({ "hasChanges": null })),
            run(4, "Plan", "Retry", inputs, &json!({})),
        ]
    };
    assert!(is_last_drift_check(&runs("i1")));
    assert!(!is_last_drift_check(&runs("i2")), "a commit came between");
}

#[test]
fn disrupted_runs_in_a_row_are_counted() {
    let ended = |number, trigger: &str, phase: &str, reason: &str| {
        let status = json!({ "phase": phase, "reason": reason, "hasChanges": null });
        run(number, "Plan", trigger, "i1", &status)
    };
    let evicted = |number| ended(number, "Retry", "Lost", "Evicted");
    let count = |runs: &[TerraformRun]| history(runs).disruptions;
    let row: Vec<_> = (1..=9).map(evicted).collect();
    assert_eq!((count(&row[..1]), count(&row[..3])), (1, 3));
    // The end of a run that the runner itself reports.
    let drained = ended(4, "Retry", "Failed", "NodeLost");
    assert_eq!(count(&[&row[..3], &[drained]].concat()), 4);
    assert_eq!(count(&row), 6, "older runs may be deleted");
    for (trigger, phase, reason, expected) in [
        ("Retry", "Failed", "TFExecPlanFailed", 0),
        ("Retry", "Lost", "RunLost", 0),
        ("Retry", "Failed", "OOMKilled", 0),
        ("Retry", "Succeeded", "", 0),
        // It was ended before it began, and does not count.
        ("Retry", "Superseded", "InputsChanged", 3),
        ("Revision", "Lost", "Evicted", 1),
        ("Deletion", "Lost", "Evicted", 4),
    ] {
        let next = ended(4, trigger, phase, reason);
        let runs = [&row[..3], &[next]].concat();
        assert_eq!(count(&runs), expected, "{trigger} {phase} {reason}");
    }
}

#[test]
fn interrupted_runs_in_a_row_are_counted_until_a_run_ends_otherwise() {
    let ended = |number, phase: &str, reason: &str| {
        let status = json!({ "phase": phase, "reason": reason, "hasChanges": null });
        run(number, "Apply", "Approval", "i1", &status)
    };
    let interrupted = |number| ended(number, "Superseded", "Interrupted");
    let count = |runs: &[TerraformRun]| history(runs).interruptions;
    let row: Vec<_> = (1..=9).map(interrupted).collect();
    assert_eq!((count(&[]), count(&row[..1]), count(&row[..3])), (0, 1, 3));
    assert_eq!(count(&row), INTERRUPTION_LIMIT, "older runs may be deleted");
    for (phase, reason, expected) in [
        ("Succeeded", "", 0),
        ("Failed", "TFExecApplyFailed", 0),
        // It was ended for another cause before it began, and does not count.
        ("Superseded", "InputsChanged", 3),
        // The run after the last repeat.
        ("Failed", "Evicted", 3),
        // An apply that did not begin to apply is repeated, too.
        ("Lost", "NodeLost", 4),
    ] {
        let runs = [&row[..3], &[ended(4, phase, reason)]].concat();
        assert_eq!(count(&runs), expected, "{phase} {reason}");
    }
}

#[test]
fn an_apply_that_was_interrupted_before_it_began_leaves_its_plan_pending() {
    let plan = json!({ "hasChanges": true, "planId": "plan-main-aa-ee" });
    let after = |action: &str, before: i64, status: Value| {
        let mut last = run(2, action, "Approval", "i1", &status);
        last.spec.interruptions = before;
        let history = history(&[run(1, "Plan", "Revision", "i1", &plan), last]);
        (
            history.pending.map(|pending| pending.plan_id),
            history.interruptions,
        )
    };
    let status = |phase: &str, reason: &str| json!({ "phase": phase, "reason": reason, "hasChanges": null });
    let mut begun = status("Lost", "Evicted");
    begun["attemptedApply"] = json!(true);
    let id = || Some("plan-main-aa-ee".to_owned());
    for (action, before, status, expected) in [
        ("Apply", 0, status("Superseded", "Interrupted"), (id(), 1)),
        // Killed without time for a report.
        ("Apply", 0, status("Lost", "Evicted"), (id(), 1)),
        ("Apply", 4, status("Lost", "NodeLost"), (id(), 1)),
        // After the last repeat.
        ("Apply", 5, status("Lost", "Evicted"), (None, 0)),
        ("Apply", 5, status("Failed", "Evicted"), (None, 0)),
        // Its apply had begun, it was killed for another cause, or it was not an apply of this plan.
        ("Apply", 0, begun, (None, 0)),
        ("Apply", 0, status("Lost", "RunLost"), (None, 0)),
        ("Plan", 0, status("Lost", "Evicted"), (None, 0)),
    ] {
        let text = status.to_string();
        assert_eq!(
            after(action, before, status),
            expected,
            "{action} {before} {text}"
        );
    }
}

#[test]
fn a_cancelled_apply_is_not_repeated() {
    let plan = json!({ "hasChanges": true, "planId": "plan-main-aa-ee" });
    let lost = json!({ "phase": "Lost", "reason": "Evicted", "hasChanges": null });
    let mut runs = [
        run(1, "Plan", "Revision", "i1", &plan),
        run(2, "Apply", "Approval", "i1", &lost),
    ];
    assert!(history(&runs).pending.is_some());
    runs[1].metadata.annotations = Some([(CANCEL.to_owned(), "now".to_owned())].into());
    let history = history(&runs);
    assert_eq!((history.pending, history.interruptions), (None, 0));
}

#[test]
fn drift_stays_drift_after_an_apply_that_was_interrupted_before_it_began() {
    let drifted = json!({ "hasChanges": true, "planId": "plan-main-aa-ee" });
    let lost = json!({ "phase": "Lost", "reason": "Evicted", "hasChanges": null });
    let mut runs = vec![
        run(1, "PlanAndApply", "Revision", "i1", &json!({})),
        run(2, "Plan", "Interval", "i1", &drifted),
        run(3, "Apply", "Drift", "i1", &lost),
    ];
    assert!(history(&runs).pending.is_some_and(|pending| pending.drift));
    runs.push(run(4, "Plan", "Interval", "i1", &drifted));
    assert!(is_last_drift_check(&runs));
    // Any other lost apply may have changed something.
    runs[2].status.as_mut().unwrap().attempted_apply = true;
    assert!(!is_last_drift_check(&runs));
}
