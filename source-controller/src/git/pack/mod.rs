//! From the bytes of a foreign pack to an indexed pack on disk (`gitformat-pack`), with bounds on everything that a
//! sender decides: bytes, objects, what they unpack to, the size of what is rebuilt from differences, and how long
//! chains of differences are.
//!
//! `stream` takes the bytes as they come and keeps a copy on disk; `scan` reads the entries, hashes whole objects and
//! only notes differences; `resolve` applies differences to their bases, each once; `thin` adds the bases that the
//! sender left out; `write` makes the index. An undeltified object is never held as a whole. Nothing here knows the
//! network or a mirror, and nothing of a pack that is refused stays on disk.

mod delta;
mod entry;
mod error;
mod hash;
mod inflate;
mod resolve;
mod scan;
mod stream;
mod table;
mod thin;
mod write;

#[cfg(test)]
pub(super) mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use git2::{ErrorCode, ObjectType, Odb, Oid};
use tokio_util::sync::CancellationToken;

use super::remote::Limits;

pub use error::{Flaw, PackError};
use resolve::Resolver;

/// Where the bytes of a pack come from.
pub trait Pieces {
    /// The next bytes; none once all have come.
    ///
    /// # Errors
    /// The sender is gone: [`PackError::Stopped`].
    fn next(&mut self) -> Result<Option<Bytes>, PackError>;
}

/// Where objects are that a pack may leave out.
pub trait Bases {
    /// An object, if it is there.
    ///
    /// # Errors
    /// It cannot be read, or has more than `limit` bytes: [`PackError::TooLarge`].
    fn base(&self, id: Oid, limit: u64) -> Result<Option<(ObjectType, Vec<u8>)>, PackError>;
}

impl Bases for Odb<'_> {
    fn base(&self, id: Oid, limit: u64) -> Result<Option<(ObjectType, Vec<u8>)>, PackError> {
        let unreadable = |error: git2::Error| PackError::Base {
            id,
            why: error.message().to_owned(),
        };
        let size = match self.read_header(id) {
            Ok((size, _)) => size as u64,
            Err(error) if error.code() == ErrorCode::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(error)),
        };
        if size > limit {
            return Err(error::delta_too_large(limit));
        }
        let object = self.read(id).map_err(unreadable)?;
        Ok(Some((object.kind(), object.data().to_vec())))
    }
}

/// A pack on disk.
#[derive(Debug)]
pub struct Indexed {
    /// Its objects, the added bases included.
    pub objects: usize,
    /// Its path without an extension.
    name: PathBuf,
}

impl Indexed {
    /// Takes it away again, the index first.
    pub fn remove(self) {
        for extension in ["idx", "pack"] {
            let path = self.name.with_extension(extension);
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!(path = %path.display(), %error, "a refused pack stays until its mirror goes");
            }
        }
    }
}

/// Indexes one pack as it arrives into the directory `packs`. A pack without objects leaves nothing there. Blocks.
///
/// # Errors
/// The pack is broken or larger than `limits` allow, the bytes ended early, the disk cannot be written, or `stop` was
/// cancelled. Nothing of it remains on disk then.
pub fn index(
    pieces: &mut dyn Pieces,
    bases: &dyn Bases,
    packs: &Path,
    limits: &Limits,
    stop: &CancellationToken,
) -> Result<Option<Indexed>, PackError> {
    let scanned = scan::scan(pieces, packs, limits, stop)?;
    if scanned.table.is_empty() {
        return Ok(None);
    }
    let mut resolver = Resolver::new(scanned, limits, stop);
    resolver.resolve()?;
    thin::complete(&mut resolver, bases)?;
    let scanned = resolver.finish()?;
    let objects = scanned.table.len();
    let name = write::keep(scanned, packs)?;
    Ok(Some(Indexed { objects, name }))
}

/// Refuses further work once it is unwanted.
fn check(stop: &CancellationToken) -> Result<(), PackError> {
    if stop.is_cancelled() {
        return Err(PackError::Stopped);
    }
    Ok(())
}
