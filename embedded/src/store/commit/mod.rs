//! Group commit: waiting writes share one commit, because a sync of the disk costs more than the rest of a write.
//!
//! Writes decide in order of arrival, each from the newest state and the changes of earlier writes in the same commit. A commit is one
//! transaction of the backend: all or nothing. Its changes are published, and its writes get their outcomes, only after that.
//!
//! Revisions follow the newest published one, so they are valid only if no other process has written since. The backend checks
//! that: it rejects the commit otherwise, the changes of the other process are published, and all writes decide again.

mod batch;
mod object_size;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::oneshot;

use self::batch::Commit;
use super::backend::{Backend, CommitError, Origin, StorageHealth};
use super::state::{Key, State};
use super::{Store, Write, write_error};
use crate::status_error::StatusError;

/// Attempts to store a commit while other processes write first. Then its writes fail with 409.
const ATTEMPTS: usize = 8;
/// Time after which no further attempt begins: writes of objects in the other location (the repository or the local file) wait for the same
/// lock.
pub(super) const RETRY_LIMIT: Duration = Duration::from_secs(30);
/// Error of a write that could not be stored in time without those of its commit that cannot be stored.
const OTHERS_REFUSED: &str = "other writes of its commit cannot be stored";
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
type Decide<'a> = Box<dyn Fn(&TransactionView<'_>) -> Result<Write, StatusError> + Send + 'a>;

/// A write that waits for a commit.
pub(super) struct Transaction<'a> {
    key: Key,
    origin: Origin,
    decide: Decide<'a>,
    reply: oneshot::Sender<Outcome>,
}

impl<'a> Transaction<'a> {
    /// Creates a write, and the receiver of its outcome.
    pub(super) fn new<F>(key: Key, origin: Origin, decide: F) -> (Self, oneshot::Receiver<Outcome>)
    where
        F: Fn(&TransactionView<'_>) -> Result<Write, StatusError> + Send + 'a,
    {
        let (reply, outcome) = oneshot::channel();
        let decide = Box::new(decide);
        let transaction = Self {
            key,
            origin,
            decide,
            reply,
        };
        (transaction, outcome)
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

impl Store {
    /// Runs a write of the server itself, as [`Store::write_as`].
    pub(crate) async fn write<F>(self: &Arc<Self>, key: Key, decide: F) -> Outcome
    where
        F: Fn(&TransactionView<'_>) -> Result<Write, StatusError> + Send + 'static,
    {
        self.write_as(Origin::default(), key, decide).await
    }

    /// Runs one write. `decide` sees the newest state, and no other write happens before the publication. It runs again if another
    /// process has written in the meantime.
    ///
    /// The work continues if the caller is dropped: a write is either persisted and published, or neither.
    pub(crate) async fn write_as<F>(self: &Arc<Self>, origin: Origin, key: Key, decide: F) -> Outcome
    where
        F: Fn(&TransactionView<'_>) -> Result<Write, StatusError> + Send + 'static,
    {
        if !self.blocks {
            return self.write_now(&key, decide);
        }
        let (transaction, outcome) = Transaction::new(key, origin, decide);
        self.queue().push_back(transaction);
        let store = self.clone();
        drop(tokio::task::spawn_blocking(move || store.commit_waiting()));
        outcome.await.unwrap_or_else(|_| Err(aborted()))
    }

    /// Runs [`Store::write`] on this thread, in a commit of its own.
    pub(crate) fn write_now<'a, F>(&self, key: &Key, decide: F) -> Outcome
    where
        F: Fn(&TransactionView<'_>) -> Result<Write, StatusError> + Send + 'a,
    {
        let (transaction, mut outcome) = Transaction::new(key.clone(), Origin::default(), decide);
        let mut next = Some(transaction);
        self.commit(|_| next.take());
        outcome.try_recv().unwrap_or_else(|_| Err(aborted()))
    }

    /// Commits waiting writes, among them the caller's unless another thread has taken it. Blocks.
    fn commit_waiting(&self) {
        // Each queued write has a thread that gets here, so none has to wait for the others.
        if !self.queue().is_empty() {
            self.commit(|accepts| {
                let mut queue = self.queue();
                let is_next = queue.front().is_some_and(|next| accepts(&next.key));
                if is_next { queue.pop_front() } else { None }
            });
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Every step under this lock leaves a valid queue.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes writes until the commit is full or none waits, stores and publishes their changes, and sends their outcomes.
    fn commit<'a>(&self, mut next: impl FnMut(&dyn Fn(&Key) -> bool) -> Option<Transaction<'a>>) {
        let mut backend = self.backend.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = self.recover(&mut **backend) {
            drop(backend);
            while let Some(transaction) = next(&|_| true) {
                reply(transaction.reply, Err(error.clone()));
            }
            return;
        }
        let uses_reserve = backend.health() == StorageHealth::OnReserve;
        let (transactions, commit) = self.take(&mut **backend, uses_reserve, next);
        let end = Instant::now() + RETRY_LIMIT;
        let (mut commit, stored) = self.store_all(&mut **backend, uses_reserve, &transactions, commit, end);
        if stored.is_ok() {
            commit.correct_outcomes(&transactions);
            // Under the lock of the backend, so that revisions are published in order.
            let records = std::mem::take(&mut commit.records);
            self.publish_changes(records, false, Some(backend.invalid_objects()));
        }
        drop(backend);
        for (transaction, decided) in transactions.into_iter().zip(commit.decided) {
            let failure = stored.as_ref().err().filter(|_| decided.depends);
            let outcome = match failure {
                None => decided.outcome,
                Some(failure) => Err(failure.to_status(&transaction.key)),
            };
            reply(transaction.reply, outcome);
        }
    }

    /// Stores a commit. Its writes decide again after a rejection, and without those that cannot be stored. Begins no further attempt
    /// after `end`.
    fn store_all(
        &self,
        backend: &mut dyn Backend,
        uses_reserve: bool,
        transactions: &[Transaction<'_>],
        mut commit: Commit,
        end: Instant,
    ) -> (Commit, Result<(), Failure>) {
        let mut attempts = 1;
        let mut refused: HashMap<Key, StatusError> = HashMap::new();
        let mut stored = self.store(backend, &mut commit);
        loop {
            match stored {
                // Each round has fewer writes.
                Err(Failure::Refused(writes))
                    if Instant::now() < end && writes.iter().any(|(key, _)| !refused.contains_key(key)) =>
                {
                    refused.extend(writes);
                }
                Err(Failure::Rejected(_)) if attempts < ATTEMPTS && Instant::now() < end => {
                    attempts += 1;
                    if let Err(error) = self.take_foreign(backend, end) {
                        return (commit, Err(Failure::Error(error)));
                    }
                    refused.clear();
                }
                stored => return (commit, stored),
            }
            commit = self.decide_again(backend, uses_reserve, transactions, &refused);
            stored = self.store(backend, &mut commit);
        }
    }

    /// Takes writes and lets each decide. Their keys alone determine which ones share the commit: after a rejection a write can decide
    /// otherwise, and the batch must still be in one location.
    fn take<'a>(
        &self,
        backend: &mut dyn Backend,
        uses_reserve: bool,
        mut next: impl FnMut(&dyn Fn(&Key) -> bool) -> Option<Transaction<'a>>,
    ) -> (Vec<Transaction<'a>>, Commit) {
        let state = self.read();
        let mut commit = Commit::after(&state, uses_reserve);
        let mut transactions = Vec::new();
        let mut keys = HashSet::new();
        while commit.has_capacity() {
            let accepts = |key: &Key| can_join(&*backend, &keys, key);
            let Some(transaction) = next(&accepts) else { break };
            commit.add(&state, backend, &transaction);
            keys.insert(transaction.key.clone());
            transactions.push(transaction);
        }
        (transactions, commit)
    }

    /// Lets the writes of a commit that is not stored decide from the newest state, without those that cannot be stored.
    fn decide_again(
        &self,
        backend: &mut dyn Backend,
        uses_reserve: bool,
        transactions: &[Transaction<'_>],
        refused: &HashMap<Key, StatusError>,
    ) -> Commit {
        let state = self.read();
        let mut commit = Commit::after(&state, uses_reserve);
        for transaction in transactions {
            match refused.get(&transaction.key) {
                Some(error) => commit.refuse(error.clone()),
                None => commit.add(&state, backend, transaction),
            }
        }
        commit
    }

    fn store(&self, backend: &mut dyn Backend, commit: &mut Commit) -> Result<(), Failure> {
        if commit.records.is_empty() {
            return Ok(());
        }
        let stored = backend.commit(&mut commit.records);
        self.update_health(backend);
        stored.map_err(|error| match error {
            CommitError::Rejected(reason) => Failure::Rejected(reason),
            CommitError::Refused(writes) => {
                let writes = writes.into_iter();
                Failure::Refused(writes.map(|(key, error)| (key, write_error(&error))).collect())
            }
            CommitError::Failed(error) => Failure::Error(write_error(&error)),
        })
    }
}

/// Why a commit is not stored.
enum Failure {
    /// Other processes wrote first, for this reason.
    Rejected(String),
    /// The writes of these objects cannot be stored.
    Refused(Vec<(Key, StatusError)>),
    /// The backend or its recovery failed.
    Error(StatusError),
}

impl Failure {
    fn to_status(&self, key: &Key) -> StatusError {
        match self {
            Self::Rejected(reason) => StatusError::try_again(&key.resource, &key.name, reason),
            Self::Refused(writes) => match writes.iter().find(|(refused, _)| refused == key) {
                Some((_, error)) => error.clone(),
                None => StatusError::try_again(&key.resource, &key.name, OTHERS_REFUSED),
            },
            Self::Error(error) => error.clone(),
        }
    }
}

/// Whether a write of this object can be in the batch of these objects: all are shared, each once, or none is. A change of the kinds has a
/// batch of its own.
fn can_join(backend: &dyn Backend, batch: &HashSet<Key>, key: &Key) -> bool {
    let is_shared = backend.is_shared(key);
    let has_same_location = batch
        .iter()
        .next()
        .is_none_or(|other| backend.is_shared(other) == is_shared);
    let is_alone = batch.is_empty()
        || !batch
            .iter()
            .chain([key])
            .any(|other| backend.changes_kinds(other));
    has_same_location && is_alone && !(is_shared && batch.contains(key))
}

/// Sends an outcome; the caller may have been dropped.
fn reply(sender: oneshot::Sender<Outcome>, outcome: Outcome) {
    drop(sender.send(outcome));
}

fn aborted() -> StatusError {
    StatusError::internal("the write was aborted")
}

#[cfg(test)]
mod shared_tests;
#[cfg(test)]
mod tests;
