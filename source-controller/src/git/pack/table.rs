//! What is known about the entries of a pack: 33 bytes of each, and some more of differences.

use std::ops::Range;

use git2::ObjectType;

/// What is known of the object behind an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Its name; the entry holds it as a whole.
    Whole(ObjectType),
    /// Nothing yet: it is a difference.
    Pending,
    /// Its name; the entry holds a difference.
    Resolved,
}

/// One entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Name of the object, once it is known.
    pub(super) id: [u8; 20],
    /// Checksum of the packed bytes.
    pub(super) sum: u32,
    /// Where it begins.
    pub(super) at: u64,
}

/// All entries, in the order of the pack.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) entries: Vec<Entry>,
    pub(super) states: Vec<State>,
    /// Bases and their differences, both by their numbers.
    offsets: Vec<(u32, u32)>,
    /// Names of bases and their differences by their numbers.
    pub(super) references: Vec<([u8; 20], u32)>,
    /// Where the checksum of the pack begins.
    pub(super) end: u64,
}

impl Table {
    /// A table with room; memory is used only as entries come.
    pub(super) fn for_entries(entries: usize) -> Self {
        Self {
            entries: Vec::with_capacity(entries),
            states: Vec::with_capacity(entries),
            ..Self::default()
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn push(&mut self, entry: Entry, state: State) {
        self.entries.push(entry);
        self.states.push(state);
    }

    /// The entry that begins at this byte.
    pub(super) fn starting_at(&self, at: u64) -> Option<u32> {
        let found = self.entries.binary_search_by_key(&at, |entry| entry.at).ok()?;
        u32::try_from(found).ok()
    }

    /// Notes that the next entry is a difference to the entry `base`.
    pub(super) fn note_offset(&mut self, base: u32) {
        self.offsets.push((base, self.next()));
    }

    /// Notes that the next entry is a difference to the object `base`.
    pub(super) fn note_reference(&mut self, base: [u8; 20]) {
        self.references.push((base, self.next()));
    }

    fn next(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    /// Sorts the differences by their bases.
    pub(super) fn sort(&mut self) {
        self.offsets.sort_unstable();
        self.references.sort_unstable();
    }

    /// The differences to an entry.
    pub(super) fn children(&self, entry: u32) -> Children {
        let name = self.entries.get(entry as usize).map(|entry| entry.id);
        Children {
            offsets: range(&self.offsets, &entry),
            references: name.map_or(0..0, |name| range(&self.references, &name)),
        }
    }

    /// Whether there may be differences to this entry even before its name is known.
    pub(super) fn has_offsets(&self, entry: u32) -> bool {
        !range(&self.offsets, &entry).is_empty()
    }

    /// Takes the first of some differences.
    pub(super) fn take(&self, children: &mut Children) -> Option<u32> {
        if let Some(at) = children.offsets.next() {
            return self.offsets.get(at).map(|(_, child)| *child);
        }
        let at = children.references.next()?;
        self.references.get(at).map(|(_, child)| *child)
    }

    /// How many differences have no base.
    pub(super) fn pending(&self) -> usize {
        self.states
            .iter()
            .filter(|state| **state == State::Pending)
            .count()
    }

    /// Where an entry ends.
    pub(super) fn end_of(&self, entry: u32) -> u64 {
        self.entries
            .get(entry as usize + 1)
            .map_or(self.end, |next| next.at)
    }
}

/// Differences to one entry that are still to be looked at.
#[derive(Clone, Debug)]
pub(super) struct Children {
    offsets: Range<usize>,
    references: Range<usize>,
}

impl Children {
    pub(super) fn is_empty(&self) -> bool {
        self.offsets.is_empty() && self.references.is_empty()
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
