//! The checkpoint at which a controller process kills itself.

use std::fs::File;
use std::io::Write as _;
use std::sync::{Mutex, OnceLock};

use rustix::process::{Signal, getpid, kill_process};

/// What the process does at its checkpoints.
pub(super) struct KillPlan {
    /// Receives a line for each checkpoint.
    pub(super) log: File,
    /// The checkpoint at which to kill the process, and its occurrence, from 1.
    pub(super) kill_after: Option<(String, usize)>,
    /// The checkpoints so far.
    pub(super) passed: Vec<&'static str>,
}

static PLAN: OnceLock<Mutex<KillPlan>> = OnceLock::new();

impl KillPlan {
    /// Installs the plan, once per process.
    pub(super) fn install(self) {
        assert!(PLAN.set(Mutex::new(self)).is_ok(), "orders are given once");
    }
}

/// Records the checkpoint and kills the process if planned. Does nothing without a plan.
pub(in crate::storage) fn checkpoint(step: &'static str) {
    let Some(plan) = PLAN.get() else { return };
    let mut plan = plan.lock().unwrap();
    plan.passed.push(step);
    writeln!(plan.log, "{step}").unwrap();
    let number = plan.passed.iter().filter(|passed| **passed == step).count();
    if plan
        .kill_after
        .as_ref()
        .is_some_and(|(name, which)| name == step && *which == number)
    {
        kill_process(getpid(), Signal::KILL).unwrap();
        // No thread may continue, including this one.
        loop {
            std::thread::park();
        }
    }
}
