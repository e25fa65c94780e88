//! The controller as a separate process that can be killed: this test binary, started with options.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sluice_harness::trial::TrialProvider;
use sluice_runtime::shutdown::Token;
use sluice_runtime::{client, http, telemetry};
use sluice_tf_controller::executor::{ProcessExecutor, ProcessOptions};
use sluice_tf_controller::run;
use tokio::process::Command;

use super::fault_state::FaultState;
use crate::environment::options;

/// The options of a controller.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct ControllerOptions {
    pub(crate) kubeconfig: PathBuf,
    pub(crate) folder: PathBuf,
    pub(crate) runner: Vec<String>,
    pub(crate) environment: BTreeMap<String, String>,
}

/// Runs the program.
pub(crate) async fn control(arguments: &str) {
    let arguments: ControllerOptions = serde_json::from_str(arguments).unwrap();
    http::install_crypto();
    telemetry::install(telemetry::Encoding::Console, telemetry::Level::Debug).unwrap();
    let settings = client::Settings {
        kubeconfig: Some(arguments.kubeconfig),
        ..client::Settings::default()
    };
    let client = client::build(&settings).await.unwrap();
    let process = ProcessOptions {
        command: arguments.runner,
        root: arguments.folder.join("runs"),
        tools: None,
        environment: arguments.environment,
        credentials: None,
        pod: None,
        artifact_host: None,
    };
    let (executor, ended) = ProcessExecutor::new(process).unwrap();
    let options = options(&client, 4, arguments.folder.join("scratch"));
    run(options, (Arc::new(executor), ended), client, Token::new())
        .await
        .unwrap();
}

/// Restarts a killed controller until `over`, then ends it.
pub(crate) async fn keep_running(
    options: ControllerOptions,
    trial: Arc<TrialProvider>,
    fault_state: FaultState,
    end: Token,
) {
    let text = serde_json::to_string(&options).unwrap();
    let log = File::create(options.folder.join("controller.log")).unwrap();
    while !end.is_cancelled() {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["as_controller", "--exact", "--nocapture", "--", &text])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log.try_clone().unwrap())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        fault_state.set_controller(child.id());
        tokio::select! {
            ended = child.wait() => {
                let ended = ended.unwrap();
                if std::os::unix::process::ExitStatusExt::signal(&ended) != Some(9) {
                    fault_state.report_violation(format!("the controller exited: {ended}"));
                    return;
                }
                if fault_state.apply_died() {
                    fault_state.invariants.remove_orphans(&trial).await;
                }
            }
            () = end.cancelled() => child.kill().await.unwrap(),
        }
    }
}
