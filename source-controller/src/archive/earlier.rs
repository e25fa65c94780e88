//! The previous artifact as a build looks it up: segments by their content and by their position. Pure.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::digest::Checkpoint;
use super::index::{Index, Record};
use super::listing::Listing;
use super::member::HEADER;
use super::segment::Key;

/// The segments of an artifact by their keys, with the offset of each in its file.
pub(super) type Table = HashMap<Key, (u64, Record)>;

/// The content of the previous artifact, by keys and by positions.
#[derive(Default)]
pub(super) struct Earlier {
    pub(super) table: Table,
    pub(super) listing: Arc<Listing>,
    /// The checkpoints of its digest.
    pub(super) checkpoints: Vec<Checkpoint>,
    /// All records, with the offset of each.
    records: Vec<(u64, Record)>,
    /// First record and first entry of each segment, and at last the end of both; empty without a listing.
    starts: Vec<(usize, u32)>,
}

impl Earlier {
    pub(super) fn new(index: Index) -> Self {
        let checkpoints = index.checkpoints().to_vec();
        let (records, segments, listing) = index.into_parts();
        let mut offset = HEADER.len() as u64;
        let mut earlier = Self {
            table: Table::with_capacity(records.len()),
            listing,
            checkpoints,
            records: Vec::with_capacity(records.len()),
            starts: Vec::new(),
        };
        for record in records {
            earlier.table.insert(record.key, (offset, record));
            earlier.records.push((offset, record));
            offset += u64::from(record.length);
        }
        if !segments.is_empty() {
            let (mut record, mut entry) = (0, 0);
            earlier.starts.push((record, entry));
            for (records, entries) in segments {
                record += usize::try_from(records).unwrap_or_default();
                entry += entries;
                earlier.starts.push((record, entry));
            }
        }
        earlier
    }

    /// Returns the number of the segment that begins with the entry at this position.
    pub(super) fn segment_at(&self, position: u32) -> Option<usize> {
        let found = self.starts.binary_search_by_key(&position, |(_, entry)| *entry);
        found.ok().filter(|number| number + 1 < self.starts.len())
    }

    /// Returns the number of segments that begin before this position.
    pub(super) fn segments_before(&self, position: u32) -> usize {
        let segments = self.starts.len().saturating_sub(1);
        self.starts
            .partition_point(|(_, entry)| *entry < position)
            .min(segments)
    }

    /// Returns the position of the first entry of a segment.
    pub(super) fn first_entry(&self, segment: usize) -> Option<u32> {
        self.starts.get(segment).map(|(_, entry)| *entry)
    }

    /// Returns the positions of the entries of a segment.
    pub(super) fn entries(&self, segment: usize) -> Range<u32> {
        let start = self.first_entry(segment).unwrap_or_default();
        start..self.first_entry(segment + 1).unwrap_or(start)
    }

    /// Returns the pieces of a segment.
    pub(super) fn pieces(&self, segment: usize) -> &[(u64, Record)] {
        let record = |segment: usize| self.starts.get(segment).map(|(record, _): &(usize, u32)| *record);
        let range = record(segment).zip(record(segment + 1));
        range
            .and_then(|(start, end)| self.records.get(start..end))
            .unwrap_or_default()
    }
}
