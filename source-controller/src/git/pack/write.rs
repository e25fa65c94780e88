//! The index of a pack, version 2 (`gitformat-pack`, "Version 2 pack-*.idx files"), and the names under which both are
//! kept.

use std::fs::{self, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::error::{Flaw, PackError};
use super::hash::{FileHash, oid};
use super::scan::Scanned;
use super::table::Entry;

/// Mode of a finished file: nobody changes it.
const READ_ONLY: u32 = 0o444;
/// Offsets from here on stand in a table of their own.
const LARGE: u64 = 1 << 31;

/// Keeps the pack and its index, the index last: what has no index is not looked at. Gives their path
/// without an extension.
pub(super) fn keep(scanned: Scanned, packs: &Path) -> Result<PathBuf, PackError> {
    let Scanned {
        file, mut table, sum, ..
    } = scanned;
    table.entries.sort_unstable_by_key(|entry| entry.id);
    let twice = table.entries.windows(2).find_map(|pair| match pair {
        [one, other] if one.id == other.id => Some(one.id),
        _ => None,
    });
    if let Some(id) = twice {
        return Err(Flaw::Duplicate(oid(id)).into());
    }
    let index = tempfile::Builder::new().prefix("tmp_idx_").tempfile_in(packs)?;
    let mut out = Sum {
        out: BufWriter::with_capacity(64 << 10, index.as_file()),
        hash: FileHash::new(),
    };
    write(&mut out, &table.entries, sum)?;
    let own = std::mem::replace(&mut out.hash, FileHash::new()).finish();
    out.out.write_all(&own)?;
    out.out.flush()?;
    drop(out);
    let name = packs.join(format!("pack-{}", hex::encode(sum)));
    place(file, &name.with_extension("pack"))?;
    place(index, &name.with_extension("idx")).inspect_err(|_| {
        // Without its index the pack is of no use.
        let _ = fs::remove_file(name.with_extension("pack"));
    })?;
    Ok(name)
}

fn place(file: NamedTempFile, path: &Path) -> io::Result<()> {
    file.as_file()
        .set_permissions(Permissions::from_mode(READ_ONLY))?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

/// Everything but the index's own checksum. The entries are sorted by name.
fn write(out: &mut impl Write, entries: &[Entry], pack: [u8; 20]) -> io::Result<()> {
    out.write_all(b"\xfftOc\0\0\0\x02")?;
    let mut below = 0;
    for first in 0..=u8::MAX {
        below += entries
            .get(below..)
            .unwrap_or_default()
            .partition_point(|entry| entry.id[0] <= first);
        out.write_all(&short(below as u64).to_be_bytes())?;
    }
    for entry in entries {
        out.write_all(&entry.id)?;
    }
    for entry in entries {
        out.write_all(&entry.sum.to_be_bytes())?;
    }
    let mut large = Vec::new();
    for entry in entries {
        let offset = if entry.at < LARGE {
            short(entry.at)
        } else {
            large.push(entry.at);
            short(LARGE | (large.len() as u64 - 1))
        };
        out.write_all(&offset.to_be_bytes())?;
    }
    for offset in large {
        out.write_all(&offset.to_be_bytes())?;
    }
    out.write_all(&pack)
}

fn short(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Writes and sums up.
struct Sum<W> {
    out: W,
    hash: FileHash,
}

impl<W: Write> Write for Sum<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hash.update(bytes.get(..written).unwrap_or_default());
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
