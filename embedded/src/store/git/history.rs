//! The objects of a branch, computed from its commits in their order, along one parent of each ([`Branch::line`]).
//!
//! Everything that is not in a file follows from the history, so each process that reads it gets the same: uid, generation, times and
//! versions. The version of an object has the generation of the commit in its upper half, and a number in the commit in its lower
//! half. Writes to the local file count on in the lower half.
//!
//! A commit that changes definitions changes the served kinds before its objects are read ([`definitions`]). One with a file that does not
//! parse removes no object ([`moves`]).

mod definitions;
mod journal;
mod moves;
mod problems;
mod uids;
mod versions;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use git2::{Error, Oid};
use serde_json::Value;
use uuid::Uuid;

use self::moves::{Before, PendingMove};
pub(super) use self::problems::Problem;
pub(super) use self::versions::{first_revision, generation};
use super::admit;
use super::branch::Branch;
use super::kinds::{Content, Kinds};
use super::parsed_files::ParsedFiles;
use super::read_ahead;
use super::step::Step;
use crate::meta;
use crate::store::backend::{InvalidFile, Record};
use crate::store::file::Identities;
use crate::store::replay::Replay;
use crate::store::state::Key;
use crate::store::watch_cache::{Change, ChangeType, WatchCache};

/// The objects after a commit.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The commit; `None` before the first one.
    pub(super) head: Option<Oid>,
    /// The commit of the journal; `None` before the first one, or without a journal.
    pub(super) journal: Option<Oid>,
    /// Its number.
    pub(super) generation: u64,
    /// Uids of all objects that were created on the branch, as they follow from it; empty without a journal ([`uids`]).
    created: HashSet<Uuid>,
    /// Newest revision.
    pub(super) revision: u64,
    /// Served objects.
    pub(super) objects: BTreeMap<Key, Arc<Value>>,
    /// Changes for watches that resume, during a start.
    pub(super) changes: Option<WatchCache>,
    /// The watch that receives the changes, during a replay.
    pub(super) replay: Option<Arc<Replay>>,
    /// Files that were read, during a start.
    parsed: Option<ParsedFiles>,
    /// Identities from before a rewrite of the history.
    pub(super) identities: Identities,
    /// Invalid edits that are not reported yet.
    pub(super) reports: Vec<InvalidFile>,
    /// Problems of the applied commits that are not logged yet.
    pub(super) problems: Vec<Problem>,
    /// Errors of the documents that are not valid. Their objects did not change.
    invalid: BTreeMap<Key, String>,
    /// Why files do not parse, by path.
    unreadable: BTreeMap<String, String>,
    /// Objects without a file that may be in one that does not parse, so that they stayed as they were.
    moves: BTreeMap<Key, PendingMove>,
    /// Identities in each file, in the order of the documents.
    files: BTreeMap<String, Vec<Key>>,
    /// Files of each identity, with the number of its documents.
    places: BTreeMap<Key, BTreeMap<String, usize>>,
    /// API groups in each file that was read, also of kinds that are not served.
    groups: BTreeMap<String, BTreeSet<String>>,
    /// Last states of objects whose definition was removed: they come back with it, with the same uid.
    pub(super) withdrawn: BTreeMap<Key, Arc<Value>>,
    /// Objects whose status is in the journal.
    statuses: BTreeSet<Key>,
    /// Status files of objects that a commit of others has removed. The next write removes them.
    outdated: BTreeSet<Key>,
}

impl History {
    /// Creates a history without commits.
    pub(super) fn new(identities: Identities) -> Self {
        Self {
            identities,
            ..Self::default()
        }
    }

    /// Applies the next commit of the branch, and returns its changes in the order of their revisions. `kinds` are then those after it.
    pub(super) fn apply(
        &mut self,
        branch: &Branch,
        kinds: &mut Kinds,
        id: Oid,
    ) -> Result<Vec<Record>, Error> {
        let step = Step::new(branch, self.head, id, self.journal)?;
        self.apply_step(kinds, step, BTreeSet::new())
    }

    /// Applies the next commits of the branch, and calls `add` with the changes of each. Those before an error count.
    pub(super) fn apply_line(
        &mut self,
        branch: &Branch,
        kinds: &mut Kinds,
        line: &[Oid],
        mut add: impl FnMut(&mut Self, Vec<Record>),
    ) -> Result<(), Error> {
        read_ahead::for_each_commit(branch, self.head, line, |id, content| {
            let step = Step::with_content(branch, self.head, id, self.journal, content);
            let records = self.apply_step(kinds, step, BTreeSet::new())?;
            add(self, records);
            Ok(())
        })
    }

    /// Applies a commit. `affected` are objects that can differ beside those in changed files.
    fn apply_step(
        &mut self,
        kinds: &mut Kinds,
        mut step: Step<'_>,
        mut affected: BTreeSet<Key>,
    ) -> Result<Vec<Record>, Error> {
        if self.replay.as_ref().is_some_and(|replay| replay.is_abandoned()) {
            return Err(Error::from_str("the watch has ended"));
        }
        let id = step.id;
        let next = self.next_generation(&step.trailers)?;
        affected.extend(step.trailers.removed.iter().cloned());
        let mut files_before = Vec::new();
        for (path, file) in std::mem::take(&mut step.files) {
            let content = step.read_changed(kinds, &path, file)?;
            let keys = self.files.get(&path).cloned().unwrap_or_default();
            affected.extend(self.index(&step, &path, content));
            files_before.push(Before { path, keys });
        }
        self.keep_moved(&step, files_before, &mut affected);
        let served = affected.iter().filter(|key| kinds.is_served(key));
        let touched: Vec<Key> = served.chain(self.withdrawn.keys()).cloned().collect();
        let mut changes = self.change_definitions(&mut step, kinds, &mut affected)?;
        for key in affected.into_iter().filter(|key| kinds.is_shared(key)) {
            if let Some((kind, object)) = self.change(&mut step, kinds, &key)? {
                changes.push((key, kind, object));
            }
        }
        self.generation = next;
        self.head = Some(id);
        let records = self.number(changes, &step.trailers);
        for record in &records {
            self.publish(record);
        }
        self.withdraw(kinds, &records);
        self.retire_statuses(kinds, touched, &records);
        let newest = records.last().map_or(0, |record| record.revision);
        self.revision = self.revision.max(newest).max(first_revision(self.generation) - 1);
        Ok(records)
    }

    /// Applies a change. Keeps it for watches during a start, and sends it during a replay.
    fn publish(&mut self, record: &Record) {
        let Record { key, object, .. } = record;
        let before = match record.kind {
            ChangeType::Put => self.objects.insert(key.clone(), object.clone()),
            ChangeType::Remove => self.objects.remove(key),
        };
        let change = |before| Change::new(record.revision, key.clone(), record.kind, object.clone(), before);
        if let Some(replay) = self.replay.as_ref().filter(|replay| replay.includes(record)) {
            replay.send(change(before));
        } else if let Some(changes) = &mut self.changes
            && record.revision > changes.newest()
        {
            changes.push(change(before));
        }
    }

    /// Replaces the identities of a file that a commit changed. Returns the previous and the new ones.
    fn index(&mut self, step: &Step<'_>, path: &str, content: Content) -> Vec<Key> {
        if let Some(reason) = content.problem {
            // Its objects do not change: a typing error must delete nothing.
            self.problems.push(Problem::Unreadable {
                path: path.to_owned(),
                reason: reason.clone(),
            });
            for key in self.files.get(path).into_iter().flatten() {
                self.reports.push(step.report(key, path, &reason));
            }
            self.unreadable.insert(path.to_owned(), reason);
            return Vec::new();
        }
        self.unreadable.remove(path);
        self.groups.remove(path);
        if !content.groups.is_empty() {
            self.groups.insert(path.to_owned(), content.groups);
        }
        self.set_keys(path, content.keys)
    }

    /// Replaces the identities of a file. Returns the previous and the new ones.
    fn set_keys(&mut self, path: &str, keys: Vec<Key>) -> Vec<Key> {
        if self.files.get(path) == Some(&keys) {
            return keys;
        }
        let mut affected = self.files.remove(path).unwrap_or_default();
        for key in &affected {
            if let Some(paths) = self.places.get_mut(key) {
                paths.remove(path);
                if paths.is_empty() {
                    self.places.remove(key);
                }
            }
        }
        for key in &keys {
            let paths = self.places.entry(key.clone()).or_default();
            *paths.entry(path.to_owned()).or_default() += 1;
        }
        affected.extend(keys.iter().cloned());
        if !keys.is_empty() {
            self.files.insert(path.to_owned(), keys);
        }
        affected
    }

    /// Returns the file of an object that can be written; `None` if it has no file. An object in several places is an error, whose
    /// text names them.
    pub(super) fn place(&self, key: &Key) -> Result<Option<&str>, String> {
        let Some(paths) = self.places.get(key) else {
            return Ok(None);
        };
        let documents: usize = paths.values().sum();
        if documents > 1 {
            let paths: Vec<&str> = paths.keys().map(String::as_str).collect();
            return Err(format!(
                "{key} is in the repository {documents} times and read-only until one is left: {}",
                paths.join(", ")
            ));
        }
        Ok(paths.keys().next().map(String::as_str))
    }

    /// Returns why a file does not parse; `None` if it does.
    pub(super) fn problem(&self, path: &str) -> Option<&str> {
        self.unreadable.get(path).map(String::as_str)
    }

    /// Whether the served object is the one that its document describes.
    pub(super) fn is_valid(&self, key: &Key) -> bool {
        self.objects.contains_key(key) && !self.invalid.contains_key(key)
    }

    /// Returns why the document of an object is not valid; `None` if it is, or if there is none.
    pub(super) fn invalid_reason(&self, key: &Key) -> Option<&str> {
        self.invalid.get(key).map(String::as_str)
    }

    /// Returns how a commit changes an object; `None` if it does not.
    fn change(
        &mut self,
        step: &mut Step<'_>,
        kinds: &Kinds,
        key: &Key,
    ) -> Result<Option<(ChangeType, Value)>, Error> {
        self.invalid.remove(key);
        let before = self.objects.get(key).cloned();
        if !kinds.is_served(key) {
            // Its definition is gone. The file stays, and so do finalizers: no user deleted the object.
            return Ok(before.map(|before| (ChangeType::Remove, Value::clone(&before))));
        }
        if kinds.is_in_journal(key) {
            return self.change_in_journal(step, kinds, key, before);
        }
        let paths = self.places.get(key);
        let Some(path) = paths.and_then(|paths| paths.keys().next()).cloned() else {
            let before = before.filter(|_| !self.moves.contains_key(key));
            return Ok(before.and_then(|before| without_file(step, key, &before)));
        };
        if let Some(reason) = self.place(key).err() {
            self.problems.push(Problem::Duplicate { reason });
            if before.is_some() {
                return Ok(None);
            }
        }
        let Some(written) = step.take(kinds, &path, key, self.parsed.as_mut())? else {
            return Ok(None);
        };
        let written = self.with_status(step, key, written)?;
        self.change_to(step, kinds, key, path, &written)
    }

    /// Returns the change of an object to what its file contains; `None` if it does not change.
    fn change_to(
        &mut self,
        step: &Step<'_>,
        kinds: &Kinds,
        key: &Key,
        path: String,
        written: &Value,
    ) -> Result<Option<(ChangeType, Value)>, Error> {
        let Some(resource) = kinds.of(written) else {
            return Ok(None);
        };
        let before = self.objects.get(key).cloned();
        let is_new = before.is_none();
        let last = before.or_else(|| self.withdrawn_state(step, key));
        let mut object = match admit::admit(resource, written, last.as_deref()) {
            Ok(object) => object,
            Err(reason) => {
                self.refuse(step, key, path, reason);
                return Ok(None);
            }
        };
        let Some(last) = last else {
            let identity = if kinds.is_in_journal(key) {
                self.identity_in_journal(step, key)?
            } else {
                self.identity(step, key)
            };
            meta::set(&mut object, "uid", identity.uid.into());
            meta::set(&mut object, "creationTimestamp", identity.created.into());
            return Ok(Some((ChangeType::Put, object)));
        };
        let version = last["metadata"]["resourceVersion"].clone();
        meta::set(&mut object, "resourceVersion", version);
        Ok((is_new || object != *last).then_some((ChangeType::Put, object)))
    }

    /// Keeps an object as it is, because its file is not valid.
    fn refuse(&mut self, step: &Step<'_>, key: &Key, path: String, reason: String) {
        self.reports.push(step.report(key, &path, &reason));
        self.problems.push(Problem::Invalid {
            object: key.to_string(),
            reason: reason.clone(),
            path,
        });
        self.invalid.insert(key.clone(), reason);
    }
}

/// Returns the change of an object whose file is gone: one with finalizers waits for them, unless a commit says that it is removed.
fn without_file(step: &Step<'_>, key: &Key, before: &Value) -> Option<(ChangeType, Value)> {
    if step.trailers.removed.contains(key) || meta::finalizers(before).is_empty() {
        return Some((ChangeType::Remove, before.clone()));
    }
    let terminating = admit::terminating(before, &admit::timestamp(step.info.time));
    (terminating != *before).then_some((ChangeType::Put, terminating))
}
