//! Definitions in the repository: a commit that changes one changes which documents are objects.
//!
//! A document whose kind is not served is not an object, and its file does not change. A commit that adds the definition of its kind makes
//! it an object. A commit that removes the definition withdraws the object, which no user has deleted.

use std::collections::BTreeSet;
use std::sync::Arc;

use git2::Error;
use serde_json::Value;

use super::History;
use crate::definitions::DEFINITIONS;
use crate::store::backend::Record;
use crate::store::git::kinds::Kinds;
use crate::store::git::step::Step;
use crate::store::state::Key;
use crate::store::watch_cache::ChangeType;

impl History {
    /// Applies the changed definitions of a commit to `kinds`, and returns their changes. They leave `affected`, and the objects of kinds
    /// that differ then are added.
    pub(super) fn change_definitions(
        &mut self,
        step: &mut Step<'_>,
        kinds: &mut Kinds,
        affected: &mut BTreeSet<Key>,
    ) -> Result<Vec<(Key, ChangeType, Value)>, Error> {
        let is_definition = |key: &&Key| key.resource == DEFINITIONS;
        let keys: Vec<Key> = affected.iter().filter(is_definition).cloned().collect();
        let (mut changes, mut groups) = (Vec::new(), BTreeSet::new());
        for key in keys {
            let Some((kind, object)) = self.change_definition(step, kinds, &key)? else {
                continue;
            };
            let definition = (kind == ChangeType::Put).then_some(&object);
            groups.extend(kinds.define(&key.name, definition));
            changes.push((key, kind, object));
        }
        if !groups.is_empty() {
            // They were read with the kinds before.
            step.contents.clear();
            self.read_groups(step, kinds, &groups, affected)?;
        }
        affected.retain(|key| key.resource != DEFINITIONS);
        Ok(changes)
    }

    /// Returns how a commit changes a definition; `None` if it does not.
    fn change_definition(
        &mut self,
        step: &mut Step<'_>,
        kinds: &Kinds,
        key: &Key,
    ) -> Result<Option<(ChangeType, Value)>, Error> {
        if let Some(problem) = self.definition_problem(kinds, key) {
            self.problems.push(problem);
            return Ok(None);
        }
        self.change(step, kinds, key)
    }

    /// Reads the files with documents of these groups again, and adds the objects that can differ.
    fn read_groups(
        &mut self,
        step: &mut Step<'_>,
        kinds: &Kinds,
        groups: &BTreeSet<String>,
        affected: &mut BTreeSet<Key>,
    ) -> Result<(), Error> {
        for path in self.paths_of(groups) {
            let content = step.read_again(kinds, &path)?;
            affected.extend(self.index(step, &path, content));
        }
        // Objects without a readable file: it does not parse now, or is gone while finalizers remain.
        let objects = self.objects.keys();
        affected.extend(objects.filter(|key| !kinds.is_served(key)).cloned());
        Ok(())
    }

    /// Returns the files that parse and have documents of these groups.
    fn paths_of(&self, groups: &BTreeSet<String>) -> BTreeSet<String> {
        let is_of_group = |key: &Key| {
            let group = key.resource.split_once('.').map(|(_, group)| group);
            group.is_some_and(|group| groups.contains(group))
        };
        // The groups of a file that this process only wrote are not known, but its objects are.
        let objects = self.files.iter();
        let objects = objects.filter(|(_, keys)| keys.iter().any(is_of_group));
        let documents = self.groups.iter();
        let documents = documents.filter(|(_, of_file)| !of_file.is_disjoint(groups));
        let mut paths: BTreeSet<String> = objects.map(|(path, _)| path.clone()).collect();
        paths.extend(documents.map(|(path, _)| path.clone()));
        // Their objects stay as they are, and the commit that broke them is reported already.
        paths.retain(|path| !self.unreadable.contains_key(path));
        paths
    }

    /// Returns the last state of an object that comes back with its definition. Not if a store writes it in this commit: its file was not
    /// valid, so the object was absent for the store, which created another one.
    pub(super) fn withdrawn_state(&self, step: &Step<'_>, key: &Key) -> Option<Arc<Value>> {
        let is_created = step.trailers.versions.contains_key(key);
        self.withdrawn.get(key).filter(|_| !is_created).cloned()
    }

    /// Keeps the last states of objects whose definition is gone, and forgets those that are back or have no file.
    pub(super) fn withdraw(&mut self, kinds: &Kinds, records: &[Record]) {
        for record in records {
            if record.kind == ChangeType::Remove && !kinds.is_served(&record.key) {
                self.withdrawn.insert(record.key.clone(), record.object.clone());
            }
        }
        let (objects, places, moves) = (&self.objects, &self.places, &self.moves);
        self.withdrawn.retain(|key, _| {
            let has_file = places.contains_key(key) || moves.contains_key(key);
            !kinds.is_served(key) || (has_file && !objects.contains_key(key))
        });
    }
}
