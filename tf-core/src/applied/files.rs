//! The part of an artifact that a stack reads, as an archive of its own.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};

/// Most entries that are looked at.
const ENTRIES: usize = 200_000;

/// The files of the `tar.gz` that lie at or below one of `reads`, all where that is empty, as a `tar.gz`; `None` when it would
/// have more than `limit` bytes. The same files give the same bytes.
///
/// # Errors
/// When the archive cannot be read.
pub fn select(archive: impl Read, reads: &[String], limit: u64) -> io::Result<Option<Vec<u8>>> {
    let full = Rc::new(Cell::new(false));
    let bounded = Bounded {
        bytes: Vec::new(),
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
        full: Rc::clone(&full),
    };
    let mut out = Builder::new(GzEncoder::new(bounded, Compression::default()));
    match copy(archive, reads, &mut out).and_then(|()| out.into_inner()?.finish()) {
        Ok(bounded) => Ok(Some(bounded.bytes)),
        Err(_) if full.get() => Ok(None),
        Err(error) => Err(error),
    }
}

fn copy(archive: impl Read, reads: &[String], out: &mut Builder<impl Write>) -> io::Result<()> {
    let reads: Vec<PathBuf> = reads.iter().map(|path| plain(Path::new(path))).collect();
    let mut entries = tar::Archive::new(MultiGzDecoder::new(archive));
    for entry in entries.entries()?.take(ENTRIES) {
        let mut entry = entry?;
        let path = plain(&entry.path()?);
        let wanted = reads.is_empty() || reads.iter().any(|read| path.starts_with(read));
        if !wanted || entry.header().entry_type() != EntryType::Regular || path.as_os_str().is_empty() {
            continue;
        }
        let mut header = Header::new_gnu();
        header.set_size(entry.size());
        header.set_mode(entry.header().mode()? & 0o777);
        header.set_entry_type(EntryType::Regular);
        header.set_mtime(0);
        out.append_data(&mut header, &path, &mut entry)?;
    }
    Ok(())
}

/// A path without what does not name anything. Such as lead out are refused where the archive is unpacked.
fn plain(path: &Path) -> PathBuf {
    path.components()
        .filter(|part| matches!(part, Component::Normal(_)))
        .collect()
}

/// Memory that takes so many bytes and no more.
struct Bounded {
    bytes: Vec<u8>,
    limit: usize,
    full: Rc<Cell<bool>>,
}

impl Write for Bounded {
    fn write(&mut self, some: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + some.len() > self.limit {
            self.full.set(true);
            return Err(io::Error::other("too large to be kept"));
        }
        self.bytes.extend_from_slice(some);
        Ok(some.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
