//! Where a story is told: a world of its own, whose API stands behind the gate, whose CLI has a bell, and whose controller is a
//! process that is started again whenever it dies.

use super::{
    bell,
    controller::{self, Orders},
    fate::{Cut, Fate},
    gate::Gate,
    laws::{self, Laws},
};
use crate::looks::{condition, pending};
use crate::world::{DEADLINE, World};
use serde_json::json;
use sluice_api::terraform::Terraform;
use sluice_harness::trial::Trial;
use sluice_runtime::shutdown::Token;
use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};
use tokio::task::JoinHandle;

/// The stage of one telling.
pub(crate) struct Stage {
    pub(crate) world: World,
    pub(crate) trial: Arc<Trial>,
    pub(crate) fate: Fate,
    over: Token,
    tasks: Vec<JoinHandle<()>>,
}

/// Gives a runner a way to the API that tells its process. `exec` keeps the process.
const RUNNER: &str = "sed \"s/WHO/$$/\" \"$0/kubeconfig\" > \"$0/kubeconfig-$$\" && \
    export KUBECONFIG=\"$0/kubeconfig-$$\" KUBE_CONFIG_PATH=\"$0/kubeconfig-$$\" && exec \"$@\"";

impl Stage {
    /// A stage with a controller at work.
    pub(crate) async fn new(cut: Option<Cut>) -> Self {
        let world = World::without_controller().await;
        let trial = Arc::new(Trial::create().unwrap());
        let laws = Laws::new(world.client.clone());
        let folder = world.path("stage");
        std::fs::create_dir(&folder).unwrap();
        let fate = Fate::new(&folder, cut, laws);
        let address = Gate::open(world.client.clone(), fate.clone()).await;
        let way = |who: &str| {
            let server = format!("{address}/as/{who}");
            json!({ "apiVersion": "v1", "kind": "Config", "current-context": "c",
                "contexts": [{ "name": "c", "context": { "cluster": "k", "user": "u" } }],
                "clusters": [{ "name": "k", "cluster": { "server": server } }],
                "users": [{ "name": "u", "user": { "token": "t" } }] })
        };
        std::fs::write(folder.join("kubeconfig"), way("WHO").to_string()).unwrap();
        let kubeconfig = folder.join("kubeconfig-controller");
        std::fs::write(&kubeconfig, way("controller").to_string()).unwrap();
        let cli = sluice_harness::cli::terraform().unwrap();
        let bell = bell::hang(&folder, &cli, fate.clone()).await;
        let orders = orders(&folder, kubeconfig, &bell, &trial);
        let over = Token::new();
        let (broken, client) = (fate.clone(), world.client.clone());
        let tasks = vec![
            tokio::spawn(controller::keep(
                orders,
                Arc::clone(&trial),
                fate.clone(),
                over.clone(),
            )),
            tokio::spawn(async move { laws::watch(client, |law| broken.broken(law)).await }),
        ];
        Self {
            world,
            trial,
            fate,
            over,
            tasks,
        }
    }

    /// Publishes a module of these resources at a revision.
    pub(crate) async fn commit(&self, mark: &str, resources: &str) -> String {
        self.commit_all(mark, &[("main.tf", resources)]).await
    }

    /// Publishes modules of these resources at a revision.
    pub(crate) async fn commit_all(&self, mark: &str, files: &[(&str, &str)]) -> String {
        let head = self.trial.module_head();
        let whole: Vec<_> = files
            .iter()
            .map(|(path, resources)| (*path, format!("{head}{resources}")))
            .collect();
        let files: Vec<_> = whole.iter().map(|(path, text)| (*path, text.as_str())).collect();
        self.world.commit(mark, &files).await
    }

    /// Makes a stack that writes its outputs.
    pub(crate) async fn stack(&self, name: &str, mut spec: serde_json::Value) {
        if spec.get("approvePlan").is_none() {
            self.fate.laws.allow_all();
        }
        spec["writeOutputsToSecret"] = json!({ "name": format!("{name}-outputs") });
        self.world.stack(name, spec).await;
    }

    /// Approves whatever plan waits until the revision is applied.
    pub(crate) async fn approve_until(&self, name: &str, revision: &str) {
        let done = |stack: &Terraform| {
            let status = stack.status.as_ref();
            is(stack, "True ") && status.is_some_and(|status| status.last_applied_revision == revision)
        };
        self.approve_while(name, done).await;
    }

    /// Approves whatever plan waits, as a person does who reads it, until it is `done`.
    pub(crate) async fn approve_while(&self, name: &str, done: impl Fn(&Terraform) -> bool) {
        loop {
            let looking = self.world.until(name, "to wait or to be done", |stack| {
                waits(stack).is_some() || done(stack)
            });
            let stack = Box::pin(looking).await;
            let Some(plan) = waits(&stack) else {
                return;
            };
            self.fate.laws.approve(&plan);
            self.world.edit(name, json!({ "approvePlan": plan })).await;
        }
    }

    /// Waits until Ready begins so.
    pub(crate) async fn until(&self, name: &str, beginning: &str) {
        self.world
            .until(name, beginning, |stack| is(stack, beginning))
            .await;
    }

    /// Waits until nobody works any more, then ends the controller.
    pub(crate) async fn close(mut self) -> Vec<String> {
        let quiet = async {
            while !self.fate.alive().is_empty() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        if tokio::time::timeout(DEADLINE, quiet).await.is_err() {
            self.fate
                .broken(format!("processes are left: {:?}", self.fate.alive()));
        }
        self.over.cancel();
        if self.tasks[1..].iter().any(JoinHandle::is_finished) {
            self.fate.broken("nobody watched the laws to the end".to_owned());
        }
        let keeper = self.tasks.remove(0);
        tokio::time::timeout(DEADLINE, keeper).await.unwrap().unwrap();
        self.tasks.iter().for_each(JoinHandle::abort);
        self.fate.violations()
    }

    /// The end of the controller's log.
    pub(crate) fn log(&self) -> String {
        let text = std::fs::read_to_string(self.world.path("stage/controller.log")).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }
}

fn orders(folder: &std::path::Path, kubeconfig: PathBuf, bell: &std::path::Path, trial: &Trial) -> Orders {
    let this = std::env::current_exe().unwrap().display().to_string();
    let path = format!(
        "{}:{}",
        bell.display(),
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
    Orders {
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

/// The plan that waits for an approval which it has not got.
fn waits(stack: &Terraform) -> Option<String> {
    let plan = pending(stack);
    let asks = condition(stack, "Ready").contains("set approvePlan");
    (asks && !plan.is_empty() && stack.spec.approve_plan != plan).then_some(plan)
}

/// Whether Ready begins so, for the present generation.
pub(crate) fn is(stack: &Terraform, beginning: &str) -> bool {
    let observed = stack
        .status
        .as_ref()
        .and_then(|status| status.observed_generation);
    observed == stack.metadata.generation && condition(stack, "Ready").starts_with(beginning)
}
