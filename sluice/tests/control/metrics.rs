//! Metrics of stacks and runs on the page of a running controller.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;

use crate::environment::{TIMEOUT, TestEnvironment};
use crate::observe::pending;

const STACK: &str = r#"
resource "terraform_data" "one" { input = 1 }
resource "terraform_data" "two" { input = 2 }
"#;

/// The alerts and the dashboard.
const MONITORING: [&str; 2] = [
    include_str!("../../../config/monitoring/rules.yaml"),
    include_str!("../../../config/monitoring/dashboard.json"),
];

/// The beginnings of the names of metrics.
const PREFIXES: [&str; 7] = [
    "controller_runtime_",
    "gotk_",
    "leader_election_",
    "process_",
    "rest_client_",
    "sluice_",
    "workqueue_",
];

/// Metrics that this environment does not have: it has no connection to an API server, no Lease and no receiver of events. The
/// tests of `sluice-runtime` cover them.
const ABSENT: [&str; 3] = [
    "leader_election_master_status",
    "rest_client_requests_total",
    "sluice_event_posts_total",
];

/// Waits until the page has all these lines.
pub(crate) async fn wait_lines(env: &TestEnvironment, lines: &[&str]) {
    let has_all = async {
        loop {
            let text = env.metrics.text();
            if lines
                .iter()
                .all(|line| text.contains(&format!("sluice_terraform_{line}\n")))
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(TIMEOUT, has_all).await;
    waited.unwrap_or_else(|_| panic!("{lines:?} are missing in\n{}", env.metrics.text()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_its_approval_and_its_apply_are_counted() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", STACK)]).await;
    env.stack("net", json!({ "approvePlan": "" })).await;
    let waiting = env.wait_ready("net", "Unknown TerraformPlannedWithChanges").await;
    wait_lines(
        &env,
        &[
            "stacks{stack_namespace=\"team\",ready=\"Unknown\"} 1",
            "plans_pending{stack_namespace=\"team\"} 1",
            "runs_created_total{action=\"Plan\",trigger=\"Revision\"} 1",
            "runs_ended_total{action=\"Plan\",trigger=\"Revision\",phase=\"Succeeded\"} 1",
            "run_duration_seconds_count{action=\"Plan\",phase=\"Succeeded\"} 1",
            "run_peak_memory_bytes_count{action=\"Plan\"} 1",
            "plan_changes_sum{operation=\"add\"} 2.0",
            "run_slots 4",
            "run_slots_occupied 0",
        ],
    )
    .await;
    env.edit("net", json!({ "approvePlan": pending(&waiting) })).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    wait_lines(
        &env,
        &[
            "stacks{stack_namespace=\"team\",ready=\"True\"} 1",
            "stacks_failing{stack_namespace=\"team\"} 0",
            "plans_pending{stack_namespace=\"team\"} 0",
            "plan_pending_oldest_seconds{stack_namespace=\"team\"} 0.0",
            "runs_created_total{action=\"Apply\",trigger=\"Approval\"} 1",
            "runs_ended_total{action=\"Apply\",trigger=\"Approval\",phase=\"Succeeded\"} 1",
            "runs_active{action=\"Apply\",phase=\"Applying\"} 0",
            // The apply made no plan.
            "plan_changes_count{operation=\"add\"} 1",
        ],
    )
    .await;
    assert_has_monitored_metrics(&env.metrics.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_stack_is_shown_until_it_is_deleted() {
    let env = TestEnvironment::new().await;
    env.stack("net", json!({ "approvePlan": "auto" })).await;
    let blocked = |reason| format!("stacks_blocked{{stack_namespace=\"team\",reason=\"{reason}\"}} 1");
    wait_lines(&env, &[&blocked("Source")]).await;
    env.edit("net", json!({ "suspend": true })).await;
    wait_lines(&env, &[&blocked("Suspended")]).await;
    assert!(!env.metrics.text().contains(&blocked("Source")));
    env.edit("net", json!({ "suspend": false })).await;
    env.delete("net").await;
    env.wait_gone("net").await;
    let forgotten = async {
        while env.metrics.text().contains("stack_namespace=\"team\"") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(TIMEOUT, forgotten).await;
    waited.unwrap_or_else(|_| panic!("a deleted stack is shown\n{}", env.metrics.text()));
}

/// Asserts that the page has each metric of the alerts and the dashboard.
fn assert_has_monitored_metrics(page: &str) {
    let is_series = |line: &str, name: &str| line.split(['{', ' ']).next() == Some(name);
    for name in monitored_metrics() {
        let is_present = page.lines().any(|line| is_series(line, &name));
        let is_optional = ABSENT.contains(&&*name);
        assert!(is_present || is_optional, "{name} is missing in\n{page}");
    }
}

/// Returns the names of all metrics in alerts and dashboard.
fn monitored_metrics() -> BTreeSet<String> {
    let words = MONITORING
        .iter()
        .flat_map(|text| text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')));
    let names: BTreeSet<_> = words
        .filter(|word| PREFIXES.iter().any(|prefix| word.starts_with(prefix)))
        .map(str::to_owned)
        .collect();
    assert!(names.len() > 20, "{names:?}");
    names
}
