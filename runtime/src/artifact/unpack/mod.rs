//! Extraction of an untrusted `tar.gz`: writes only below the target directory, creates only regular files and directories,
//! and limits entries, bytes and depth.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use flate2::read::MultiGzDecoder;
use tar::EntryType;

use crate::failure::{Class, Failure};
use crate::shutdown::Token;

/// Limits of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of entries, including directories.
    pub entries: u64,
    /// Maximum size of the decompressed content in bytes.
    pub bytes: u64,
    /// Maximum number of path components of an entry.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            entries: 200_000,
            bytes: 2 << 30,
            depth: 64,
        }
    }
}

/// Counts of an extraction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnpackSummary {
    /// Regular files.
    pub files: u64,
    /// Directory entries.
    pub directories: u64,
    /// Bytes of content.
    pub bytes: u64,
}

/// An archive could not be extracted.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// A name that points outside the directory or is invalid.
    #[error("archive entry {0:?} has an invalid name")]
    Name(String),
    /// A link, device, pipe or another kind of entry that sources never produce.
    #[error("archive entry {name:?} is a {kind}, which is not allowed")]
    Kind {
        /// Name of the entry.
        name: String,
        /// Kind of the entry.
        kind: &'static str,
    },
    /// Too many entries.
    #[error("archive has more than {0} entries")]
    Entries(u64),
    /// Too much content.
    #[error("archive has more than {0} bytes")]
    Bytes(u64),
    /// The path is too deep.
    #[error("archive entry {name:?} is deeper than {limit} directories")]
    Depth {
        /// Name of the entry.
        name: String,
        /// Maximum number of components.
        limit: usize,
    },
    /// Not a valid `tar.gz`.
    #[error("archive is damaged: {0}")]
    Damaged(String),
    /// The target directory is not empty.
    #[error("directory {0} is not empty")]
    Occupied(PathBuf),
    /// The target cannot be written.
    #[error("cannot write {path}")]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The extraction was cancelled.
    #[error("stopped while extracting")]
    Stopped,
}

impl Failure for UnpackError {
    fn class(&self) -> Class {
        match self {
            // A later artifact may be valid, without a change of the reconciled object.
            Self::Name(_)
            | Self::Kind { .. }
            | Self::Entries(_)
            | Self::Bytes(_)
            | Self::Depth { .. }
            | Self::Damaged(_)
            | Self::Occupied(_)
            | Self::Write { .. }
            | Self::Stopped => Class::Transient,
        }
    }

    fn reason(&self) -> &'static str {
        "ArtifactFailed"
    }
}

/// Extracts a `tar.gz` into the directory `into`, which is created or must be empty: without links in it, plain paths are
/// safe. Files get the permission bits of their entry, directories at least `0700`, implicit parents `0750`. Blocking; checks
/// `stop` often.
///
/// # Errors
/// See [`UnpackError`]. The directory may contain a part of the archive: remove it.
pub fn unpack(
    archive: impl Read,
    into: &Path,
    limits: &Limits,
    stop: &Token,
) -> Result<UnpackSummary, UnpackError> {
    prepare(into)?;
    let allowance = Allowance::default();
    let mut tar = tar::Archive::new(Metered {
        inner: MultiGzDecoder::new(archive),
        allowance: allowance.clone(),
    });
    let mut target = Target {
        into,
        limits,
        stop,
        done: UnpackSummary::default(),
        now: SystemTime::now(),
    };
    allowance.set(METADATA);
    let mut seen: u64 = 0;
    let entries = tar.entries().map_err(|error| damaged(&error))?;
    for entry in entries {
        let mut entry = entry.map_err(|error| damaged(&error))?;
        seen += 1;
        if seen > limits.entries {
            return Err(UnpackError::Entries(limits.entries));
        }
        if stop.is_cancelled() {
            return Err(UnpackError::Stopped);
        }
        allowance.set(entry.size().saturating_add(METADATA));
        target.take(&mut entry)?;
        allowance.set(METADATA);
    }
    let done = target.done;
    // Read to the end of the compressed stream to verify its checksum.
    let mut rest = tar.into_inner();
    io::copy(&mut rest, &mut io::sink()).map_err(|error| damaged(&error))?;
    Ok(done)
}

/// Maximum size of headers, long names, extended headers and padding between two contents, so that a long name cannot exhaust
/// memory.
const METADATA: u64 = 1 << 20;

const MAX_NAME: usize = 4096;

fn prepare(into: &Path) -> Result<(), UnpackError> {
    let failed = |source| UnpackError::Write {
        path: into.to_owned(),
        source,
    };
    if fs::symlink_metadata(into).is_ok_and(|meta| meta.is_dir()) {
        let mut held = fs::read_dir(into).map_err(failed)?;
        return if held.next().is_some() {
            Err(UnpackError::Occupied(into.to_owned()))
        } else {
            Ok(())
        };
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o750)
        .create(into)
        .map_err(failed)?;
    if fs::symlink_metadata(into).is_ok_and(|meta| meta.is_dir()) {
        Ok(())
    } else {
        Err(failed(io::Error::from(io::ErrorKind::NotADirectory)))
    }
}

/// The target directory.
struct Target<'a> {
    into: &'a Path,
    limits: &'a Limits,
    stop: &'a Token,
    done: UnpackSummary,
    now: SystemTime,
}

impl Target<'_> {
    fn take<R: Read>(&mut self, entry: &mut tar::Entry<'_, R>) -> Result<(), UnpackError> {
        let kind = entry.header().entry_type();
        if kind == EntryType::XGlobalHeader {
            // `git archive` writes one with the commit; it is not a file.
            return Ok(());
        }
        let name = entry.path_bytes().into_owned();
        let shown = || String::from_utf8_lossy(&name[..name.len().min(256)]).into_owned();
        let path = inside(&name).ok_or_else(|| UnpackError::Name(shown()))?;
        if path.components().count() > self.limits.depth {
            return Err(UnpackError::Depth {
                name: shown(),
                limit: self.limits.depth,
            });
        }
        let path = self.into.join(path);
        match kind {
            EntryType::Directory => self.directory(entry, &path),
            EntryType::Regular | EntryType::Continuous if name.ends_with(b"/") => {
                self.directory(entry, &path)
            }
            EntryType::Regular | EntryType::Continuous => self.file(entry, &path),
            other => Err(UnpackError::Kind {
                name: shown(),
                kind: name_of(other),
            }),
        }
    }

    fn directory<R: Read>(&mut self, entry: &tar::Entry<'_, R>, path: &Path) -> Result<(), UnpackError> {
        let failed = |source| UnpackError::Write {
            path: path.to_owned(),
            source,
        };
        let mode = entry.header().mode().map_err(|error| damaged(&error))? & 0o777;
        DirBuilder::new()
            .recursive(true)
            .mode(0o750)
            .create(path)
            .map_err(failed)?;
        fs::set_permissions(path, Permissions::from_mode(mode | 0o700)).map_err(failed)?;
        self.done.directories += 1;
        Ok(())
    }

    fn file<R: Read>(&mut self, entry: &mut tar::Entry<'_, R>, path: &Path) -> Result<(), UnpackError> {
        let failed = |source| UnpackError::Write {
            path: path.to_owned(),
            source,
        };
        let size = entry.size();
        if self.done.bytes.saturating_add(size) > self.limits.bytes {
            return Err(UnpackError::Bytes(self.limits.bytes));
        }
        let mode = entry.header().mode().map_err(|error| damaged(&error))? & 0o777;
        let modified = entry.header().mtime().map_err(|error| damaged(&error))?;
        if let Some(parent) = path.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o750)
                .create(parent)
                .map_err(failed)?;
        }
        let mut file = File::create(path).map_err(failed)?;
        let mut buffer = vec![0; 1 << 16];
        let mut copied: u64 = 0;
        loop {
            if self.stop.is_cancelled() {
                return Err(UnpackError::Stopped);
            }
            let read = match entry.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(damaged(&error)),
            };
            file.write_all(&buffer[..read]).map_err(failed)?;
            copied += read as u64;
        }
        if copied != size {
            return Err(UnpackError::Damaged(format!(
                "an entry ends after {copied} of {size} bytes"
            )));
        }
        let modified = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(modified));
        if let Some(modified) = modified.filter(|time| *time <= self.now && *time > SystemTime::UNIX_EPOCH) {
            file.set_modified(modified).map_err(failed)?;
        }
        file.set_permissions(Permissions::from_mode(mode))
            .map_err(failed)?;
        self.done.files += 1;
        self.done.bytes += copied;
        Ok(())
    }
}

/// Returns the relative path of an entry without `.` components; `None` if the name is invalid.
fn inside(name: &[u8]) -> Option<PathBuf> {
    let refused = name.is_empty()
        || name.len() > MAX_NAME
        || name.starts_with(b"/")
        || name.iter().any(|byte| matches!(byte, b'\\' | 0))
        || name.windows(3).any(|part| part == b"../");
    if refused {
        return None;
    }
    let mut path = PathBuf::new();
    for part in name.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return None,
            part => path.push(OsStr::from_bytes(part)),
        }
    }
    Some(path)
}

fn name_of(kind: EntryType) -> &'static str {
    match kind {
        EntryType::Symlink => "symbolic link",
        EntryType::Link => "hard link",
        EntryType::Char => "character device",
        EntryType::Block => "block device",
        EntryType::Fifo => "pipe",
        EntryType::GNUSparse => "sparse file",
        _ => "entry of an unknown kind",
    }
}

fn damaged(error: &io::Error) -> UnpackError {
    UnpackError::Damaged(error.to_string())
}

/// Number of bytes that may be read until the next check.
#[derive(Clone, Debug, Default)]
struct Allowance(Rc<Cell<u64>>);

impl Allowance {
    fn set(&self, bytes: u64) {
        self.0.set(bytes);
    }
}

/// A reader that fails when the allowance is exhausted.
struct Metered<R> {
    inner: R,
    allowance: Allowance,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.allowance.0.get();
        if left == 0 && !buffer.is_empty() {
            return Err(io::Error::other("more than 1 MiB of headers between two entries"));
        }
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.inner.read(&mut buffer[..most])?;
        self.allowance.0.set(left - read as u64);
        Ok(read)
    }
}

#[cfg(test)]
mod tests;
