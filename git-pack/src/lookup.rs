//! Finds objects in the index of a pack on disk (`gitformat-pack`, version 2). Of an index only the counts are held in memory; a search
//! usually reads one range of names and one offset.
//!
//! Damage gives an error, no offset or a wrong one, never a panic.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use git2::Oid;

/// Signature and version of an index.
const MAGIC: [u8; 8] = *b"\xfftOc\0\0\0\x02";
/// Bytes of the signature and of 256 counts, which the names follow.
const HEADER: usize = 8 + 256 * 4;
/// Bytes of a name.
const NAME: usize = 20;
/// Bytes of names that are read at once. In an index of a million objects the first guess is usually less than 32 names off.
const NAMES_BYTES: usize = 64 * NAME;
/// Names that are read at once.
const NAMES: u64 = (NAMES_BYTES / NAME) as u64;

/// Lists the indexes in a directory of packs.
pub(crate) fn indexes(packs: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(packs)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "idx") {
            found.push(path);
        }
    }
    Ok(found)
}

/// An open index.
pub(crate) struct Index {
    file: File,
    /// For each first byte of a name, how many names begin with it or with a lower one.
    counts: Box<[u32; 256]>,
}

impl Index {
    /// Opens an index; `None` if it does not have version 2.
    pub(crate) fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = File::open(path)?;
        let header = read_at::<HEADER>(&file, 0)?;
        let (magic, numbers) = header.split_at(MAGIC.len());
        if magic != MAGIC {
            return Ok(None);
        }
        let mut counts = Box::new([0; 256]);
        let (numbers, _) = numbers.as_chunks::<4>();
        for (count, number) in counts.iter_mut().zip(numbers) {
            *count = u32::from_be_bytes(*number);
        }
        Ok(Some(Self { file, counts }))
    }

    /// Returns the offset of an object in the pack.
    pub(crate) fn find(&self, id: Oid) -> io::Result<Option<u64>> {
        let Ok(name) = <[u8; NAME]>::try_from(id.as_bytes()) else {
            return Ok(None);
        };
        let first = usize::from(name[0]);
        let mut low = match first {
            0 => 0,
            first => u64::from(self.counts[first - 1]),
        };
        let mut high = u64::from(self.counts[first]);
        // Names are evenly distributed, so the next bytes tell the position. If someone has chosen the names, the range is halved then.
        let next = u64::from(u32::from_be_bytes([name[1], name[2], name[3], name[4]]));
        let mut guess = low + ((high.saturating_sub(low) * next) >> 32);
        let mut buffer = [0; NAMES_BYTES];
        while low < high {
            let start = guess.saturating_sub(NAMES / 2).max(low);
            let end = (start + NAMES).min(high);
            let names = names_at(&self.file, start, end, &mut buffer)?;
            match names.binary_search(&name) {
                Ok(position) => return self.offset(start + position as u64).map(Some),
                Err(0) => high = start,
                Err(position) if position == names.len() => low = end,
                Err(_) => return Ok(None),
            }
            guess = low + (high - low) / 2;
        }
        Ok(None)
    }

    /// Returns the offset of the object at this position.
    fn offset(&self, position: u64) -> io::Result<u64> {
        // Names of 20 bytes and checksums of four bytes precede the offsets.
        let total = u64::from(self.counts[255]);
        let offsets = HEADER as u64 + 24 * total;
        let offset = u64::from(u32::from_be_bytes(read_at(&self.file, offsets + 4 * position)?));
        let is_large = offset >= 1 << 31;
        if !is_large {
            return Ok(offset);
        }
        let large = read_at(&self.file, offsets + 4 * total + 8 * (offset - (1 << 31)))?;
        Ok(u64::from_be_bytes(large))
    }
}

/// Reads the names from position `start` to before `end`.
fn names_at<'a>(
    index: &File,
    start: u64,
    end: u64,
    buffer: &'a mut [u8; NAMES_BYTES],
) -> io::Result<&'a [[u8; NAME]]> {
    let length = usize::try_from(end - start).map_or(NAMES_BYTES, |names| NAMES_BYTES.min(NAME * names));
    let names = &mut buffer[..length];
    index.read_exact_at(names, (HEADER as u64) + (NAME as u64) * start)?;
    Ok(names.as_chunks().0)
}

fn read_at<const N: usize>(file: &File, at: u64) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use tempfile::NamedTempFile;

    use super::*;

    /// Returns a name that begins with 7, as all others; no name with an odd number is in the index.
    fn name(number: u16) -> [u8; NAME] {
        let mut name = [0; NAME];
        name[0] = 7;
        name[NAME - 2..].copy_from_slice(&number.to_be_bytes());
        name
    }

    /// Writes an index without checksums.
    fn write_index(names: &[[u8; NAME]]) -> NamedTempFile {
        let total = u32::try_from(names.len()).unwrap();
        let mut bytes = MAGIC.to_vec();
        for first in 0..=u8::MAX {
            let count = if first < 7 { 0 } else { total };
            bytes.extend_from_slice(&count.to_be_bytes());
        }
        bytes.extend_from_slice(names.as_flattened());
        bytes.resize(bytes.len() + 4 * names.len(), 0);
        for position in 0..total {
            bytes.extend_from_slice(&(12 + 5 * position).to_be_bytes());
        }
        let file = NamedTempFile::new().unwrap();
        fs::write(file.path(), bytes).unwrap();
        file
    }

    /// All names are near the lower end of the range of their first byte, so that every first guess is wrong.
    #[test]
    fn unevenly_distributed_names_are_found() {
        for total in [0, 1, 63, 64, 65, 128, 1000_u16] {
            let names: Vec<_> = (0..total).map(|number| name(2 * number)).collect();
            let file = write_index(&names);
            let index = Index::open(file.path()).unwrap().unwrap();
            let find = |name: &[u8; NAME]| index.find(Oid::from_bytes(name).unwrap()).unwrap();
            for (offset, name) in (12..).step_by(5).zip(&names) {
                assert_eq!(find(name), Some(offset), "{total}");
            }
            for number in 0..total {
                assert_eq!(find(&name(2 * number + 1)), None, "{total}");
            }
            for other in [[0; NAME], [6; NAME], [7; NAME], [8; NAME], [0xff; NAME]] {
                assert_eq!(find(&other), None, "{total}");
            }
        }
    }
}
