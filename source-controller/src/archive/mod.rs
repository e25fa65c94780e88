//! The archive format: a deterministic tar in one gzip member, written as a stream.
//!
//! Pure but for the writer it is given: same entries in the same order, same bytes. `reconcile::pack` walks a checkout
//! into an [`Archive`]; `storage` gives the file it goes to. Everything that could differ between two builds of one tree
//! (owners, times, the name in the gzip header, the operating system) is fixed. The compressor sits behind [`Archive`]
//! alone, so that it can be given segments that are reused from an older artifact without the tar above noticing.

mod digest;
mod header;

use std::io::{self, Write};

use flate2::Compression;
use flate2::GzBuilder;
use flate2::write::GzEncoder;
use sluice_api::digest::Digest;

pub use digest::Hasher;
use header::BLOCK;
pub use sluice_api::digest::Algorithm;

/// Go's default level.
const LEVEL: u32 = 6;

/// The gzip header's "unknown" operating system, RFC 1952 section 2.3.1.
const UNKNOWN_SYSTEM: u8 = 0xff;

/// What an entry is. Links, devices and sockets are never archived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory, mode 0750.
    Directory,
    /// A regular file, mode 0700 or 0600.
    File {
        /// Whether any execute bit is set.
        executable: bool,
    },
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Digest of the compressed bytes.
    pub digest: Digest,
    /// Number of compressed bytes.
    pub size: u64,
    /// Number of files, directories left out.
    pub files: u64,
    /// Number of bytes of the tar before compression.
    pub unpacked: u64,
}

/// An archive that is being written. Entries come parents first; nothing is held but the compressor's window.
pub struct Archive<W: Write> {
    gzip: GzEncoder<Measured<W>>,
    files: u64,
    unpacked: u64,
}

impl<W: Write> Archive<W> {
    /// Begins an archive, with its root entry.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn new(out: W, algorithm: Algorithm) -> io::Result<Self> {
        Self::rooted(out, algorithm, b".")
    }

    /// As [`Archive::new`], with another name for the root.
    fn rooted(out: W, algorithm: Algorithm, root: &[u8]) -> io::Result<Self> {
        let measured = Measured {
            out,
            hasher: Hasher::new(algorithm),
            size: 0,
        };
        let gzip = GzBuilder::new()
            .mtime(0)
            .operating_system(UNKNOWN_SYSTEM)
            .write(measured, Compression::new(LEVEL));
        let mut archive = Self {
            gzip,
            files: 0,
            unpacked: 0,
        };
        archive.directory(root)?;
        Ok(archive)
    }

    /// Adds a directory.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn directory(&mut self, path: &[u8]) -> io::Result<()> {
        self.put(&header::header(path, Kind::Directory, 0))
    }

    /// Adds a file.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn file(&mut self, path: &[u8], executable: bool, content: &[u8]) -> io::Result<()> {
        let size = content.len() as u64;
        self.put(&header::header(path, Kind::File { executable }, size))?;
        self.put(content)?;
        let used = content.len() % BLOCK;
        if used > 0 {
            self.put(&[0; BLOCK][used..])?;
        }
        self.files += 1;
        Ok(())
    }

    /// Ends the archive and gives back the output, flushed, with what went into it.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn finish(mut self) -> io::Result<(W, Totals)> {
        self.put(&[0; 2 * BLOCK])?;
        let mut measured = self.gzip.finish()?;
        measured.out.flush()?;
        let totals = Totals {
            digest: measured.hasher.finish(),
            size: measured.size,
            files: self.files,
            unpacked: self.unpacked,
        };
        Ok((measured.out, totals))
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.unpacked += bytes.len() as u64;
        self.gzip.write_all(bytes)
    }
}

/// Counts and hashes what passes, so that no second look at the file is needed.
struct Measured<W> {
    out: W,
    hasher: Hasher,
    size: u64,
}

impl<W: Write> Write for Measured<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests;
