//! The object store. A write is one transaction: check, assign a revision, persist, publish. Waiting writes share one commit.
//!
//! All objects are in memory and served from there. A [`Backend`] persists each change before its publication, so a crash never
//! undoes what a client has seen.

mod backend;
mod commit;
mod disk;
mod error;
mod file;
mod git;
mod inspect;
mod list_snapshot;
mod replay;
mod state;
mod watch_cache;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;
use tokio::sync::watch;

pub use self::backend::StorageHealth;
use self::backend::{Backend, Foreign, Memory, Record};
pub(crate) use self::backend::{InvalidFile, Origin};
pub(crate) use self::commit::TransactionView;
use self::commit::{Queue, RETRY_LIMIT};
pub use self::error::StoreError;
use self::file::File;
use self::git::Git;
pub use self::git::{GitOptions, SharedKind, StatusLocation};
pub use self::inspect::{BadRecord, Inspection, discard, inspect};
pub(crate) use self::list_snapshot::ListSnapshot;
use self::replay::ReplayLimits;
pub(crate) use self::replay::Replayed;
pub(crate) use self::state::{Key, State};
pub(crate) use self::watch_cache::{Change, ChangeType, Expired};
use crate::status_error::StatusError;

/// The object store of a server.
#[derive(Debug)]
pub struct Store {
    /// Held for a whole commit, so that writes are ordered.
    backend: Mutex<Box<dyn Backend>>,
    /// Waiting writes. Held briefly, also under the lock of the backend.
    queue: Mutex<Queue>,
    /// Locked for writing only to publish a change: a disk sync never delays a reader.
    state: RwLock<State>,
    /// Newest revision, for subscribers.
    newest: watch::Sender<u64>,
    health: watch::Sender<StorageHealth>,
    /// Whether commits wait for a disk or a network.
    blocks: bool,
    /// Whether the backend has changes that the watch cache no longer has.
    keeps_history: bool,
    replays: ReplayLimits,
    /// Interval of the polls for changes of other processes; `None` if no other process can use the store.
    poll_interval: Option<Duration>,
    /// Invalid edits that [`Store::take_invalid_files`] has not returned yet.
    invalid_files: Mutex<Vec<InvalidFile>>,
}

/// The decision of a write.
#[derive(Debug)]
pub(crate) enum Write {
    /// Store this object under its key.
    Put(Value),
    /// Remove the object; the value is its last state, for watches.
    Remove(Value),
    /// Change nothing and return this object.
    Unchanged(Arc<Value>),
}

impl Store {
    /// Creates a store in memory.
    #[must_use]
    pub fn memory() -> Self {
        Self::new(State::default(), Box::new(Memory))
    }

    /// Opens or creates a store in a file. Each write is synced before its response.
    ///
    /// # Errors
    /// If the file cannot be opened, is in use by another process, is damaged or empty, belongs to another user, was written by a
    /// newer program, or contains records that do not decode.
    pub fn file(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let (file, state) = File::open(path.as_ref())?;
        Ok(Self::new(state, Box::new(file)))
    }

    /// Opens a branch of a bare Git repository. Each batch of writes is a commit, and commits of other processes and users become changes.
    /// Blocks, also on the network if the repository is remote.
    ///
    /// `crds` are the definitions of the server: only their kinds, those of definitions in the repository, and the built-in ones are
    /// objects.
    ///
    /// # Errors
    /// If the repository or the local file cannot be opened, a remote repository cannot be read or does not accept a push, or a
    /// definition cannot be served.
    pub fn git(options: GitOptions, crds: &[CustomResourceDefinition]) -> Result<Self, StoreError> {
        let interval = options.interval;
        let (git, state) = Git::open(options, crds)?;
        let mut store = Self::new(state, Box::new(git));
        store.poll_interval = Some(interval);
        Ok(store)
    }

    /// Limits the changes that are kept in memory for watches (default 10 000). A Git store reads older ones from its history.
    #[must_use]
    pub fn with_watch_window(self, changes: usize) -> Self {
        self.state
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .watch_cache
            .set_max_changes(changes);
        self
    }

    fn new(mut state: State, backend: Box<dyn Backend>) -> Self {
        state.set_invalid_objects(backend.invalid_objects());
        Self {
            newest: watch::Sender::new(state.revision()),
            health: watch::Sender::new(backend.health()),
            blocks: backend.blocks(),
            keeps_history: backend.keeps_history(),
            replays: ReplayLimits::default(),
            backend: Mutex::new(backend),
            queue: Mutex::default(),
            state: RwLock::new(state),
            poll_interval: None,
            invalid_files: Mutex::default(),
        }
    }

    /// Locks the state for reading; hold the lock briefly.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        // Poisoning only means that a reader panicked: publication is infallible.
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes to new revisions.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// Subscribes to the health of the store.
    pub(crate) fn health(&self) -> watch::Receiver<StorageHealth> {
        self.health.subscribe()
    }

    /// Recovers the backend after an error, and its reserve of space. Blocks.
    pub(crate) fn maintain(&self) {
        if *self.health.borrow() == StorageHealth::Writable {
            return;
        }
        let mut backend = self.lock_backend();
        // The health contains the error.
        drop(self.recover(&mut **backend));
        backend.maintain();
        self.update_health(&**backend);
    }

    /// Recovers the backend if necessary, and publishes records that turn out to be stored.
    fn recover(&self, backend: &mut dyn Backend) -> Result<(), StatusError> {
        let outcome = backend.recover();
        self.update_health(backend);
        self.publish(outcome.map_err(|error| write_error(&error))?);
        Ok(())
    }

    /// Publishes the changes that other processes have stored.
    fn take_foreign(&self, backend: &mut dyn Backend, end: Instant) -> Result<(), StatusError> {
        let outcome = backend.foreign(end);
        self.update_health(backend);
        self.publish_foreign(backend, outcome)
    }

    fn publish_foreign(
        &self,
        backend: &dyn Backend,
        outcome: Result<Foreign, StoreError>,
    ) -> Result<(), StatusError> {
        let foreign = outcome.map_err(|error| {
            // `update_health` logs once that a remote repository is away; the polls do not.
            if !is_remote_away(&self.health.borrow()) {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "cannot read the changes of others"
                );
            }
            StatusError::internal(error.to_string())
        })?;
        self.publish_changes(
            foreign.records,
            foreign.rewritten,
            Some(backend.invalid_objects()),
        );
        self.lock_invalid_files().extend(foreign.invalid);
        Ok(())
    }

    /// Returns the interval at which the server calls [`Store::poll`].
    pub(crate) const fn poll_interval(&self) -> Option<Duration> {
        self.poll_interval
    }

    /// Publishes the changes that other processes and users have stored. Blocks. It holds no lock of the backend while it uses the network,
    /// so that writes continue.
    pub(crate) fn poll(&self) {
        let download = self.lock_backend().download();
        let downloaded = download.map_or(Ok(()), |download| download());
        let mut backend = self.lock_backend();
        let outcome = downloaded.and_then(|()| backend.downloaded(Instant::now() + RETRY_LIMIT));
        self.update_health(&**backend);
        // The error is logged; the next poll tries again.
        drop(self.publish_foreign(&**backend, outcome));
    }

    /// Returns the edits that were found to be invalid since the last call.
    pub(crate) fn take_invalid_files(&self) -> Vec<InvalidFile> {
        std::mem::take(&mut *self.lock_invalid_files())
    }

    fn lock_invalid_files(&self) -> MutexGuard<'_, Vec<InvalidFile>> {
        self.invalid_files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes what the store no longer needs from the disk. Blocks, without the lock of the backend.
    pub(crate) fn compact(&self) {
        let compaction = self.lock_backend().compaction();
        if let Some(Err(error)) = compaction.map(|compaction| compaction()) {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "cannot compact the store"
            );
        }
    }

    fn lock_backend(&self) -> MutexGuard<'_, Box<dyn Backend>> {
        self.backend.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update_health(&self, backend: &dyn Backend) {
        let health = backend.health();
        self.health.send_if_modified(|known| {
            let differs = *known != health;
            log_remote(known, &health);
            *known = health;
            differs
        });
    }

    fn publish(&self, records: Vec<Record>) {
        self.publish_changes(records, false, None);
    }

    /// Publishes changes, and the objects whose files are not valid then if they can differ. After a rewrite no reader sees them with the
    /// history from before it.
    fn publish_changes(&self, records: Vec<Record>, rewritten: bool, invalid: Option<BTreeSet<Key>>) {
        let newest = records.last().map(|record| record.revision);
        let invalid = invalid.filter(|invalid| invalid != self.read().invalid_objects());
        let has_other_files = invalid.is_some();
        if newest.is_none() && !rewritten && !has_other_files {
            return;
        }
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        // With the changes, because the garbage collector deletes the objects of an owner that neither exists nor has such a file.
        if let Some(invalid) = invalid {
            state.set_invalid_objects(invalid);
        }
        for record in records {
            state.publish(record.key, record.kind, record.object, record.revision);
        }
        if rewritten {
            state.watch_cache.forget();
        }
        drop(state);
        if let Some(newest) = newest {
            self.newest.send_replace(newest);
        } else if has_other_files {
            // The garbage collector examines the objects again.
            self.newest.send_modify(|_| {});
        }
    }
}

/// Logs once that the remote repository is away, and once that it is back.
fn log_remote(before: &StorageHealth, now: &StorageHealth) {
    match (is_remote_away(before), now) {
        (false, StorageHealth::RemoteAway(reason)) => {
            tracing::warn!(
                reason,
                "the remote repository is away: writes fail, and reads go on"
            );
        }
        (true, StorageHealth::Writable) => tracing::info!("the remote repository is back"),
        _ => {}
    }
}

const fn is_remote_away(health: &StorageHealth) -> bool {
    matches!(health, StorageHealth::RemoteAway(_))
}

fn write_error(error: &StoreError) -> StatusError {
    tracing::error!(error = error as &dyn std::error::Error, "store write failed");
    StatusError::internal(error.to_string())
}
