//! Writes the index of a pack, version 2 (`gitformat-pack`, "Version 2 pack-*.idx files"), and gives both files their
//! final names.

use std::fs::{self, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::error::{FormatError, PackError};
use crate::hash::{FileHash, oid};
use crate::scan::Scanned;
use crate::table::Entry;

/// Mode of a finished file.
const PACK_FILE_MODE: u32 = 0o444;
/// Offsets from this value on are stored in a separate table.
const LARGE_OFFSET: u64 = 1 << 31;

/// Installs the pack and then its index: a pack without an index is ignored. Returns their path without an extension.
pub(crate) fn persist(scanned: Scanned, packs: &Path) -> Result<PathBuf, PackError> {
    let (file, mut table, checksum) = (scanned.file, scanned.table, scanned.checksum);
    table.entries.sort_unstable_by_key(|entry| entry.id);
    let duplicate = table.entries.windows(2).find_map(|pair| match pair {
        [one, other] if one.id == other.id => Some(one.id),
        _ => None,
    });
    if let Some(id) = duplicate {
        return Err(FormatError::Duplicate(oid(id)).into());
    }
    let index = tempfile::Builder::new().prefix("tmp_idx_").tempfile_in(packs)?;
    let mut out = HashingWriter {
        out: BufWriter::with_capacity(64 << 10, index.as_file()),
        hash: FileHash::new(),
    };
    write(&mut out, &table.entries, checksum)?;
    let index_checksum = std::mem::replace(&mut out.hash, FileHash::new()).finish();
    out.out.write_all(&index_checksum)?;
    out.out.flush()?;
    drop(out);
    let name = packs.join(format!("pack-{}", hex::encode(checksum)));
    persist_as(file, &name.with_extension("pack"))?;
    persist_as(index, &name.with_extension("idx")).inspect_err(|_| {
        // The pack is useless without its index.
        let _ = fs::remove_file(name.with_extension("pack"));
    })?;
    Ok(name)
}

fn persist_as(file: NamedTempFile, path: &Path) -> io::Result<()> {
    file.as_file()
        .set_permissions(Permissions::from_mode(PACK_FILE_MODE))?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

/// Writes everything except the index's own checksum. The entries are sorted by name.
fn write(out: &mut impl Write, entries: &[Entry], pack: [u8; 20]) -> io::Result<()> {
    out.write_all(b"\xfftOc\0\0\0\x02")?;
    let mut count = 0;
    for first in 0..=u8::MAX {
        count += entries
            .get(count..)
            .unwrap_or_default()
            .partition_point(|entry| entry.id[0] <= first);
        out.write_all(&to_u32(count as u64).to_be_bytes())?;
    }
    for entry in entries {
        out.write_all(&entry.id)?;
    }
    for entry in entries {
        out.write_all(&entry.crc32.to_be_bytes())?;
    }
    let mut large = Vec::new();
    for entry in entries {
        let offset = if entry.at < LARGE_OFFSET {
            to_u32(entry.at)
        } else {
            large.push(entry.at);
            to_u32(LARGE_OFFSET | (large.len() as u64 - 1))
        };
        out.write_all(&offset.to_be_bytes())?;
    }
    for offset in large {
        out.write_all(&offset.to_be_bytes())?;
    }
    out.write_all(&pack)
}

fn to_u32(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Writer that also hashes.
struct HashingWriter<W> {
    out: W,
    hash: FileHash,
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hash.update(bytes.get(..written).unwrap_or_default());
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
