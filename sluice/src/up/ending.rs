//! The end of the program: active runs finish first.

use std::time::Duration;

use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use sluice_api::run::TerraformRun;
use sluice_runtime::shutdown::Signals;
use sluice_tf_controller::executor::ProcessExecutor;

use crate::view::Lines;

/// Waits for active runs: the first signal has stopped new runs, the second interrupts the CLI, the third ends the program; the
/// next start adopts the runs that remain.
pub(super) async fn wait_for_runs(
    client: &Client,
    executor: &ProcessExecutor,
    signals: &Signals,
    lines: &Lines,
) {
    let names = active_runs(client).await;
    if executor.is_idle() {
        return;
    }
    lines.print(&format!(
        "Waiting for {}. Press Ctrl-C again to interrupt, a third time to exit without waiting.",
        names.join(", ")
    ));
    tokio::select! {
        () = executor.idle() => return,
        () = signals.reached(2) => executor.interrupt(),
    }
    tokio::select! {
        () = executor.idle() => {}
        () = signals.reached(3) => {
            lines.print("Exiting with active runs; the next sluice up with this --state adopts them.");
        }
    }
}

async fn active_runs(client: &Client) -> Vec<String> {
    let api: Api<TerraformRun> = Api::all(client.clone());
    let list = tokio::time::timeout(Duration::from_secs(5), api.list(&ListParams::default())).await;
    let list = list.ok().and_then(Result::ok);
    let runs = list.map(|list| list.items).unwrap_or_default();
    let is_active = |run: &&TerraformRun| !run.status.as_ref().is_some_and(|status| status.phase.is_final());
    runs.iter().filter(is_active).map(ResourceExt::name_any).collect()
}
