//! Creations of shared Leases, Events and runs.
//!
//! A file that is not valid here can be valid in a process of another version, for example a Lease that it holds. So a creation does not
//! replace the file.

use crate::status_error::StatusError;
use crate::store::git::{Git, status, unreadable, yaml};
use crate::store::state::Key;
use crate::store::write_error;

/// The reason for which a file that parses is not the object, if no other one is known.
const NOT_READ: &str = "it is not read as this object";

impl Git {
    /// Fails if the object does not exist here, is shared by option, and has a file.
    pub(in crate::store::git) fn check_creation(&self, key: &Key) -> Result<(), StatusError> {
        if !self.kinds.sharing().contains(&key.resource) || self.history.objects.contains_key(key) {
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

    /// Returns the file of an object that does not exist, and why it is not the object; `None` without a file.
    fn invalid_file(&self, key: &Key) -> Result<Option<(String, String)>, git2::Error> {
        let branch = &self.options.branch;
        if self.kinds.is_in_journal(key) {
            let path = status::path(key);
            let reason = self.invalid_journal_file(key, &path)?;
            return Ok(reason.map(|reason| (format!("{path} of {branch}-status"), reason)));
        }
        // Every write of an object in several places is refused.
        let Ok(Some(path)) = self.history.place(key) else {
            return Ok(None);
        };
        let reason = self.history.problem(path);
        let reason = reason.or_else(|| self.history.invalid_reason(key));
        let reason = reason.unwrap_or(NOT_READ).to_owned();
        Ok(Some((format!("{path} of {branch}"), reason)))
    }

    fn invalid_journal_file(&self, key: &Key, path: &str) -> Result<Option<String>, git2::Error> {
        let Some(journal) = self.history.journal else {
            return Ok(None);
        };
        let Some(text) = self.branch.read(journal, path)? else {
            return Ok(None);
        };
        let problem = text.and_then(|text| yaml::parse(&text)).err();
        let reason = problem.or_else(|| self.history.invalid_reason(key).map(str::to_owned));
        Ok(Some(reason.unwrap_or_else(|| NOT_READ.to_owned())))
    }
}
