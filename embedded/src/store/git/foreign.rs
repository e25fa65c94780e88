//! Applies the commits of other processes and of users.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;

use super::Git;
use super::branch::{Branch, Heads};
use super::history::{self, History, Problem};
use super::kinds::Kinds;
use crate::meta;
use crate::store::backend::{Foreign, Origin, Record};
use crate::store::file::{Identities, Identity};
use crate::store::state::Key;
use crate::store::watch_cache::ChangeType;

/// Error of a branch that was there before.
pub(super) const DELETED: &str = "the branch does not exist any more; push it again";

/// A change of an object that has no revision yet.
type Change = (Key, ChangeType, Value);

impl Git {
    /// Applies the commits on the branch that the store does not know yet.
    pub(super) fn follow(&mut self, end: Instant) -> Result<Foreign, git2::Error> {
        if self.branch.has_journal() {
            let followed = self.follow_journal(end);
            log_problems(&std::mem::take(&mut self.history.problems));
            return followed;
        }
        let mut line = self.new_commits()?;
        if line.is_none()
            && let Some(remote) = &self.remote
        {
            // The clone is behind if its branch was locked at the end of a push. That is no rewrite.
            remote.fetch(&self.branch)?;
            line = self.new_commits()?;
        }
        let is_rewritten = line.is_none();
        let Some(line) = line.filter(|_| !self.stale) else {
            return self.replace_history(is_rewritten);
        };
        let mut foreign = Foreign::default();
        for id in line {
            let records = match self.apply(id) {
                Ok(records) => records,
                Err(error) if foreign.records.is_empty() => return Err(error),
                // Publishes what was read; the next poll reads the rest.
                Err(_) => break,
            };
            let newest = self.newest;
            foreign
                .records
                .extend(records.into_iter().filter(|record| record.revision > newest));
        }
        foreign.invalid = std::mem::take(&mut self.history.reports);
        Ok(foreign)
    }

    /// Returns the commits on the branch that the store does not know yet; `None` after a rewrite.
    fn new_commits(&self) -> Result<Option<Vec<git2::Oid>>, git2::Error> {
        let known = self.history.head;
        match self.branch.head()? {
            Some(head) => self.branch.line(known, head),
            None if known.is_none() => Ok(Some(Vec::new())),
            // A deleted branch must not look like one without objects.
            None => Err(git2::Error::from_str(DELETED)),
        }
    }

    /// Applies the next commit on the branch.
    pub(super) fn apply(&mut self, id: git2::Oid) -> Result<Vec<Record>, git2::Error> {
        let applied = self.history.apply(&self.branch, &mut self.kinds, id);
        self.stale |= applied.is_err();
        log_problems(&std::mem::take(&mut self.history.problems));
        applied
    }

    /// Applies a commit of this process.
    pub(super) fn apply_newest(&mut self, heads: Heads) -> Result<Vec<Record>, git2::Error> {
        let mut records = Vec::new();
        match heads {
            Heads {
                journal: Some(id), ..
            } => {
                let applied = self.apply_entry(id, Some(&mut records));
                log_problems(&std::mem::take(&mut self.history.problems));
                applied?;
            }
            Heads { branch: Some(id), .. } => records = self.apply(id)?,
            Heads { .. } => {}
        }
        Ok(records)
    }

    /// Applies the next commit of the journal.
    pub(super) fn apply_entry(
        &mut self,
        id: git2::Oid,
        records: Option<&mut Vec<Record>>,
    ) -> Result<(), git2::Error> {
        let applied = self
            .history
            .apply_entry(&self.branch, &mut self.kinds, id, records);
        self.stale |= applied.is_err();
        applied
    }

    /// Reads the whole history. Whatever differs is a change with a new revision. If the history continues the known one, an object that
    /// was created again has its own identity.
    pub(super) fn replace_history(&mut self, is_rewritten: bool) -> Result<Foreign, git2::Error> {
        let mut kinds = self.kinds.before_history();
        let empty = History::new(self.history.identities.clone());
        let mut new = read(&self.branch, &mut kinds, empty)?;
        log_problems(&new.present_problems(&kinds));
        // What was read since the last publication has versions, too.
        let known = history::generation(self.newest).max(self.history.generation);
        new.generation = new.generation.max(known + 1);
        if is_rewritten {
            carry_over(&self.history, &mut new);
        }
        if new.identities != self.history.identities {
            // Writes the identities first. Otherwise the next start would treat these objects as new ones.
            self.local
                .set_identities(&new.identities)
                .map_err(|error| git2::Error::from_str(&error.to_string()))?;
        }
        // The versions below do not follow from the history.
        self.local
            .set_resumable_from(None)
            .map_err(|error| git2::Error::from_str(&error.to_string()))?;
        let computed = new.versions();
        let changes = differences(&self.history.objects, &mut new);
        let mut foreign = Foreign {
            rewritten: true,
            ..Foreign::default()
        };
        for (revision, (key, kind, mut object)) in (history::first_revision(new.generation)..).zip(changes) {
            meta::set(&mut object, "resourceVersion", revision.to_string().into());
            let object = Arc::new(object);
            if kind == ChangeType::Put {
                new.objects.insert(key.clone(), object.clone());
            }
            new.revision = revision;
            foreign.records.push(Record {
                key,
                kind,
                object,
                revision,
                origin: Origin::default(),
            });
        }
        if !self.branch.has_journal() {
            self.local
                .set_versions(&new.given_versions(&computed))
                .map_err(|error| git2::Error::from_str(&error.to_string()))?;
        }
        (self.history, self.kinds) = (new, kinds);
        self.stale = false;
        Ok(foreign)
    }
}

/// Gives objects that are still there their identity from before. With a new uid they would be other objects, and the garbage collector
/// would delete what they own.
pub(super) fn carry_over(old: &History, new: &mut History) {
    // Uids that follow from the history, by those that objects have in their place.
    let computed: HashMap<String, String> = new
        .identities
        .iter()
        .map(|(computed, identity)| (identity.uid.clone(), computed.clone()))
        .collect();
    // An object that is withdrawn on either side is the same when its definition is back.
    for (key, object) in new.objects.iter_mut().chain(&mut new.withdrawn) {
        let before = old.objects.get(key).or_else(|| old.withdrawn.get(key));
        let Some(before) = before.map(|before| identity(before)) else {
            continue;
        };
        let after = identity(object);
        if after == before {
            continue;
        }
        *object = Arc::new(with_identity(object, &before));
        let uid = computed.get(&after.uid).cloned().unwrap_or(after.uid);
        new.identities.insert(uid, before);
    }
}

/// Gives objects that were read without them their identities from before.
pub(super) fn replace_identities(history: &mut History, identities: Identities) {
    for object in history.objects.values_mut().chain(history.withdrawn.values_mut()) {
        if let Some(before) = identities.get(meta::uid(object)) {
            *object = Arc::new(with_identity(object, before));
        }
    }
    history.identities = identities;
}

fn with_identity(object: &Value, identity: &Identity) -> Value {
    let mut object = object.clone();
    meta::set(&mut object, "uid", identity.uid.clone().into());
    meta::set(&mut object, "creationTimestamp", identity.created.clone().into());
    object
}

fn identity(object: &Value) -> Identity {
    Identity {
        uid: meta::uid(object).to_owned(),
        created: meta::text(object, "creationTimestamp").to_owned(),
    }
}

/// Returns the changes from the old objects to the new ones. A new object that does not differ is replaced by the old one.
fn differences(old: &BTreeMap<Key, Arc<Value>>, new: &mut History) -> Vec<Change> {
    let removed = old
        .iter()
        .filter(|(key, _)| !new.objects.contains_key(*key))
        .map(|(key, object)| (key.clone(), ChangeType::Remove, Value::clone(object)));
    let mut changes: Vec<Change> = removed.collect();
    for (key, object) in &mut new.objects {
        match old.get(key) {
            Some(before) if is_same(before, object) => *object = before.clone(),
            _ => changes.push((key.clone(), ChangeType::Put, Value::clone(object))),
        }
    }
    changes
}

/// Whether two objects differ in nothing but their version.
pub(super) fn is_same(one: &Value, other: &Value) -> bool {
    let without_version = |object: &Value| {
        let mut object = object.clone();
        meta::set(&mut object, "resourceVersion", Value::Null);
        object
    };
    without_version(one) == without_version(other)
}

/// Reads the whole history of a branch, or of its journal. `empty` is the history before the first commit. `kinds` are those before the
/// first commit, and then those after the last one.
pub(super) fn read(branch: &Branch, kinds: &mut Kinds, empty: History) -> Result<History, git2::Error> {
    let heads = branch.heads()?;
    match (heads.branch, heads.journal) {
        (Some(head), _) if !branch.has_journal() => read_to(branch, kinds, empty.identities, head),
        (_, Some(journal)) => read_journal(branch, kinds, empty, journal),
        (_, None) => Ok(empty),
    }
}

/// Reads the history of a journal up to a commit.
pub(super) fn read_journal(
    branch: &Branch,
    kinds: &mut Kinds,
    empty: History,
    journal: git2::Oid,
) -> Result<History, git2::Error> {
    let mut history = empty;
    let chain = branch.chain(None, journal)?.unwrap_or_default();
    history.apply_chain(branch, kinds, &chain)?;
    Ok(history)
}

/// Reads the history of a branch up to a commit.
pub(super) fn read_to(
    branch: &Branch,
    kinds: &mut Kinds,
    identities: Identities,
    head: git2::Oid,
) -> Result<History, git2::Error> {
    let mut history = History::new(identities);
    let line = branch.line(None, head)?.unwrap_or_default();
    history.apply_line(branch, kinds, &line, |history, _| history.forget_problems())?;
    Ok(history)
}

/// Logs problems of files.
pub(super) fn log_problems(problems: &[Problem]) {
    for problem in problems {
        problem.log();
    }
}
