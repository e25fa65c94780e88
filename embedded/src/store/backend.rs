//! Where a store keeps its objects.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;

use super::error::StoreError;
#[cfg(test)]
use super::file::File;
use super::replay::Replay;
use super::state::Key;
use super::watch_cache::ChangeType;
use crate::status_error::StatusError;

/// The health of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StorageHealth {
    /// All writes are accepted.
    #[default]
    Writable,
    /// The disk is full and the reserve is in use: updates, Secrets and Leases are stored, other new objects rejected.
    OnReserve,
    /// Writes fail for this reason. The file is reopened until it can be written.
    Failing(String),
    /// The remote repository is away for this reason. Writes of shared objects fail; reads and writes of other objects continue.
    RemoteAway(String),
}

/// The client of a write; empty for a write of the server itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Name of the user.
    pub(crate) user: String,
    /// Name of the field manager, as the client sent it.
    pub(crate) manager: String,
    /// Written subresource; empty for the object itself.
    pub(crate) subresource: String,
    /// Verb of the request.
    pub(crate) verb: &'static str,
}

/// One change of an object.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// Key of the object.
    pub(super) key: Key,
    /// Type of the change.
    pub(super) kind: ChangeType,
    /// Object after the change; for a removal its last state, with the revision of the removal.
    pub(super) object: Arc<Value>,
    /// Revision of the change.
    pub(super) revision: u64,
    /// The client that wrote the change; empty if another process wrote it.
    pub(super) origin: Origin,
}

/// An invalid edit of a user. The object does not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InvalidFile {
    /// Key of the object.
    pub(crate) key: Key,
    /// Path of the file.
    pub(crate) path: String,
    /// Hash of the commit.
    pub(crate) commit: String,
    /// Error of the file.
    pub(crate) reason: String,
}

/// The changes that other processes and users have stored.
#[derive(Debug, Default)]
pub(super) struct Foreign {
    /// Changes in the order of their revisions.
    pub(super) records: Vec<Record>,
    /// Edits that changed nothing.
    pub(super) invalid: Vec<InvalidFile>,
    /// Whether the history was rewritten, so that no watch can resume from an earlier revision.
    pub(super) rewritten: bool,
}

/// Why a batch is not stored.
#[derive(Debug)]
pub(super) enum CommitError {
    /// Another process has written since the newest revision that this one has published, or writes now. The text is the reason.
    Rejected(String),
    /// These changes cannot be stored, each for its reason. The batch can be stored without them.
    Refused(Vec<(Key, StoreError)>),
    /// The backend failed.
    Failed(StoreError),
}

/// Work of a backend on a disk or a network that needs no lock.
pub(super) type Job = Box<dyn FnOnce() -> Result<(), StoreError> + Send>;

/// Reads the changes of a history again and sends them to a watch, without a lock.
pub(super) type ReplayJob = Box<dyn FnOnce(Arc<Replay>) -> Result<(), StoreError> + Send>;

/// Keeps the objects of a store. Its constructor loads them; all methods are called under one lock.
pub(super) trait Backend: fmt::Debug + Send {
    /// Whether commits wait for a disk or a network, so that they must not run on the threads of tokio.
    fn blocks(&self) -> bool;

    /// Whether other processes can change the object. A batch contains either shared objects, each once, or only other objects.
    fn is_shared(&self, _: &Key) -> bool {
        false
    }

    /// Whether a change of the object changes which kinds are served. Then it has a batch of its own, because the next writes must decide
    /// with the new kinds.
    fn changes_kinds(&self, _: &Key) -> bool {
        false
    }

    /// Decides a write again with what the caller does not know: the newest definition of the kind, and whether the object would replace a
    /// file that is not valid here. Returns the object with the defaults of that definition.
    fn admit(&self, _: &Key, object: Value) -> Result<Value, StatusError> {
        Ok(object)
    }

    /// Returns the objects that do not exist in this process because their files are not valid.
    fn invalid_objects(&self) -> BTreeSet<Key> {
        BTreeSet::new()
    }

    /// Fails if this change cannot be stored, whatever else is in its batch.
    fn check(&self, _: &Key, _: ChangeType) -> Result<(), StoreError> {
        Ok(())
    }

    /// Returns the revision of the first change in a batch that begins with this object.
    fn first_revision(&self, newest: u64, _: &Key) -> u64 {
        newest + 1
    }

    /// Sets the metadata of a new object that the backend determines.
    fn create(&mut self, _: &Key, _: &mut Value) {}

    /// Stores a batch, all of it or nothing. The records are in the order of their revisions. These follow the newest revision that the
    /// store has published, and count only if the batch is stored. Afterwards they equal what other processes read from the batch: a record
    /// that these refuse is removed, and a record for each further object that the batch changes is added.
    fn commit(&mut self, records: &mut Vec<Record>) -> Result<(), CommitError>;

    /// Makes the backend usable after an error. Returns the records of a failed batch that are stored all the same.
    fn recover(&mut self) -> Result<Vec<Record>, StoreError> {
        Ok(Vec::new())
    }

    /// Returns what other processes have stored since the newest published revision. No further attempt begins after this time, because
    /// writes wait.
    fn foreign(&mut self, _: Instant) -> Result<Foreign, StoreError> {
        Ok(Foreign::default())
    }

    /// Returns a job that downloads the changes of other processes to this machine. [`Backend::downloaded`] returns them.
    fn download(&self) -> Option<Job> {
        None
    }

    /// Returns what other processes have stored, like [`Backend::foreign`], but without the network.
    fn downloaded(&mut self, end: Instant) -> Result<Foreign, StoreError> {
        self.foreign(end)
    }

    /// Returns a job that removes what the store no longer needs from the disk.
    fn compaction(&self) -> Option<Job> {
        None
    }

    /// Whether there is a history, from which watches get changes that the watch cache no longer has.
    fn keeps_history(&self) -> bool {
        false
    }

    /// Returns a job that reads the published changes after a revision again; `None` if these are not the changes that clients have seen.
    fn replay(&self, _: u64) -> Result<Option<ReplayJob>, StoreError> {
        Ok(None)
    }

    /// Returns the health.
    fn health(&self) -> StorageHealth {
        StorageHealth::Writable
    }

    /// Called while the store is not [`StorageHealth::Writable`].
    fn maintain(&mut self) {}

    /// Returns the file of a file store, for the injection of faults.
    #[cfg(test)]
    fn as_file(&mut self) -> Option<&mut File> {
        None
    }
}

/// Keeps nothing beyond the process.
#[derive(Debug)]
pub(super) struct Memory;

impl Backend for Memory {
    fn blocks(&self) -> bool {
        false
    }

    fn commit(&mut self, _: &mut Vec<Record>) -> Result<(), CommitError> {
        Ok(())
    }
}
