//! The blocking half of a transfer: indexes the pack, verifies the commit, and writes the mirror's record.

use std::path::Path;
use std::sync::Arc;
use std::{fs, iter};

use bytes::Bytes;
use git2::{Odb, OdbLookupFlags, Oid};
use sluice_git_pack::{Bases, Indexed, Limit, PackError};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::super::access::Extent;
use super::super::checkout::Checkout;
use super::super::error::FetchError;
use super::super::mirror::{Mirror, OpenGeneration};
use super::super::remote::{DELTA_BYTES_FLAG, Limits, PACK_OBJECTS_FLAG, UNPACKED_BYTES_FLAG};
use super::Guard;
use super::objects::Objects;

/// Changes of the shallow commits in a response.
#[derive(Debug, Default)]
pub(super) struct ShallowUpdate {
    pub(super) shallow: Vec<Oid>,
    pub(super) unshallow: Vec<Oid>,
}

/// A commit, and the object by which the server names it: itself, or a tag.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommitRef {
    pub(super) commit: Oid,
    pub(super) object: Oid,
}

impl CommitRef {
    /// Verifies with the fetched objects that the tag leads to the commit; the server's statement is not trusted.
    pub(super) fn check(self, checkout: &Checkout, host: &str) -> Result<(), FetchError> {
        if checkout.is_peeled_from(self.object)? {
            return Ok(());
        }
        Err(FetchError::FalseTag {
            host: host.to_owned(),
            object: self.object,
            commit: self.commit,
        })
    }
}

/// Result of a transfer.
pub(super) enum Outcome {
    /// The commit was received.
    Commit(Checkout),
    /// Other commits were received; they are in this generation, which is not installed.
    Missing(OpenGeneration),
}

/// The blocking half of a transfer.
pub(super) struct Job {
    pub(super) mirror: Arc<Mirror>,
    pub(super) head: CommitRef,
    pub(super) extent: Extent,
    pub(super) limits: Limits,
    pub(super) host: String,
    pub(super) stop: CancellationToken,
    pub(super) shallow_update: ShallowUpdate,
}

impl Job {
    /// Runs the job. It owns the guard until the work has really ended, even if the caller was dropped.
    pub(super) fn run(
        self,
        mut guard: Guard,
        mut opened: OpenGeneration,
        chunks: mpsc::Receiver<Chunk>,
    ) -> (Guard, Result<Outcome, FetchError>) {
        let result = match self.execute(&mut opened, chunks) {
            Ok(Some(checkout)) => {
                guard.store_recovery_point(&opened);
                guard.install(opened);
                Ok(Outcome::Commit(checkout))
            }
            Ok(None) => Ok(Outcome::Missing(opened)),
            Err(error) => Err(error),
        };
        (guard, result)
    }

    fn execute(
        self,
        opened: &mut OpenGeneration,
        chunks: mpsc::Receiver<Chunk>,
    ) -> Result<Option<Checkout>, FetchError> {
        let generation = Arc::clone(&opened.generation);
        let objects = Objects::of(&generation);
        let indexed = index_chunks(
            &objects,
            &generation.packs(),
            chunks,
            &self.limits,
            &self.host,
            &self.stop,
        )?;
        let result = self.accept(objects, opened);
        if result.is_err()
            && let Some(indexed) = indexed
        {
            remove(&indexed);
        }
        result
    }

    /// Verifies the received objects and records the commit.
    fn accept(
        mut self,
        objects: Objects,
        opened: &mut OpenGeneration,
    ) -> Result<Option<Checkout>, FetchError> {
        let odb = objects.open()?;
        let is_received = odb.exists(self.head.commit);
        // Shallow commits that were not received are irrelevant.
        let shallow = &mut self.shallow_update.shallow;
        shallow.retain(|id| odb.exists_ext(*id, OdbLookupFlags::NO_REFRESH));
        opened
            .record
            .update_shallow(shallow, &self.shallow_update.unshallow);
        if !is_received {
            return Ok(None);
        }
        let generation = Arc::clone(&opened.generation);
        let CommitRef { commit, .. } = self.head;
        let checkout = open_verified(
            odb,
            self.mirror,
            opened,
            commit,
            self.extent,
            self.limits,
            &self.stop,
        )?;
        self.head.check(&checkout, &self.host)?;
        opened.record.add(commit);
        opened.record.write(generation.directory())?;
        Ok(Some(checkout))
    }
}

/// Opens a commit in `odb`, which must be that of the generation, and verifies, once for each process, that all objects that the mirror
/// should contain exist.
pub(super) fn open_verified(
    odb: Odb<'static>,
    mirror: Arc<Mirror>,
    opened: &mut OpenGeneration,
    commit: Oid,
    extent: Extent,
    limits: Limits,
    stop: &CancellationToken,
) -> Result<Checkout, FetchError> {
    let checkout = Checkout::open(odb, mirror, Arc::clone(&opened.generation), commit, limits)?;
    if !opened.verified.contains(&commit) {
        let base = opened
            .record
            .tips
            .iter()
            .rev()
            .find(|tip| opened.verified.contains(tip))
            .copied();
        checkout.verify(base, extent, stop)?;
        opened.verified.insert(commit);
    }
    Ok(checkout)
}

/// Message from the network side.
#[derive(Debug)]
pub(super) enum Chunk {
    /// The next bytes of the pack.
    Data(Bytes),
    /// The response is complete.
    End,
}

/// Indexes one pack as it arrives. Objects that a thin pack omits are taken from `bases`. Nothing of an incomplete or
/// broken pack remains.
///
/// # Errors
/// The pack is broken or too large, the bytes ended early, or `stop` was cancelled.
fn index_chunks(
    bases: &dyn Bases,
    packs: &Path,
    mut chunks: mpsc::Receiver<Chunk>,
    limits: &Limits,
    host: &str,
    stop: &CancellationToken,
) -> Result<Option<Indexed>, FetchError> {
    // Indexing checks the hash of each object. The caller checks afterwards that the commit is complete.
    let mut received = iter::from_fn(|| match chunks.blocking_recv() {
        Some(Chunk::Data(bytes)) => Some(Ok(bytes)),
        Some(Chunk::End) => None,
        None => Some(Err(PackError::Stopped)),
    });
    index(&mut received, bases, packs, limits, host, &|| stop.is_cancelled())
}

/// Indexes one pack from these chunks, as [`index_chunks`].
///
/// # Errors
/// As [`index_chunks`].
pub(super) fn index(
    chunks: &mut dyn Iterator<Item = Result<Bytes, PackError>>,
    bases: &dyn Bases,
    packs: &Path,
    limits: &Limits,
    host: &str,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Option<Indexed>, FetchError> {
    match sluice_git_pack::index(chunks, bases, packs, &limits.pack, is_cancelled) {
        Ok(indexed) => Ok(indexed),
        Err(PackError::Stopped) => Err(FetchError::Stopped),
        Err(PackError::Storage(error)) => Err(FetchError::Storage(error)),
        Err(PackError::TooLarge { limit, value }) => Err(FetchError::TooLarge {
            limit: value,
            unit: limit.unit(),
            flag: flag_of(limit),
        }),
        Err(error @ (PackError::Malformed(_) | PackError::Base { .. })) => Err(FetchError::Pack {
            host: host.to_owned(),
            why: error.to_string(),
        }),
    }
}

/// Returns the flag that sets a limit.
const fn flag_of(limit: Limit) -> &'static str {
    match limit {
        Limit::Objects => PACK_OBJECTS_FLAG,
        Limit::UnpackedBytes => UNPACKED_BYTES_FLAG,
        Limit::DeltaBytes | Limit::ChainBytes => DELTA_BYTES_FLAG,
    }
}

/// Deletes a pack whose commit was refused.
pub(super) fn remove(indexed: &Indexed) {
    for path in indexed.files() {
        if let Err(error) = fs::remove_file(&path) {
            tracing::warn!(path = %path.display(), %error, "cannot delete a rejected pack: it remains until its mirror is deleted");
        }
    }
}
