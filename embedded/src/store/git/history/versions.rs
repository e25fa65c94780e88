//! Versions of commits and objects: those that the trailers of a store claim, and otherwise the next ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use git2::Error;
use serde_json::Value;

use super::History;
use crate::meta;
use crate::store::backend::{Origin, Record};
use crate::store::file::{GivenVersion, GivenVersions};
use crate::store::git::message::Trailers;
use crate::store::state::Key;
use crate::store::watch_cache::ChangeType;

/// Bits of a revision below the generation of the commit.
const NUMBER_BITS: u32 = 32;
/// Highest generation of a commit; the next one still has revisions.
const MAX_GENERATION: u64 = (1 << NUMBER_BITS) - 2;
/// How far a commit can be ahead of the one before. The trailers of a store are ahead by what a rewrite of the history removed, at most by
/// its number of commits, which is below a million. Any user who can push can write a trailer, and one that is farther ahead would use up
/// the versions of all later commits.
const MAX_JUMP: u64 = 1 << 20;
/// Highest generation that a commit can be ahead to: many forged trailers use up half of the generations at most. No history has as
/// many commits as the other half.
const MAX_CLAIMED: u64 = 1 << 31;

/// Returns the generation of a revision.
pub(in crate::store::git) const fn generation(revision: u64) -> u64 {
    revision >> NUMBER_BITS
}

/// Returns the first revision of a generation.
pub(in crate::store::git) const fn first_revision(generation: u64) -> u64 {
    generation.saturating_mul(1 << NUMBER_BITS).saturating_add(1)
}

impl History {
    /// Returns the generation of the next commit: the one of its trailers, or the next number. Trailers that no store has written are
    /// ignored.
    pub(super) fn next_generation(&self, trailers: &Trailers) -> Result<u64, Error> {
        let next = self.generation.saturating_add(1);
        let possible = next..=self.generation.saturating_add(MAX_JUMP).min(MAX_CLAIMED);
        let claimed = trailers.versions.values().map(|revision| generation(*revision));
        let next = claimed
            .filter(|claimed| possible.contains(claimed))
            .min()
            .unwrap_or(next);
        if next > MAX_GENERATION {
            return Err(Error::from_str(
                "the history has no versions left for its commits",
            ));
        }
        Ok(next)
    }

    /// Gives the changes of a commit their revisions: those of its trailers, and then numbers in the order of the changes. A commit of a
    /// definition can make files objects, which its trailers do not name.
    pub(super) fn number(&self, changes: Vec<(Key, ChangeType, Value)>, trailers: &Trailers) -> Vec<Record> {
        let claimed: BTreeSet<u64> = changes
            .iter()
            .filter_map(|(key, ..)| trailers.versions.get(key))
            .copied()
            .filter(|revision| generation(*revision) == self.generation)
            .collect();
        let with_claim = changes
            .iter()
            .filter(|(key, ..)| trailers.versions.contains_key(key))
            .count();
        // Any user who can push can write a trailer: the other objects must not get versions of the next generation.
        let count = u64::try_from(changes.len()).unwrap_or(u64::MAX);
        let has_space = |last: &u64| generation(last.saturating_add(count)) == self.generation;
        let is_complete = claimed.len() == with_claim && claimed.last().is_none_or(has_space);
        let last_claimed = claimed.last().filter(|_| is_complete);
        let mut next = last_claimed.map_or_else(|| first_revision(self.generation), |last| last + 1);
        let mut records = Vec::with_capacity(changes.len());
        for (key, kind, mut object) in changes {
            let claimed = trailers.versions.get(&key).filter(|_| is_complete);
            let revision = claimed.copied().unwrap_or(next);
            next += u64::from(claimed.is_none());
            meta::set(&mut object, "resourceVersion", revision.to_string().into());
            records.push(Record {
                key,
                kind,
                object: Arc::new(object),
                revision,
                origin: Origin::default(),
            });
        }
        records.sort_by_key(|record| record.revision);
        records
    }

    /// Returns the versions of all objects.
    pub(in crate::store::git) fn versions(&self) -> BTreeMap<Key, String> {
        let objects = self.objects.iter();
        objects
            .map(|(key, object)| (key.clone(), meta::resource_version(object).to_owned()))
            .collect()
    }

    /// Returns the versions that differ from the `computed` ones, which follow from the history.
    pub(in crate::store::git) fn given_versions(&self, computed: &BTreeMap<Key, String>) -> GivenVersions {
        let given = self.objects.iter().filter_map(|(key, object)| {
            let given = meta::resource_version(object);
            let computed = computed.get(key).filter(|computed| *computed != given)?;
            let version = GivenVersion {
                computed: computed.clone(),
                given: given.to_owned(),
            };
            Some((key.to_string(), version))
        });
        given.collect()
    }

    /// Gives objects the versions that they had in the last run, unless they have changed since.
    pub(in crate::store::git) fn set_versions(&mut self, versions: &GivenVersions) {
        if versions.is_empty() {
            return;
        }
        for (key, object) in &mut self.objects {
            if let Some(version) = versions.get(&key.to_string())
                && version.computed == meta::resource_version(object)
            {
                *object = with_version(object, &version.given);
            }
        }
    }

    /// Gives all objects new versions, which are the first ones of the generation.
    pub(in crate::store::git) fn renumber(&mut self) {
        for (revision, object) in (first_revision(self.generation)..).zip(self.objects.values_mut()) {
            *object = with_version(object, &revision.to_string());
            self.revision = revision;
        }
    }
}

fn with_version(object: &Value, version: &str) -> Arc<Value> {
    let mut object = object.clone();
    meta::set(&mut object, "resourceVersion", version.into());
    Arc::new(object)
}

#[cfg(test)]
mod tests;
