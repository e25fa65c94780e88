//! The shutdown of `sluice up`: the first signal stops new runs and waits for active ones, the second interrupts the CLI, the
//! third ends the program; the next start adopts the runs that remain.

use std::time::Duration;

use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use sluice_api::run::TerraformRun;
use sluice_runtime::shutdown::Signals;
use sluice_tf_controller::executor::ProcessExecutor;

use crate::view::Screen;

/// Waits for active runs until they end or the user stops waiting.
pub(super) async fn wait_for_runs(
    client: &Client,
    executor: &ProcessExecutor,
    signals: &Signals,
    screen: &Screen,
) {
    let names = active_runs(client).await;
    if executor.is_idle() {
        return;
    }
    screen.print(&format!(
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
            screen.print("Exiting with active runs; the next sluice up with this --state adopts them.");
        }
    }
}

async fn active_runs(client: &Client) -> Vec<String> {
    let api: Api<TerraformRun> = Api::all(client.clone());
    let list = tokio::time::timeout(Duration::from_secs(5), api.list(&ListParams::default())).await;
    let runs = list
        .ok()
        .and_then(Result::ok)
        .map(|list| list.items)
        .unwrap_or_default();
    let is_active = |run: &&TerraformRun| !run.status.as_ref().is_some_and(|status| status.phase.is_final());
    runs.iter().filter(is_active).map(ResourceExt::name_any).collect()
}
