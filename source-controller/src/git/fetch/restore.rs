//! Restores a mirror that this disk lacks from its recovery point, before a fetch. The storage is not trusted: the pack is indexed as that
//! of a server, with the same limits, and the mirror has its commits only after all their objects were found.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use git2::Oid;
use sluice_git_pack::PackError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::access::Extent;
use super::super::error::FetchError;
use super::super::mirror::{Mirror, OpenGeneration, Record, RecoveryPoint, Writer};
use super::super::remote::{Limits, PACK_BYTES_FLAG};
use super::job::{self, index, open_verified};
use super::objects::Objects;

/// The part of the timeout of a fetch that a restore may take: a fetch from nothing must be possible in the rest.
pub(super) const PART_OF_TIMEOUT: u32 = 2;

/// The restore of one mirror.
pub(super) struct Restore {
    pub(super) mirror: Arc<Mirror>,
    pub(super) limits: Limits,
    pub(super) stop: CancellationToken,
    /// When it ends, and everything is fetched instead.
    pub(super) deadline: Instant,
}

/// Returns the error of a pack that exceeds the limit of bytes.
fn too_large() -> PackError {
    let problem = format!("it exceeds {PACK_BYTES_FLAG}");
    io::Error::new(io::ErrorKind::FileTooLarge, problem).into()
}

impl Restore {
    /// Fills the empty generation of a mirror, once for each process. It stays empty if there is no recovery point, or none that can be
    /// used. Blocks.
    pub(super) fn run(&self, writer: &mut Writer, opened: &mut OpenGeneration) {
        let Some(point) = writer.recovery_point(self.deadline) else {
            return;
        };
        match self.fill(point, opened) {
            Ok(()) => {
                tracing::info!("a mirror was restored from its recovery point");
                writer.install(opened.clone());
            }
            Err(error) => {
                opened.record = Record::default();
                opened.verified.clear();
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "a recovery point cannot be used: everything is fetched");
            }
        }
    }

    fn fill(&self, mut point: RecoveryPoint, opened: &mut OpenGeneration) -> Result<(), FetchError> {
        let record = std::mem::take(&mut point.record);
        let (packs, objects) = (opened.generation.packs(), Objects::of(&opened.generation));
        let is_stopped = || self.stop.is_cancelled() || Instant::now() >= self.deadline;
        let mut left = self.limits.pack_bytes;
        let mut pieces = point.map(|piece: io::Result<Bytes>| -> Result<Bytes, PackError> {
            let piece = piece?;
            left = left.checked_sub(piece.len() as u64).ok_or_else(too_large)?;
            Ok(piece)
        });
        let indexed = index(
            &mut pieces,
            &objects,
            &packs,
            &self.limits,
            "the recovery point",
            &is_stopped,
        )?;
        let filled = self.accept(objects, record, opened);
        if filled.is_err()
            && let Some(indexed) = indexed
        {
            job::remove(&indexed);
        }
        filled
    }

    /// Verifies that all commits are complete, and records them.
    fn accept(
        &self,
        objects: Objects,
        record: Record,
        opened: &mut OpenGeneration,
    ) -> Result<(), FetchError> {
        let odb = objects.open()?;
        let tips: Vec<Oid> = record.tips.clone();
        // The record of a mirror names only commits that exist.
        if let Some(missing) = record.shallow.iter().find(|id| !odb.exists(**id)) {
            let problem = format!("it lacks {missing}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem).into());
        }
        opened.record = record;
        let mut unused = Some(odb);
        for tip in tips {
            let odb = match unused.take() {
                Some(odb) => odb,
                None => Objects::of(&opened.generation).open()?,
            };
            let mirror = Arc::clone(&self.mirror);
            open_verified(odb, mirror, opened, tip, Extent::Full, self.limits, &self.stop)?;
        }
        opened.record.write(opened.generation.directory())?;
        Ok(())
    }
}
