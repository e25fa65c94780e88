//! Where objects live. A write is one transaction: check, number, persist, publish, in that order, one at a time.
//!
//! All objects are held in memory and answered from there; a file store persists each change before it is published,
//! so nothing is ever answered that a crash could take back.

mod file;
mod history;
mod state;

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard},
};

use serde_json::Value;
use tokio::sync::watch;

use self::file::File;
pub(crate) use self::{
    history::{Change, Gone, Verb},
    state::{Key, State},
};
use crate::{meta, service::StatusError};

/// Changes that a watch may lag behind before it is told to list again.
const WINDOW: usize = 10_000;

/// Where the server keeps its objects.
#[derive(Debug)]
pub struct Store {
    /// Held for the whole of a write, so that writes are ordered.
    writer: Mutex<Option<File>>,
    /// Held for writing only while a change is published: a sync of the disk never delays a reader.
    state: RwLock<State>,
    /// The newest version, for those who wait for the next.
    newest: watch::Sender<u64>,
    durable: bool,
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
    /// When the file cannot be opened, is held by another process, or holds records that do not decode.
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
        Self {
            durable: file.is_some(),
            writer: Mutex::new(file),
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

    /// Runs one write. `decide` sees the newest state, and nothing changes between its look and the publication.
    ///
    /// The work goes on when the caller is dropped: a write is either persisted and published, or neither.
    pub(crate) async fn write<F>(self: &Arc<Self>, key: Key, decide: F) -> Result<Arc<Value>, StatusError>
    where
        F: FnOnce(&State) -> Result<Write, StatusError> + Send + 'static,
    {
        if !self.durable {
            return self.write_now(&key, decide);
        }
        let store = self.clone();
        tokio::task::spawn_blocking(move || store.write_now(&key, decide))
            .await
            .map_err(|error| StatusError::internal(format!("the write ended early: {error}")))?
    }

    /// [`Store::write`], on this thread.
    pub(crate) fn write_now<F>(&self, key: &Key, decide: F) -> Result<Arc<Value>, StatusError>
    where
        F: FnOnce(&State) -> Result<Write, StatusError>,
    {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let (decision, revision) = {
            let state = self.read();
            (decide(&state)?, state.revision() + 1)
        };
        let (verb, mut object) = match decision {
            Write::Keep(object) => return Ok(object),
            Write::Put(object) => (Verb::Put, object),
            Write::Remove(object) => (Verb::Remove, object),
        };
        meta::set(&mut object, "resourceVersion", revision.to_string().into());
        if let Some(file) = &*writer {
            file.persist(key, verb, &object, revision).map_err(|error| {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "write refused by the store"
                );
                StatusError::internal(error.to_string())
            })?;
        }
        let object = Arc::new(object);
        self.state
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .publish(key.clone(), verb, object.clone(), revision);
        // Still under the writer's lock: versions are announced in order.
        self.newest.send_replace(revision);
        drop(writer);
        Ok(object)
    }
}
