//! The controller as a process of its own, which can be killed for real: this test binary, started with its orders.

use super::fate::Fate;
use crate::world::options;
use serde::{Deserialize, Serialize};
use sluice_harness::trial::Trial;
use sluice_runtime::{client, http, shutdown::Token, telemetry};
use sluice_tf_controller::{
    executor::{ProcessExecutor, ProcessOptions},
    run,
};
use std::{collections::BTreeMap, fs::File, path::PathBuf, process::Stdio, sync::Arc};
use tokio::process::Command;

/// What a controller is told.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Orders {
    pub(crate) kubeconfig: PathBuf,
    pub(crate) folder: PathBuf,
    pub(crate) runner: Vec<String>,
    pub(crate) environment: BTreeMap<String, String>,
}

/// The program.
pub(crate) async fn control(orders: &str) {
    let orders: Orders = serde_json::from_str(orders).unwrap();
    http::install_crypto();
    telemetry::install(telemetry::Encoding::Console, telemetry::Level::Debug).unwrap();
    let settings = client::Settings {
        kubeconfig: Some(orders.kubeconfig),
        ..client::Settings::default()
    };
    let client = client::build(&settings).await.unwrap();
    let process = ProcessOptions {
        command: orders.runner,
        root: orders.folder.join("runs"),
        tools: None,
        environment: orders.environment,
        credentials: None,
        pod: None,
        artifact_host: None,
    };
    let (executor, ended) = ProcessExecutor::new(process).unwrap();
    let options = options(&client, 4, orders.folder.join("scratch"));
    run(options, (Arc::new(executor), ended), client, Token::new())
        .await
        .unwrap();
}

/// Keeps a controller running: whenever it is killed, the next one starts on what is left. Ends it when `over`.
pub(crate) async fn keep(orders: Orders, trial: Arc<Trial>, fate: Fate, over: Token) {
    let text = serde_json::to_string(&orders).unwrap();
    let log = File::create(orders.folder.join("controller.log")).unwrap();
    while !over.is_cancelled() {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["as_controller", "--exact", "--nocapture", "--", &text])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log.try_clone().unwrap())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        fate.controller_is(child.id());
        tokio::select! {
            ended = child.wait() => {
                let ended = ended.unwrap();
                if std::os::unix::process::ExitStatusExt::signal(&ended) != Some(9) {
                    fate.broken(format!("the controller ended by itself: {ended}"));
                    return;
                }
                if fate.apply_died() {
                    fate.laws.sweep_orphans(&trial).await;
                }
            }
            () = over.cancelled() => child.kill().await.unwrap(),
        }
    }
}
