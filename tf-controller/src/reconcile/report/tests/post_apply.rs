//! Health checks, inventory, locks, break-glass sessions and lost outputs.

use super::*;

fn checked() -> Value {
    json!({ "approvePlan": "auto", "retryInterval": "1h", "enableInventory": true,
        "healthChecks": [{ "name": "web", "type": "tcp", "address": "web:80" }] })
}

fn action(number: i64, action: &str, status: Value) -> Value {
    run(number, json!({ "action": action, "trigger": "Retry" }), status)
}

#[test]
fn an_apply_counts_regardless_of_health_checks_and_outputs() {
    let message = "TCP health check error: web, url: web:80: connection refused";
    let unhealthy = || {
        let mut run = applied(1, &["a", "b"]);
        let status = json!({ "phase": "Failed", "reason": "HealthChecksFailed", "message": message,
            "health": { "checks": "1", "passed": false } });
        merge(&mut run["status"], status);
        run
    };
    let mut healthy = clean(2, "Retry");
    merge(
        &mut healthy["status"],
        json!({ "health": { "checks": "1", "passed": true } }),
    );
    insta::assert_snapshot!(table(&[
        case("unhealthy", checked(), vec![unhealthy()]),
        case("well again", checked(), vec![unhealthy(), healthy]),
        case("checks taken away", json!({ "approvePlan": "auto", "retryInterval": "1h" }), vec![unhealthy()]),
    ]), @r"
    unhealthy:
      Reconciling True ProgressingWithRetry: TCP health check error: web, url: web:80: connection refused
      Ready False HealthChecksFailed: TCP health check error: web, url: web:80: connection refused
      Apply True TerraformAppliedSucceed: Applied successfully
      HealthCheck False HealthChecksFailed: TCP health check error: web, url: web:80: connection refused
      Output True TerraformOutputsAvailable: Outputs available
      Plan True TerraformPlannedWithChanges: Plan generated
      1 failures
      event Normal TerraformAppliedSucceed: Applied successfully
      event Normal TerraformOutputsWritten: Outputs written.\n2 output(s): a, b
      event Warning HealthChecksFailed: TCP health check error: web, url: web:80: connection refused
    well again:
      Ready True TerraformPlannedNoChanges: Plan no changes: main@sha1:aaaaaaaaaaaaaaaa
      Apply True TerraformAppliedSucceed: Applied successfully
      HealthCheck True HealthChecksSucceed: Health checks succeeded
      Output True TerraformOutputsAvailable: Outputs available
      Plan False TerraformPlannedNoChanges: Plan no changes
    checks taken away:
      Reconciling True ProgressingWithRetry: TCP health check error: web, url: web:80: connection refused
      Ready False HealthChecksFailed: TCP health check error: web, url: web:80: connection refused
      Apply True TerraformAppliedSucceed: Applied successfully
      Output True TerraformOutputsAvailable: Outputs available
      Plan True TerraformPlannedWithChanges: Plan generated
      1 failures
      event Normal TerraformAppliedSucceed: Applied successfully
      event Normal TerraformOutputsWritten: Outputs written.\n2 output(s): a, b
      event Warning HealthChecksFailed: TCP health check error: web, url: web:80: connection refused
    ");
    let ran = case("unhealthy", checked(), vec![unhealthy()]);
    let (status, _) = reconcile(&ran, &ran.object());
    assert_eq!(
        status.last_applied_revision, REVISION,
        "it is applied all the same"
    );
}

#[test]
fn an_apply_counts_without_written_outputs() {
    let mut refused = applied(1, &["a"]);
    let status =
        json!({ "phase": "Failed", "reason": "OutputsWritingFailed", "message": "output not found: x" });
    merge(&mut refused["status"], status);
    let spec = json!({ "approvePlan": "auto", "retryInterval": "1h" });
    insta::assert_snapshot!(table(&[case("outputs refused", spec, vec![refused])]), @r"
    outputs refused:
      Reconciling True ProgressingWithRetry: output not found: x
      Ready False OutputsWritingFailed: output not found: x
      Apply True TerraformAppliedSucceed: Applied successfully
      Output True TerraformOutputsAvailable: Outputs available
      Plan True TerraformPlannedWithChanges: Plan generated
      1 failures
      event Normal TerraformAppliedSucceed: Applied successfully
      event Warning OutputsWritingFailed: output not found: x
    ");
}

#[test]
fn the_inventory_is_the_newest_and_is_removed_when_disabled() {
    let listed = |number, entries: Value| {
        let mut run = applied(number, &[]);
        merge(&mut run["status"], json!({ "inventory": { "entries": entries } }));
        run
    };
    let entry = |name: &str| json!([{ "n": name, "t": "terraform_data", "id": "1" }]);
    let names = |spec: Value, runs: Vec<Value>| {
        let ran =
            case("it", spec, runs).with(json!({ "status": { "inventory": { "entries": entry("held") } } }));
        let (status, _) = reconcile(&ran, &ran.object());
        status.inventory.map(|list| {
            list.entries
                .into_iter()
                .map(|entry| entry.name)
                .collect::<Vec<_>>()
        })
    };
    assert_eq!(names(checked(), vec![]), Some(vec!["held".to_owned()]));
    let newest = vec![listed(1, entry("a")), listed(2, entry("b")), clean(3, "Interval")];
    assert_eq!(names(checked(), newest.clone()), Some(vec!["b".to_owned()]));
    assert_eq!(
        names(checked(), vec![listed(1, entry("a")), listed(2, json!([]))]),
        Some(vec![]),
        "all is destroyed"
    );
    assert_eq!(names(json!({}), newest), None, "turned off");
}

#[test]
fn a_lock_is_reported_until_it_is_released() {
    let auto = || json!({ "approvePlan": "auto", "retryInterval": "1h" });
    let locked = json!({ "phase": "Failed", "reason": "TFExecInitFailed", "message": "error running Init: locked", "lock": { "id": "l1" } });
    let named = json!({ "approvePlan": "auto", "tfstate": { "forceUnlock": "yes", "lockIdentifier": "l1" } });
    let released =
        json!({ "reason": "ForceUnlock", "message": "Terraform Force Unlock with Lock Identifier: l1" });
    let dead = json!({ "reason": "TerraformAppliedSucceed", "message": "Applied successfully", "releasedLock": { "id": "l1",
        "run": "net-1", "proof": "its pod team/net-1-x has ended" } });
    insta::assert_snapshot!(table(&[
        case("released by the next run", auto(), vec![run(1, json!({}), dead)]),
        case("named lock", named, vec![run(1, json!({}), locked.clone())]),
        case("lock left by auto", json!({ "approvePlan": "auto", "retryInterval": "1h", "tfstate": { "forceUnlock": "auto" } }), vec![run(1, json!({}), locked.clone())]),
        case("released", auto(), vec![run(1, json!({}), locked), action(2, "Unlock", released)]),
    ]), @r"
    released by the next run:
      Ready True TerraformPlannedNoChanges: Plan no changes: main@sha1:aaaaaaaaaaaaaaaa
      StateLocked False ForceUnlock: Run net-u1-1 released the state lock l1 that run net-1 left behind: its pod team/net-1-x has ended
      event Normal ForceUnlock: Run net-u1-1 released the state lock l1 that run net-1 left behind: its pod team/net-1-x has ended
    named lock:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready Unknown Progressing: Initializing
      StateLocked True LockHeld: Terraform Locked with Lock Identifier: l1
      1 failures
    lock left by auto:
      Reconciling True ProgressingWithRetry: error running Init: locked
      Ready False TFExecInitFailed: error running Init: locked
      StateLocked True LockHeld: Terraform Locked with Lock Identifier: l1
      1 failures
      event Warning TFExecInitFailed: State locked with Lock Identifier l1
    released:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready Unknown Progressing: Initializing
      StateLocked False ForceUnlock: Terraform Force Unlock with Lock Identifier: l1
      event Normal ForceUnlock: Terraform Force Unlock with Lock Identifier: l1
    ");
}

#[test]
fn a_session_is_reported_at_its_start_and_end() {
    let auto = || json!({ "approvePlan": "auto", "retryInterval": "1h" });
    let open = json!({ "message": "Breaking the glass ... In a shell" });
    let over = json!({ "reason": "BreakTheGlassEnded", "message": "break the glass session has ended at t: its file was removed" });
    let session = |number, phase: &str| {
        let mut run = going(number, "BreakTheGlass", phase, open.clone());
        run["spec"]["trigger"] = json!("Request");
        run
    };
    let check = |status: Value| run(2, json!({ "action": "Plan", "trigger": "Interval" }), status);
    let failed =
        json!({ "phase": "Failed", "reason": "TFExecPlanFailed", "message": "error running Plan: boom" });
    insta::assert_snapshot!(table(&[
        case("session open", auto(), vec![applied(1, &[]), session(2, "BreakingTheGlass")]),
        case("session over, still requested", json!({ "breakTheGlass": true }), vec![applied(1, &[]), action(2, "BreakTheGlass", over.clone())]),
        case("session over", auto(), vec![applied(1, &[]), action(2, "BreakTheGlass", over)]),
        case("check failed", auto(), vec![applied(1, &[]), check(failed)]),
    ]), @r"
    session open:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready Unknown Progressing: Breaking the glass ... In a shell
      Apply True TerraformAppliedSucceed: Applied successfully
      Plan True TerraformPlannedWithChanges: Plan generated
      event Warning BreakTheGlass: Breaking the glass ... In a shell
    session over, still requested:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready Unknown Progressing: break the glass session has ended at t: its file was removed; set breakTheGlass: false to resume
      Apply True TerraformAppliedSucceed: Applied successfully
      Plan True TerraformPlannedWithChanges: Plan generated
      event Normal BreakTheGlass: break the glass session has ended at t: its file was removed
    session over:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready Unknown Progressing: Initializing
      Apply True TerraformAppliedSucceed: Applied successfully
      Plan True TerraformPlannedWithChanges: Plan generated
      event Normal BreakTheGlass: break the glass session has ended at t: its file was removed
    check failed:
      Reconciling True ProgressingWithRetry: error running Plan: boom
      Ready False DriftDetectionFailed: error running Plan: boom
      Apply True TerraformAppliedSucceed: Applied successfully
      Plan True TerraformPlannedWithChanges: Plan generated
      1 failures
      event Warning DriftDetectionFailed: Drift detection error: boom
    ");
}
