//! The pack of an answer, indexed into a mirror while it comes, on a thread of its own.

use std::path::Path;

use bytes::Bytes;
use git2::Odb;
use tokio::sync::mpsc::Receiver;
use tokio_util::sync::CancellationToken;

use super::error::FetchError;
use super::pack::{self, Indexed, PackError, Pieces};
use super::remote::Limits;

/// What the network side hands over.
#[derive(Debug)]
pub(super) enum Piece {
    /// The next bytes of the pack.
    Data(Bytes),
    /// The answer was complete.
    End,
}

impl Pieces for Receiver<Piece> {
    fn next(&mut self) -> Result<Option<Bytes>, PackError> {
        match self.blocking_recv() {
            Some(Piece::Data(bytes)) => Ok(Some(bytes)),
            Some(Piece::End) => Ok(None),
            None => Err(PackError::Stopped),
        }
    }
}

/// Indexes one pack as it arrives. Objects that the pack leaves out are taken from `held`. Nothing of an incomplete
/// or broken pack remains.
///
/// # Errors
/// The pack is broken or too large, the bytes ended early, or `stop` was cancelled.
pub(super) fn index(
    held: &Odb<'_>,
    packs: &Path,
    mut pieces: Receiver<Piece>,
    limits: &Limits,
    host: &str,
    stop: &CancellationToken,
) -> Result<Option<Indexed>, FetchError> {
    // Indexing checks the hash of each object; that all objects are there is checked afterwards, for the commit.
    match pack::index(&mut pieces, held, packs, limits, stop) {
        Ok(indexed) => Ok(indexed),
        Err(PackError::Stopped) => Err(FetchError::Stopped),
        Err(PackError::Storage(error)) => Err(FetchError::Storage(error)),
        Err(PackError::TooLarge { limit, unit, flag }) => Err(FetchError::TooLarge { limit, unit, flag }),
        Err(error @ (PackError::Malformed(_) | PackError::Base { .. })) => Err(FetchError::Pack {
            host: host.to_owned(),
            why: error.to_string(),
        }),
    }
}
