//! What a commit of the journal changes, on the branch and in the status files.

use std::collections::{BTreeMap, BTreeSet};

use git2::{Error, Oid};
use serde_json::Value;

use super::branch::{Branch, Heads};
use super::commit_content::CommitContent;
use super::message::{self, Trailers};
use super::status;
use crate::store::state::Key;

/// What a commit of the journal changes.
#[derive(Debug)]
pub(super) struct EntryContent {
    /// Head of the branch that it belongs to; `None` if that is the one of the commit before.
    pub(super) head: Option<Oid>,
    /// Its trailers; empty unless it is a write.
    pub(super) trailers: Trailers,
    /// Objects whose status can differ.
    pub(super) keys: BTreeSet<Key>,
    /// Those of the status files that are read already.
    pub(super) statuses: BTreeMap<Key, Option<Value>>,
    /// The head of its step, and what that changes: the content of a write on the branch, or only status files. `None` without a step.
    pub(super) step: Option<(Oid, CommitContent)>,
}

impl EntryContent {
    /// Compares a commit with the one before it. No file is read. `known` are the newest commits before it.
    pub(super) fn of(branch: &Branch, known: Heads, id: Oid) -> Result<Self, Error> {
        let head = branch.entry(id)?.head;
        let trailers = message::parse(&branch.info(id)?.message);
        let mut keys = status::changed(branch, known.journal, id)?;
        keys.extend(trailers.versions.keys().cloned());
        let has_step = !keys.is_empty() || !trailers.is_empty();
        let target = head.or(known.branch).filter(|_| has_step);
        // Without trailers the commits of the branch are steps of their own, and the last one has only the status.
        let previous = if trailers.is_empty() { target } else { known.branch };
        let step = target.map(|target| {
            let content = CommitContent::of(branch, previous, target)?;
            Ok::<_, Error>((target, content))
        });
        Ok(Self {
            head,
            trailers,
            keys,
            statuses: BTreeMap::new(),
            step: step.transpose()?,
        })
    }

    /// Returns the number of files and objects that the commit names.
    pub(super) fn count(&self) -> usize {
        let files = self.step.as_ref().map_or(0, |(_, content)| content.files.len());
        self.keys.len() + files
    }

    /// Reads and parses the files of the commit `id` up to a number of bytes. The others can be read later.
    pub(super) fn read(&mut self, branch: &Branch, id: Oid, max_bytes: usize) -> Result<(), Error> {
        let mut bytes = 0;
        for key in &self.keys {
            let text = status::text(branch, id, key)?;
            bytes += text.as_ref().map_or(0, String::len);
            if bytes > max_bytes {
                return Ok(());
            }
            self.statuses.insert(key.clone(), status::parse(text));
        }
        match &mut self.step {
            Some((_, content)) => content.read(branch, max_bytes - bytes),
            None => Ok(()),
        }
    }
}
