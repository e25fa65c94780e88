//! Indexes a Git pack (`gitformat-pack`) from an untrusted sender: [`index`] reads the bytes as they arrive and writes a
//! `.pack` and an `.idx` file, which equals that of `git index-pack`. It runs in the calling thread and blocks; a second
//! thread computes names of objects if the undeltified ones have more than 1 MiB. It ends with the call, or after the
//! batches that it has then. The crate starts no process and knows no network and no async runtime.
//!
//! * **Limits.** Everything that a sender decides is counted as it arrives, whatever the header says: the number of
//!   objects, the unpacked bytes, the bytes of one deltified object ([`Limits`]). A delta chain has at most 4,095 deltas, as
//!   in Git, and 16 times the bytes of one deltified object. The bytes of the pack itself are the caller's to count.
//! * **Memory.** An undeltified object is hashed as it arrives, or in a batch of up to 256 KiB, of which there are at most
//!   five. Only bases and results of deltas are held, two at a time and in a cache of 32 MiB, beside about 60 bytes for
//!   each object. Each delta is applied once, without recursion, so the work ends for any input. A base that left the cache
//!   is unpacked again and counts again.
//! * **Thin packs.** A base that the sender omitted is read from the object database of the caller and appended to the
//!   pack, as `git index-pack --fix-thin` does. A delta without a base is an error.
//! * **Hashes.** The name of each object is computed with detection of SHA-1 collisions, as in Git. A pack with the same
//!   object twice is refused. Whether the objects are well-formed and refer to existing ones is not checked.
//! * **Errors.** [`PackError`] tells apart a malformed pack, an exceeded limit, an unreadable base, a full or broken disk,
//!   and the end of the work by the caller. After an error no file remains.
//!
//! `stream` receives the bytes and copies them to disk. `scan` reads the entries, hashes undeltified objects, with
//! `object_names`, and records deltas. `resolve` applies each delta to its base. `thin` appends the omitted bases. `write`
//! creates the index. Apart from these, [`open_blob`] reads a large blob of an indexed pack as a stream, and [`BlobReader`] small ones as
//! a whole; `lookup` finds both.

mod blob;
mod delta;
mod entry;
mod error;
mod hash;
mod inflate;
mod lookup;
mod object_names;
mod reader;
mod resolve;
mod scan;
mod stream;
mod table;
mod thin;
mod write;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

pub use blob::{BlobStream, open_blob};
use bytes::Bytes;
pub use error::{FormatError, Limit, PackError};
use git2::Odb;
pub use reader::BlobReader;
use resolve::Resolver;

/// Limits on one pack. The defaults suit a configuration repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Objects, about 60 bytes of memory each. Default 2 million.
    pub objects: u32,
    /// Unpacked bytes of all objects; objects that are rebuilt several times count each time. Default 16 GiB.
    pub unpacked_bytes: u64,
    /// Bytes of one object that is stored as a delta or that is the base of a delta. Such objects are held in memory,
    /// two at a time. A delta chain has at most 16 times as many bytes. Default 64 MiB.
    pub delta_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            objects: 2_000_000,
            unpacked_bytes: 16 << 30,
            delta_bytes: 64 << 20,
        }
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
    /// Returns its files in the order in which they are deleted: a pack without an index is ignored.
    #[must_use]
    pub fn files(&self) -> [PathBuf; 2] {
        ["idx", "pack"].map(|extension| self.name.with_extension(extension))
    }
}

/// Objects of the caller on which the deltas of a thin pack may be based.
pub trait Bases {
    /// Returns their object database. It is not called for a pack that has the bases of all its deltas.
    ///
    /// # Errors
    /// It cannot be opened.
    fn odb(&self) -> Result<&Odb<'_>, PackError>;
}

impl Bases for Odb<'_> {
    fn odb(&self) -> Result<&Odb<'_>, PackError> {
        Ok(self)
    }
}

/// Indexes one pack into the directory `packs` while its chunks arrive. Bases that a thin pack omits are read from
/// `bases`. A pack without objects creates no file. `is_cancelled` is called often. Blocks.
///
/// # Errors
/// The pack is malformed or exceeds `limits`, the chunks ended early or with an error, a base cannot be read, the disk
/// cannot be written, or the work was cancelled. Nothing remains on disk then.
pub fn index(
    chunks: &mut dyn Iterator<Item = Result<Bytes, PackError>>,
    bases: &dyn Bases,
    packs: &Path,
    limits: &Limits,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Option<Indexed>, PackError> {
    let scanned = scan::scan(chunks, packs, limits, is_cancelled)?;
    if scanned.table.is_empty() {
        return Ok(None);
    }
    let mut resolver = Resolver::new(scanned, limits, is_cancelled);
    resolver.resolve()?;
    thin::append_bases(&mut resolver, bases)?;
    let scanned = resolver.finish()?;
    let objects = scanned.table.len();
    let name = write::persist(scanned, packs)?;
    Ok(Some(Indexed { objects, name }))
}

/// Fails after cancellation.
fn check_cancelled(is_cancelled: &dyn Fn() -> bool) -> Result<(), PackError> {
    if is_cancelled() {
        return Err(PackError::Stopped);
    }
    Ok(())
}
