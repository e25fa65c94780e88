//! The Git store: objects are YAML files on a branch of a bare repository, and a batch of writes is a commit.
//!
//! A commit moves the branch only from the commit that the store knows (compare and swap). If another process or a person has moved
//! it, the batch is rejected, their commits become changes, and the writes decide again. What must not be in a repository is kept in
//! a file on this machine ([`kinds::is_shared`]).
//!
//! A remote repository has a bare clone here. A commit is written to the clone, and counts once the remote has moved its branch to it.

mod admit;
mod branch;
mod command;
mod history;
mod kinds;
mod message;
mod remote;
mod yaml;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use self::branch::{Branch, Edits};
use self::history::History;
use self::kinds::Kinds;
use self::remote::Remote;
use super::backend::{Backend, CommitError, Foreign, Origin, Record, StorageHealth};
use super::error::StoreError;
use super::file::File;
use super::state::{Key, State};
use super::watch_cache::ChangeType;
use crate::meta;

/// Where a Git store keeps its objects.
#[derive(Clone, Debug)]
pub struct GitOptions {
    /// Directory of the bare repository. If there is a remote one, it is its clone, which is created and belongs to this process.
    pub repository: PathBuf,
    /// URL of the remote repository, as `git` knows it.
    pub remote: Option<String>,
    /// Name of the branch. The first write creates it.
    pub branch: String,
    /// Directory of the objects in the repository; empty for all of it.
    pub subdir: String,
    /// How often commits of others are looked for.
    pub interval: Duration,
    /// File for what stays on this machine: Secrets, Leases, Events and runs.
    pub local: PathBuf,
}

/// A branch and its local file.
#[derive(Debug)]
pub(super) struct Git {
    options: GitOptions,
    kinds: Kinds,
    branch: Branch,
    remote: Option<Remote>,
    history: History,
    local: File,
    /// Newest revision that the store knows.
    newest: u64,
    /// Time of the next commit, once it creates an object.
    time: Option<i64>,
    /// A read of a commit failed half-way, so the next poll must read the whole history.
    stale: bool,
}

impl Git {
    /// Opens the branch and reads its history; opens or creates the local file.
    pub(super) fn open(
        options: GitOptions,
        crds: &[CustomResourceDefinition],
    ) -> Result<(Self, State), StoreError> {
        let kinds = Kinds::new(crds).map_err(|reason| failed(&options, reason))?;
        let (branch, remote) = remote::connect(&options).map_err(|error| unreadable(&options, &error))?;
        let mut history = read(&branch, &kinds).map_err(|error| unreadable(&options, &error))?;
        let (local, state) = File::open(&options.local)?;
        let revision = state.revision().max(history.revision);
        // After a rewrite the local file can be ahead of the history.
        history.generation = history.generation.max(history::generation(revision));
        let mut objects: BTreeMap<Key, Arc<Value>> = state.into_objects();
        objects.retain(|key, _| !kinds::is_shared(key));
        objects.extend(
            history
                .objects
                .iter()
                .map(|(key, object)| (key.clone(), object.clone())),
        );
        let git = Self {
            options,
            kinds,
            branch,
            remote,
            history,
            local,
            newest: revision,
            time: None,
            stale: false,
        };
        Ok((git, State::restore(objects, revision)))
    }

    /// Returns the edits that store the records.
    fn edits(&self, records: &[Record]) -> Result<Edits, StoreError> {
        let mut edits = Edits::new();
        for record in records {
            let key = &record.key;
            let place = self
                .history
                .place(key)
                .map_err(|reason| failed(&self.options, reason))?;
            let path = match place {
                Some(path) => path.to_owned(),
                // It ends without having a file.
                None if record.kind == ChangeType::Remove => continue,
                None => self
                    .kinds
                    .path(key)
                    .ok_or_else(|| failed(&self.options, format!("the kind of {key} is not served")))?,
            };
            let text = match edits.remove(&path) {
                Some(edited) => edited,
                None => self.read(&path)?,
            };
            let text = text.unwrap_or_default();
            if let (_, Some(reason)) = self.kinds.keys(&text) {
                let reason = format!("{path} does not parse, so that {key} is read-only: {reason}");
                return Err(failed(&self.options, reason));
            }
            let edited = self.edit(&text, record);
            edits.insert(path, edited);
        }
        Ok(edits)
    }

    fn read(&self, path: &str) -> Result<Option<String>, StoreError> {
        let Some(head) = self.history.head else {
            return Ok(None);
        };
        self.branch
            .read(head, path)
            .map_err(|error| unreadable(&self.options, &error))
    }

    /// Returns the new content of the file of a record; `None` to remove the file.
    fn edit(&self, text: &str, record: &Record) -> Option<String> {
        let found = history::find(&self.kinds, text, &record.key);
        let after = admit::without_derived(&record.object);
        match (found, record.kind) {
            (Some((range, written)), ChangeType::Put) => {
                let before = self.history.objects.get(&record.key);
                let base = before.map_or(Value::Null, |before| admit::without_derived(before));
                let wanted = Some(admit::rewrite(&written, &base, &after));
                // An invalid edit that is still in the file gives way to the whole object.
                let wanted = wanted.filter(|wanted| self.describes(wanted, record, &after));
                let document = yaml::edit(&text[range.clone()], wanted.as_ref().unwrap_or(&after));
                yaml::replace(text, &range, Some(&document))
            }
            (None, ChangeType::Put) => Some(yaml::append(text, &yaml::write(&after))),
            (Some((range, _)), ChangeType::Remove) => yaml::replace(text, &range, None),
            (None, ChangeType::Remove) => Some(text.to_owned()),
        }
    }

    /// Whether other processes read exactly this object from a document.
    fn describes(&self, document: &Value, record: &Record, object: &Value) -> bool {
        let before = self.history.objects.get(&record.key);
        self.kinds.of(document).is_some_and(|resource| {
            admit::admit(resource, document, before.map(|before| &**before))
                .is_ok_and(|admitted| admit::without_derived(&admitted) == *object)
        })
    }

    fn commit_shared(&mut self, records: &[Record]) -> Result<(), CommitError> {
        let time = self.time.take();
        let time = time.unwrap_or_else(|| jiff::Timestamp::now().as_second());
        let edits = self.edits(records).map_err(CommitError::Failed)?;
        let message = message::compose(records, &self.history.objects);
        let id = self
            .store(&edits, &message, time)
            .map_err(|error| CommitError::Failed(unreadable(&self.options, &error)))?
            .ok_or(CommitError::Rejected)?;
        // The commit is stored. If it cannot be read back now, the next poll reads the whole history.
        if let Err(error) = self.apply(id) {
            let error = unreadable(&self.options, &error);
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "cannot read a new commit"
            );
        }
        Ok(())
    }

    /// Writes a commit and moves the branch to it. Returns `None` if somebody else has moved it.
    fn store(&mut self, edits: &Edits, message: &str, time: i64) -> Result<Option<git2::Oid>, git2::Error> {
        let head = self.history.head;
        if self.branch.head()? != head {
            return Ok(None);
        }
        if let Some(remote) = &self.remote {
            remote.check()?;
        }
        let id = self.branch.write(head, edits, message, time)?;
        let is_stored = match &mut self.remote {
            Some(remote) => remote.push(&self.branch, head, id)?,
            None => self.branch.advance(head, id)?,
        };
        Ok(is_stored.then_some(id))
    }

    fn apply(&mut self, id: git2::Oid) -> Result<Vec<Record>, git2::Error> {
        let applied = self.history.apply(&self.branch, &self.kinds, id);
        self.stale |= applied.is_err();
        applied
    }

    /// Applies the commits of others.
    fn follow(&mut self) -> Result<Foreign, git2::Error> {
        if let Some(remote) = &mut self.remote {
            remote.fetch(&self.branch)?;
        }
        let known = self.history.head;
        let Some(head) = self.branch.head()? else {
            // A deleted branch must not look like one without objects.
            let deleted = "the branch does not exist any more; push it again";
            return match known {
                None => Ok(Foreign::default()),
                Some(_) => Err(git2::Error::from_str(deleted)),
            };
        };
        let line = self.branch.line(known, head)?;
        let Some(line) = line.filter(|_| !self.stale) else {
            return self.replace_history();
        };
        let mut foreign = Foreign::default();
        for id in line {
            let records = match self.apply(id) {
                Ok(records) => records,
                Err(error) if foreign.records.is_empty() => return Err(error),
                // What was read is published, the rest follows with the next poll.
                Err(_) => break,
            };
            let newest = self.newest;
            foreign
                .records
                .extend(records.into_iter().filter(|record| record.revision > newest));
        }
        Ok(foreign)
    }

    /// Reads a rewritten history. Whatever differs is a change with a new revision.
    fn replace_history(&mut self) -> Result<Foreign, git2::Error> {
        let mut new = read(&self.branch, &self.kinds)?;
        new.generation = new.generation.max(history::generation(self.newest) + 1);
        let old = std::mem::take(&mut self.history.objects);
        let removed = old.keys().filter(|key| !new.objects.contains_key(*key));
        let mut changes: Vec<(Key, ChangeType, Value)> = removed
            .map(|key| (key.clone(), ChangeType::Remove, Value::clone(&old[key])))
            .collect();
        for (key, object) in &mut new.objects {
            match old.get(key) {
                Some(before) if is_same(before, object) => *object = before.clone(),
                _ => changes.push((key.clone(), ChangeType::Put, Value::clone(object))),
            }
        }
        let mut foreign = Foreign {
            records: Vec::new(),
            rewritten: true,
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
        self.history = new;
        self.stale = false;
        Ok(foreign)
    }
}

/// Whether two objects differ in nothing but their version.
fn is_same(one: &Value, other: &Value) -> bool {
    let without_version = |object: &Value| {
        let mut object = object.clone();
        meta::set(&mut object, "resourceVersion", Value::Null);
        object
    };
    without_version(one) == without_version(other)
}

/// Reads the whole history of a branch.
fn read(branch: &Branch, kinds: &Kinds) -> Result<History, git2::Error> {
    let mut history = History::default();
    if let Some(head) = branch.head()? {
        for id in branch.line(None, head)?.unwrap_or_default() {
            history.apply(branch, kinds, id)?;
        }
    }
    Ok(history)
}

fn failed(options: &GitOptions, reason: String) -> StoreError {
    StoreError::Git {
        repository: match &options.remote {
            Some(url) => command::redacted(url),
            None => options.repository.display().to_string(),
        },
        branch: options.branch.clone(),
        reason,
    }
}

fn unreadable(options: &GitOptions, error: &git2::Error) -> StoreError {
    failed(options, error.message().to_owned())
}

impl Backend for Git {
    fn blocks(&self) -> bool {
        true
    }

    fn is_shared(&self, key: &Key) -> bool {
        kinds::is_shared(key)
    }

    fn first_revision(&self, newest: u64, key: &Key) -> u64 {
        if kinds::is_shared(key) {
            let generation = history::generation(newest).max(self.history.generation) + 1;
            history::first_revision(generation)
        } else {
            newest + 1
        }
    }

    fn create(&mut self, key: &Key, object: &mut Value) {
        if kinds::is_shared(key) {
            let now = || jiff::Timestamp::now().as_second();
            let time = admit::timestamp(*self.time.get_or_insert_with(now));
            meta::set(object, "uid", admit::uid(key, self.history.head).into());
            meta::set(object, "creationTimestamp", time.into());
        }
    }

    fn commit(&mut self, records: &[Record]) -> Result<(), CommitError> {
        let is_shared = records.iter().any(|record| kinds::is_shared(&record.key));
        if is_shared {
            self.commit_shared(records)?;
        } else {
            self.local.persist(records).map_err(CommitError::Failed)?;
        }
        self.newest = records.last().map_or(self.newest, |record| record.revision);
        Ok(())
    }

    fn recover(&mut self) -> Result<Vec<Record>, StoreError> {
        self.local.recover()
    }

    fn foreign(&mut self) -> Result<Foreign, StoreError> {
        let foreign = self.follow().map_err(|error| unreadable(&self.options, &error))?;
        self.newest = foreign
            .records
            .last()
            .map_or(self.newest, |record| record.revision);
        Ok(foreign)
    }

    fn health(&self) -> StorageHealth {
        match (self.local.health(), &self.remote) {
            (StorageHealth::Writable, Some(remote)) => remote.health(),
            (local, _) => local,
        }
    }

    fn maintain(&mut self) {
        self.local.restore_reserve();
    }
}

#[cfg(test)]
mod tests;
