//! The blocking half of a transfer: the pack is indexed, the commit looked at, and the mirror's record written.

use std::io;
use std::sync::Arc;

use git2::Oid;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::super::checkout::{Checkout, Extent};
use super::super::error::FetchError;
use super::super::index::{Piece, index};
use super::super::mirror::{Mirror, Opened, open_objects};
use super::super::remote::Limits;
use super::Guard;

/// Where the history of what is being fetched is cut off.
#[derive(Debug, Default)]
pub(super) struct Boundary {
    pub(super) shallow: Vec<Oid>,
    pub(super) unshallow: Vec<Oid>,
}

/// What a pack brought.
pub(super) enum Got {
    /// The commit.
    Commit(Checkout),
    /// Others; the generation with them, which is not the mirror's.
    Without(Opened),
}

/// The blocking half of a transfer.
pub(super) struct Job {
    pub(super) mirror: Arc<Mirror>,
    pub(super) commit: Oid,
    pub(super) extent: Extent,
    pub(super) limits: Limits,
    pub(super) host: String,
    pub(super) stop: CancellationToken,
    pub(super) boundary: Boundary,
}

impl Job {
    /// The guard is held until the work has really ended, even if nobody waits for it any more.
    pub(super) fn run(
        self,
        mut guard: Guard,
        mut opened: Opened,
        pieces: mpsc::Receiver<Piece>,
    ) -> (Guard, Result<Got, FetchError>) {
        let result = match self.work(&mut opened, pieces) {
            Ok(Some(checkout)) => {
                guard.keep(opened);
                Ok(Got::Commit(checkout))
            }
            Ok(None) => Ok(Got::Without(opened)),
            Err(error) => Err(error),
        };
        (guard, result)
    }

    fn work(
        self,
        opened: &mut Opened,
        pieces: mpsc::Receiver<Piece>,
    ) -> Result<Option<Checkout>, FetchError> {
        let generation = Arc::clone(&opened.generation);
        let held = objects(opened)?;
        index(
            &held,
            &generation.packs(),
            pieces,
            &self.limits,
            &self.host,
            &self.stop,
        )?;
        drop(held);
        opened
            .record
            .cut(&self.boundary.shallow, &self.boundary.unshallow);
        if !objects(opened)?.exists(self.commit) {
            return Ok(None);
        }
        let checkout = complete(self.mirror, opened, self.commit, self.extent, self.limits)?;
        opened.record.add(self.commit);
        opened.record.write(generation.directory())?;
        Ok(Some(checkout))
    }
}

/// The objects as they are on disk now.
fn objects(opened: &Opened) -> Result<git2::Odb<'static>, FetchError> {
    let opened = open_objects(opened.generation.directory());
    opened.map_err(|error| FetchError::Storage(io::Error::other(error.message().to_owned())))
}

/// Opens a commit and makes sure, once in a process, that as much of it is there as its mirror is to hold.
pub(super) fn complete(
    mirror: Arc<Mirror>,
    opened: &mut Opened,
    commit: Oid,
    extent: Extent,
    limits: Limits,
) -> Result<Checkout, FetchError> {
    let checkout = Checkout::open(mirror, Arc::clone(&opened.generation), commit, limits)?;
    if !opened.verified.contains(&commit) {
        let base = opened
            .record
            .tips
            .iter()
            .rev()
            .find(|tip| opened.verified.contains(tip))
            .copied();
        checkout.verify(base, extent)?;
        opened.verified.insert(commit);
    }
    Ok(checkout)
}
