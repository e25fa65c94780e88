//! A switch that kills a controller under test at one of its steps.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use sluice_runtime::sync::lock;
use tokio::sync::Notify;

/// The moment of the kill, relative to the effect of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    Before,
    After,
}

/// Shared by all wrappers of one controller. After the kill, none of them has an effect.
#[derive(Clone)]
pub(super) struct KillSwitch(Arc<Inner>);

struct Inner {
    steps: Mutex<Vec<&'static str>>,
    kill_at: Option<(usize, Moment)>,
    is_killed: AtomicBool,
    killed: Notify,
    violations: Mutex<Vec<String>>,
}

impl KillSwitch {
    /// Kills the controller at this step, if any.
    pub(super) fn new(kill_at: Option<(usize, Moment)>) -> Self {
        Self(Arc::new(Inner {
            steps: Mutex::default(),
            kill_at,
            is_killed: AtomicBool::new(false),
            killed: Notify::new(),
            violations: Mutex::default(),
        }))
    }

    /// Returns the steps so far.
    pub(super) fn steps(&self) -> Vec<&'static str> {
        lock(&self.0.steps).clone()
    }

    pub(super) fn is_killed(&self) -> bool {
        self.0.is_killed.load(Ordering::SeqCst)
    }

    /// Resolves when the controller is killed.
    pub(super) async fn killed(&self) {
        loop {
            let killed = self.0.killed.notified();
            if self.is_killed() {
                return;
            }
            killed.await;
        }
    }

    /// Records a violated invariant.
    pub(super) fn record_violation(&self, what: String) {
        lock(&self.0.violations).push(what);
    }

    pub(super) fn violations(&self) -> Vec<String> {
        lock(&self.0.violations).clone()
    }

    /// Runs an asynchronous step. Never returns once the controller is killed.
    pub(super) async fn step<T>(&self, name: &'static str, effect: impl Future<Output = T>) -> T {
        let number = self.begin(name);
        if self.kills(number, Moment::Before) || self.is_killed() {
            return std::future::pending().await;
        }
        let done = effect.await;
        if self.kills(number, Moment::After) || self.is_killed() {
            return std::future::pending().await;
        }
        done
    }

    /// Runs a blocking step; `None` if the controller is killed before or after it.
    pub(super) fn blocking_step<T>(&self, name: &'static str, effect: impl FnOnce() -> T) -> Option<T> {
        let number = self.begin(name);
        if self.kills(number, Moment::Before) || self.is_killed() {
            return None;
        }
        let done = effect();
        (!self.kills(number, Moment::After) && !self.is_killed()).then_some(done)
    }

    fn begin(&self, name: &'static str) -> usize {
        let mut steps = lock(&self.0.steps);
        if !self.is_killed() {
            steps.push(name);
        }
        steps.len().saturating_sub(1)
    }

    fn kills(&self, step: usize, moment: Moment) -> bool {
        let now = self.0.kill_at == Some((step, moment)) && !self.is_killed();
        if now {
            self.0.is_killed.store(true, Ordering::SeqCst);
            self.0.killed.notify_waiters();
        }
        now
    }
}
