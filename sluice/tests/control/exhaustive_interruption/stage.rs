//! The environment of a scenario: a test environment with the proxy in front of its API, the wrapper of the CLI, and a controller
//! process that is restarted whenever it dies.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use sluice_api::terraform::Terraform;
use sluice_harness::trial::TrialProvider;
use sluice_runtime::shutdown::Token;
use tokio::task::JoinHandle;

use super::cli_wrapper;
use super::controller::{self, ControllerOptions};
use super::fault_proxy::FaultProxy;
use super::fault_state::{FaultState, Injection};
use super::invariants::{self, Invariants};
use crate::environment::{TIMEOUT, TestEnvironment};
use crate::observe::{condition, pending};

/// The environment of one execution.
pub(crate) struct ScenarioEnvironment {
    pub(crate) env: TestEnvironment,
    pub(crate) trial: Arc<TrialProvider>,
    pub(crate) fault_state: FaultState,
    end: Token,
    tasks: Vec<JoinHandle<()>>,
}

/// Gives a runner a kubeconfig with its process id. `exec` keeps the process id.
const RUNNER: &str = "sed \"s/WHO/$$/\" \"$0/kubeconfig\" > \"$0/kubeconfig-$$\" && \
    export KUBECONFIG=\"$0/kubeconfig-$$\" KUBE_CONFIG_PATH=\"$0/kubeconfig-$$\" && exec \"$@\"";

impl ScenarioEnvironment {
    /// Creates an environment with a running controller.
    pub(crate) async fn new(injection: Option<Injection>) -> Self {
        let env = TestEnvironment::without_controller().await;
        let trial = Arc::new(TrialProvider::create().unwrap());
        let invariants = Invariants::new(env.client.clone());
        let folder = env.path("stage");
        std::fs::create_dir(&folder).unwrap();
        let fault_state = FaultState::new(&folder, injection, invariants);
        let address = FaultProxy::open(env.client.clone(), fault_state.clone()).await;
        let kubeconfig_of = |client: &str| {
            let server = format!("{address}/as/{client}");
            json!({ "apiVersion": "v1", "kind": "Config", "current-context": "c",
                "contexts": [{ "name": "c", "context": { "cluster": "k", "user": "u" } }],
                "clusters": [{ "name": "k", "cluster": { "server": server } }],
                "users": [{ "name": "u", "user": { "token": "t" } }] })
        };
        std::fs::write(folder.join("kubeconfig"), kubeconfig_of("WHO").to_string()).unwrap();
        let kubeconfig = folder.join("kubeconfig-controller");
        std::fs::write(&kubeconfig, kubeconfig_of("controller").to_string()).unwrap();
        let cli = sluice_harness::cli::terraform().unwrap();
        let wrapper = cli_wrapper::install(&folder, &cli, fault_state.clone()).await;
        let options = options(&folder, kubeconfig, &wrapper, &trial);
        let end = Token::new();
        let (faults, client) = (fault_state.clone(), env.client.clone());
        let tasks = vec![
            tokio::spawn(controller::keep_running(
                options,
                Arc::clone(&trial),
                fault_state.clone(),
                end.clone(),
            )),
            tokio::spawn(async move { invariants::watch(client, |law| faults.report_violation(law)).await }),
        ];
        Self {
            env,
            trial,
            fault_state,
            end,
            tasks,
        }
    }

    /// Publishes a module with these resources as a revision.
    pub(crate) async fn commit(&self, mark: &str, resources: &str) -> String {
        self.commit_all(mark, &[("main.tf", resources)]).await
    }

    /// Publishes modules with these resources as a revision.
    pub(crate) async fn commit_all(&self, mark: &str, files: &[(&str, &str)]) -> String {
        let head = self.trial.provider_block();
        let whole: Vec<_> = files
            .iter()
            .map(|(path, resources)| (*path, format!("{head}{resources}")))
            .collect();
        let files: Vec<_> = whole.iter().map(|(path, text)| (*path, text.as_str())).collect();
        self.env.commit(mark, &files).await
    }

    /// Creates a stack with outputs.
    pub(crate) async fn stack(&self, name: &str, mut spec: serde_json::Value) {
        if spec.get("approvePlan").is_none() {
            self.fault_state.invariants.allow_all();
        }
        spec["writeOutputsToSecret"] = json!({ "name": format!("{name}-outputs") });
        self.env.stack(name, spec).await;
    }

    /// Approves pending plans until the revision is applied.
    pub(crate) async fn approve_until(&self, name: &str, revision: &str) {
        let done = |stack: &Terraform| {
            let status = stack.status.as_ref();
            ready_begins_with(stack, "True ")
                && status.is_some_and(|status| status.last_applied_revision == revision)
        };
        self.approve_while(name, done).await;
    }

    /// Approves pending plans, as a user does, until `done`.
    pub(crate) async fn approve_while(&self, name: &str, done: impl Fn(&Terraform) -> bool) {
        loop {
            let looking = self.env.wait_for(name, "a pending plan or the end", |stack| {
                pending_unapproved(stack).is_some() || done(stack)
            });
            let stack = Box::pin(looking).await;
            let Some(plan) = pending_unapproved(&stack) else {
                return;
            };
            self.fault_state.invariants.approve(&plan);
            self.env.edit(name, json!({ "approvePlan": plan })).await;
        }
    }

    /// Waits until Ready has this beginning.
    pub(crate) async fn wait_ready(&self, name: &str, beginning: &str) {
        self.env
            .wait_for(name, beginning, |stack| ready_begins_with(stack, beginning))
            .await;
    }

    /// Waits until no process is active, then ends the controller.
    pub(crate) async fn close(mut self) -> Vec<String> {
        let quiet = async {
            while !self.fault_state.alive().is_empty() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        if tokio::time::timeout(TIMEOUT, quiet).await.is_err() {
            self.fault_state
                .report_violation(format!("processes remain: {:?}", self.fault_state.alive()));
        }
        self.end.cancel();
        if self.tasks[1..].iter().any(JoinHandle::is_finished) {
            self.fault_state
                .report_violation("the watch of the invariants ended early".to_owned());
        }
        let keeper = self.tasks.remove(0);
        tokio::time::timeout(TIMEOUT, keeper).await.unwrap().unwrap();
        self.tasks.iter().for_each(JoinHandle::abort);
        self.fault_state.violations()
    }

    /// Returns the end of the controller's log.
    pub(crate) fn log(&self) -> String {
        let text = std::fs::read_to_string(self.env.path("stage/controller.log")).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }
}

fn options(
    folder: &std::path::Path,
    kubeconfig: PathBuf,
    cli_wrapper: &std::path::Path,
    trial: &TrialProvider,
) -> ControllerOptions {
    let this = std::env::current_exe().unwrap().display().to_string();
    let path = format!(
        "{}:{}",
        cli_wrapper.display(),
        sluice_harness::cli::search_path().unwrap()
    );
    let place = folder.display().to_string();
    let command = [
        "/bin/sh",
        "-c",
        RUNNER,
        &place,
        &this,
        "as_runner",
        "--exact",
        "--nocapture",
        "--",
    ];
    ControllerOptions {
        kubeconfig,
        folder: folder.to_owned(),
        runner: command.map(str::to_owned).to_vec(),
        environment: BTreeMap::from([
            ("PATH".to_owned(), path),
            (
                "TF_CLI_CONFIG_FILE".to_owned(),
                trial.cli_config().display().to_string(),
            ),
            ("CHECKPOINT_DISABLE".to_owned(), "1".to_owned()),
        ]),
    }
}

/// Returns a pending plan that is not approved.
fn pending_unapproved(stack: &Terraform) -> Option<String> {
    let plan = pending(stack);
    let asks = condition(stack, "Ready").contains("set approvePlan");
    (asks && !plan.is_empty() && stack.spec.approve_plan != plan).then_some(plan)
}

/// Whether Ready of the current generation has this beginning.
pub(crate) fn ready_begins_with(stack: &Terraform, beginning: &str) -> bool {
    let observed = stack
        .status
        .as_ref()
        .and_then(|status| status.observed_generation);
    observed == stack.metadata.generation && condition(stack, "Ready").starts_with(beginning)
}
