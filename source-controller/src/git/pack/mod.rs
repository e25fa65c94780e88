//! Converts the bytes of an untrusted pack to an indexed pack on disk (`gitformat-pack`). Everything that a sender
//! controls is bounded: bytes, objects, unpacked bytes, sizes of deltified objects, and lengths of delta chains.
//!
//! `stream` receives the bytes and copies them to disk. `scan` reads the entries, hashes undeltified objects and
//! records deltas. `resolve` applies each delta to its base once. `thin` appends the bases that the sender omitted.
//! `write` creates the index. An undeltified object is never held in memory as a whole. The module does not depend on
//! the network or on mirrors, and leaves no file of a refused pack on disk.

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
pub use error::{FormatError, PackError};
use git2::{ErrorCode, ObjectType, Odb, Oid};
use resolve::Resolver;
use tokio_util::sync::CancellationToken;

use super::remote::Limits;

/// Source of the bytes of a pack.
pub trait PackSource {
    /// Returns the next bytes; `None` at the end.
    ///
    /// # Errors
    /// The sender is gone: [`PackError::Stopped`].
    fn next(&mut self) -> Result<Option<Bytes>, PackError>;
}

/// Source of the objects that a thin pack omits.
pub trait Bases {
    /// Returns an object if it exists.
    ///
    /// # Errors
    /// The object cannot be read, or has more than `limit` bytes: [`PackError::TooLarge`].
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

/// An indexed pack on disk.
#[derive(Debug)]
pub struct Indexed {
    /// Number of its objects, including appended bases.
    pub objects: usize,
    /// Its path without an extension.
    name: PathBuf,
}

impl Indexed {
    /// Deletes the pack, the index first.
    pub fn remove(self) {
        for extension in ["idx", "pack"] {
            let path = self.name.with_extension(extension);
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!(path = %path.display(), %error, "cannot delete a refused pack: it remains until its mirror is deleted");
            }
        }
    }
}

/// Indexes one pack into the directory `packs` while it arrives. A pack without objects creates no file. Blocks.
///
/// # Errors
/// The pack is malformed or exceeds `limits`, the bytes ended early, the disk cannot be written, or `stop` was
/// cancelled. Nothing remains on disk then.
pub fn index(
    source: &mut dyn PackSource,
    bases: &dyn Bases,
    packs: &Path,
    limits: &Limits,
    stop: &CancellationToken,
) -> Result<Option<Indexed>, PackError> {
    let scanned = scan::scan(source, packs, limits, stop)?;
    if scanned.table.is_empty() {
        return Ok(None);
    }
    let mut resolver = Resolver::new(scanned, limits, stop);
    resolver.resolve()?;
    thin::append_bases(&mut resolver, bases)?;
    let scanned = resolver.finish()?;
    let objects = scanned.table.len();
    let name = write::persist(scanned, packs)?;
    Ok(Some(Indexed { objects, name }))
}

/// Fails after cancellation.
fn check_stopped(stop: &CancellationToken) -> Result<(), PackError> {
    if stop.is_cancelled() {
        return Err(PackError::Stopped);
    }
    Ok(())
}
