//! The end of the program: active runs finish first, unless they have not begun to plan or apply.

use std::time::Duration;

use kube::api::ListParams;
use kube::{Api, Client};
use sluice_api::run::TerraformRun;
use sluice_runtime::shutdown::Signals;
use sluice_tf_controller::executor::{ProcessExecutor, RunRef};

use crate::view::Lines;

/// Time for the runs that end at once. Only those that remain are named.
const EARLY_END: Duration = Duration::from_millis(500);
/// Timeout for the phases of the runs that remain.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// Ends the runs that have not begun to plan or apply: the next start repeats them. Waits for the others, also for those that an earlier
/// start left: the first signal has stopped new runs, the second interrupts the CLI, the third ends the program; the next start adopts the
/// runs that remain.
pub(super) async fn wait_for_runs(
    client: &Client,
    executor: &ProcessExecutor,
    signals: &Signals,
    lines: &Lines,
) {
    executor.end_early();
    let runs = executor.live_runs();
    tokio::select! {
        () = executor.wait_for(&runs) => return,
        () = tokio::time::sleep(EARLY_END) => {}
        () = signals.reached(2) => {}
    }
    let runs = executor.live_runs();
    let phases = tokio::select! {
        () = executor.wait_for(&runs) => return,
        phases = describe(client, &runs) => phases,
    };
    lines.print(&notice(&phases));
    tokio::select! {
        () = executor.wait_for(&runs) => return,
        () = signals.reached(2) => executor.interrupt_runs(&runs),
    }
    tokio::select! {
        () = executor.wait_for(&runs) => {}
        () = signals.reached(3) => {
            lines.print("Exiting with active runs; the next sluice up with this --state adopts them.");
        }
    }
}

/// Says which runs the program waits for, and what further signals do.
fn notice(runs: &[String]) -> String {
    format!(
        "Waiting for {}. Ctrl-C again interrupts: each run writes its state and ends. A third time exits without waiting.",
        runs.join(", ")
    )
}

/// Returns the names of these runs with their phases, as far as they are recorded.
async fn describe(client: &Client, runs: &[RunRef]) -> Vec<String> {
    let api: Api<TerraformRun> = Api::all(client.clone());
    let list = tokio::time::timeout(LIST_TIMEOUT, api.list(&ListParams::default())).await;
    let list = list.ok().and_then(Result::ok);
    let recorded = list.map(|list| list.items).unwrap_or_default();
    let text = |run: &RunRef| {
        let found = recorded.iter().find(|object| RunRef::of(object) == *run);
        match found.and_then(|object| object.status.as_ref()) {
            Some(status) => format!("{} ({})", run.name, status.phase.as_str()),
            None => run.name.clone(),
        }
    };
    let mut texts: Vec<String> = runs.iter().map(text).collect();
    texts.sort();
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notice_names_the_runs_and_the_next_signals() {
        insta::assert_snapshot!(
            notice(&["net-ab12-3 (Applying)".to_owned(), "web-cd34-1 (Planning)".to_owned()]),
            @"Waiting for net-ab12-3 (Applying), web-cd34-1 (Planning). Ctrl-C again interrupts: each run writes its state and ends. A third time exits without waiting."
        );
    }
}
