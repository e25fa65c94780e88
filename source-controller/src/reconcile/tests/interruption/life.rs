//! The life of a controller under test: its steps are counted, and at one of them it dies.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// On which side of a step's effect the controller dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    Before,
    After,
}

/// Shared by everything with an effect that one controller uses. Once it is dead, nothing of it has an effect any more.
#[derive(Clone)]
pub(super) struct Life(Arc<Inner>);

struct Inner {
    steps: Mutex<Vec<&'static str>>,
    death: Option<(usize, Moment)>,
    dead: AtomicBool,
    died: Notify,
    violations: Mutex<Vec<String>>,
}

impl Life {
    /// Until the end, or until this step.
    pub(super) fn until(death: Option<(usize, Moment)>) -> Self {
        Self(Arc::new(Inner {
            steps: Mutex::default(),
            death,
            dead: AtomicBool::new(false),
            died: Notify::new(),
            violations: Mutex::default(),
        }))
    }

    /// The steps so far.
    pub(super) fn steps(&self) -> Vec<&'static str> {
        self.0
            .steps
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn is_dead(&self) -> bool {
        self.0.dead.load(Ordering::SeqCst)
    }

    /// Resolves when the controller has died.
    pub(super) async fn died(&self) {
        loop {
            let died = self.0.died.notified();
            if self.is_dead() {
                return;
            }
            died.await;
        }
    }

    /// Something that must never be was seen.
    pub(super) fn violated(&self, what: String) {
        self.0
            .violations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(what);
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.0
            .violations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// One step that may wait. A dead controller waits for ever.
    pub(super) async fn step<T>(&self, name: &'static str, effect: impl Future<Output = T>) -> T {
        let number = self.begin(name);
        if self.dies(number, Moment::Before) || self.is_dead() {
            return std::future::pending().await;
        }
        let done = effect.await;
        if self.dies(number, Moment::After) || self.is_dead() {
            return std::future::pending().await;
        }
        done
    }

    /// One step that blocks; nothing if the controller is dead, before or after it.
    pub(super) fn block<T>(&self, name: &'static str, effect: impl FnOnce() -> T) -> Option<T> {
        let number = self.begin(name);
        if self.dies(number, Moment::Before) || self.is_dead() {
            return None;
        }
        let done = effect();
        (!self.dies(number, Moment::After) && !self.is_dead()).then_some(done)
    }

    fn begin(&self, name: &'static str) -> usize {
        let mut steps = self.0.steps.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_dead() {
            steps.push(name);
        }
        steps.len().saturating_sub(1)
    }

    fn dies(&self, step: usize, moment: Moment) -> bool {
        let now = self.0.death == Some((step, moment)) && !self.is_dead();
        if now {
            self.0.dead.store(true, Ordering::SeqCst);
            self.0.died.notify_waiters();
        }
        now
    }
}
