//! Writes of shared Leases, Events and runs whose file is not valid.
//!
//! A file that is not valid here can be valid in a process of another version, for example a Lease that it holds, and can be the edit of a
//! user. So neither a creation nor an update replaces it.

use crate::status_error::StatusError;
use crate::store::git::status::NOT_READ;
use crate::store::git::{Git, status, unreadable};
use crate::store::state::Key;
use crate::store::write_error;

impl Git {
    /// Fails if the object is shared by option, and its file is not valid.
    pub(in crate::store::git) fn check_file(&self, key: &Key) -> Result<(), StatusError> {
        if !self.kinds.sharing().contains(&key.resource) {
            return Ok(());
        }
        let file = self
            .invalid_file(key)
            .map_err(|error| write_error(&unreadable(&self.options, &error)))?;
        match file {
            Some((file, reason)) => {
                let reason = format!(
                    "it has the file {file}, which is not valid here: {reason}; commit a valid file, or remove it"
                );
                Err(StatusError::not_stored(&key.resource, &key.name, &reason))
            }
            None => Ok(()),
        }
    }

    /// Returns the file of an object, and why it is not the object; `None` if it is, or without a file.
    fn invalid_file(&self, key: &Key) -> Result<Option<(String, String)>, git2::Error> {
        let branch = &self.options.branch;
        let is_absent = !self.history.objects.contains_key(key);
        let known = self.history.invalid_reason(key);
        if self.kinds.is_in_journal(key) {
            let has_file = || status::exists(&self.branch, self.history.journal, key);
            let reason = match known {
                None if is_absent && has_file()? => Some(NOT_READ),
                known => known,
            };
            let path = status::path(key);
            return Ok(reason.map(|reason| (format!("{path} of {branch}-status"), reason.to_owned())));
        }
        // Every write of an object in several places is refused.
        let Ok(Some(path)) = self.history.place(key) else {
            return Ok(None);
        };
        let known = self.history.problem(path).or(known);
        let reason = known.or_else(|| is_absent.then_some(NOT_READ));
        Ok(reason.map(|reason| (format!("{path} of {branch}"), reason.to_owned())))
    }
}
