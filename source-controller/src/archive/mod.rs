//! The archive format: a deterministic tar in one gzip member, written as a stream.
//!
//! Pure except for its writer: equal entries in equal order yield equal bytes. `reconcile::pack` writes a checkout into
//! an [`Archive`]; `storage` provides the file. Everything that could differ between two builds of one tree is fixed:
//! owners, times, the file name and the operating system in the gzip header. Only [`Archive`] knows the compressor, so
//! it could reuse segments of an older artifact without a change of the tar layer.

mod digest;
mod header;

use std::io::{self, Write};

pub use digest::Hasher;
use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};
use header::BLOCK;
pub use sluice_api::digest::Algorithm;
use sluice_api::digest::Digest;

/// Go's default compression level.
const COMPRESSION_LEVEL: u32 = 6;

/// "Unknown" operating system in the gzip header, RFC 1952 section 2.3.1.
const UNKNOWN_OS: u8 = 0xff;

/// Type of an entry. Links, devices and sockets are never archived.
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

/// Summary of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Digest of the compressed bytes.
    pub digest: Digest,
    /// Number of compressed bytes.
    pub size: u64,
    /// Number of files, without directories.
    pub files: u64,
    /// Number of bytes of the tar before compression.
    pub unpacked: u64,
}

/// An archive that is being written. Parents must precede their children; only the compressor's window is held in
/// memory.
pub struct Archive<W: Write> {
    gzip: GzEncoder<HashingWriter<W>>,
    files: u64,
    unpacked: u64,
}

impl<W: Write> Archive<W> {
    /// Starts an archive with its root entry.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn new(out: W, algorithm: Algorithm) -> io::Result<Self> {
        Self::with_root(out, algorithm, b".")
    }

    /// Like [`Archive::new`], with another name for the root.
    fn with_root(out: W, algorithm: Algorithm, root: &[u8]) -> io::Result<Self> {
        let writer = HashingWriter {
            out,
            hasher: Hasher::new(algorithm),
            size: 0,
        };
        let gzip = GzBuilder::new()
            .mtime(0)
            .operating_system(UNKNOWN_OS)
            .write(writer, Compression::new(COMPRESSION_LEVEL));
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

    /// Finishes the archive; returns the flushed output and the summary.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn finish(mut self) -> io::Result<(W, Totals)> {
        self.put(&[0; 2 * BLOCK])?;
        let mut writer = self.gzip.finish()?;
        writer.out.flush()?;
        let totals = Totals {
            digest: writer.hasher.finish(),
            size: writer.size,
            files: self.files,
            unpacked: self.unpacked,
        };
        Ok((writer.out, totals))
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.unpacked += bytes.len() as u64;
        self.gzip.write_all(bytes)
    }
}

/// Counts and hashes the output, so that the file is not read a second time.
struct HashingWriter<W> {
    out: W,
    hasher: Hasher,
    size: u64,
}

impl<W: Write> Write for HashingWriter<W> {
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
