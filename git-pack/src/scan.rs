//! The first phase while a pack arrives: undeltified objects are hashed and discarded, deltas are recorded.

use std::path::Path;

use git2::ObjectType;
use tempfile::NamedTempFile;

use crate::delta::DeltaSizes;
use crate::entry::{EntryType, Header};
use crate::error::{FormatError, Limit, PackError};
use crate::hash::ObjectHash;
use crate::inflate::Inflater;
use crate::object_names::ObjectNames;
use crate::stream::{Chunks, PackStream};
use crate::table::{Entry, State, Table};
use crate::{Limits, check_cancelled};

/// Maximum encoded length of the two sizes at the start of a delta.
const MAX_SIZES_BYTES: usize = 18;

/// Length of the header of a pack in bytes.
const HEADER_BYTES: usize = 12;

/// A complete pack with its entries.
pub(crate) struct Scanned {
    pub(crate) file: NamedTempFile,
    pub(crate) table: Table,
    /// The checksum at its end.
    pub(crate) checksum: [u8; 20],
    /// Remaining bytes that may be unpacked.
    pub(crate) budget: u64,
    /// Computes the names of further objects.
    pub(crate) names: ObjectNames,
}

/// Reads a pack to its end.
pub(crate) fn scan(
    chunks: &mut Chunks<'_>,
    packs: &Path,
    limits: &Limits,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Scanned, PackError> {
    let file = tempfile::Builder::new().prefix("tmp_pack_").tempfile_in(packs)?;
    let mut stream = PackStream::new(chunks, file.as_file(), is_cancelled);
    let mut start = [0; HEADER_BYTES];
    for byte_slot in &mut start {
        *byte_slot = stream.byte()?;
    }
    let objects = object_count(&start)?;
    if objects > limits.objects {
        return Err(Limit::Objects.exceeded(limits.objects.into()));
    }
    let mut scanner = Scanner {
        inflater: Inflater::new(limits.unpacked_bytes, limits.unpacked_bytes, is_cancelled),
        table: Table::for_entries(objects as usize),
        names: ObjectNames::default(),
        delta_bytes: limits.delta_bytes,
    };
    for _ in 0..objects {
        check_cancelled(is_cancelled)?;
        scanner.scan_entry(&mut stream)?;
    }
    let budget = scanner.inflater.budget();
    let (mut table, mut names) = (scanner.table, scanner.names);
    table.end = stream.position();
    let checksum = stream.finish(objects)?;
    names.complete(&mut table)?;
    table.sort();
    Ok(Scanned {
        file,
        table,
        checksum,
        budget,
        names,
    })
}

/// Parses the header of a pack, which contains the number of objects (`gitformat-pack`).
fn object_count(header: &[u8; HEADER_BYTES]) -> Result<u32, FormatError> {
    let [b'P', b'A', b'C', b'K', 0, 0, 0, 2 | 3, a, b, c, d] = *header else {
        return Err(FormatError::Header);
    };
    Ok(u32::from_be_bytes([a, b, c, d]))
}

struct Scanner<'a> {
    inflater: Inflater<'a>,
    table: Table,
    names: ObjectNames,
    delta_bytes: u64,
}

impl Scanner<'_> {
    fn scan_entry(&mut self, stream: &mut PackStream<'_>) -> Result<(), PackError> {
        let at = stream.position();
        stream.begin_entry();
        let Header { entry_type, size } = Header::read(at, || stream.byte())?;
        let (id, state) = match entry_type {
            EntryType::Whole(kind) => (self.read_whole(stream, at, kind, size)?, State::Whole(kind)),
            EntryType::OfsDelta(distance) => {
                let base = at
                    .checked_sub(distance)
                    .and_then(|base| self.table.entry_at(base))
                    .ok_or(FormatError::BaseOffset(at))?;
                self.table.add_offset_delta(base);
                self.skip_delta(stream, at, size)?;
                ([0; 20], State::Pending)
            }
            EntryType::RefDelta(base) => {
                self.table.add_ref_delta(base);
                self.skip_delta(stream, at, size)?;
                ([0; 20], State::Pending)
            }
        };
        let crc32 = stream.entry_crc();
        self.table.push(Entry { id, crc32, at }, state);
        self.names.advance(&mut self.table)
    }

    /// Reads an undeltified object. Returns its name, or zeros if it is computed later.
    fn read_whole(
        &mut self,
        stream: &mut PackStream<'_>,
        at: u64,
        kind: ObjectType,
        size: u64,
    ) -> Result<[u8; 20], PackError> {
        if self.names.takes(size) {
            let content = self.names.content();
            self.inflater.inflate(stream, at, size, |bytes| {
                content.extend_from_slice(bytes);
                Ok(())
            })?;
            self.names.add(self.table.next(), at, kind, size);
            return Ok([0; 20]);
        }
        let mut hash = ObjectHash::new(kind, size);
        self.inflater.inflate(stream, at, size, |bytes| {
            hash.update(bytes);
            Ok(())
        })?;
        Ok(hash.finish(at)?)
    }

    /// Skips a delta, except for the sizes at its start.
    fn skip_delta(&mut self, stream: &mut PackStream<'_>, at: u64, size: u64) -> Result<(), PackError> {
        let (mut start, limit) = (Vec::with_capacity(MAX_SIZES_BYTES), self.delta_bytes);
        self.inflater.inflate(stream, at, size, |bytes| {
            let missing = MAX_SIZES_BYTES.saturating_sub(start.len());
            start.extend_from_slice(bytes.get(..missing.min(bytes.len())).unwrap_or_default());
            Ok(())
        })?;
        match DeltaSizes::read(&start) {
            Ok(Some((sizes, _))) if sizes.base.max(sizes.result) > limit => {
                Err(Limit::DeltaBytes.exceeded(limit))
            }
            Ok(Some(_)) => Ok(()),
            Ok(None) | Err(_) => Err(FormatError::Delta(at).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_number_of_objects_is_read() {
        assert_eq!(object_count(b"PACK\0\0\0\x02\0\0\x01\x02"), Ok(258));
        for bad in [
            b"PACK\0\0\0\x04\0\0\0\0",
            b"PARK\0\0\0\x02\0\0\0\0",
            b"\0\0\0\0\0\0\0\0\0\0\0\0",
        ] {
            assert_eq!(object_count(bad), Err(FormatError::Header));
        }
    }

    proptest! {
        #[test]
        fn any_header_is_parsed_or_refused(bytes in any::<[u8; 12]>()) {
            let _ = object_count(&bytes);
        }
    }
}
