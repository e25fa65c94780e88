//! Where objects live. A write is one transaction: check, number, persist, publish, in that order. Those that wait at the same
//! time share one commit of the file.
//!
//! All objects are held in memory and answered from there; a file store persists each change before it is published,
//! so nothing is ever answered that a crash could take back.

mod commit;
mod disk;
mod file;
mod history;
mod inspect;
mod state;

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard},
};

use serde_json::Value;
use tokio::sync::watch;

pub use self::inspect::{BadRecord, Inspection, discard, inspect};
use self::{
    commit::Queue,
    file::{File, Record},
};
pub(crate) use self::{
    commit::View,
    history::{Change, Gone, Verb},
    state::{Key, State},
};
use crate::service::StatusError;

/// Changes that a watch may lag behind before it is told to list again.
const WINDOW: usize = 10_000;
/// And bytes of such changes, about.
const WINDOW_BYTES: usize = 32 << 20;

/// Where the server keeps its objects.
#[derive(Debug)]
pub struct Store {
    /// Held for the whole of a commit, so that writes are ordered.
    writer: Mutex<Option<File>>,
    /// Writes that wait for the next commit. Held for a moment, also under the writer's lock.
    queue: Mutex<Queue>,
    /// Held for writing only while a change is published: a sync of the disk never delays a reader.
    state: RwLock<State>,
    /// The newest version, for those who wait for the next.
    newest: watch::Sender<u64>,
    health: watch::Sender<StorageHealth>,
    durable: bool,
}

/// How a store takes writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StorageHealth {
    /// As it should.
    #[default]
    Writable,
    /// The disk is full and the reserve is in use: updates, Secrets and Leases are stored, other new objects are not.
    OnReserve,
    /// Writes are refused, for this reason. The file is opened again until it can be written.
    Failing(String),
}

/// A store that cannot be opened or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database refused.
    #[error("store {path}: {source}")]
    Database {
        /// The file.
        path: String,
        /// What the database says.
        #[source]
        source: Box<redb::Error>,
    },
    /// The file holds something that no server wrote.
    #[error("store {path}: the record {key:?} does not decode: {why}")]
    Corrupt {
        /// The file.
        path: String,
        /// The record.
        key: String,
        /// The decoder's words.
        why: String,
    },
    /// A file of the store cannot be opened, made or read.
    #[error("store {path}: {source}")]
    File {
        /// The file.
        path: String,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// The file belongs to another user, who could change what is in it.
    #[error("store {path}: it belongs to the user with the id {uid}")]
    Foreign {
        /// The file.
        path: String,
        /// Its owner.
        uid: u32,
    },
    /// The file has lost its content: a new store is never empty.
    #[error(
        "store {path}: the file is empty; put a copy in its place, or remove it to start without objects"
    )]
    Empty {
        /// The file.
        path: String,
    },
    /// The pages of the file are not those that were written.
    #[error("store {path}: the file is damaged: {why}")]
    Damaged {
        /// The file.
        path: String,
        /// What does not fit.
        why: String,
    },
    /// A newer program wrote the file.
    #[error(
        "store {path}: the file has the format {format}, this program knows {known}: use the newer program"
    )]
    Newer {
        /// The file.
        path: String,
        /// Its format.
        format: u64,
        /// The newest format of this program.
        known: u64,
    },
    /// The file could not be opened again after an error.
    #[error("store {path}: not writable since an error: {why}")]
    Unwritable {
        /// The file.
        path: String,
        /// The error.
        why: String,
    },
}

/// What a write decided, seen from the newest state.
#[derive(Debug)]
pub(crate) enum Write {
    /// Store this object under its key.
    Put(Value),
    /// Remove the object; the value is its last state, for the watchers.
    Remove(Value),
    /// Nothing changes; this is the answer.
    Keep(Arc<Value>),
}

impl Store {
    /// Objects in memory only.
    #[must_use]
    pub fn memory() -> Self {
        Self::new(State::default(), None)
    }

    /// Objects in a file, created when absent. Each write is synced before it is answered.
    ///
    /// # Errors
    /// When the file cannot be opened, is held by another process, is damaged or empty, belongs to another user, was
    /// written by a newer program, or holds records that do not decode.
    pub fn file(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let (file, state) = File::open(path.as_ref())?;
        Ok(Self::new(state, Some(file)))
    }

    /// Shortens the window of changes that watches can resume from (10 000 by default).
    #[must_use]
    pub fn with_window(self, changes: usize) -> Self {
        self.state
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .history
            .set_window(changes);
        self
    }

    fn new(state: State, file: Option<File>) -> Self {
        let newest = watch::Sender::new(state.revision());
        let health = file.as_ref().map(File::health).unwrap_or_default();
        Self {
            health: watch::Sender::new(health),
            durable: file.is_some(),
            writer: Mutex::new(file),
            queue: Mutex::default(),
            state: RwLock::new(state),
            newest,
        }
    }

    /// The state to read from. Held only for the time of a look.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        // A poisoned lock only says that a reader panicked: a change is published by infallible steps.
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells of each new version.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// How the store takes writes, now and later.
    pub(crate) fn health(&self) -> watch::Receiver<StorageHealth> {
        self.health.subscribe()
    }

    /// Opens a file again that had an error, and takes the reserve back where there is room. Blocks.
    pub(crate) fn maintain(&self) {
        if *self.health.borrow() == StorageHealth::Writable {
            return;
        }
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &mut *writer {
            // Why it still fails is in the health.
            drop(self.recover(file));
            file.restore_reserve();
            self.report(file);
        }
    }

    /// Opens the file again if it has to be, and shows the writes that turn out to be in it.
    fn recover(&self, file: &mut File) -> Result<(), StatusError> {
        let outcome = file.recover();
        self.report(file);
        self.publish(outcome.map_err(|error| refused(&error))?);
        Ok(())
    }

    fn report(&self, file: &File) {
        let health = file.health();
        self.health.send_if_modified(|known| {
            let differs = *known != health;
            *known = health;
            differs
        });
    }

    fn publish(&self, records: Vec<Record>) {
        let Some(newest) = records.last().map(|record| record.revision) else {
            return;
        };
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        for record in records {
            state.publish(record.key, record.verb, record.object, record.revision);
        }
        drop(state);
        self.newest.send_replace(newest);
    }
}

fn refused(error: &StoreError) -> StatusError {
    tracing::error!(
        error = error as &dyn std::error::Error,
        "write refused by the store"
    );
    StatusError::internal(error.to_string())
}
