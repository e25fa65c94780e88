//! Writes that wait at the same time share one commit: a sync of the disk costs more than all else of a write.
//!
//! Each write decides in the order of arrival, from the newest state and from what those before it in the same commit changed.
//! What the commit holds is stored as one transaction of the file: all of it, or nothing. Only then it is shown to readers and
//! watches, and answered.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, MutexGuard, PoisonError},
};

use serde_json::Value;
use tokio::sync::oneshot;

use super::{
    Key, State, StorageHealth, Store, Verb, Write,
    file::{File, Record},
    history::weight,
    refused,
};
use crate::{meta, service::StatusError};

/// Bytes of objects in one commit, about: on a full disk all of it must find room in the reserve.
const COMMIT_BYTES: usize = 4 << 20;

/// What a write decides from: the newest state, and what the writes before it in the same commit changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    state: &'a State,
    /// Objects that are put, and those that are removed.
    staged: Option<&'a HashMap<Key, Option<Arc<Value>>>>,
}

impl<'a> View<'a> {
    /// The newest state alone.
    pub(crate) const fn of(state: &'a State) -> Self {
        Self { state, staged: None }
    }

    /// One object.
    pub(crate) fn get(&self, key: &Key) -> Option<&'a Arc<Value>> {
        match self.staged.and_then(|staged| staged.get(key)) {
            Some(changed) => changed.as_ref(),
            None => self.state.get(key),
        }
    }
}

type Outcome = Result<Arc<Value>, StatusError>;
type Decide<'a> = Box<dyn FnOnce(&View<'_>) -> Result<Write, StatusError> + Send + 'a>;

/// A write that waits for a commit.
pub(super) struct Transaction<'a> {
    key: Key,
    decide: Decide<'a>,
    answer: oneshot::Sender<Outcome>,
}

impl<'a> Transaction<'a> {
    /// A write, and where its outcome comes.
    pub(super) fn new<F>(key: Key, decide: F) -> (Self, oneshot::Receiver<Outcome>)
    where
        F: FnOnce(&View<'_>) -> Result<Write, StatusError> + Send + 'a,
    {
        let (answer, outcome) = oneshot::channel();
        let decide = Box::new(decide);
        (Self { key, decide, answer }, outcome)
    }
}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// Writes that wait for a commit, oldest first.
pub(super) type Queue = VecDeque<Transaction<'static>>;

/// What one commit holds, and the answers that depend on it.
struct Commit {
    records: Vec<Record>,
    staged: HashMap<Key, Option<Arc<Value>>>,
    bytes: usize,
    /// The version of the newest record, or of the state.
    revision: u64,
    /// Nothing new but what is vital is stored, and each write has a commit of its own.
    on_reserve: bool,
    /// Outcomes that hold whatever becomes of the commit.
    settled: Vec<(oneshot::Sender<Outcome>, Outcome)>,
    /// Outcomes of writes that changed something, or that saw what is not stored yet.
    pending: Vec<(oneshot::Sender<Outcome>, Outcome)>,
}

impl Commit {
    fn after(state: &State, on_reserve: bool) -> Self {
        Self {
            records: Vec::new(),
            staged: HashMap::new(),
            bytes: 0,
            revision: state.revision(),
            on_reserve,
            settled: Vec::new(),
            pending: Vec::new(),
        }
    }

    const fn has_room(&self) -> bool {
        self.records.is_empty() || (self.bytes < COMMIT_BYTES && !self.on_reserve)
    }

    /// Lets a write decide.
    fn add(&mut self, state: &State, transaction: Transaction<'_>) {
        let Transaction { key, decide, answer } = transaction;
        let view = View {
            state,
            staged: Some(&self.staged),
        };
        let exists = view.get(&key).is_some();
        // One that panics must not take the others with it.
        let decision =
            catch_unwind(AssertUnwindSafe(|| decide(&view))).unwrap_or_else(|_| Err(ended_early()));
        let outcome = decision.and_then(|decision| self.stage(key, exists, decision));
        if self.records.is_empty() {
            self.settled.push((answer, outcome));
        } else {
            self.pending.push((answer, outcome));
        }
    }

    fn stage(&mut self, key: Key, exists: bool, decision: Write) -> Outcome {
        let (verb, mut object) = match decision {
            Write::Keep(object) => return Ok(object),
            Write::Put(object) => (Verb::Put, object),
            Write::Remove(object) => (Verb::Remove, object),
        };
        if self.on_reserve && !exists && !is_vital(&key) {
            return Err(StatusError::no_space(&key.resource));
        }
        self.revision += 1;
        meta::set(&mut object, "resourceVersion", self.revision.to_string().into());
        self.bytes += weight(&object);
        let object = Arc::new(object);
        let held = (verb == Verb::Put).then(|| object.clone());
        self.staged.insert(key.clone(), held);
        self.records.push(Record {
            key,
            verb,
            object: object.clone(),
            revision: self.revision,
        });
        Ok(object)
    }
}

impl Store {
    /// Runs one write. `decide` sees the newest state, and nothing changes between its look and the publication.
    ///
    /// The work goes on when the caller is dropped: a write is either persisted and published, or neither.
    pub(crate) async fn write<F>(self: &Arc<Self>, key: Key, decide: F) -> Outcome
    where
        F: FnOnce(&View<'_>) -> Result<Write, StatusError> + Send + 'static,
    {
        if !self.durable {
            return self.write_now(&key, decide);
        }
        let (transaction, outcome) = Transaction::new(key, decide);
        self.queue().push_back(transaction);
        let store = self.clone();
        drop(tokio::task::spawn_blocking(move || store.commit_waiting()));
        outcome.await.unwrap_or_else(|_| Err(ended_early()))
    }

    /// [`Store::write`], on this thread and in a commit of its own.
    pub(crate) fn write_now<'a, F>(&self, key: &Key, decide: F) -> Outcome
    where
        F: FnOnce(&View<'_>) -> Result<Write, StatusError> + Send + 'a,
    {
        let (transaction, mut outcome) = Transaction::new(key.clone(), decide);
        let mut next = Some(transaction);
        self.commit(|| next.take());
        outcome.try_recv().unwrap_or_else(|_| Err(ended_early()))
    }

    /// Commits what waits, the caller's own write among it unless another thread took that along. Blocks.
    fn commit_waiting(&self) {
        // Each write in the queue has a thread that comes here: the others' are no reason to wait.
        if !self.queue().is_empty() {
            self.commit(|| self.queue().pop_front());
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // No step under this lock can leave half a queue.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes writes until the commit is full or no more wait, stores what they change, shows it and answers.
    fn commit<'a>(&self, mut next: impl FnMut() -> Option<Transaction<'a>>) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &mut *writer
            && let Err(error) = self.recover(file)
        {
            drop(writer);
            while let Some(transaction) = next() {
                answer(transaction.answer, Err(error.clone()));
            }
            return;
        }
        let on_reserve = matches!(&*writer, Some(file) if file.health() == StorageHealth::OnReserve);
        let commit = {
            let state = self.read();
            let mut commit = Commit::after(&state, on_reserve);
            while commit.has_room()
                && let Some(transaction) = next()
            {
                commit.add(&state, transaction);
            }
            commit
        };
        let stored = self.store(&mut writer, &commit.records);
        if stored.is_ok() {
            // Under the writer's lock: versions are announced in order.
            self.publish(commit.records);
        }
        drop(writer);
        for (sender, outcome) in commit.settled {
            answer(sender, outcome);
        }
        for (sender, outcome) in commit.pending {
            answer(sender, stored.clone().and(outcome));
        }
    }

    fn store(&self, writer: &mut Option<File>, records: &[Record]) -> Result<(), StatusError> {
        let Some(file) = writer else { return Ok(()) };
        if records.is_empty() {
            return Ok(());
        }
        let stored = file.persist(records);
        self.report(file);
        stored.map_err(|error| refused(&error))
    }
}

/// A caller that was dropped wants no answer.
fn answer(sender: oneshot::Sender<Outcome>, outcome: Outcome) {
    drop(sender.send(outcome));
}

fn ended_early() -> StatusError {
    StatusError::internal("the write ended early")
}

/// What an apply in flight has to store: its state, what is left of it, and its lock.
fn is_vital(key: &Key) -> bool {
    matches!(key.resource.as_str(), "secrets" | "leases.coordination.k8s.io")
}

#[cfg(test)]
mod tests;
