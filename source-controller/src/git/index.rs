//! Turning the bytes of a pack into an indexed pack on disk, on a thread of its own.

use std::io::Write as _;
use std::path::Path;

use bytes::Bytes;
use git2::{Indexer, Odb};
use tokio::sync::mpsc::Receiver;
use tokio_util::sync::CancellationToken;

use super::error::FetchError;
use super::protocol::pack;
use super::remote::{Limits, PACK_OBJECTS_FLAG};

/// What the network side hands over.
#[derive(Debug)]
pub(super) enum Piece {
    /// The next bytes of the pack.
    Data(Bytes),
    /// The answer was complete.
    End,
}

/// Mode of a finished pack: nobody changes it.
const READ_ONLY: u32 = 0o444;

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
) -> Result<(), FetchError> {
    let broken = |why: String| {
        if stop.is_cancelled() {
            FetchError::Stopped
        } else {
            FetchError::Pack {
                host: host.to_owned(),
                why,
            }
        }
    };
    let mut start = Vec::new();
    while start.len() < pack::HEADER {
        match pieces.blocking_recv() {
            Some(Piece::Data(bytes)) => start.extend_from_slice(&bytes),
            Some(Piece::End) => return Err(broken("it ends within its header".into())),
            None => return Err(FetchError::Stopped),
        }
    }
    let header = start
        .first_chunk()
        .map_or(Err(pack::NoPack), pack::parse)
        .map_err(|error| broken(error.to_string()))?;
    if header.objects > limits.pack_objects {
        let limit = limits.pack_objects.into();
        return Err(FetchError::TooLarge {
            limit,
            unit: "objects",
            flag: PACK_OBJECTS_FLAG,
        });
    }
    // Indexing checks the hash of each object; that all objects are there is checked afterwards, for the commit.
    let indexer = Indexer::new(Some(held), packs, READ_ONLY, false);
    let mut indexer = indexer.map_err(|error| broken(error.message().to_owned()))?;
    let seen = stop.clone();
    indexer.progress(move |_| !seen.is_cancelled());
    indexer
        .write_all(&start)
        .map_err(|error| broken(error.to_string()))?;
    loop {
        match pieces.blocking_recv() {
            Some(Piece::Data(bytes)) => indexer
                .write_all(&bytes)
                .map_err(|error| broken(error.to_string()))?,
            Some(Piece::End) => break,
            None => return Err(FetchError::Stopped),
        }
    }
    if header.objects > 0 {
        indexer
            .commit()
            .map_err(|error| broken(error.message().to_owned()))?;
    }
    Ok(())
}
