//! Histories of runs.

use super::*;

fn summary(values: &[Value]) -> String {
    let runs: Vec<_> = values.iter().map(typed).collect();
    let h = history(&runs);
    let none = || "none".to_owned();
    let last = h
        .last
        .as_ref()
        .map_or_else(none, |run| format!("{} {:?}", run.name, run.outcome));
    let pending = h
        .pending
        .as_ref()
        .map_or_else(none, |p| format!("{} drift={}", p.run, p.drift));
    let active = h.active.as_ref().map_or("none", |run| &run.name);
    let (started, checked, next) = (
        h.last_started_apply.as_deref().unwrap_or("none"),
        h.checked,
        h.next_sequence,
    );
    format!(
        "active {active}, last {last}, pending {pending}, checked {checked}, started {started}, next {next}"
    )
}

fn rows(rows: &[(&str, Vec<Value>)]) -> String {
    let lines: Vec<_> = rows
        .iter()
        .map(|(name, values)| format!("{name}: {}", summary(values)))
        .collect();
    lines.join("\n")
}

fn apply(number: i64, status: Value) -> Value {
    run(number, json!({ "action": "Apply" }), status)
}

#[test]
fn histories() {
    insta::assert_snapshot!(rows(&[
        ("none", vec![]),
        ("out of order", vec![planned(2, "Revision"), applied(1, &[])]),
        ("applied", vec![planned(1, "Revision"), apply(2, json!({ "attemptedApply": true }))]),
        ("stale", vec![applied(1, &[]), planned(2, "Revision"), apply(3, json!({ "phase": "Failed", "reason": "PlanStale", "attemptedApply": true }))]),
        ("drift", vec![applied(1, &[]), planned(2, "Interval")]),
        ("drift beside lost outputs", vec![applied(1, &[]), planned(2, "Repair")]),
        ("drift again", vec![applied(1, &[]), planned(2, "Interval"), planned(3, "Interval")]),
        ("a check of a pending plan is not drift", vec![planned(1, "Revision"), planned(2, "Request")]),
        ("a check of other inputs is no drift", vec![run(1, json!({ "inputsDigest": "i0" }), json!({})), planned(2, "Interval")]),
        ("failed apply", vec![planned(1, "Revision"), failed(2, 1, "TFExecApplyFailed", true)]),
        ("superseded", vec![planned(1, "Revision"), run(2, json!({}), json!({ "phase": "Superseded" }))]),
        ("active", vec![applied(1, &[]), going(2, "Plan", "Pending", json!({}))]),
        ("pruned", vec![applied(7, &[])]),
    ]), @"
    none: active none, last none, pending none, checked false, started none, next 1
    out of order: active none, last net-u1-2 Succeeded, pending net-u1-2 drift=false, checked false, started net-u1-1, next 3
    applied: active none, last net-u1-2 Succeeded, pending none, checked false, started net-u1-2, next 3
    stale: active none, last net-u1-3 Failed, pending none, checked false, started net-u1-1, next 4
    drift: active none, last net-u1-2 Succeeded, pending net-u1-2 drift=true, checked true, started net-u1-1, next 3
    drift beside lost outputs: active none, last net-u1-2 Succeeded, pending net-u1-2 drift=true, checked true, started net-u1-1, next 3
    drift again: active none, last net-u1-3 Succeeded, pending net-u1-3 drift=true, checked true, started net-u1-1, next 4
    a check of a pending plan is not drift: active none, last net-u1-2 Succeeded, pending net-u1-2 drift=false, checked false, started none, next 3
    a check of other inputs is no drift: active none, last net-u1-2 Succeeded, pending net-u1-2 drift=false, checked false, started none, next 3
    failed apply: active none, last net-u1-2 Failed, pending none, checked false, started net-u1-2, next 3
    superseded: active none, last net-u1-1 Succeeded, pending net-u1-1 drift=false, checked false, started none, next 3
    active: active net-u1-2, last net-u1-1 Succeeded, pending none, checked false, started net-u1-1, next 3
    pruned: active none, last net-u1-7 Succeeded, pending none, checked false, started net-u1-7, next 8
    ");
}

/// A drift check that failed, met a stale plan or a lock, and the run after it.
#[test]
fn a_failed_drift_check_is_repeated_as_a_drift_check() {
    let check = |number, status| run(number, json!({ "action": "Plan", "trigger": "Interval" }), status);
    let lost = check(2, json!({ "phase": "Failed", "reason": "TFExecPlanFailed" }));
    let again = planned(3, "Retry");
    let unlock = run(
        3,
        json!({ "action": "Unlock", "trigger": "Retry" }),
        json!({ "phase": "Succeeded" }),
    );
    let stale = apply(
        3,
        json!({ "phase": "Failed", "reason": "PlanStale", "attemptedApply": true }),
    );
    insta::assert_snapshot!(rows(&[
        ("failed", vec![applied(1, &[]), lost.clone()]),
        ("made again", vec![applied(1, &[]), lost.clone(), again.clone()]),
        ("made again after an edit", vec![applied(1, &[]), lost.clone(), planned(3, "Spec")]),
        ("failed on a lock", vec![applied(1, &[]), lost, unlock, planned(4, "Retry")]),
        ("stale", vec![applied(1, &[]), planned(2, "Interval"), stale, planned(4, "Retry")]),
        ("another failure", vec![applied(1, &[]), failed(2, 1, "TFExecPlanFailed", false), again]),
    ]), @"
    failed: active none, last net-u1-2 Failed, pending none, checked true, started net-u1-1, next 3
    made again: active none, last net-u1-3 Succeeded, pending net-u1-3 drift=true, checked true, started net-u1-1, next 4
    made again after an edit: active none, last net-u1-3 Succeeded, pending net-u1-3 drift=true, checked true, started net-u1-1, next 4
    failed on a lock: active none, last net-u1-4 Succeeded, pending net-u1-4 drift=true, checked true, started net-u1-1, next 5
    stale: active none, last net-u1-4 Succeeded, pending net-u1-4 drift=true, checked true, started net-u1-1, next 5
    another failure: active none, last net-u1-3 Succeeded, pending net-u1-3 drift=false, checked false, started net-u1-1, next 4
    ");
}

#[test]
fn a_stack_keeps_the_cli_of_its_last_plan() {
    let tool = |name: &str, planned: Option<bool>| json!({ "tool": { "name": name, "version": "1" }, "hasChanges": planned, "phase": "Succeeded" });
    let runs = |values: Vec<Value>| history(&values.iter().map(typed).collect::<Vec<_>>()).tool;
    assert_eq!(runs(vec![]), None);
    let plan = |number, status| run(number, json!({ "action": "Plan" }), status);
    assert_eq!(
        runs(vec![plan(1, tool("tofu", Some(false)))]).as_deref(),
        Some("tofu")
    );
    // A run that failed before init shows nothing about the state.
    let failed = plan(
        2,
        json!({ "tool": { "name": "terraform", "version": "1" }, "phase": "Failed" }),
    );
    assert_eq!(
        runs(vec![plan(1, tool("tofu", Some(true))), failed]).as_deref(),
        Some("tofu")
    );
}
