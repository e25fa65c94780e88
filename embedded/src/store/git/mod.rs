//! The Git store: objects are YAML files on a branch of a bare repository, and a batch of writes is a commit.
//!
//! A commit moves the branch only from the commit that the store knows (compare and swap). If another process or a user has moved it, the
//! batch is rejected, their commits become changes, and the writes decide again. Objects that must not be in a repository are in a file on
//! this machine ([`Kinds::is_shared`]).
//!
//! The status of the objects is on a second branch by default ([`StatusLocation`]), in a journal that is the order of all changes
//! ([`takeover`]).
//!
//! A remote repository has a bare clone here. The store writes a commit to the clone, and the commit counts once the remote has moved its
//! branch to it. A poll downloads the commits of other processes without the lock of the store, and applies them under the lock.

mod admit;
mod branch;
mod command;
mod commit_content;
mod entry_content;
mod file_edit;
mod foreign;
mod history;
mod kinds;
mod last_run;
mod message;
mod parsed_files;
mod read_ahead;
mod remote;
mod resume;
mod sharing;
mod signing;
mod status;
mod step;
mod subdir;
mod takeover;
mod write;
mod yaml;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use self::branch::{Branch, Heads};
use self::history::History;
use self::kinds::Kinds;
use self::remote::Remote;
pub use self::sharing::SharedKind;
use self::sharing::Sharing;
use super::backend::{Backend, CommitError, Foreign, Job, Record, ReplayJob, StorageHealth};
use super::error::StoreError;
use super::file::File;
use super::state::{Key, State};
use super::watch_cache::ChangeType;
use crate::definitions::DEFINITIONS;
use crate::meta;
use crate::status_error::StatusError;

/// Where a Git store keeps the status of its objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusLocation {
    /// In files of their own on a second branch, `<branch>-status`, so that the branch has no commits of a status.
    #[default]
    Branch,
    /// In the files of the objects.
    File,
}

/// Where a Git store keeps its objects.
#[derive(Clone, Debug)]
pub struct GitOptions {
    /// Directory of the bare repository. If there is a remote one, it is its clone, which is created and belongs to this process.
    pub repository: PathBuf,
    /// URL of the remote repository, as `git` knows it.
    pub remote: Option<String>,
    /// Name of the branch. The first write creates it.
    pub branch: String,
    /// Where the status of the objects is.
    pub status: StatusLocation,
    /// Directory of the objects in the repository; empty for all of it.
    pub subdir: String,
    /// Interval of the polls for commits of other processes and users.
    pub interval: Duration,
    /// File of the SSH private key that signs the commits; `None` for commits without signature.
    pub signing_key: Option<PathBuf>,
    /// Kinds that are in the repository, too: otherwise their objects are stored on this machine only.
    pub shared: BTreeSet<SharedKind>,
    /// File of the objects that are stored on this machine only: Secrets and, unless they are shared, Leases, Events and runs.
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
    /// Newest revision that the store knows; 0 during a start.
    newest: u64,
    /// Time of the next commit; `None` until it creates an object.
    time: Option<i64>,
    /// Whether the read of a commit failed before its end, so that the next poll must read the whole history.
    stale: bool,
    /// Why the journal has not taken over the commits of the branch, after the last attempt.
    not_taken_over: Option<String>,
    /// The commits that the local file names as the newest known ones.
    saved: Heads,
}

impl Git {
    /// Opens the branch and reads its history; opens or creates the local file.
    pub(super) fn open(
        options: GitOptions,
        crds: &[CustomResourceDefinition],
    ) -> Result<(Self, State), StoreError> {
        let inputs = resume::inputs_digest(&options, crds);
        let kinds = Kinds::new(crds).map_err(|reason| failed(&options, reason))?;
        let mut kinds = kinds.with_sharing(Sharing::of(&options));
        let (branch, remote) = remote::connect(&options).map_err(|error| unreadable(&options, &error))?;
        let (local, state) = File::open(&options.local)?;
        let history = resume::empty_history(&branch, &local)?;
        let history =
            foreign::read(&branch, &mut kinds, history).map_err(|error| unreadable(&options, &error))?;
        let is_other_journal = branch.has_journal() && history.journal.is_none() && local.head()?.is_some();
        let is_continued = last_run::is_continued(&branch, &local, &history);
        let is_continued = is_continued.map_err(|error| unreadable(&options, &error))?;
        let mut git = Self {
            options,
            kinds,
            branch,
            remote,
            history,
            local,
            newest: 0,
            time: None,
            stale: false,
            not_taken_over: None,
            saved: Heads::default(),
        };
        let is_replaced = git
            .carry_over_and_follow()
            .and_then(|is_replaced| git.branch.reopen().map(|()| is_replaced))
            .map_err(|error| unreadable(&git.options, &error))?;
        foreign::log_problems(&git.history.present_problems(&git.kinds));
        let generation = git.history.generation;
        let has_journal = git.branch.has_journal();
        let is_other_history = is_other_journal || (!has_journal && !is_continued);
        let first = git.start_revision(state.revision(), is_other_history);
        if !has_journal {
            last_run::take_versions(&git.local, &mut git.history, is_continued)?;
        }
        let revision = first.max(git.history.revision) + u64::from(!is_continued);
        let revision = git.save_inputs(&inputs, state.revision(), revision)?;
        let follows_journal = !is_replaced && git.history.generation == generation;
        let watch_cache = git.watch_cache(revision, follows_journal)?;
        git.newest = revision;
        let mut objects: BTreeMap<Key, Arc<Value>> = state.into_objects();
        objects.retain(|key, _| !git.kinds.is_shared(key));
        objects.extend(
            git.history
                .objects
                .iter()
                .map(|(key, object)| (key.clone(), object.clone())),
        );
        git.save_heads();
        let without_history = git.kinds.sharing().kinds_without_history();
        Ok((git, State::resume(objects, watch_cache, without_history)))
    }

    /// Returns the revision of a start. It is in a new generation if the last run had another history, or wrote to the local file in a later
    /// generation: a watch that resumes would miss what differs.
    fn start_revision(&mut self, local: u64, is_other_history: bool) -> u64 {
        let generation = history::generation(local).max(self.history.generation);
        if generation == self.history.generation && !is_other_history {
            return local.max(self.history.revision);
        }
        self.history.generation = generation + 1;
        history::first_revision(generation + 1) - 1
    }

    /// Takes over the commits of others that no journal has yet, and identities from before a rewritten history. Returns whether another
    /// process has replaced the journal meanwhile.
    fn carry_over_and_follow(&mut self) -> Result<bool, git2::Error> {
        let mut is_replaced = false;
        if self.branch.has_journal() {
            // First, because the journal would keep a branch that lost its objects.
            last_run::check_last_run(&self.branch, &self.kinds, &self.local, &self.history)?;
            is_replaced = self
                .follow_journal(Instant::now() + takeover::START_LIMIT)?
                .rewritten;
            // Those that remain are logged.
            self.history.problems.clear();
        }
        last_run::carry_over_from_last_run(&self.branch, &self.kinds, &self.local, &mut self.history)?;
        Ok(is_replaced)
    }

    /// Returns the changes of others after a move of the branch, unless that failed.
    fn publish(&mut self, moved: Result<(), git2::Error>, end: Instant) -> Result<Foreign, StoreError> {
        let foreign = moved.and_then(|()| self.follow(end));
        let foreign = foreign.map_err(|error| unreadable(&self.options, &error))?;
        self.newest = foreign
            .records
            .last()
            .map_or(self.newest, |record| record.revision);
        self.save_heads();
        Ok(foreign)
    }

    /// Writes the newest known commits to the local file, with the newest published revision: after the journal was replaced, no commit
    /// has the revisions of the differences, and the next start must not use them again. Each poll does it, and the end of the store. After
    /// a crash, the next start knows those of the last poll.
    fn save_heads(&mut self) {
        let heads = self.heads();
        let Some(head) = heads.branch.filter(|_| heads != self.saved) else {
            return;
        };
        let journal = heads.journal.map(|journal| journal.to_string());
        let head = head.to_string();
        match self.local.set_heads(&head, journal.as_deref(), self.newest) {
            Ok(()) => self.saved = heads,
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "cannot store the newest commit; the next poll tries again"
            ),
        }
    }
}

/// Writes since the last poll are known to the next start, so that it detects if a user rewrites them in the meantime.
impl Drop for Git {
    fn drop(&mut self) {
        // A start that failed has read commits that it must not accept.
        if self.newest > 0 {
            self.save_heads();
        }
    }
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
        self.kinds.is_shared(key)
    }

    fn changes_kinds(&self, key: &Key) -> bool {
        key.resource == DEFINITIONS && self.kinds.is_shared(key)
    }

    fn admit(&self, key: &Key, object: Value) -> Result<Value, StatusError> {
        self.check_file(key)?;
        self.admit_shared(key, object)
    }

    fn invalid_objects(&self) -> BTreeSet<Key> {
        self.history.invalid_objects()
    }

    fn check(&self, key: &Key, kind: ChangeType) -> Result<(), StoreError> {
        if self.kinds.is_shared(key) {
            self.check_shared(key, kind)
        } else {
            Ok(())
        }
    }

    fn first_revision(&self, newest: u64, key: &Key) -> u64 {
        if self.kinds.is_shared(key) {
            let generation = history::generation(newest).max(self.history.generation) + 1;
            history::first_revision(generation)
        } else {
            newest + 1
        }
    }

    fn create(&mut self, key: &Key, object: &mut Value) {
        if self.kinds.is_shared(key) {
            let now = || jiff::Timestamp::now().as_second();
            let time = *self.time.get_or_insert_with(now);
            let identity = self.history.next_identity(&self.kinds, key, time);
            meta::set(object, "uid", identity.uid.into());
            meta::set(object, "creationTimestamp", identity.created.into());
        }
    }

    fn commit(&mut self, records: &mut Vec<Record>) -> Result<(), CommitError> {
        let shared = records.iter().filter(|record| self.kinds.is_shared(&record.key));
        match shared.count() {
            0 => self.local.persist(records).map_err(CommitError::Failed)?,
            shared if shared == records.len() => self.commit_shared(records)?,
            // Neither location may get objects of the other one. In particular, the repository must not get a Secret.
            _ => {
                let mixed = "a batch has objects of the repository and objects that stay on this machine";
                return Err(CommitError::Failed(failed(&self.options, mixed.to_owned())));
            }
        }
        self.newest = records.last().map_or(self.newest, |record| record.revision);
        Ok(())
    }

    fn recover(&mut self) -> Result<Vec<Record>, StoreError> {
        self.local.recover()
    }

    fn foreign(&mut self, end: Instant) -> Result<Foreign, StoreError> {
        let fetched = match &self.remote {
            Some(remote) => remote.fetch(&self.branch),
            None => Ok(()),
        };
        self.publish(fetched, end)
    }

    fn download(&self) -> Option<Job> {
        let remote = self.remote.clone()?;
        // Without it the next step fails with the reason.
        let known = self.branch.heads().ok()?;
        let options = self.options.clone();
        Some(Box::new(move || {
            remote
                .download(known)
                .map_err(|error| unreadable(&options, &error))
        }))
    }

    fn downloaded(&mut self, end: Instant) -> Result<Foreign, StoreError> {
        let moved = match &self.remote {
            Some(remote) => remote.take_download(&self.branch),
            None => Ok(()),
        };
        self.publish(moved, end)
    }

    fn compaction(&self) -> Option<Job> {
        let remote = self.remote.clone()?;
        let options = self.options.clone();
        Some(Box::new(move || {
            remote.compact().map_err(|reason| failed(&options, reason))
        }))
    }

    fn keeps_history(&self) -> bool {
        // Without a journal the versions of a rewritten branch, and of a merge, do not follow from the history.
        self.branch.has_journal()
    }

    fn replay(&self, since: u64) -> Result<Option<ReplayJob>, StoreError> {
        self.replay_since(since)
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
