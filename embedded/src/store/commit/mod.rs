//! Group commit: waiting writes share one commit, because a sync of the disk costs more than the rest of a write.
//!
//! Writes decide in order of arrival, each from the newest state and the changes of earlier writes in the same commit. A commit is
//! one transaction of the file: all or nothing. Only then its changes are published and its writes get their outcomes.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::oneshot;

use super::file::{File, Record, StorageHealth};
use super::state::{Key, State};
use super::watch_cache::{ChangeType, approximate_size};
use super::{Store, Write, write_error};
use crate::meta;
use crate::status_error::StatusError;

/// Approximate size limit of a commit in bytes: on a full disk it must fit into the reserve.
const MAX_COMMIT_BYTES: usize = 4 << 20;

/// The view of a write: the newest state, and the changes of earlier writes in the same commit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransactionView<'a> {
    state: &'a State,
    /// Changed objects; `None` for removed ones.
    staged: Option<&'a HashMap<Key, Option<Arc<Value>>>>,
}

impl<'a> TransactionView<'a> {
    /// Creates a view of the newest state alone.
    pub(crate) const fn of(state: &'a State) -> Self {
        Self { state, staged: None }
    }

    /// Returns one object.
    pub(crate) fn get(&self, key: &Key) -> Option<&'a Arc<Value>> {
        match self.staged.and_then(|staged| staged.get(key)) {
            Some(changed) => changed.as_ref(),
            None => self.state.get(key),
        }
    }
}

type Outcome = Result<Arc<Value>, StatusError>;
type Decide<'a> = Box<dyn FnOnce(&TransactionView<'_>) -> Result<Write, StatusError> + Send + 'a>;

/// A write that waits for a commit.
pub(super) struct Transaction<'a> {
    key: Key,
    decide: Decide<'a>,
    reply: oneshot::Sender<Outcome>,
}

impl<'a> Transaction<'a> {
    /// Creates a write, and the receiver of its outcome.
    pub(super) fn new<F>(key: Key, decide: F) -> (Self, oneshot::Receiver<Outcome>)
    where
        F: FnOnce(&TransactionView<'_>) -> Result<Write, StatusError> + Send + 'a,
    {
        let (reply, outcome) = oneshot::channel();
        let decide = Box::new(decide);
        (Self { key, decide, reply }, outcome)
    }
}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// Waiting writes, oldest first.
pub(super) type Queue = VecDeque<Transaction<'static>>;

/// The content of one commit, and the outcomes of its writes.
struct Commit {
    records: Vec<Record>,
    staged: HashMap<Key, Option<Arc<Value>>>,
    bytes: usize,
    /// Revision of the newest record, or of the state.
    revision: u64,
    /// The disk is full: only updates and essential objects are stored, one write per commit.
    uses_reserve: bool,
    /// Outcomes that do not depend on the commit.
    independent: Vec<(oneshot::Sender<Outcome>, Outcome)>,
    /// Outcomes of writes that changed something or saw uncommitted changes.
    dependent: Vec<(oneshot::Sender<Outcome>, Outcome)>,
}

impl Commit {
    fn after(state: &State, uses_reserve: bool) -> Self {
        Self {
            records: Vec::new(),
            staged: HashMap::new(),
            bytes: 0,
            revision: state.revision(),
            uses_reserve,
            independent: Vec::new(),
            dependent: Vec::new(),
        }
    }

    const fn has_capacity(&self) -> bool {
        self.records.is_empty() || (self.bytes < MAX_COMMIT_BYTES && !self.uses_reserve)
    }

    /// Lets a write decide and stages its change.
    fn add(&mut self, state: &State, transaction: Transaction<'_>) {
        let Transaction { key, decide, reply } = transaction;
        let view = TransactionView {
            state,
            staged: Some(&self.staged),
        };
        let exists = view.get(&key).is_some();
        // A panic must not affect the other writes.
        let decision = catch_unwind(AssertUnwindSafe(|| decide(&view))).unwrap_or_else(|_| Err(aborted()));
        let outcome = decision.and_then(|decision| self.stage(key, exists, decision));
        if self.records.is_empty() {
            self.independent.push((reply, outcome));
        } else {
            self.dependent.push((reply, outcome));
        }
    }

    fn stage(&mut self, key: Key, exists: bool, decision: Write) -> Outcome {
        let (kind, mut object) = match decision {
            Write::Unchanged(object) => return Ok(object),
            Write::Put(object) => (ChangeType::Put, object),
            Write::Remove(object) => (ChangeType::Remove, object),
        };
        if self.uses_reserve && !exists && !is_essential(&key) {
            return Err(StatusError::no_space(&key.resource));
        }
        self.revision += 1;
        meta::set(&mut object, "resourceVersion", self.revision.to_string().into());
        self.bytes += approximate_size(&object);
        let object = Arc::new(object);
        let staged_object = (kind == ChangeType::Put).then(|| object.clone());
        self.staged.insert(key.clone(), staged_object);
        self.records.push(Record {
            key,
            kind,
            object: object.clone(),
            revision: self.revision,
        });
        Ok(object)
    }
}

impl Store {
    /// Runs one write. `decide` sees the newest state, and no other write happens before the publication.
    ///
    /// The work continues if the caller is dropped: a write is either persisted and published, or neither.
    pub(crate) async fn write<F>(self: &Arc<Self>, key: Key, decide: F) -> Outcome
    where
        F: FnOnce(&TransactionView<'_>) -> Result<Write, StatusError> + Send + 'static,
    {
        if !self.durable {
            return self.write_now(&key, decide);
        }
        let (transaction, outcome) = Transaction::new(key, decide);
        self.queue().push_back(transaction);
        let store = self.clone();
        drop(tokio::task::spawn_blocking(move || store.commit_waiting()));
        outcome.await.unwrap_or_else(|_| Err(aborted()))
    }

    /// Runs [`Store::write`] on this thread, in a commit of its own.
    pub(crate) fn write_now<'a, F>(&self, key: &Key, decide: F) -> Outcome
    where
        F: FnOnce(&TransactionView<'_>) -> Result<Write, StatusError> + Send + 'a,
    {
        let (transaction, mut outcome) = Transaction::new(key.clone(), decide);
        let mut next = Some(transaction);
        self.commit(|| next.take());
        outcome.try_recv().unwrap_or_else(|_| Err(aborted()))
    }

    /// Commits waiting writes, among them the caller's unless another thread has taken it. Blocks.
    fn commit_waiting(&self) {
        // Each queued write has a thread that gets here, so none has to wait for the others.
        if !self.queue().is_empty() {
            self.commit(|| self.queue().pop_front());
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Every step under this lock leaves a valid queue.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes writes until the commit is full or none waits, stores and publishes their changes, and sends their outcomes.
    fn commit<'a>(&self, mut next: impl FnMut() -> Option<Transaction<'a>>) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &mut *writer
            && let Err(error) = self.recover(file)
        {
            drop(writer);
            while let Some(transaction) = next() {
                reply(transaction.reply, Err(error.clone()));
            }
            return;
        }
        let uses_reserve = matches!(&*writer, Some(file) if file.health() == StorageHealth::OnReserve);
        let commit = {
            let state = self.read();
            let mut commit = Commit::after(&state, uses_reserve);
            while commit.has_capacity()
                && let Some(transaction) = next()
            {
                commit.add(&state, transaction);
            }
            commit
        };
        let stored = self.store(&mut writer, &commit.records);
        if stored.is_ok() {
            // Under the writer's lock, so that revisions are published in order.
            self.publish(commit.records);
        }
        drop(writer);
        for (sender, outcome) in commit.independent {
            reply(sender, outcome);
        }
        for (sender, outcome) in commit.dependent {
            reply(sender, stored.clone().and(outcome));
        }
    }

    fn store(&self, writer: &mut Option<File>, records: &[Record]) -> Result<(), StatusError> {
        let Some(file) = writer else { return Ok(()) };
        if records.is_empty() {
            return Ok(());
        }
        let stored = file.persist(records);
        self.update_health(file);
        stored.map_err(|error| write_error(&error))
    }
}

/// Sends an outcome; the caller may have been dropped.
fn reply(sender: oneshot::Sender<Outcome>, outcome: Outcome) {
    drop(sender.send(outcome));
}

fn aborted() -> StatusError {
    StatusError::internal("the write was aborted")
}

/// Whether a running apply must be able to create the object: its state and other Secrets, and its lock.
fn is_essential(key: &Key) -> bool {
    matches!(key.resource.as_str(), "secrets" | "leases.coordination.k8s.io")
}

#[cfg(test)]
mod tests;
