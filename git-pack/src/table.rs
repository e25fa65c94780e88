//! The entries of a pack: 33 bytes for each, and additional ones for deltas.

use std::ops::Range;

use git2::ObjectType;

/// Resolution state of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// An undeltified object; its name is known.
    Whole(ObjectType),
    /// An unresolved delta.
    Pending,
    /// A resolved delta; its name is known.
    Resolved,
}

/// One entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Object name, once it is known.
    pub(crate) id: [u8; 20],
    /// CRC-32 of the packed bytes.
    pub(crate) crc32: u32,
    /// Offset in the pack.
    pub(crate) at: u64,
}

/// All entries in pack order.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) entries: Vec<Entry>,
    pub(crate) states: Vec<State>,
    /// Bases and their deltas, both by entry number.
    offset_deltas: Vec<(u32, u32)>,
    /// Object names of bases, and the entry numbers of their deltas.
    pub(crate) ref_deltas: Vec<([u8; 20], u32)>,
    /// Offset of the pack's checksum.
    pub(crate) end: u64,
}

impl Table {
    /// Creates a table with capacity; the operating system allocates memory only as entries are added.
    pub(crate) fn for_entries(entries: usize) -> Self {
        Self {
            entries: Vec::with_capacity(entries),
            states: Vec::with_capacity(entries),
            ..Self::default()
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn push(&mut self, entry: Entry, state: State) {
        self.entries.push(entry);
        self.states.push(state);
    }

    /// Returns the entry at this offset.
    pub(crate) fn entry_at(&self, at: u64) -> Option<u32> {
        let found = self.entries.binary_search_by_key(&at, |entry| entry.at).ok()?;
        u32::try_from(found).ok()
    }

    /// Records that the next entry is a delta based on the entry `base`.
    pub(crate) fn add_offset_delta(&mut self, base: u32) {
        self.offset_deltas.push((base, self.next()));
    }

    /// Records that the next entry is a delta based on the object `base`.
    pub(crate) fn add_ref_delta(&mut self, base: [u8; 20]) {
        self.ref_deltas.push((base, self.next()));
    }

    /// Returns the number of the next entry.
    pub(crate) fn next(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    /// Sorts the deltas by their bases.
    pub(crate) fn sort(&mut self) {
        self.offset_deltas.sort_unstable();
        self.ref_deltas.sort_unstable();
    }

    /// Returns the deltas that are based on an entry.
    pub(crate) fn children(&self, entry: u32) -> Children {
        let name = self.entries.get(entry as usize).map(|entry| entry.id);
        Children {
            offset_deltas: range(&self.offset_deltas, &entry),
            ref_deltas: name.map_or(0..0, |name| range(&self.ref_deltas, &name)),
        }
    }

    /// Whether there are deltas that refer to this entry by offset, which is known before its name.
    pub(crate) fn has_offset_deltas(&self, entry: u32) -> bool {
        !range(&self.offset_deltas, &entry).is_empty()
    }

    /// Removes the next entry from `children`.
    pub(crate) fn next_child(&self, children: &mut Children) -> Option<u32> {
        if let Some(at) = children.offset_deltas.next() {
            return self.offset_deltas.get(at).map(|(_, child)| *child);
        }
        let at = children.ref_deltas.next()?;
        self.ref_deltas.get(at).map(|(_, child)| *child)
    }

    /// Returns the number of unresolved deltas.
    pub(crate) fn pending(&self) -> usize {
        self.states
            .iter()
            .filter(|state| **state == State::Pending)
            .count()
    }

    /// Returns the offset of the end of an entry.
    pub(crate) fn end_of(&self, entry: u32) -> u64 {
        self.entries
            .get(entry as usize + 1)
            .map_or(self.end, |next| next.at)
    }
}

/// Unprocessed deltas of one entry.
#[derive(Clone, Debug)]
pub(crate) struct Children {
    offset_deltas: Range<usize>,
    ref_deltas: Range<usize>,
}

impl Children {
    pub(crate) fn is_empty(&self) -> bool {
        self.offset_deltas.is_empty() && self.ref_deltas.is_empty()
    }
}

fn range<K: Ord>(sorted: &[(K, u32)], key: &K) -> Range<usize> {
    let start = sorted.partition_point(|(base, _)| base < key);
    let length = sorted
        .get(start..)
        .unwrap_or_default()
        .partition_point(|(base, _)| base == key);
    start..start + length
}
