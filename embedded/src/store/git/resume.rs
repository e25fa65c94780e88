//! From which versions a watch can resume: after a restart, and while the store runs from before the watch cache.
//!
//! Versions follow from the journal, so that a start computes the changes of earlier runs with the same versions, and keeps the newest ones
//! for watches. Older ones are computed again for each watch that needs them ([`Git::replay_since`]). That holds as long as the journal
//! continues that of the last run. If a run had to give changes versions that do not follow from the journal, no later start can tell what
//! its clients have seen. Therefore the local file has the version from which the changes are those that the clients of this machine know:
//! for a new file that of its first start. Earlier versions are those of a process that can have had other inputs (below), or objects with
//! other uids: those from before a rewritten journal are in its local file. Objects that are only in the local file have no history.
//!
//! A start with other options, definitions or another program than the last run can compute other objects with the same versions: one that
//! shares other kinds replaces objects of the local file by those of the repository, which no watch sees as changes. So such a start has a
//! version of its own, and watches resume from that one at the earliest. So has a start that finds another history than that of the last run
//! ([`last_run::is_continued`]).

use std::sync::Arc;

use git2::{Error, Oid};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::branch::Branch;
use super::history::History;
use super::kinds::Kinds;
use super::sharing::Sharing;
use super::{Git, GitOptions, last_run, unreadable};
use crate::store::backend::ReplayJob;
use crate::store::error::StoreError;
use crate::store::file::File;
use crate::store::replay::Replay;
use crate::store::watch_cache::WatchCache;

/// Revision of a local file that has served no version yet.
const NEW_FILE: u64 = 1;
/// Most commits of a journal that are read for a watch. A list costs its client less than a longer replay.
const MAX_REPLAYED_COMMITS: usize = 100_000;

/// Returns the history before the first commit. It keeps the changes from which a watch can resume.
pub(super) fn empty_history(branch: &Branch, local: &File) -> Result<History, StoreError> {
    let mut history = History::new(local.identities()?);
    if branch.has_journal() {
        history.changes = local.resumable_from()?.map(WatchCache::starting_at);
    }
    Ok(history)
}

/// Returns the digest of what the objects follow from beside the commits: the program, its definitions in any order, and the options.
pub(super) fn inputs_digest(options: &GitOptions, crds: &[CustomResourceDefinition]) -> String {
    let mut definitions: Vec<String> = crds.iter().map(|crd| json!(crd).to_string()).collect();
    definitions.sort_unstable();
    let inputs = json!({
        "program": env!("CARGO_PKG_VERSION"),
        "definitions": definitions,
        "shared": Sharing::of(options).names(),
        "subdir": options.subdir,
    });
    hex::encode(Sha256::digest(inputs.to_string()))
}

impl Git {
    /// Stores the digest of the inputs, and returns the revision of a start: the one after `revision` if the last run had other inputs. A
    /// local file without a version has had no run; one that has some without inputs was a store of its own, or of an earlier program.
    /// `local` is its revision.
    pub(super) fn save_inputs(&mut self, digest: &str, local: u64, revision: u64) -> Result<u64, StoreError> {
        let last = self.local.inputs_digest()?;
        if last.as_deref() == Some(digest) {
            return Ok(revision);
        }
        self.history.changes = None;
        let is_new = last.is_none() && self.local.head()?.is_none() && local <= NEW_FILE;
        let revision = if is_new { revision } else { revision + 1 };
        self.local.set_inputs_digest(digest, revision)?;
        Ok(revision)
    }

    /// Returns the watch cache of a start at a revision. `follows_journal` says whether the versions of this run follow from the journal.
    pub(super) fn watch_cache(
        &mut self,
        revision: u64,
        follows_journal: bool,
    ) -> Result<WatchCache, StoreError> {
        let changes = self.history.changes.take();
        if let Some(changes) = changes.filter(|changes| follows_journal && changes.newest() <= revision)
            && self
                .continues_last_journal()
                .map_err(|error| unreadable(&self.options, &error))?
        {
            return Ok(changes.resumed_at(revision));
        }
        let is_resumable = follows_journal && self.branch.has_journal();
        self.local.set_resumable_from(is_resumable.then_some(revision))?;
        Ok(WatchCache::starting_at(revision))
    }

    /// Whether the journal has the newest commit that the last run knew.
    fn continues_last_journal(&self) -> Result<bool, git2::Error> {
        let last = last_run::last_journal(&self.local)?;
        let (Some(last), Some(journal)) = (last, self.history.journal) else {
            return Ok(false);
        };
        Ok(self.branch.chain(Some(last), journal)?.is_some())
    }

    /// Returns a job that sends the published changes after a revision to a watch; `None` if they do not follow from the journal with the
    /// versions that clients know. It reads the journal from its first commit, because objects follow from all commits before them.
    pub(super) fn replay_since(&self, since: u64) -> Result<Option<ReplayJob>, StoreError> {
        let oldest = self.local.resumable_from()?;
        if self.stale || oldest.is_none_or(|oldest| since < oldest) {
            return Ok(None);
        }
        let options = self.options.clone();
        let branch = self.branch.reopened();
        let branch = branch.map_err(|error| unreadable(&options, &error))?;
        let mut kinds = self.kinds.before_history();
        let mut history = History::new(self.history.identities.clone());
        let journal = self.history.journal;
        Ok(Some(Box::new(move |replay: Arc<Replay>| {
            history.replay = Some(replay);
            replay_journal(&branch, &mut kinds, &mut history, journal, MAX_REPLAYED_COMMITS)
                .map_err(|error| unreadable(&options, &error))
        })))
    }
}

/// Applies the commits of a journal up to one of them; none without a commit.
pub(super) fn replay_journal(
    branch: &Branch,
    kinds: &mut Kinds,
    history: &mut History,
    journal: Option<Oid>,
    max_commits: usize,
) -> Result<(), Error> {
    let Some(journal) = journal else {
        return Ok(());
    };
    let chain = branch.chain(None, journal)?.unwrap_or_default();
    if chain.len() > max_commits {
        let reason = format!(
            "its journal has {} commits, and the limit is {max_commits}",
            chain.len()
        );
        return Err(Error::from_str(&reason));
    }
    history.apply_chain(branch, kinds, &chain)
}
