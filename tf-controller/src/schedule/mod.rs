//! Who may run: so many runs at once, so many of one namespace, and who is next. A stack that must wait is called when its
//! turn has come; it never looks by itself.

mod line;

pub use line::{Limits, Rank};

use futures::channel::mpsc::{self, UnboundedReceiver, UnboundedSender};
use line::Line;
use sluice_runtime::schedule::ObjectKey;
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

/// Places for runs: a stack has one at most.
#[derive(Debug)]
pub struct Places {
    line: Mutex<Line>,
    called: UnboundedSender<ObjectKey>,
}

impl Places {
    /// Free places within `limits`, and the stacks whose turn has come: each must be looked at again.
    #[must_use]
    pub fn new(limits: Limits) -> (Self, UnboundedReceiver<ObjectKey>) {
        let (called, turns) = mpsc::unbounded();
        let line = Mutex::new(Line::new(limits));
        (Self { line, called }, turns)
    }

    /// Takes a place for a stack's run; true also when it holds one already. Otherwise the stack waits in the line, and is
    /// called.
    #[must_use]
    pub fn take(&self, stack: &ObjectKey, rank: Rank) -> bool {
        let (taken, called) = self.line().take(stack, rank, Instant::now());
        self.call(called);
        taken
    }

    /// Counts a run that is in progress, whether there is a place for it or not: one that an earlier controller started.
    pub fn hold(&self, stack: &ObjectKey) {
        self.line().hold(stack);
    }

    /// Frees a stack's place, or takes it out of the line.
    pub fn free(&self, stack: &ObjectKey) {
        let called = self.line().free(stack, Instant::now());
        self.call(called);
    }

    /// Gives back a place that a stack holds; one that waits in the line goes on waiting.
    pub fn give_back(&self, stack: &ObjectKey) {
        let called = self.line().give_back(stack, Instant::now());
        self.call(called);
    }

    /// Passes by those who were called and never came: their objects are gone, or broken.
    pub fn pass_by(&self) {
        let called = self.line().pass_by(Instant::now());
        self.call(called);
    }

    /// Takes back the places of stacks that are not there: nobody would free them. Their objects vanished without a last
    /// pass, or are another controller's.
    pub fn take_back(&self, is_there: impl Fn(&ObjectKey) -> bool) {
        let called = self.line().take_back(is_there, Instant::now());
        self.call(called);
    }

    fn call(&self, stacks: Vec<ObjectKey>) {
        for stack in stacks {
            // Nobody listens any more: the controller is at its end.
            drop(self.called.unbounded_send(stack));
        }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
