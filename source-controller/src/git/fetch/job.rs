//! The blocking half of a transfer: the pack is indexed, the commit looked at, and the mirror's record written.

use std::io;
use std::sync::Arc;

use git2::{OdbLookupFlags, Oid};
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

/// A commit, and the object by which the server names it: itself, or a tag.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    pub(super) commit: Oid,
    pub(super) object: Oid,
}

impl Named {
    /// Follows the tag in what was fetched: the server's word for where it leads is not taken.
    pub(super) fn check(self, checkout: &Checkout, host: &str) -> Result<(), FetchError> {
        if checkout.is_named_by(self.object)? {
            return Ok(());
        }
        Err(FetchError::FalseTag {
            host: host.to_owned(),
            object: self.object,
            commit: self.commit,
        })
    }
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
    pub(super) head: Named,
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
        let indexed = index(
            &held,
            &generation.packs(),
            pieces,
            &self.limits,
            &self.host,
            &self.stop,
        )?;
        drop(held);
        let result = self.accept(opened);
        if result.is_err()
            && let Some(indexed) = indexed
        {
            indexed.remove();
        }
        result
    }

    /// Looks at what a pack brought, and records it.
    fn accept(mut self, opened: &mut Opened) -> Result<Option<Checkout>, FetchError> {
        let odb = objects(opened)?;
        let is_there = odb.exists(self.head.commit);
        // Of commits that are not here it does not matter where their history is cut off.
        let shallow = &mut self.boundary.shallow;
        shallow.retain(|id| odb.exists_ext(*id, OdbLookupFlags::NO_REFRESH));
        opened.record.cut(shallow, &self.boundary.unshallow);
        drop(odb);
        if !is_there {
            return Ok(None);
        }
        let generation = Arc::clone(&opened.generation);
        let Named { commit, .. } = self.head;
        let checkout = complete(self.mirror, opened, commit, self.extent, self.limits, &self.stop)?;
        self.head.check(&checkout, &self.host)?;
        opened.record.add(commit);
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
    stop: &CancellationToken,
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
        checkout.verify(base, extent, stop)?;
        opened.verified.insert(commit);
    }
    Ok(checkout)
}
