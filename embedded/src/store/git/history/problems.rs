//! Problems of files in the repository. They are logged when they arrive, and at a start if they remain: most of those in the history
//! are repaired.

use std::collections::BTreeSet;

use super::History;
use crate::definitions::{DEFINITIONS, MAX_DEFINITIONS, too_many};
use crate::store::git::kinds::Kinds;
use crate::store::git::status;
use crate::store::state::Key;

/// Why the content of a file is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store::git) enum Problem {
    /// The file does not parse.
    Unreadable {
        /// Path of the file.
        path: String,
        /// Error of the parser.
        reason: String,
    },
    /// The object is not valid.
    Invalid {
        /// Path of the file.
        path: String,
        /// Key of the object.
        object: String,
        /// Error of the admission.
        reason: String,
    },
    /// The object is in several places.
    Duplicate {
        /// The object and its places.
        reason: String,
    },
    /// The definition is one of the program.
    OwnDefinition {
        /// Name of the definition.
        definition: String,
    },
    /// There are too many definitions.
    ExcessDefinition {
        /// Name of the definition.
        definition: String,
        /// Number of definitions and limit.
        reason: String,
    },
}

impl Problem {
    /// Logs the problem.
    pub(in crate::store::git) fn log(&self) {
        match self {
            Self::Unreadable { path, reason } => tracing::warn!(
                path,
                reason,
                "a file of the repository does not parse, its objects stay as they were"
            ),
            Self::Invalid { path, object, reason } => tracing::warn!(
                path,
                object,
                reason,
                "an object of the repository is invalid, it stays as it was"
            ),
            Self::Duplicate { reason } => tracing::warn!(reason, "duplicate objects in the repository"),
            Self::OwnDefinition { definition } => tracing::warn!(
                definition,
                "a definition of the program is in the repository; the program ignores the file"
            ),
            Self::ExcessDefinition { definition, reason } => tracing::warn!(
                definition,
                reason,
                "a definition of the repository is ignored until its file changes"
            ),
        }
    }
}

impl History {
    /// Forgets the problems of commits that were read at a start: each is reported and logged when it arrives, and most of these were
    /// repaired long ago.
    pub(in crate::store::git) fn forget_problems(&mut self) {
        self.reports.clear();
        self.problems.clear();
    }

    /// Returns the objects that do not exist in this process because their files are not valid.
    pub(in crate::store::git) fn invalid_objects(&self) -> BTreeSet<Key> {
        let invalid = self.invalid.keys();
        invalid
            .filter(|key| !self.objects.contains_key(*key))
            .cloned()
            .collect()
    }

    /// Returns the problems that the newest commit has.
    pub(in crate::store::git) fn present_problems(&self, kinds: &Kinds) -> Vec<Problem> {
        let unreadable = self.unreadable.iter().map(|(path, reason)| Problem::Unreadable {
            path: path.clone(),
            reason: reason.clone(),
        });
        let mut problems: Vec<Problem> = unreadable.collect();
        for (key, paths) in &self.places {
            let path = paths.keys().next().cloned().unwrap_or_default();
            let invalid = self.invalid.get(key).map(|reason| Problem::Invalid {
                path,
                object: key.to_string(),
                reason: reason.clone(),
            });
            let duplicate = self.place(key).err().map(|reason| Problem::Duplicate { reason });
            problems.extend(invalid.into_iter().chain(duplicate));
            if key.resource == DEFINITIONS {
                problems.extend(self.definition_problem(kinds, key));
            }
        }
        let in_journal = self.invalid.iter().filter(|(key, _)| kinds.is_in_journal(key));
        problems.extend(in_journal.map(|(key, reason)| Problem::Invalid {
            path: status::path(key),
            object: key.to_string(),
            reason: reason.clone(),
        }));
        problems
    }

    /// Returns why a definition in the repository is ignored, whether it is valid or not.
    pub(super) fn definition_problem(&self, kinds: &Kinds, key: &Key) -> Option<Problem> {
        let definition = key.name.clone();
        if !kinds.is_shared(key) {
            return Some(Problem::OwnDefinition { definition });
        }
        let count = kinds.definition_count();
        let is_excess = count >= MAX_DEFINITIONS && !self.objects.contains_key(key);
        is_excess.then(|| Problem::ExcessDefinition {
            definition,
            reason: too_many(count),
        })
    }
}
