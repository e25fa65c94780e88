//! The content of one commit.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde_json::Value;

use super::object_size::grows_too_large;
use super::{MAX_COMMIT_BYTES, Outcome, Transaction, TransactionView, aborted};
use crate::meta;
use crate::status_error::StatusError;
use crate::store::backend::{Backend, Record};
use crate::store::state::{Key, State};
use crate::store::watch_cache::{ChangeType, approximate_size};
use crate::store::{Write, write_error};

/// The decision of a write in a commit.
pub(super) struct Decided {
    pub(super) outcome: Outcome,
    /// Whether the write changed something or saw uncommitted changes, so that it fails with the commit.
    pub(super) depends: bool,
    /// Whether the write changed something.
    changes: bool,
}

/// The content of one commit, and the outcomes of its writes.
pub(super) struct Commit {
    pub(super) records: Vec<Record>,
    staged: HashMap<Key, Option<Arc<Value>>>,
    bytes: usize,
    /// Revision of the newest record, or of the state.
    revision: u64,
    /// The disk is full: only updates and essential objects are stored, one write per commit.
    uses_reserve: bool,
    /// One for each write, in their order.
    pub(super) decided: Vec<Decided>,
}

impl Commit {
    pub(super) fn after(state: &State, uses_reserve: bool) -> Self {
        Self {
            records: Vec::new(),
            staged: HashMap::new(),
            bytes: 0,
            revision: state.revision(),
            uses_reserve,
            decided: Vec::new(),
        }
    }

    pub(super) const fn has_capacity(&self) -> bool {
        self.records.is_empty() || (self.bytes < MAX_COMMIT_BYTES && !self.uses_reserve)
    }

    /// Calls the decision of a write and stages its change.
    pub(super) fn add(&mut self, state: &State, backend: &mut dyn Backend, transaction: &Transaction<'_>) {
        let key = &transaction.key;
        let view = TransactionView {
            state,
            staged: Some(&self.staged),
        };
        let existing = view.get(key).cloned();
        // A panic must not affect the other writes.
        let decision =
            catch_unwind(AssertUnwindSafe(|| (transaction.decide)(&view))).unwrap_or_else(|_| Err(aborted()));
        let count = self.records.len();
        let outcome =
            decision.and_then(|decision| self.stage(backend, transaction, existing.as_deref(), decision));
        self.decided.push(Decided {
            outcome,
            depends: !self.records.is_empty(),
            changes: self.records.len() > count,
        });
    }

    /// Adds a write that cannot be stored, with its error.
    pub(super) fn refuse(&mut self, error: StatusError) {
        self.decided.push(Decided {
            outcome: Err(error),
            depends: false,
            changes: false,
        });
    }

    fn stage(
        &mut self,
        backend: &mut dyn Backend,
        transaction: &Transaction<'_>,
        existing: Option<&Value>,
        decision: Write,
    ) -> Outcome {
        let key = transaction.key.clone();
        let exists = existing.is_some();
        let (kind, mut object) = match decision {
            Write::Unchanged(object) => return Ok(object),
            Write::Put(object) => (ChangeType::Put, backend.admit(&key, object)?),
            Write::Remove(object) => (ChangeType::Remove, object),
        };
        if self.uses_reserve && !exists && !is_essential(&key) {
            return Err(StatusError::no_space(&key.resource));
        }
        if kind == ChangeType::Put && grows_too_large(&key, &object, existing) {
            return Err(StatusError::request_too_large());
        }
        // Before anything is staged, so that only this write fails.
        backend.check(&key, kind).map_err(|error| write_error(&error))?;
        self.revision = match self.records.last() {
            Some(last) => last.revision + 1,
            None => backend.first_revision(self.revision, &key),
        };
        if !exists && kind == ChangeType::Put {
            backend.create(&key, &mut object);
        }
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
            origin: transaction.origin.clone(),
        });
        Ok(object)
    }

    /// Corrects the outcomes after the commit: a client gets the object as other processes read it from the commit, or the error that there
    /// is none.
    pub(super) fn correct_outcomes(&mut self, transactions: &[Transaction<'_>]) {
        let stored: HashMap<&Key, &Arc<Value>> = self
            .records
            .iter()
            .map(|record| (&record.key, &record.object))
            .collect();
        for (transaction, decided) in transactions.iter().zip(&mut self.decided) {
            let Ok(object) = &decided.outcome else { continue };
            match stored.get(&transaction.key).copied() {
                None if decided.changes => decided.outcome = Err(refused(&transaction.key)),
                // An earlier write of the object in the same commit keeps its own outcome.
                Some(stored) if meta::resource_version(stored) == meta::resource_version(object) => {
                    decided.outcome = Ok(Arc::clone(stored));
                }
                _ => {}
            }
        }
    }
}

fn refused(key: &Key) -> StatusError {
    StatusError::internal(format!(
        "the commit with {key} is stored, and its file is not valid, so that the object stays as it was"
    ))
}

/// Whether a running apply must be able to create the object: its state and other Secrets, and its lock.
fn is_essential(key: &Key) -> bool {
    matches!(key.resource.as_str(), "secrets" | "leases.coordination.k8s.io")
}
