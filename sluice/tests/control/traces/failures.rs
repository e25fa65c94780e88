//! Failing steps and their recovery.

use serde_json::json;

use super::{MODULE, STACK, Traced};

/// Applies once the marker is there.
const FAILS_WITHOUT_MARKER: &str = "variable \"marker\" {}\n\
    resource \"terraform_data\" \"it\" {\n  provisioner \"local-exec\" { command = \"test -e ${var.marker}\" }\n}\n";

#[tokio::test(flavor = "multi_thread")]
async fn init_fails_and_then_the_plan() {
    let traced = Traced::new().await;
    let env = &traced.env;
    env.commit("a", &[("main.tf", "resource \"terraform_data\" {")])
        .await;
    env.stack(STACK, json!({ "retryInterval": "1h" })).await;
    env.wait_ready(STACK, "False TFExecInitFailed").await;
    let broken = format!("{MODULE}\nvariable \"needed\" {{}}\n");
    env.commit("b", &[("main.tf", &broken)]).await;
    env.wait_ready(STACK, "False TFExecPlanFailed").await;
    env.commit("c", &[("main.tf", MODULE)]).await;
    env.wait_ready(STACK, "True TerraformAppliedSucceed").await;
    traced
        .assert_trace(
            r"
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready False TFExecInitFailed: error running Init: exit status 1 …
          + Reconciling True ProgressingWithRetry: error running Init: exit status 1
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        Ready False TFExecPlanFailed: error running Plan: exit status 1 …
          + Reconciling True ProgressingWithRetry: error running Plan: exit status 1
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        ? Ready Unknown TerraformPlannedWithChanges: Plan generated
        Ready Unknown Progressing: Applying
          + Apply Unknown Progressing: Apply started
        Ready True TerraformAppliedSucceed: Applied successfully: revision c
          - Reconciling
          + Apply True TerraformAppliedSucceed: Applied successfully
          + Output True TerraformOutputsAvailable: Outputs available
          + Plan True TerraformPlannedWithChanges: Plan generated
",
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_apply_is_retried() {
    let traced = Traced::new().await;
    let env = &traced.env;
    env.commit("a", &[("main.tf", FAILS_WITHOUT_MARKER)]).await;
    let vars = json!([{ "name": "marker", "value": env.path("marker") }]);
    env.stack(STACK, json!({ "vars": vars, "retryInterval": "1h" }))
        .await;
    let failed = env.wait_ready(STACK, "False TFExecApplyFailed").await;
    let status = failed.status.unwrap();
    assert_eq!(
        (
            status.reconciliation_failures,
            status.plan.unwrap().pending.as_str()
        ),
        (1, "")
    );
    std::fs::write(env.path("marker"), "").unwrap();
    traced.request("again").await;
    traced
        .assert_trace(
            r"
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        ? Ready Unknown TerraformPlannedWithChanges: Plan generated
        Ready Unknown Progressing: Applying
          + Apply Unknown Progressing: Apply started
        Ready False TFExecApplyFailed: error running Apply: exit status 1 …
          + Reconciling True ProgressingWithRetry: error running Apply: exit status 1
          + Apply False TerraformAppliedFail: error running Apply: exit status 1 …
          + Plan True TerraformPlannedWithChanges: Plan generated
        # tofu-controller looks for drift first.
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        ? Ready Unknown TerraformPlannedWithChanges: Plan generated
        Ready Unknown Progressing: Applying
          + Apply Unknown Progressing: Apply started
        Ready True TerraformAppliedSucceed: Applied successfully: revision a
          - Reconciling
          + Apply True TerraformAppliedSucceed: Applied successfully
",
        )
        .await;
}

/// The trace of [`retries_are_exhausted_and_restart_after_an_edit_or_a_revision`].
const RETRIES_TRACE: &str = r"
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        ? Ready Unknown TerraformPlannedWithChanges: Plan generated
        Ready Unknown Progressing: Applying
          + Apply Unknown Progressing: Apply started
        Ready False TFExecApplyFailed: error running Apply: exit status 1 …
          + Reconciling True ProgressingWithRetry: error running Apply: exit status 1
          + Apply False TerraformAppliedFail: error running Apply: exit status 1 …
          + Plan True TerraformPlannedWithChanges: Plan generated
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        ? Ready Unknown TerraformPlannedWithChanges: Plan generated
        Ready Unknown Progressing: Applying
          + Apply Unknown Progressing: Apply started
        # tofu-controller hides the failure behind `Progressing`.
        Ready False TFExecApplyFailed: error running Apply: exit status 1 …
          - Reconciling
          + Stalled True RetryLimitReached: Resource reached maximum number of retries.
          + Apply False TerraformAppliedFail: error running Apply: exit status 1 …
        Ready Unknown Progressing: Initializing
          - Stalled
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        ? Ready Unknown TerraformPlannedWithChanges: Plan generated
        Ready Unknown Progressing: Applying
          + Apply Unknown Progressing: Apply started
        Ready False TFExecApplyFailed: error running Apply: exit status 1 …
          + Reconciling True ProgressingWithRetry: error running Apply: exit status 1
          + Apply False TerraformAppliedFail: error running Apply: exit status 1 …
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        ? Ready Unknown TerraformPlannedWithChanges: Plan generated
        Ready Unknown Progressing: Applying
          + Apply Unknown Progressing: Apply started
        Ready False TFExecApplyFailed: error running Apply: exit status 1 …
          - Reconciling
          + Stalled True RetryLimitReached: Resource reached maximum number of retries.
          + Apply False TerraformAppliedFail: error running Apply: exit status 1 …
        Ready Unknown Progressing: Initializing
          - Stalled
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        ? Ready Unknown TerraformPlannedWithChanges: Plan generated
        Ready Unknown Progressing: Applying
          + Apply Unknown Progressing: Apply started
        Ready True TerraformAppliedSucceed: Applied successfully: revision b
          - Reconciling
          + Apply True TerraformAppliedSucceed: Applied successfully
";

#[tokio::test(flavor = "multi_thread")]
async fn retries_are_exhausted_and_restart_after_an_edit_or_a_revision() {
    let traced = Traced::new().await;
    let env = &traced.env;
    env.commit("a", &[("main.tf", FAILS_WITHOUT_MARKER)]).await;
    let vars = |name: &str| json!([{ "name": "marker", "value": env.path(name) }]);
    // Long enough for each failure to be reported before the next try.
    let spec = json!({ "vars": vars("marker"), "remediation": { "retries": 2 }, "retryInterval": "4s" });
    env.stack(STACK, spec).await;
    let stalled = async |attempts: usize| {
        env.wait_for(STACK, "stalled", |s| {
            crate::observe::condition(s, "Stalled").starts_with("True RetryLimitReached")
        })
        .await;
        assert_eq!(env.runs(STACK).await.len(), attempts);
    };
    stalled(2).await;
    env.edit(STACK, json!({ "vars": vars("other") })).await;
    env.wait_run(STACK, "a fourth try", |run| crate::observe::number(run) == 4)
        .await;
    stalled(4).await;
    let repaired = FAILS_WITHOUT_MARKER.replace("test -e", "true");
    env.commit("b", &[("main.tf", &repaired)]).await;
    env.wait_ready(STACK, "True TerraformAppliedSucceed").await;
    traced.assert_trace(RETRIES_TRACE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_that_cannot_be_written() {
    let traced = Traced::new().await;
    let env = &traced.env;
    env.commit("a", &[("main.tf", MODULE)]).await;
    let target = json!({ "name": "out", "outputs": ["absent"] });
    env.stack(
        STACK,
        json!({ "writeOutputsToSecret": target, "retryInterval": "1h" }),
    )
    .await;
    env.wait_ready(STACK, "False OutputsWritingFailed").await;
    let target = json!({ "name": "out", "outputs": ["size"] });
    env.edit(STACK, json!({ "writeOutputsToSecret": target })).await;
    env.wait_ready(STACK, "True ").await;
    traced
        .assert_trace(
            r"
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        ? Ready Unknown TerraformPlannedWithChanges: Plan generated
        Ready Unknown Progressing: Applying
          + Apply Unknown Progressing: Apply started
        Ready Unknown TerraformAppliedSucceed: Applied successfully: revision a
          + Apply True TerraformAppliedSucceed: Applied successfully
        Ready False OutputsWritingFailed: output not found: absent
          + Reconciling True ProgressingWithRetry: output not found: absent
          + Output True TerraformOutputsAvailable: Outputs available
          + Plan True TerraformPlannedWithChanges: Plan generated
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        Ready True TerraformPlannedNoChanges: Plan no changes: revision a
          - Reconciling
          + Output True TerraformOutputsWritten: Outputs written
          + Plan False TerraformPlannedNoChanges: Plan no changes
",
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn health_checks_fail_and_pass() {
    let traced = Traced::new().await;
    let env = &traced.env;
    let service = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let alive = service.local_addr().unwrap().to_string();
    let closed = sluice_harness::closed_port::ClosedPort::reserve().unwrap();
    let refusing = closed.address().unwrap().to_string();
    env.commit("a", &[("main.tf", MODULE)]).await;
    let checks =
        |address: String| json!([{ "name": "door", "type": "tcp", "address": address, "timeout": "5s" }]);
    env.stack(
        STACK,
        json!({ "healthChecks": checks(refusing.clone()), "retryInterval": "1h" }),
    )
    .await;
    env.wait_ready(STACK, "False HealthChecksFailed").await;
    env.edit(STACK, json!({ "healthChecks": checks(alive) })).await;
    env.wait_ready(STACK, "True ").await;
    let expected =
        format!("TCP health check error: door, url: {refusing}: Connection refused (os error 111)");
    traced
        .assert_trace(&format!(
            r"
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        ? Ready Unknown TerraformPlannedWithChanges: Plan generated
        Ready Unknown Progressing: Applying
          + Apply Unknown Progressing: Apply started
        Ready Unknown TerraformAppliedSucceed: Applied successfully: revision a
          + Apply True TerraformAppliedSucceed: Applied successfully
        # tofu-controller stays at Unknown.
        Ready False HealthChecksFailed: {expected}
          + Reconciling True ProgressingWithRetry: {expected}
          + HealthCheck False HealthChecksFailed: {expected}
          + Output True TerraformOutputsAvailable: Outputs available
          + Plan True TerraformPlannedWithChanges: Plan generated
        Ready Unknown Progressing: Initializing
          + Reconciling True Progressing: Fulfilling prerequisites
        Ready Unknown Progressing: Terraform Planning
        Ready True TerraformPlannedNoChanges: Plan no changes: revision a
          - Reconciling
          + HealthCheck True HealthChecksSucceed: Health checks succeeded
          + Plan False TerraformPlannedNoChanges: Plan no changes
"
        ))
        .await;
}
