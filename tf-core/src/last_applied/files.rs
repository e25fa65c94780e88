//! Selects the files of an artifact that a stack reads.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};

/// Limit of the entries that are read.
const ENTRY_LIMIT: usize = 200_000;

/// Selects the files of a `tar.gz` at or below the paths of a closure, or all if it is empty, into a `tar.gz`. Returns `None` if
/// that exceeds `limit` bytes. Equal files yield equal bytes.
///
/// # Errors
/// The archive cannot be read.
pub fn select(archive: impl Read, closure: &[String], limit: u64) -> io::Result<Option<Vec<u8>>> {
    let full = Rc::new(Cell::new(false));
    let bounded = Bounded {
        bytes: Vec::new(),
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
        full: Rc::clone(&full),
    };
    let mut out = Builder::new(GzEncoder::new(bounded, Compression::default()));
    match copy(archive, closure, &mut out).and_then(|()| out.into_inner()?.finish()) {
        Ok(bounded) => Ok(Some(bounded.bytes)),
        Err(_) if full.get() => Ok(None),
        Err(error) => Err(error),
    }
}

fn copy(archive: impl Read, closure: &[String], out: &mut Builder<impl Write>) -> io::Result<()> {
    let closure: Vec<PathBuf> = closure
        .iter()
        .map(|path| normal_components(Path::new(path)))
        .collect();
    let mut entries = tar::Archive::new(MultiGzDecoder::new(archive));
    for entry in entries.entries()?.take(ENTRY_LIMIT) {
        let mut entry = entry?;
        let path = normal_components(&entry.path()?);
        let is_selected = closure.is_empty() || closure.iter().any(|selected| path.starts_with(selected));
        if !is_selected || entry.header().entry_type() != EntryType::Regular || path.as_os_str().is_empty() {
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

/// Removes `.`, `..` and the root from a path. Unpacking rejects paths that leave the root.
fn normal_components(path: &Path) -> PathBuf {
    path.components()
        .filter(|part| matches!(part, Component::Normal(_)))
        .collect()
}

/// A buffer with a size limit.
struct Bounded {
    bytes: Vec<u8>,
    limit: usize,
    full: Rc<Cell<bool>>,
}

impl Write for Bounded {
    fn write(&mut self, some: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + some.len() > self.limit {
            self.full.set(true);
            return Err(io::Error::other("too large to be stored"));
        }
        self.bytes.extend_from_slice(some);
        Ok(some.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
