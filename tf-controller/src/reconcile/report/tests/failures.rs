//! Failures, blocked stacks, deletion.

use super::*;
use crate::reconcile::report::says_silent;

#[test]
fn failures() {
    let auto = || json!({ "approvePlan": "auto", "retryInterval": "1h" });
    let limited = json!({ "approvePlan": "auto", "remediation": { "retries": 1 } });
    let locked = json!({ "phase": "Failed", "reason": "TFExecPlanFailed", "message": "error running Plan: locked", "lock": { "id": "l1" } });
    insta::assert_snapshot!(table(&[
        case("plan failed", auto(), vec![failed(1, 1, "TFExecPlanFailed", false)]),
        case("apply failed", auto(), vec![failed(1, 2, "TFExecApplyFailed", true)]),
        case("apply failed, manual", json!({ "retryInterval": "1h" }), vec![planned(1, "Revision"), failed(2, 1, "TFExecApplyFailed", true)]),
        case("lost", auto(), vec![run(1, json!({}), json!({ "phase": "Lost", "reason": "RunLost", "message": "gone", "attemptedApply": true }))]),
        case("runner cannot be started", auto(), vec![failed(1, 1, "TFExecNewFailed", false)]),
        case("locked", auto(), vec![run(1, json!({}), locked)]),
        case("retry limit", limited, vec![failed(1, 2, "TFExecApplyFailed", true)]),
        case("superseded", auto(), vec![clean(1, "Revision"), run(2, json!({}), json!({ "phase": "Superseded" }))]),
    ]), @"
    plan failed:
      Reconciling True ProgressingWithRetry: error running It: TFExecPlanFailed
      Ready False TFExecPlanFailed: error running It: TFExecPlanFailed
      1 failures
      event Warning TFExecPlanFailed: Plan error: TFExecPlanFailed
    apply failed:
      Reconciling True ProgressingWithRetry: error running It: TFExecApplyFailed
      Ready False TFExecApplyFailed: error running It: TFExecApplyFailed
      Apply False TerraformAppliedFail: error running It: TFExecApplyFailed
      2 failures
      event Warning TFExecApplyFailed: Apply error: TFExecApplyFailed
    apply failed, manual:
      Reconciling True ProgressingWithRetry: error running It: TFExecApplyFailed
      Ready False TFExecApplyFailed: error running It: TFExecApplyFailed
      Apply False TerraformAppliedFail: error running It: TFExecApplyFailed
      Plan True TerraformPlannedWithChanges: Plan generated
      1 failures
      event Warning TFExecApplyFailed: Apply error: TFExecApplyFailed
    lost:
      Reconciling True ProgressingWithRetry: gone
      Ready False RunLost: gone
      Apply False TerraformAppliedFail: gone
      1 failures
      event Warning RunLost: gone
    runner cannot be started:
      Reconciling True ProgressingWithRetry: error running It: TFExecNewFailed
      Ready False TFExecNewFailed: error running It: TFExecNewFailed
      1 failures
      event Warning TFExecNewFailed: TFExecNewFailed
    locked:
      Reconciling True ProgressingWithRetry: error running Plan: locked
      Ready False TFExecPlanFailed: error running Plan: locked
      StateLocked True LockHeld: Terraform Locked with Lock Identifier: l1
      1 failures
      event Warning TFExecPlanFailed: Plan error: State locked with Lock Identifier l1
    retry limit:
      Stalled True RetryLimitReached: Resource reached maximum number of retries.
      Ready False TFExecApplyFailed: error running It: TFExecApplyFailed
      Apply False TerraformAppliedFail: error running It: TFExecApplyFailed
      2 failures
      event Warning TFExecApplyFailed: Apply error: TFExecApplyFailed
    superseded:
      Ready True TerraformPlannedNoChanges: Plan no changes: main@sha1:aaaaaaaaaaaaaaaa
      Plan False TerraformPlannedNoChanges: Plan no changes
    ");
}

#[test]
fn a_disrupted_run_says_whether_it_uses_up_a_retry() {
    let text = |runs: i64, reason: &str, spec: Value| {
        let lost = |number: i64| {
            let status = json!({ "phase": "Lost", "reason": reason, "message": "gone" });
            run(number, json!({ "trigger": "Retry" }), status)
        };
        let case = case("it", spec, (1..=runs).map(lost).collect());
        let (after, _) = reconcile(&case, &case.object());
        let ready = after.conditions.iter().find(|c| c.type_ == "Ready").unwrap();
        let stalled = after.conditions.iter().any(|c| c.type_ == "Stalled");
        let failures = after.reconciliation_failures;
        format!(
            "{}: {}, {failures} failures, stalled {stalled}",
            ready.reason, ready.message
        )
    };
    let limited = || json!({ "retryInterval": "1h", "remediation": { "retries": 1 } });
    insta::assert_snapshot!([
        text(1, "Evicted", limited()),
        text(5, "NodeLost", limited()),
        text(6, "Evicted", limited()),
        text(6, "Evicted", json!({ "retryInterval": "1h" })),
        text(1, "RunLost", limited()),
    ].join("\n"), @r"
    Evicted: gone; disruption 1 of 5 in a row that use up no retry, 0 failures, stalled false
    NodeLost: gone; disruption 5 of 5 in a row that use up no retry, 0 failures, stalled false
    Evicted: gone; more than 5 disruptions in a row: it used up a retry, 1 failures, stalled true
    Evicted: gone, 1 failures, stalled false
    RunLost: gone, 1 failures, stalled true
    ");
}

#[test]
fn blocked_stacks() {
    let failed = |reason, message: &str| Inputs::Failed {
        reason,
        message: message.into(),
    };
    insta::assert_snapshot!(table(&[
        case("no source", json!({}), vec![]).source(SourceFact::NotFound("code not found".into())),
        case("denied", json!({}), vec![]).source(SourceFact::Denied("cannot cross".into())),
        case("no artifact", json!({}), vec![]).source(SourceFact::NoArtifact),
        case("API away", json!({}), vec![]).source(SourceFact::Unreachable("refused".into())),
        Case { inputs: failed("VarsGenerationFailed", "no Secret x"), ..case("no variables", json!({}), vec![]) },
        Case { inputs: failed("ArtifactFailed", "digest"), ..case("bad artifact", json!({}), vec![applied(1, &[])]) },
        case("suspended", json!({ "suspend": true }), vec![planned(1, "Revision")]),
    ]), @"
    no source:
      Reconciling True ProgressingWithRetry: code not found
      Ready False ArtifactFailed: code not found
      event Warning ArtifactFailed: code not found
    denied:
      Stalled True AccessDenied: cannot cross
      Ready False AccessDenied: cannot cross
      event Warning AccessDenied: cannot cross
    no artifact:
      Reconciling True ProgressingWithRetry: Source is not ready, artifact not found
      Ready False ArtifactFailed: Source is not ready, artifact not found
      event Warning ArtifactFailed: Source is not ready, artifact not found
    API away:
      Reconciling True ProgressingWithRetry: could not get Source object: refused
      Ready False ArtifactFailed: could not get Source object: refused
      event Warning ArtifactFailed: could not get Source object: refused
    no variables:
      Reconciling True ProgressingWithRetry: no Secret x
      Ready False VarsGenerationFailed: no Secret x
      event Warning VarsGenerationFailed: no Secret x
    bad artifact:
      Reconciling True ProgressingWithRetry: digest
      Ready False ArtifactFailed: digest
      Apply True TerraformAppliedSucceed: Applied successfully
      Plan True TerraformPlannedWithChanges: Plan generated
      event Warning ArtifactFailed: digest
    suspended:
    ");
}

#[test]
fn a_destroy_that_cannot_begin_says_who_must_do_what() {
    let blocked = |deleting: bool| {
        let waiting = json!({ "reason": "FailedCreate",
            "message": "serviceaccount \"own\" not found; create the ServiceAccount, or change spec.serviceAccountName" });
        let spec = json!({ "destroyResourcesOnDeletion": true });
        let mut case = case(
            "blocked",
            spec,
            vec![going(1, "PlanAndApply", "Pending", waiting)],
        );
        if deleting {
            case = case.with(
                json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["f"] } }),
            );
        }
        describe(&case)
    };
    let wait = "Ready Unknown Progressing: Waiting for the pod of run net-u1-1: FailedCreate: serviceaccount \"own\" not found; \
        create the ServiceAccount, or change spec.serviceAccountName";
    let abandon = "; or abandon the resources with destroyResourcesOnDeletion: false\n";
    let text = blocked(true);
    assert!(text.contains(&format!("{wait}{abandon}")), "{text}");
    let text = blocked(false);
    assert!(text.contains(&format!("{wait}\n")), "{text}");
}

#[test]
fn deletion() {
    let deleting =
        json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["f"] } });
    let destroy = || json!({ "destroyResourcesOnDeletion": true, "retryInterval": "1h" });
    let ran = |status| vec![run(1, json!({ "trigger": "Deletion", "destroy": true }), status)];
    insta::assert_snapshot!(table(&[
        case("begins", destroy(), vec![applied(1, &[])]).with(deleting.clone()),
        case("suspended", json!({ "suspend": true }), vec![]).with(deleting.clone()),
        case("source gone", destroy(), vec![]).with(deleting.clone()).source(SourceFact::NotFound("code not found".into())),
        case("destroy failed", destroy(), ran(json!({ "phase": "Failed", "reason": "TFExecApplyFailed", "message": "no", "attemptedApply": true })))
            .with(deleting.clone()),
        case("destroyed", destroy(), ran(json!({ "hasChanges": true, "attemptedApply": true }))).with(deleting),
    ]), @"
    begins:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready Unknown Progressing: Deletion in progress
      Apply True TerraformAppliedSucceed: Applied successfully
      Plan True TerraformPlannedWithChanges: Plan generated
    suspended:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready Unknown Progressing: Deletion waits: the object is suspended; set spec.suspend to false to resume
      event Normal DeletionSuspended: Deletion waits: the object is suspended; set spec.suspend to false to resume
    source gone:
      Reconciling True ProgressingWithRetry: code not found
      Ready False ArtifactFailed: code not found
      event Warning ArtifactFailed: code not found
    destroy failed:
      Reconciling True ProgressingWithRetry: no
      Ready False TFExecApplyFailed: no
      Apply False TerraformAppliedFail: no
      1 failures
      event Warning TFExecDestroyFailed: Destroy error: no
    destroyed:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready Unknown Progressing: Deletion in progress
      Apply True TerraformAppliedSucceed: Destroy applied successfully
      Plan True TerraformPlannedWithChanges: Plan generated
    ");
}

#[test]
fn an_apply_without_recorded_end_is_complete_after_a_plan_without_changes() {
    let lost = |number| {
        run(
            number,
            json!({}),
            json!({ "phase": "Lost", "reason": "RunLost", "attemptedApply": true, "hasChanges": true, "planId": id() }),
        )
    };
    let nothing = |number| {
        let mut run = clean(number, "Retry");
        merge(&mut run["status"], json!({ "outputs": ["a"] }));
        run
    };
    let text = |runs: Vec<Value>| {
        let case = case("it", json!({ "approvePlan": "auto" }), runs);
        let (after, _) = reconcile(&case, &case.object());
        let apply = after.conditions.iter().find(|c| c.type_ == "Apply");
        let apply = apply.map_or(String::new(), |c| c.reason.clone());
        let applied = !after.last_applied_revision.is_empty();
        format!("{apply} {applied} {:?}", after.available_outputs)
    };
    assert_eq!(text(vec![lost(1)]), "TerraformAppliedFail false []");
    assert_eq!(
        text(vec![lost(1), nothing(2)]),
        "TerraformAppliedSucceed true [\"a\"]"
    );
    assert_eq!(
        text(vec![nothing(1), lost(2)]),
        "TerraformAppliedFail false []",
        "a plan before it proves nothing"
    );
    let mut before_outputs = lost(1);
    merge(&mut before_outputs["status"], json!({ "applied": true }));
    assert_eq!(
        text(vec![before_outputs.clone()]),
        "TerraformAppliedSucceed true []"
    );
    assert_eq!(
        text(vec![before_outputs, nothing(2)]),
        "TerraformAppliedSucceed true [\"a\"]"
    );
    let mut destroys = nothing(2);
    merge(&mut destroys["spec"], json!({ "destroy": true }));
    assert_eq!(
        text(vec![lost(1), destroys]),
        "TerraformAppliedFail false []",
        "nor does a plan of something else"
    );
}

#[test]
fn a_run_without_heartbeats_is_reported() {
    let of = |spec: Value| {
        let runs = vec![going(1, "PlanAndApply", "Applying", json!({}))];
        let mut silent = case("silent", spec, runs);
        silent.is_silent = true;
        silent
    };
    let silent = of(json!({ "approvePlan": "auto" }));
    insta::assert_snapshot!(table(&[silent]), @r"
    silent:
      Reconciling True Progressing: Fulfilling prerequisites
      Ready Unknown Progressing: The runner of run net-u1-1 does not report (phase Applying): its node or its process may not answer. The run lasts until its pod has ended or is deleted, or its process has ended
      Apply Unknown Progressing: Apply started
      event Warning RunSilent: The runner of run net-u1-1 does not report (phase Applying): its node or its process may not answer. The run lasts until its pod has ended or is deleted, or its process has ended
    ");
    // Also of a suspended stack: otherwise it would be read again and again until its status says so.
    let suspended = of(json!({ "suspend": true }));
    let mut stack = suspended.object();
    stack.status = Some(reconcile(&suspended, &stack).0);
    assert!(says_silent(&stack));
    let (again, events) = reconcile(&suspended, &stack);
    assert_eq!((Some(again), events.len()), (stack.status, 0));
}
