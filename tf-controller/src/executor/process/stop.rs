//! The end of runs with the process that started them.

use std::collections::HashMap;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sluice_tf_core::process_lock::{is_locked, visible_runner};

use super::{LOCK_POLL_INTERVAL, ProcessExecutor, RunRef, files};

impl ProcessExecutor {
    /// Whether a process works on the run: a runner of this process, or a runner or a CLI that an earlier one left.
    fn is_alive(&self, run: &RunRef) -> bool {
        self.is_child(run) || matches!(is_locked(&self.file(run, "lock")), Ok(true))
    }

    /// Returns the runs that a process works on, also those of an earlier process.
    #[must_use]
    pub fn live_runs(&self) -> Vec<RunRef> {
        let children = |_| self.children.borrow().keys().cloned().collect();
        let mut runs = files::list(&self.runs_dir()).unwrap_or_else(children);
        runs.retain(|run| self.is_alive(run));
        runs
    }

    /// Waits until no process works on these runs, and until this process has no runner.
    pub async fn wait_for(&self, runs: &[RunRef]) {
        self.idle().await;
        for run in runs {
            while self.is_alive(run) {
                tokio::time::sleep(LOCK_POLL_INTERVAL).await;
            }
        }
    }

    /// Returns whether this process has no runner.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.children.borrow().is_empty()
    }

    /// Waits until this process has no runner.
    pub async fn idle(&self) {
        // The wait cannot fail: self owns the sender.
        drop(self.children.subscribe().wait_for(HashMap::is_empty).await);
    }

    /// Ends the runs of this process that have not begun to plan or apply. Waits for the others, at most for `grace` and until
    /// `interrupted`. Then interrupts their CLIs, so that they write their states, and waits for them.
    pub async fn finish(&self, grace: Duration, interrupted: impl Future<Output = ()>) {
        self.end_early();
        tokio::select! {
            () = self.idle() => return,
            () = tokio::time::sleep(grace) => {}
            () = interrupted => {}
        }
        tracing::warn!("interrupting the remaining runs");
        self.interrupt();
        self.idle().await;
    }

    /// Ends the runs of this process that have not begun to plan or apply: the next controller repeats them. Only the runner knows
    /// whether it has begun, because its status may be behind.
    pub fn end_early(&self) {
        self.signal(Signal::USR1);
    }

    /// Interrupts the runners of this process: they interrupt the CLI and report.
    pub fn interrupt(&self) {
        self.signal(Signal::TERM);
    }

    /// Interrupts the runners of these runs, also those of an earlier process. A CLI whose runner has ended goes on, and so does a runner
    /// in another container.
    pub fn interrupt_runs(&self, runs: &[RunRef]) {
        self.interrupt();
        let left = runs.iter().filter(|run| !self.is_child(run));
        for process in left.filter_map(|run| visible_runner(&self.file(run, "lock"))) {
            send(process, Signal::TERM);
        }
    }

    fn signal(&self, signal: Signal) {
        for id in self.children.borrow().values().flatten() {
            send(*id, signal);
        }
    }
}

/// Sends a signal to a process, which may have just ended.
fn send(process: u32, signal: Signal) {
    if let Some(process) = Pid::from_raw(process.cast_signed()) {
        let _ = kill_process(process, signal);
    }
}
