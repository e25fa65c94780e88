//! The first look at a pack, while it comes: whole objects are hashed and forgotten, differences are noted.

use std::path::Path;

use tempfile::NamedTempFile;
use tokio_util::sync::CancellationToken;

use super::super::protocol::pack::{self, HEADER};
use super::super::remote::{Limits, PACK_OBJECTS_FLAG};
use super::delta::Sizes;
use super::entry::{Form, Header};
use super::error::{Flaw, PackError, delta_too_large};
use super::hash::ObjectHash;
use super::inflate::Inflater;
use super::stream::Stream;
use super::table::{Entry, State, Table};
use super::{Pieces, check};

/// Most bytes of the two sizes that a difference begins with.
const SIZES: usize = 18;

/// A pack that came whole, and what is known about it.
pub(super) struct Scanned {
    pub(super) file: NamedTempFile,
    pub(super) table: Table,
    /// The checksum at its end.
    pub(super) sum: [u8; 20],
    /// Bytes that may still be unpacked.
    pub(super) budget: u64,
}

/// Reads a pack to its end.
pub(super) fn scan(
    pieces: &mut dyn Pieces,
    packs: &Path,
    limits: &Limits,
    stop: &CancellationToken,
) -> Result<Scanned, PackError> {
    let file = tempfile::Builder::new().prefix("tmp_pack_").tempfile_in(packs)?;
    let mut stream = Stream::new(pieces, file.as_file(), stop);
    let mut start = [0; HEADER];
    for place in &mut start {
        *place = stream.byte()?;
    }
    let objects = pack::parse(&start).map_err(|_| Flaw::Header)?.objects;
    if objects > limits.pack_objects {
        return Err(PackError::TooLarge {
            limit: limits.pack_objects.into(),
            unit: "objects",
            flag: PACK_OBJECTS_FLAG,
        });
    }
    let mut scan = Scan {
        inflater: Inflater::new(limits.unpacked_bytes, limits.unpacked_bytes, stop),
        table: Table::for_entries(objects as usize),
        delta_bytes: limits.delta_bytes,
    };
    for _ in 0..objects {
        check(stop)?;
        scan.entry(&mut stream)?;
    }
    let budget = scan.inflater.budget();
    let mut table = scan.table;
    table.end = stream.position();
    let sum = stream.finish(objects)?;
    table.sort();
    Ok(Scanned {
        file,
        table,
        sum,
        budget,
    })
}

struct Scan<'a> {
    inflater: Inflater<'a>,
    table: Table,
    delta_bytes: u64,
}

impl Scan<'_> {
    fn entry(&mut self, stream: &mut Stream<'_>) -> Result<(), PackError> {
        let at = stream.position();
        stream.begin_entry();
        let Header { form, size } = Header::read(at, || stream.byte())?;
        let (id, state) = match form {
            Form::Whole(kind) => {
                let mut hash = ObjectHash::new(kind, size);
                self.inflater.inflate(stream, at, size, |bytes| {
                    hash.update(bytes);
                    Ok(())
                })?;
                (hash.finish(at)?, State::Whole(kind))
            }
            Form::Offset(distance) => {
                let base = at
                    .checked_sub(distance)
                    .and_then(|base| self.table.starting_at(base))
                    .ok_or(Flaw::Offset(at))?;
                self.table.note_offset(base);
                self.delta(stream, at, size)?;
                ([0; 20], State::Pending)
            }
            Form::Reference(base) => {
                self.table.note_reference(base);
                self.delta(stream, at, size)?;
                ([0; 20], State::Pending)
            }
        };
        let sum = stream.entry_sum();
        self.table.push(Entry { id, sum, at }, state);
        Ok(())
    }

    /// Passes over a difference; of what is in it, the sizes are looked at.
    fn delta(&mut self, stream: &mut Stream<'_>, at: u64, size: u64) -> Result<(), PackError> {
        let (mut start, limit) = (Vec::with_capacity(SIZES), self.delta_bytes);
        self.inflater.inflate(stream, at, size, |bytes| {
            let missing = SIZES.saturating_sub(start.len());
            start.extend_from_slice(bytes.get(..missing.min(bytes.len())).unwrap_or_default());
            Ok(())
        })?;
        match Sizes::read(&start) {
            Ok(Some((sizes, _))) if sizes.base.max(sizes.result) > limit => Err(delta_too_large(limit)),
            Ok(Some(_)) => Ok(()),
            Ok(None) | Err(_) => Err(Flaw::Delta(at).into()),
        }
    }
}
