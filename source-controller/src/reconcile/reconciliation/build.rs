//! Builds an artifact: merges includes, packs and publishes, and retries after freeing space on a full disk.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sluice_api::annotation::{COMMIT_AUTHOR, COMMIT_SUBJECT};
use sluice_api::source::{Artifact, short_subject};
use sluice_runtime::blocking::JobError;
use sluice_runtime::clock::Clock;
use sluice_runtime::shutdown::Token;
use tokio::runtime::Handle;

use super::super::error::ReconcileError;
use super::super::include::{self, Included};
use super::super::network::Origin;
use super::super::observe::Observed;
use super::super::pack::{self, PackError};
use super::super::slots::Lane;
use super::super::warnings::ContentWarnings;
use super::Reconciliation;
use crate::archive::{Algorithm, Capacity, Index, Previous, Settings, Totals, Written};
use crate::git::Head;
use crate::storage::{ArtifactPath, Draft, ObjectDirectory, Storage, StorageError, is_full};
use crate::tree::Tree;

/// Time limit for packing one artifact.
const PACK_LIMIT: Duration = Duration::from_mins(15);

/// A stored artifact with the data for its event.
pub(super) struct Published {
    pub(super) artifact: Artifact,
    pub(super) files: u64,
    pub(super) warnings: ContentWarnings,
    /// When the archive was complete.
    pub(super) packed_at: Timestamp,
}

/// The inputs of an artifact build and its target.
struct ArtifactBuild {
    storage: Arc<dyn Storage>,
    origin: Arc<dyn Origin>,
    tree: Tree,
    /// Artifacts to overlay on the tree.
    included: Vec<Included>,
    /// Maximum number of files and directories of an included artifact.
    include_entries: u64,
    /// `spec.ignore`.
    ignore: Option<String>,
    algorithm: Algorithm,
    capacity: Capacity,
    path: ArtifactPath,
    revision: String,
    /// The artifact in the status, if any.
    previous: Option<ArtifactPath>,
    /// Its digest, with which its file was found.
    previous_digest: Option<String>,
    /// Number of the object's artifacts to keep when the disk is full.
    keep: usize,
    now: Timestamp,
    clock: Arc<dyn Clock>,
}

impl Reconciliation<'_> {
    /// Merges, packs and publishes on a blocking thread.
    pub(super) async fn store(
        &self,
        directory: &ObjectDirectory,
        observed: &Observed<'_>,
        tree: Tree,
        included: Vec<Included>,
        head: &Head,
    ) -> Result<Published, ReconcileError> {
        let context = self.context;
        let existing = observed.artifact.as_ref();
        let previous = existing.and_then(|existing| directory.recorded(&existing.path));
        let build = ArtifactBuild {
            storage: Arc::clone(&context.storage),
            origin: Arc::clone(&context.origin),
            tree,
            included,
            include_entries: context.limits.entries,
            ignore: self.object.spec.ignore.clone(),
            algorithm: context.algorithm,
            capacity: context.capacity.clone(),
            path: directory.artifact(&head.commit.to_string())?,
            revision: head.revision(),
            previous,
            previous_digest: existing.map(|existing| existing.digest.clone()),
            keep: context.retention.records,
            now: context.clock.now(),
            clock: Arc::clone(&context.clock),
        };
        let slot = context.slots.acquire_additional(&self.namespace, Lane::Packing);
        let slot = tokio::select! {
            slot = tokio::time::timeout(PACK_LIMIT, slot) => slot,
            () = context.stop.cancelled() => return Err(JobError::Stopped.into()),
        };
        let _slot = slot.map_err(|_| JobError::TimedOut(PACK_LIMIT))?;
        let span = tracing::Span::current();
        let pack = move |stop: &Token| span.in_scope(|| build.run(stop));
        let published = context.packing.run(PACK_LIMIT, &context.stop, pack).await??;
        let before = observed.artifact.as_ref().map(|existing| &existing.digest);
        if before != Some(&published.artifact.digest) {
            for event in published.warnings.events() {
                self.record_event(event);
            }
        }
        Ok(published)
    }
}

impl ArtifactBuild {
    /// Merges, packs and publishes; blocks. On a full disk, first removes mirrors, which can be fetched again, then superseded
    /// artifacts before their retention time, and retries after each.
    fn run(mut self, stop: &Token) -> Result<Published, ReconcileError> {
        include::merge(
            &mut self.tree,
            &self.included,
            &*self.storage,
            self.include_entries,
            stop,
        )?;
        let mut result = self.attempt(stop);
        if result.as_ref().is_err_and(is_disk_full)
            && Handle::try_current().is_ok_and(|runtime| runtime.block_on(self.origin.free_space()))
        {
            result = self.attempt(stop);
        }
        match result {
            Err(error) if is_disk_full(&error) => {
                let directory = self.path.directory();
                let removed = self
                    .storage
                    .free_space(directory, self.previous.as_ref(), self.keep)?;
                if removed == 0 {
                    return Err(error);
                }
                tracing::warn!(
                    removed,
                    "disk full: removed superseded artifacts before their retention time"
                );
                self.attempt(stop)
            }
            result => result,
        }
    }

    fn attempt(&self, stop: &Token) -> Result<Published, ReconcileError> {
        let begun_at = self.clock.now();
        let draft = self.storage.create(&self.path)?;
        let settings = Settings {
            algorithm: self.algorithm,
            capacity: &self.capacity,
            stop,
        };
        let (ignore, previous) = (self.ignore.as_deref(), self.previous_archive());
        let (written, warnings) = pack::pack(&self.tree, ignore, previous, &settings, draft)?;
        let Written { out, totals, index } = written;
        let packed_at = self.clock.now();
        let millis = i64::try_from(packed_at.duration_since(begun_at).as_millis()).unwrap_or_default();
        let (files, revision) = (totals.files, &self.revision);
        let (segments, copied, listed) = (totals.segments, totals.copied, totals.listed);
        tracing::info!(
            revision,
            files,
            segments,
            copied,
            listed,
            directories = self.tree.trees_listed(),
            millis,
            bytes = totals.size,
            digest = %totals.digest,
            "artifact packed"
        );
        Ok(Published {
            artifact: self.publish(out, &totals, index.as_ref())?,
            files,
            warnings,
            packed_at,
        })
    }

    /// Returns the artifact in the status, if it has an index: then only what changed is compressed. Without it, everything is.
    fn previous_archive(&self) -> Option<Previous> {
        let (path, digest) = (self.previous.as_ref()?, self.previous_digest.as_ref()?);
        let stored = self.storage.index(path).unwrap_or_else(|error| {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, %path, "cannot read the index of an artifact");
            None
        });
        let parsed = Index::parse(&stored?).inspect_err(|error| {
            let error = error as &dyn std::error::Error;
            tracing::warn!(error, %path, "cannot use the index of an artifact");
        });
        let index = parsed.ok()?;
        // The path may have had another file.
        if index.artifact().to_string() != *digest {
            return None;
        }
        let file = self.storage.open(path).ok()?;
        Some(Previous { index, file })
    }

    /// Publishes a packed draft. The retention time of the previous artifact, if it is another file, starts before: a crash
    /// in between only keeps it slightly longer.
    fn publish(
        &self,
        draft: Box<dyn Draft>,
        totals: &Totals,
        index: Option<&Index>,
    ) -> Result<Artifact, StorageError> {
        let previous = self.previous.as_ref();
        if let Some(previous) = previous.filter(|previous| **previous != self.path) {
            self.storage.supersede(previous, self.now)?;
        }
        draft.publish(&totals.digest, index.map(Index::encode).as_deref())?;
        Ok(Artifact {
            digest: totals.digest.to_string(),
            // The API has a resolution of seconds.
            last_update_time: Time(Timestamp::from_second(self.now.as_second()).unwrap_or(self.now)),
            metadata: self.metadata(),
            path: self.path.to_string(),
            revision: self.revision.clone(),
            size: i64::try_from(totals.size).ok(),
            url: self.storage.url(&self.path),
        })
    }

    /// Returns what the artifact says of its commit: the author and the subject, each if there is one.
    fn metadata(&self) -> Option<BTreeMap<String, String>> {
        let commit = self.tree.commit();
        let texts = [
            (COMMIT_AUTHOR, commit.author_identity()),
            (COMMIT_SUBJECT, short_subject(commit.subject())),
        ];
        let metadata: BTreeMap<_, _> = texts
            .into_iter()
            .filter(|(_, text)| !text.is_empty())
            .map(|(key, text)| (key.to_owned(), text))
            .collect();
        (!metadata.is_empty()).then_some(metadata)
    }
}

fn is_disk_full(error: &ReconcileError) -> bool {
    match error {
        ReconcileError::Pack(PackError::Write(error)) => is_full(error),
        ReconcileError::Storage(error) => error.is_full(),
        _ => false,
    }
}
