//! What lies in the directory of all mirrors. Blocks.

use std::fs;
use std::io;
use std::path::Path;

use super::DELETED;

/// The mirrors on disk with their bytes, the least recently written first. What a crash left half deleted goes.
pub(super) fn found(root: &Path) -> io::Result<Vec<(String, u64)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(DELETED) {
            fs::remove_dir_all(entry.path())?;
            continue;
        }
        found.push((entry.metadata()?.modified()?, name, bytes_below(&entry.path())?));
    }
    found.sort();
    Ok(found.into_iter().map(|(_, name, bytes)| (name, bytes)).collect())
}

/// Bytes of all files below a directory.
pub(super) fn bytes_below(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() {
            bytes_below(&entry.path())?
        } else {
            entry.metadata()?.len()
        };
    }
    Ok(bytes)
}
