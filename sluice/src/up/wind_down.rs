//! The end of `sluice up`: the first signal starts nothing new and lets runs finish, the second interrupts the CLI, the
//! third leaves; a run that is left is found again by the next start.

use crate::view::Screen;
use kube::{Api, Client, ResourceExt, api::ListParams};
use sluice_api::run::TerraformRun;
use sluice_runtime::shutdown::Signals;
use sluice_tf_controller::executor::ProcessExecutor;
use std::time::Duration;

/// Waits for the runs in progress, as far as the user does.
pub(super) async fn runs(client: &Client, executor: &ProcessExecutor, signals: &Signals, screen: &Screen) {
    let names = unfinished(client).await;
    if executor.is_idle() {
        return;
    }
    screen.say(&format!(
        "Waiting for {}. Ctrl-C again interrupts, a third time leaves.",
        names.join(", ")
    ));
    tokio::select! {
        () = executor.idle() => return,
        () = signals.reached(2) => executor.interrupt(),
    }
    tokio::select! {
        () = executor.idle() => {}
        () = signals.reached(3) => {
            screen.say("Left running; the next sluice up with this --state looks after it.");
        }
    }
}

async fn unfinished(client: &Client) -> Vec<String> {
    let api: Api<TerraformRun> = Api::all(client.clone());
    let list = tokio::time::timeout(Duration::from_secs(5), api.list(&ListParams::default())).await;
    let runs = list
        .ok()
        .and_then(Result::ok)
        .map(|list| list.items)
        .unwrap_or_default();
    let open = |run: &&TerraformRun| !run.status.as_ref().is_some_and(|status| status.phase.is_final());
    runs.iter().filter(open).map(ResourceExt::name_any).collect()
}
