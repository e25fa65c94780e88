//! Writes of this process: from records to files, a commit, and the move of the branch.

mod invalid_file;
mod status_file;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use serde_json::Value;

use super::branch::{Edits, FileText, Heads, Moved, check_size};
use super::file_edit::FileEdit;
use super::{Git, admit, failed, foreign, message, status, unreadable};
use crate::definitions::DEFINITIONS;
use crate::meta;
use crate::status_error::StatusError;
use crate::store::backend::{CommitError, Record};
use crate::store::error::StoreError;
use crate::store::state::Key;
use crate::store::watch_cache::ChangeType;

impl Git {
    /// Stores records of shared objects as one commit. Afterwards they are what other processes read from it.
    pub(super) fn commit_shared(&mut self, records: &mut Vec<Record>) -> Result<(), CommitError> {
        let time = self.time.take();
        let time = time.unwrap_or_else(|| jiff::Timestamp::now().as_second());
        let BatchEdit { files, statuses } = self.edit(records)?;
        let edits = self.render(&files).map_err(CommitError::Failed)?;
        let status_edits = self.render_statuses(&statuses)?;
        let message = message::compose(records, &self.history.objects);
        let heads = self
            .store(&edits, &status_edits, &message, time)
            .map_err(|error| CommitError::Failed(unreadable(&self.options, &error)))?
            .map_err(|reason| CommitError::Rejected(self.rejection(reason)))?;
        if records.iter().any(|record| record.key.resource == DEFINITIONS) {
            self.apply_own(heads, records);
        } else {
            let keys = files.into_iter().map(|(path, file)| (path, file.keys()));
            self.history.accept(heads, records, keys.collect());
            let statuses = statuses.into_iter();
            let statuses = statuses.map(|(key, status)| (key, status.is_some()));
            self.history.accept_statuses(statuses);
        }
        Ok(())
    }

    /// Reads a commit of this process that changes definitions, as other processes do: files can become objects, and objects be
    /// withdrawn.
    fn apply_own(&mut self, heads: Heads, records: &mut Vec<Record>) {
        match self.apply_newest(heads) {
            Ok(read) => *records = read_back(std::mem::take(records), read, &self.history.objects),
            // The commit is stored. If it cannot be read back now, the next poll reads the whole history.
            Err(error) => {
                let error = unreadable(&self.options, &error);
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "cannot read a new commit"
                );
            }
        }
    }

    /// Decides a write again with the definition of its kind in the repository, by which other processes read it. The API serves a
    /// definition some time after its commit was read, so that a request can be validated with the one before.
    pub(super) fn admit_shared(&self, key: &Key, object: Value) -> Result<Value, StatusError> {
        if !self.kinds.is_defined_in_repository(key) {
            return Ok(object);
        }
        let document = admit::without_derived(&object);
        let before = self.history.objects.get(key).map(|before| &**before);
        let Some(read) = self.read_document(&document, before) else {
            return Ok(object);
        };
        let mut read = read.map_err(|reason| {
            let reason = format!("the definition of the kind has changed: {reason}");
            StatusError::try_again(&key.resource, &key.name, &reason)
        })?;
        if admit::without_derived(&read) == document {
            return Ok(object);
        }
        let managers = object["metadata"]["managedFields"].clone();
        meta::set(&mut read, "managedFields", managers);
        Ok(read)
    }

    /// Fails if an object cannot be written: it is in several places, its file does not parse, or its kind is not served.
    pub(super) fn check_shared(&self, key: &Key, kind: ChangeType) -> Result<(), StoreError> {
        self.path(key, kind).map(drop)
    }

    /// Returns the path of the file of a change; `None` if it needs no file on the branch.
    fn path(&self, key: &Key, kind: ChangeType) -> Result<Option<String>, StoreError> {
        let failed = |reason: String| failed(&self.options, reason);
        if !self.kinds.is_shared(key) {
            return Err(failed(format!(
                "{key} stays on this machine and is not written to the repository"
            )));
        }
        if self.kinds.is_in_journal(key) {
            return Ok(None);
        }
        if let Some(reason) = self.history.pending_move(key) {
            return Err(failed(reason));
        }
        let path = match self.history.place(key).map_err(failed)? {
            Some(path) => path.to_owned(),
            // The object is removed before it gets a file.
            None if kind == ChangeType::Remove => return Ok(None),
            None => self
                .kinds
                .path(key)
                .ok_or_else(|| failed(format!("the kind of {key} is not served")))?,
        };
        match self.history.problem(&path) {
            Some(reason) => Err(failed(unparsable(&path, key, reason))),
            None => Ok(Some(path)),
        }
    }

    /// Returns the edited files. Each is read and parsed once. All records that cannot be stored after those before them are refused
    /// together, because each attempt reads the files again.
    fn edit(&self, records: &[Record]) -> Result<BatchEdit, CommitError> {
        let mut batch = BatchEdit::default();
        let mut refused = Vec::new();
        for record in records {
            match self.edit_one(&mut batch, record) {
                Ok(()) => {}
                Err(CommitError::Refused(writes)) => refused.extend(writes),
                Err(error) => return Err(error),
            }
        }
        if refused.is_empty() {
            Ok(batch)
        } else {
            Err(CommitError::Refused(refused))
        }
    }

    /// Edits the file of one record. The file does not change if the record is refused.
    fn edit_one(&self, batch: &mut BatchEdit, record: &Record) -> Result<(), CommitError> {
        let key = &record.key;
        if record.kind == ChangeType::Remove {
            batch.statuses.insert(key.clone(), None);
        } else if self.kinds.is_in_journal(key) {
            let whole = status::whole(&record.object);
            batch.statuses.insert(key.clone(), Some(whole));
        }
        let path = self.path(key, record.kind).map_err(|error| refused(key, error))?;
        let Some(path) = path else { return Ok(()) };
        let file = match batch.files.entry(path.clone()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(self.open_file(&path, key)?),
        };
        match record.kind {
            ChangeType::Put => {
                let status = self.put(file, &path, record)?;
                batch.statuses.insert(key.clone(), status);
            }
            ChangeType::Remove => file.remove(key),
        }
        Ok(())
    }

    /// Reads and parses the file of an object.
    fn open_file(&self, path: &str, key: &Key) -> Result<FileEdit, CommitError> {
        let unusable = |reason: String| refused(key, failed(&self.options, unparsable(path, key, &reason)));
        let text = self.read(path).map_err(CommitError::Failed)?;
        let text = text.transpose().map_err(unusable)?;
        FileEdit::parse(&self.kinds, &text.unwrap_or_default()).map_err(unusable)
    }

    /// Returns the new texts of files. One that other processes would not read is an error.
    fn render(&self, files: &BTreeMap<String, FileEdit>) -> Result<Edits, StoreError> {
        let mut edits = Edits::new();
        for (path, file) in files.iter().filter(|(_, file)| file.is_changed()) {
            edits.insert(path.clone(), self.checked(path, file.render())?);
        }
        Ok(edits)
    }

    /// Refuses the text of a file that is too large to be read.
    fn checked(&self, path: &str, text: Option<String>) -> Result<Option<String>, StoreError> {
        match check_size(text.as_ref().map_or(0, String::len)) {
            Ok(()) => Ok(text),
            Err(reason) => Err(self.unwritable(path, &reason)),
        }
    }

    fn unwritable(&self, what: &str, reason: &str) -> StoreError {
        failed(&self.options, format!("{what} cannot be written: {reason}"))
    }

    fn read(&self, path: &str) -> Result<Option<FileText>, StoreError> {
        let Some(head) = self.history.head else {
            return Ok(None);
        };
        self.branch
            .read(head, path)
            .map_err(|error| unreadable(&self.options, &error))
    }

    /// Returns the content of the document of a stored object. `written` is what the document contains now.
    fn content(&self, written: Option<&Value>, record: &Record) -> Value {
        let after = admit::without_derived(&record.object);
        let (Some(written), Some(before)) = (written, self.history.objects.get(&record.key)) else {
            return after;
        };
        let content = admit::rewrite(written, &admit::without_derived(before), &after);
        // The write is validated. If the document describes the object before it, in the stored version, it describes the object after it
        // now. Otherwise it may have fields that are not valid, or that its version does not have, so the whole object replaces it.
        let is_same_version = written["apiVersion"] == after["apiVersion"];
        // The status of a definition follows from its spec where the document does not have it.
        let is_literal = is_same_version && record.key.resource != DEFINITIONS;
        if (is_literal && self.history.is_valid(&record.key)) || self.describes(&content, before, &after) {
            content
        } else {
            after
        }
    }

    /// Whether other processes read exactly this object from a document.
    fn describes(&self, document: &Value, before: &Value, object: &Value) -> bool {
        let read = self.read_document(document, Some(before)).and_then(Result::ok);
        read.is_some_and(|read| admit::without_derived(&read) == *object)
    }

    /// Returns the object that other processes read from a document, or why they refuse it; `None` if its kind is not served.
    fn read_document(&self, document: &Value, before: Option<&Value>) -> Option<Result<Value, String>> {
        let resource = self.kinds.of(document)?;
        Some(admit::admit(resource, document, before))
    }

    /// Writes a commit and moves the branch to it. With a journal, a commit of that follows, and the branch moves only if its files
    /// differ. The inner error says why they are not moved.
    fn store(
        &self,
        edits: &Edits,
        status_edits: &Edits,
        message: &str,
        time: i64,
    ) -> Result<Result<Heads, String>, git2::Error> {
        let known = self.heads();
        // A commit of the journal belongs to one of the branch.
        let has_commit = !self.branch.has_journal() || !edits.is_empty() || known.branch.is_none();
        if let Err(reason) = self.branch.check_heads(known, has_commit)? {
            return Ok(Err(reason));
        }
        if let Some(remote) = &self.remote {
            remote.check()?;
        }
        let mut new = known;
        if has_commit {
            new.branch = Some(self.branch.write(known.branch, edits, message, time)?);
        }
        if self.branch.has_journal() {
            let head = new.branch.filter(|_| has_commit);
            let entry = self
                .branch
                .write_entry(known.journal, head, status_edits, message, time)?;
            new.journal = Some(entry);
        }
        Ok(self.advance(known, new)?.map(|()| new))
    }

    /// Moves the branch and its journal, first those of a remote repository.
    pub(super) fn advance(&self, known: Heads, new: Heads) -> Result<Moved, git2::Error> {
        match &self.remote {
            Some(remote) => remote.push(&self.branch, known, new),
            None => self.branch.advance_heads(known, new),
        }
    }
}

/// The edits of a batch.
#[derive(Debug, Default)]
struct BatchEdit {
    /// Files by path.
    files: BTreeMap<String, FileEdit>,
    /// Status files; `None` if an object has none.
    statuses: BTreeMap<Key, Option<Value>>,
}

/// Returns the changes of a commit of this process as other processes read them. `after` are the objects that they have then.
fn read_back(written: Vec<Record>, read: Vec<Record>, after: &BTreeMap<Key, Arc<Value>>) -> Vec<Record> {
    let mut changes = read;
    for record in written {
        let change = changes.iter_mut().find(|change| change.key == record.key);
        match change {
            // With the managers that the file does not contain.
            Some(change) if is_read_as(&record, change) => *change = record,
            None if is_in_effect(&record, after) => changes.insert(0, record),
            _ => {
                let object = record.key.to_string();
                tracing::warn!(
                    object,
                    "the repository does not contain what was written, so that its content is served"
                );
            }
        }
    }
    changes
}

/// Whether a record of this process is the change that was read. A file does not contain fields that are null.
fn is_read_as(record: &Record, change: &Record) -> bool {
    record.kind == change.kind
        && (record.kind == ChangeType::Remove
            || comparable(&change.object) == comparable(&admit::as_read(&record.object)))
}

/// Returns an object with one order of its managers, and without the fields that are null.
fn comparable(object: &Arc<Value>) -> Value {
    without_nulls(&status::in_order_of_files(object.clone()))
}

/// Returns a value without the fields that are null.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.clone(), without_nulls(value)))
            .collect(),
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        scalar => scalar.clone(),
    }
}

/// Whether a record that changes no file is what the objects are: only managers changed.
fn is_in_effect(record: &Record, objects: &BTreeMap<Key, Arc<Value>>) -> bool {
    let object = objects.get(&record.key);
    record.kind == ChangeType::Put
        && object.is_some_and(|object| {
            let in_order = status::in_order_of_files;
            foreign::is_same(
                &in_order(object.clone()),
                &in_order(admit::as_read(&record.object)),
            )
        })
}

fn refused(key: &Key, error: StoreError) -> CommitError {
    CommitError::Refused(vec![(key.clone(), error)])
}

fn unparsable(path: &str, key: &Key, reason: &str) -> String {
    format!("{path} does not parse, so that {key} is read-only: {reason}")
}
