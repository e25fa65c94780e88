//! The API requests of each step in a stack's life, counted at a proxy for controller, runner and CLI.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use sluice_api::terraform::Terraform;

use crate::environment::{TIMEOUT, TestEnvironment};
use crate::leader_loss::proxy::ApiProxy;
use crate::observe::condition;

/// Creates a test environment with a source whose controller, runners and CLIs use the API through a proxy.
async fn environment_with_proxy() -> (TestEnvironment, ApiProxy) {
    let mut env = TestEnvironment::without_controller().await;
    let proxy = ApiProxy::open(env.client.clone()).await;
    // Independent of the machine's load: no step counts as slow, and no heartbeat is due.
    let runner = TestEnvironment::own_runner().into_iter();
    let slow = ["--step-seconds", "600", "--heartbeat-seconds", "600"].map(str::to_owned);
    env.runner = Some(runner.chain(slow).collect());
    env.kubeconfig = proxy.write_kubeconfig(env.dir.path(), "all");
    env.start(4).await;
    let code = "resource \"terraform_data\" \"it\" { input = 1 }\noutput \"it\" { value = terraform_data.it.output }\n";
    env.commit("a", &[("main.tf", code)]).await;
    Count::of(&proxy, "start").await;
    (env, proxy)
}

/// The requests of one step by method and URL, with their counts.
struct Count(BTreeMap<String, usize>);

impl Count {
    /// Waits until no request has arrived for a while, and counts the requests since the last count, except watches.
    async fn of(proxy: &ApiProxy, step: &str) -> Self {
        let settling = async {
            let mut before = usize::MAX;
            while before != proxy.requests().len() {
                before = proxy.requests().len();
                tokio::time::sleep(Duration::from_millis(1500)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, settling).await.unwrap();
        let mut requests = BTreeMap::new();
        for line in proxy
            .requests()
            .into_iter()
            .filter(|line| !line.contains("watch="))
        {
            *requests.entry(line).or_default() += 1;
        }
        proxy.clear_requests();
        let count = Self(requests);
        eprintln!(
            "{step}: {} writes, {} requests, the CLI's {} among these\n{:#?}",
            count.writes(),
            count.requests(),
            count.sum(|line| line.starts_with("cli ")),
            count.0
        );
        count
    }

    fn sum(&self, counts: impl Fn(&str) -> bool) -> usize {
        let lines = self.0.iter().filter(|(line, _)| counts(line));
        lines.map(|(_, times)| times).sum()
    }

    /// Returns the number of writes of controller and runner.
    fn writes(&self) -> usize {
        self.sum(|line| !line.starts_with("GET ") && !line.starts_with("cli "))
    }

    /// Returns the number of requests.
    fn requests(&self) -> usize {
        self.sum(|_| true)
    }
}

/// Returns the time of the last successful reconciliation.
fn last_success(stack: &Terraform) -> Option<String> {
    let status = stack.status.as_ref()?;
    Some(status.last_successful_reconcile_at.as_ref()?.0.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_an_approved_apply_and_drift_detection_write_little() {
    let (env, proxy) = environment_with_proxy().await;
    env.stack("net", json!({ "approvePlan": "" })).await;
    let planned = |stack: &Terraform| condition(stack, "Plan").starts_with("True");
    let stack = env.wait_for("net", "planned", planned).await;
    let plan = Count::of(&proxy, "first plan").await;
    let id = stack.status.unwrap().plan.unwrap().pending;
    env.edit("net", json!({ "approvePlan": id })).await;
    let before = last_success(&env.wait_ready("net", "True").await);
    let apply = Count::of(&proxy, "approved apply").await;
    env.edit("net", json!({ "interval": "6s" })).await;
    let is_checked =
        |stack: &Terraform| last_success(stack) != before && condition(stack, "Ready").contains("NoDrift");
    let before = last_success(&env.wait_for("net", "drift detection", is_checked).await);
    Count::of(&proxy, "first drift detection").await;
    let runs = env.runs("net").await.len();
    let is_checked = |stack: &Terraform| last_success(stack) != before;
    env.wait_for("net", "drift detection", is_checked).await;
    let checks = Count::of(&proxy, "later drift detections").await;
    let runs = env.runs("net").await.len() - runs;
    assert!(plan.writes() <= 9, "{}", plan.writes());
    assert!(apply.writes() <= 8, "{}", apply.writes());
    assert!(checks.writes() <= 4 * runs, "{} of {runs}", checks.writes());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_apply_needs_few_requests() {
    let (env, proxy) = environment_with_proxy().await;
    env.stack("net", json!({})).await;
    env.wait_ready("net", "True").await;
    let apply = Count::of(&proxy, "first apply").await;
    let of_the_cli = apply.sum(|line| line.starts_with("cli "));
    // One of them reads the new state, so that no command does.
    assert!(apply.requests() - of_the_cli <= 23, "{}", apply.requests());
    // Terraform finds the state by its labels, and reads it by its name before each of the two writes.
    let is_tofu = sluice_harness::cli::terraform().unwrap().ends_with("tofu");
    let limit = if is_tofu { 48 } else { 50 };
    assert!(apply.requests() <= limit, "{}", apply.requests());
    let state_reads =
        apply.sum(|line| line.starts_with("GET ") && line.ends_with("/secrets/tfstate-default-net"));
    assert_eq!(state_reads, 1, "that of the new state");
}
