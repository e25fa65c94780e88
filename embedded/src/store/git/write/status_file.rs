//! Writes of objects whose status is in the journal.

use std::collections::BTreeMap;

use serde_json::Value;

use super::refused;
use crate::resource::Strategy;
use crate::store::backend::{CommitError, Record};
use crate::store::error::StoreError;
use crate::store::git::branch::Edits;
use crate::store::git::file_edit::{EditError, FileEdit};
use crate::store::git::{Git, status, unreadable, yaml};
use crate::store::state::Key;

impl Git {
    /// Changes the document of an object, unless only its status differs and that is in the journal. Returns the new status file.
    pub(super) fn put(
        &self,
        file: &mut FileEdit,
        path: &str,
        record: &Record,
    ) -> Result<Option<Value>, CommitError> {
        let key = &record.key;
        let document = file.content(key);
        let written = match document {
            Some(document) => {
                let written = self.with_status(key, document.clone());
                Some(written.map_err(CommitError::Failed)?)
            }
            None => None,
        };
        let content = self.content(written.as_ref(), record);
        if !self.has_status_file(&content) {
            self.put_document(file, path, key, content)?;
            return Ok(None);
        }
        let (content, status) = status::split(content);
        let is_same = document.is_some_and(|document| {
            let (before, own) = status::split(document.clone());
            // A status in the file of the object leaves it with the next other change.
            before == content && (status.is_some() || own.is_none())
        });
        if !is_same || !self.history.is_valid(key) {
            self.put_document(file, path, key, content)?;
        }
        Ok(status)
    }

    fn put_document(
        &self,
        file: &mut FileEdit,
        path: &str,
        key: &Key,
        content: Value,
    ) -> Result<(), CommitError> {
        file.put(key, content).map_err(|error| {
            let error = match error {
                EditError::Document(reason) => self.unwritable(&key.to_string(), &reason),
                EditError::FileSize(reason) => self.unwritable(path, &reason),
            };
            refused(key, error)
        })
    }

    fn with_status(&self, key: &Key, document: Value) -> Result<Value, StoreError> {
        let status = self.history.has_status(key).then(|| self.read_status(key));
        Ok(match status.transpose()?.flatten() {
            Some(status) => status::join(document, &status),
            None => document,
        })
    }

    fn read_status(&self, key: &Key) -> Result<Option<Value>, StoreError> {
        status::read(&self.branch, self.history.journal, key)
            .map_err(|error| unreadable(&self.options, &error))
    }

    /// Whether an object has this status file. Without one, it must not have a file that does not parse either.
    fn is_stored(&self, key: &Key, status: Option<&Value>) -> Result<bool, StoreError> {
        if status.is_some() {
            return Ok(self.read_status(key)?.as_ref() == status);
        }
        let exists = status::exists(&self.branch, self.history.journal, key)
            .map_err(|error| unreadable(&self.options, &error))?;
        Ok(!exists)
    }

    /// Whether the status of an object is in the journal.
    fn has_status_file(&self, object: &Value) -> bool {
        self.branch.has_journal()
            && self
                .kinds
                .of(object)
                .is_some_and(|resource| resource.has_status && resource.strategy != Strategy::Namespace)
    }

    /// Returns the new texts of the status files that differ. The objects whose files other processes would not read are refused together.
    pub(super) fn render_statuses(
        &self,
        statuses: &BTreeMap<Key, Option<Value>>,
    ) -> Result<Edits, CommitError> {
        let mut edits = Edits::new();
        if !self.branch.has_journal() {
            return Ok(edits);
        }
        let outdated = self.history.outdated_statuses();
        let outdated = outdated.filter(|key| !statuses.contains_key(*key));
        let all = statuses.iter().map(|(key, status)| (key, status.as_ref()));
        let mut refused = Vec::new();
        for (key, status) in all.chain(outdated.map(|key| (key, None))) {
            if self.is_stored(key, status).map_err(CommitError::Failed)? {
                continue;
            }
            let path = status::path(key);
            match self.status_text(key, &path, status) {
                Ok(text) => {
                    edits.insert(path, text);
                }
                Err(error) => refused.push((key.clone(), error)),
            }
        }
        if refused.is_empty() {
            Ok(edits)
        } else {
            Err(CommitError::Refused(refused))
        }
    }

    /// Returns the text of a status file; `None` if the object has none.
    fn status_text(
        &self,
        key: &Key,
        path: &str,
        status: Option<&Value>,
    ) -> Result<Option<String>, StoreError> {
        let text = status.map(yaml::write).transpose();
        let text = text.map_err(|reason| self.unwritable(&key.to_string(), &reason))?;
        self.checked(path, text)
    }
}
