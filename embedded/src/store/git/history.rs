//! The objects of a branch: what its commits say, one after the other, along the first parents.
//!
//! Everything that is not in a file follows from the history, so each process that reads it gets the same: uid, generation, times and
//! versions. The version of an object has the generation of the commit in its upper half, and a number in the commit in its lower
//! half. Writes to the local file count on in the lower half.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use git2::{Error, Oid};
use serde_json::Value;

use super::admit;
use super::branch::{Branch, CommitInfo};
use super::kinds::{self, Kinds};
use super::message::{self, Trailers};
use super::yaml;
use crate::meta;
use crate::store::backend::{Origin, Record};
use crate::store::state::Key;
use crate::store::watch_cache::ChangeType;

/// Bits of a revision below the generation of the commit.
const NUMBER_BITS: u32 = 32;

/// Returns the generation of a revision.
pub(super) const fn generation(revision: u64) -> u64 {
    revision >> NUMBER_BITS
}

/// Returns the first revision of a generation.
pub(super) const fn first_revision(generation: u64) -> u64 {
    (generation << NUMBER_BITS) + 1
}

/// The objects after a commit.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The commit; `None` before the first one.
    pub(super) head: Option<Oid>,
    /// Its number.
    pub(super) generation: u64,
    /// Newest revision.
    pub(super) revision: u64,
    /// Served objects.
    pub(super) objects: BTreeMap<Key, Arc<Value>>,
    /// Identities in each file, in the order of the documents.
    files: BTreeMap<String, Vec<Key>>,
    /// Files of each identity.
    places: BTreeMap<Key, BTreeSet<String>>,
}

/// One commit that is applied.
struct Step<'a> {
    branch: &'a Branch,
    kinds: &'a Kinds,
    id: Oid,
    info: CommitInfo,
    trailers: Trailers,
}

impl History {
    /// Applies the next commit, and returns its changes in the order of their revisions.
    pub(super) fn apply(&mut self, branch: &Branch, kinds: &Kinds, id: Oid) -> Result<Vec<Record>, Error> {
        let info = branch.info(id)?;
        let step = Step {
            branch,
            kinds,
            id,
            trailers: message::parse(&info.message),
            info,
        };
        let mut affected: BTreeSet<Key> = step.trailers.removed.iter().cloned().collect();
        for path in branch.changed_files(self.head, id)? {
            let text = branch.read(id, &path)?;
            affected.extend(self.index(&step, &path, text.as_deref()));
        }
        let mut changes = Vec::new();
        for key in affected.into_iter().filter(kinds::is_shared) {
            if let Some((kind, object)) = self.change(&step, &key)? {
                changes.push((key, kind, object));
            }
        }
        let claimed = step.trailers.versions.values().min();
        let claimed = claimed.map_or(0, |revision| generation(*revision));
        self.generation = claimed.max(self.generation + 1);
        self.head = Some(id);
        let records = self.number(changes, &step.trailers);
        for record in &records {
            match record.kind {
                ChangeType::Put => self.objects.insert(record.key.clone(), record.object.clone()),
                ChangeType::Remove => self.objects.remove(&record.key),
            };
        }
        let newest = records.last().map_or(0, |record| record.revision);
        self.revision = self.revision.max(newest).max(first_revision(self.generation) - 1);
        Ok(records)
    }

    /// Replaces the identities of a file. Returns the previous and the new ones.
    fn index(&mut self, step: &Step<'_>, path: &str, text: Option<&str>) -> Vec<Key> {
        let (keys, problem) = text.map_or_else(Default::default, |text| step.kinds.keys(text));
        if let Some(reason) = problem {
            // Its objects remain as they were: a slip of the pen must delete nothing.
            tracing::warn!(
                path,
                reason,
                "a file of the repository does not parse, its objects stay as they were"
            );
            return Vec::new();
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
            self.places
                .entry(key.clone())
                .or_default()
                .insert(path.to_owned());
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
        let documents = paths
            .iter()
            .filter_map(|path| self.files.get(path))
            .flatten()
            .filter(|found| *found == key)
            .count();
        if documents > 1 {
            let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
            return Err(format!(
                "{key} is in the repository {documents} times and read-only until one is left: {}",
                paths.join(", ")
            ));
        }
        Ok(paths.first().map(String::as_str))
    }

    /// Returns how a commit changes an object; `None` if it does not.
    fn change(&self, step: &Step<'_>, key: &Key) -> Result<Option<(ChangeType, Value)>, Error> {
        let before = self.objects.get(key);
        let Some(paths) = self.places.get(key) else {
            return Ok(before.and_then(|before| without_file(step, key, before)));
        };
        if let Err(reason) = self.place(key) {
            tracing::warn!(reason, "duplicate objects in the repository");
            if before.is_some() {
                return Ok(None);
            }
        }
        let Some(path) = paths.first() else {
            return Ok(None);
        };
        let Some(text) = step.branch.read(step.id, path)? else {
            return Ok(None);
        };
        let Some((_, written)) = find(step.kinds, &text, key) else {
            return Ok(None);
        };
        let Some(resource) = step.kinds.of(&written) else {
            return Ok(None);
        };
        let admitted = admit::admit(resource, &written, before.map(|before| &**before));
        let mut object = match admitted {
            Ok(object) => object,
            Err(reason) => {
                let object = key.to_string();
                tracing::warn!(
                    path,
                    object,
                    reason,
                    "an object of the repository is invalid, it stays as it was"
                );
                return Ok(None);
            }
        };
        let Some(before) = before else {
            meta::set(&mut object, "uid", admit::uid(key, step.info.parent).into());
            let created = admit::timestamp(step.info.time);
            meta::set(&mut object, "creationTimestamp", created.into());
            return Ok(Some((ChangeType::Put, object)));
        };
        let version = before["metadata"]["resourceVersion"].clone();
        meta::set(&mut object, "resourceVersion", version);
        Ok((object != **before).then_some((ChangeType::Put, object)))
    }

    /// Gives the changes of a commit their revisions: those of its trailers, or numbers in the order of the keys.
    fn number(&self, changes: Vec<(Key, ChangeType, Value)>, trailers: &Trailers) -> Vec<Record> {
        let claimed: BTreeSet<u64> = changes
            .iter()
            .filter_map(|(key, ..)| trailers.versions.get(key))
            .copied()
            .filter(|revision| generation(*revision) == self.generation)
            .collect();
        let is_complete = claimed.len() == changes.len();
        let mut records: Vec<Record> = (first_revision(self.generation)..)
            .zip(changes)
            .map(|(number, (key, kind, mut object))| {
                let claimed = trailers.versions.get(&key).filter(|_| is_complete);
                let revision = claimed.copied().unwrap_or(number);
                meta::set(&mut object, "resourceVersion", revision.to_string().into());
                Record {
                    key,
                    kind,
                    object: Arc::new(object),
                    revision,
                    origin: Origin::default(),
                }
            })
            .collect();
        records.sort_by_key(|record| record.revision);
        records
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

/// Returns the document of an object in a file, and its content.
pub(super) fn find(kinds: &Kinds, text: &str, key: &Key) -> Option<(std::ops::Range<usize>, Value)> {
    yaml::documents(text).into_iter().find_map(|range| {
        let object = yaml::parse(&text[range.clone()]).ok()?;
        (kinds.key(&object).as_ref() == Some(key)).then_some((range, object))
    })
}
