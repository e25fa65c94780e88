//! Applies the commits of the journal, of which each takes over commits of the branch or is a write of a store; and the commits of this
//! process, which it does not read again.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use git2::{Error, Oid};
use serde_json::Value;

use super::History;
use crate::store::backend::Record;
use crate::store::file::Identity;
use crate::store::git::admit;
use crate::store::git::branch::{Branch, COMMITS_PER_REPOSITORY, Heads};
use crate::store::git::entry_content::EntryContent;
use crate::store::git::kinds::Kinds;
use crate::store::git::parsed_files::ParsedFiles;
use crate::store::git::read_ahead;
use crate::store::git::status;
use crate::store::git::step::Step;
use crate::store::state::Key;
use crate::store::watch_cache::ChangeType;

impl History {
    /// Applies the next commit of the journal, and adds its changes to `records` in the order of their revisions. Those before an error
    /// count. A start needs none: the first commit of a journal can have all changes of its branch.
    pub(in crate::store::git) fn apply_entry(
        &mut self,
        branch: &Branch,
        kinds: &mut Kinds,
        id: Oid,
        records: Option<&mut Vec<Record>>,
    ) -> Result<(), Error> {
        let content = EntryContent::of(branch, self.heads(), id)?;
        self.apply_content(branch, kinds, id, content, records)
    }

    /// Applies the commits of a journal at a start.
    pub(in crate::store::git) fn apply_chain(
        &mut self,
        branch: &Branch,
        kinds: &mut Kinds,
        chain: &[Oid],
    ) -> Result<(), Error> {
        self.parsed = Some(ParsedFiles::default());
        // For the files that are not read ahead.
        let mut reader = branch.reopened()?;
        let mut left = COMMITS_PER_REPOSITORY;
        read_ahead::for_each_entry(branch, self.heads(), chain, |id, content| {
            if left == 0 {
                reader = branch.reopened()?;
                left = COMMITS_PER_REPOSITORY;
            }
            left -= 1;
            self.apply_content(&reader, kinds, id, content, None)?;
            self.forget_problems();
            Ok(())
        })?;
        self.parsed = None;
        Ok(())
    }

    /// Returns the newest commits.
    pub(in crate::store::git) const fn heads(&self) -> Heads {
        Heads {
            branch: self.head,
            journal: self.journal,
        }
    }

    /// Applies a commit of the journal.
    ///
    /// A write has trailers, and is one step: what it changes on the branch and in the status files. Another commit takes over commits of
    /// the branch. Each of them is a step, as without a journal.
    fn apply_content(
        &mut self,
        branch: &Branch,
        kinds: &mut Kinds,
        id: Oid,
        content: EntryContent,
        mut records: Option<&mut Vec<Record>>,
    ) -> Result<(), Error> {
        let mut add = |changes: Vec<Record>| {
            if let Some(records) = &mut records {
                records.extend(changes);
            }
        };
        if let Some(head) = content.head.filter(|_| content.trailers.is_empty()) {
            // Only the newest commit of a rewritten branch counts.
            let line = branch.line(self.head, head)?.unwrap_or_else(|| vec![head]);
            self.apply_line(branch, kinds, &line, |_, changes| add(changes))?;
        }
        if let Some((head, commit)) = content.step {
            let mut step = Step::with_content(branch, self.head, head, Some(id), commit);
            step.trailers = content.trailers;
            step.statuses = content.statuses;
            self.update_statuses(&mut step, kinds, &content.keys)?;
            add(self.apply_step(kinds, step, content.keys)?);
        }
        self.journal = Some(id);
        Ok(())
    }

    /// Updates which objects have a status file. Files of kinds that are not shared belong to processes that share them.
    fn update_statuses(
        &mut self,
        step: &mut Step<'_>,
        kinds: &Kinds,
        keys: &BTreeSet<Key>,
    ) -> Result<(), Error> {
        for key in keys.iter().filter(|key| kinds.is_shared(key)) {
            self.outdated.remove(key);
            let status = match step.statuses.entry(key.clone()) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => entry.insert(status::read(step.branch, step.journal, key)?),
            };
            if status.is_some() {
                self.statuses.insert(key.clone());
            } else {
                self.statuses.remove(key);
            }
        }
        Ok(())
    }

    /// Returns how a commit changes an object that is in the journal alone; `None` if it does not.
    pub(super) fn change_in_journal(
        &mut self,
        step: &mut Step<'_>,
        kinds: &Kinds,
        key: &Key,
        before: Option<Arc<Value>>,
    ) -> Result<Option<(ChangeType, Value)>, Error> {
        let path = status::path(key);
        match step.take_status(key)? {
            Some(written) if kinds.identity(&written).as_ref() == Some(key) => {
                self.change_to(step, kinds, key, path, &written)
            }
            Some(_) => {
                self.refuse(step, key, path, "the file is of another object".to_owned());
                Ok(None)
            }
            None => {
                // A file that does not parse deletes nothing. A store that removes an object says so.
                if !step.trailers.removed.contains(key)
                    && let Some(reason) = status::problem(step.branch, step.journal, key)?
                {
                    self.refuse(step, key, path, reason);
                    return Ok(None);
                }
                Ok(before.and_then(|before| super::without_file(step, key, &before)))
            }
        }
    }

    /// Returns the identity of an object that a commit of the journal creates.
    pub(super) fn identity_in_journal(&self, step: &Step<'_>, key: &Key) -> Result<Identity, Error> {
        let time = match step.journal {
            Some(id) => step.branch.info(id)?.time,
            None => step.info.time,
        };
        let uid = admit::uid(key, self.newest_entry(), 0);
        Ok(self.known_identity(uid, time))
    }

    /// Returns the newest commit of the journal, from which the uids of new objects follow that are in it alone. `None` before the first
    /// write: a process can read the first commit of a journal before that.
    pub(in crate::store::git) const fn newest_entry(&self) -> Option<Oid> {
        match self.head {
            Some(_) => self.journal,
            None => None,
        }
    }

    /// Returns the document of an object with the status that the journal has of it.
    pub(super) fn with_status(
        &self,
        step: &mut Step<'_>,
        key: &Key,
        document: Value,
    ) -> Result<Value, Error> {
        if !self.statuses.contains(key) {
            return Ok(document);
        }
        Ok(match step.take_status(key)? {
            Some(status) => status::join(document, &status),
            None => document,
        })
    }

    /// Whether the status of an object is in the journal.
    pub(in crate::store::git) fn has_status(&self, key: &Key) -> bool {
        self.statuses.contains(key)
    }

    /// Takes over a commit of this process, with the objects in each file that it changed. Its content is known, so that nothing is read
    /// or validated again.
    pub(in crate::store::git) fn accept(
        &mut self,
        heads: Heads,
        records: &[Record],
        files: BTreeMap<String, Vec<Key>>,
    ) {
        for (path, keys) in files {
            self.set_keys(&path, keys);
        }
        for record in records {
            self.invalid.remove(&record.key);
            self.withdrawn.remove(&record.key);
            let read = admit::as_read(&record.object);
            let before = match record.kind {
                ChangeType::Put if heads.journal.is_none() => self.objects.insert(record.key.clone(), read),
                ChangeType::Put => self
                    .objects
                    .insert(record.key.clone(), status::in_order_of_files(read)),
                ChangeType::Remove => self.objects.remove(&record.key),
            };
            // The journal does not come back to a commit, so its own objects need none.
            if before.is_none() && self.places.contains_key(&record.key) {
                self.remember_uid(&record.key, heads.journal);
            }
        }
        let newest = records.last().map_or(0, |record| record.revision);
        self.revision = self.revision.max(newest);
        self.generation = self.generation.max(super::generation(newest));
        self.head = heads.branch;
        self.journal = heads.journal;
    }

    /// Takes over the status files of a write of this process.
    pub(in crate::store::git) fn accept_statuses(&mut self, statuses: impl Iterator<Item = (Key, bool)>) {
        self.outdated.clear();
        for (key, has_status) in statuses {
            if has_status {
                self.statuses.insert(key);
            } else {
                self.statuses.remove(&key);
            }
        }
    }

    /// Returns the objects whose status files are to be removed.
    pub(in crate::store::git) fn outdated_statuses(&self) -> impl Iterator<Item = &Key> {
        self.outdated.iter()
    }

    /// Forgets the status of objects that are gone: a new object of the same name has none. `touched` are objects of served kinds, and
    /// those that are withdrawn: other processes can serve more kinds.
    pub(super) fn retire_statuses(&mut self, kinds: &Kinds, touched: Vec<Key>, records: &[Record]) {
        let removed = records.iter().filter(|record| record.kind == ChangeType::Remove);
        for key in removed.map(|record| record.key.clone()).chain(touched) {
            // The file is the object itself, and one that is not valid here can be valid in other processes.
            if kinds.is_in_journal(&key) {
                continue;
            }
            // So can an object on the branch.
            let exists = self.objects.contains_key(&key)
                || self.withdrawn.contains_key(&key)
                || self.places.contains_key(&key);
            if !exists && self.statuses.remove(&key) {
                self.outdated.insert(key);
            }
        }
    }
}
