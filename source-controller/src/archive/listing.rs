//! The entries of an artifact in their order. Pure. The index of the artifact stores the listing; [`Listing::push`] keeps it bounded.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use super::directory::{put_number, take, take_number};
use super::{Body, Entry};

/// Maximum bytes of paths and names of content, about 150,000 files. A larger artifact has no listing, and each build lists its tree.
const MAX_BYTES: usize = 10 << 20;
/// Maximum number of entries of a listing.
const MAX_ENTRIES: usize = 200_000;

/// Opens the content of a file: its path, the name of its content, and whether it is executable.
pub type Open<C> = Arc<dyn Fn(&[u8], &[u8], bool) -> C + Send + Sync>;

/// What a build gets: an entry, or entries that the previous artifact has.
pub enum Listed<C> {
    /// An entry.
    Entry(Entry<C>),
    /// Consecutive entries of the previous artifact, as they are there.
    Run(Run<C>),
}

/// Consecutive entries of the previous artifact.
pub struct Run<C> {
    /// Their positions in its [`Listing`].
    pub range: Range<u32>,
    /// Opens their content, if it must be read.
    pub open: Open<C>,
}

/// The entries of an artifact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Path and name of the content of each entry, one after the other.
    bytes: Vec<u8>,
    entries: Vec<Stored>,
    /// An entry did not fit.
    overflowed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoredKind {
    Directory,
    File,
    Executable,
}

impl StoredKind {
    const fn of_file(executable: bool) -> Self {
        if executable { Self::Executable } else { Self::File }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Stored {
    /// Where its bytes begin.
    start: usize,
    path: u16,
    id: u8,
    kind: StoredKind,
    size: u64,
}

impl Listing {
    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether entries are missing.
    pub(super) const fn is_partial(&self) -> bool {
        self.overflowed
    }

    /// Appends an entry. At a limit the listing becomes partial and empty.
    pub(super) fn push<C>(&mut self, entry: &Entry<C>) {
        let (kind, size, id) = match &entry.body {
            Body::Directory => (StoredKind::Directory, 0, &b""[..]),
            Body::File {
                executable, size, id, ..
            } => (StoredKind::of_file(*executable), *size, &id[..]),
        };
        self.append(&entry.path, kind, size, id);
    }

    fn append(&mut self, path: &[u8], kind: StoredKind, size: u64, id: &[u8]) {
        let start = self.bytes.len();
        let lengths = (u16::try_from(path.len()), u8::try_from(id.len()));
        let (Ok(path_length), Ok(id_length)) = lengths else {
            return self.overflow();
        };
        let fits = start + path.len() + id.len() <= MAX_BYTES && self.entries.len() < MAX_ENTRIES;
        if !fits || self.overflowed {
            return self.overflow();
        }
        self.bytes.extend_from_slice(path);
        self.bytes.extend_from_slice(id);
        self.entries.push(Stored {
            start,
            path: path_length,
            id: id_length,
            kind,
            size,
        });
    }

    fn overflow(&mut self) {
        *self = Self {
            overflowed: true,
            ..Self::default()
        };
    }

    /// Appends entries of another listing. Returns how many of them are files.
    pub(super) fn extend(&mut self, other: &Self, range: Range<u32>) -> u64 {
        let index = |position: u32| usize::try_from(position).unwrap_or(usize::MAX);
        let (start, end) = (index(range.start), index(range.end).min(other.entries.len()));
        let entries = other.entries.get(start..end).unwrap_or_default();
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
            return 0;
        };
        let files = entries
            .iter()
            .filter(|stored| stored.kind != StoredKind::Directory);
        let files = files.count() as u64;
        // The bytes of consecutive entries are consecutive.
        let end = last.start + usize::from(last.path) + usize::from(last.id);
        let bytes = other.bytes.get(first.start..end).unwrap_or_default();
        let moved_to = self.bytes.len();
        let fits = moved_to + bytes.len() <= MAX_BYTES && self.entries.len() + entries.len() <= MAX_ENTRIES;
        if !fits || self.overflowed {
            self.overflow();
            return files;
        }
        self.bytes.extend_from_slice(bytes);
        self.entries.extend(entries.iter().map(|stored| Stored {
            start: stored.start - first.start + moved_to,
            ..*stored
        }));
        files
    }

    fn stored(&self, position: u32) -> Option<&Stored> {
        self.entries.get(usize::try_from(position).ok()?)
    }

    fn path_of(&self, stored: &Stored) -> &[u8] {
        let end = stored.start + usize::from(stored.path);
        self.bytes.get(stored.start..end).unwrap_or_default()
    }

    fn id_of(&self, stored: &Stored) -> &[u8] {
        let start = stored.start + usize::from(stored.path);
        self.bytes
            .get(start..start + usize::from(stored.id))
            .unwrap_or_default()
    }

    /// Returns the path of an entry.
    pub(super) fn path(&self, position: u32) -> Option<&[u8]> {
        self.stored(position).map(|stored| self.path_of(stored))
    }

    /// Returns an entry with its content.
    pub(super) fn entry<C>(&self, position: u32, open: &Open<C>) -> Option<Entry<C>> {
        let stored = self.stored(position)?;
        let (path, id) = (self.path_of(stored), self.id_of(stored));
        let executable = stored.kind == StoredKind::Executable;
        let body = match stored.kind {
            StoredKind::Directory => Body::Directory,
            StoredKind::File | StoredKind::Executable => Body::File {
                executable,
                size: stored.size,
                id: id.into(),
                content: open(path, id, executable),
            },
        };
        Some(Entry {
            path: path.to_vec(),
            body,
        })
    }

    /// Returns the position of the entry with this path.
    #[must_use]
    pub fn find(&self, path: &[u8]) -> Option<u32> {
        // The root is the first entry, and its name is not part of the order.
        let first = usize::from(self.path(0) == Some(&b"."[..]));
        if first == 1 && path == b"." {
            return Some(0);
        }
        let entries = self.entries.get(first..)?;
        let found = entries.binary_search_by(|stored| archive_order(self.path_of(stored), path));
        u32::try_from(found.ok()? + first).ok()
    }

    /// Returns the size in bytes of a file with this content at a position.
    #[must_use]
    pub fn size(&self, position: u32, id: &[u8]) -> Option<u64> {
        let stored = self.stored(position)?;
        let is_same = stored.kind != StoredKind::Directory && self.id_of(stored) == id;
        is_same.then_some(stored.size)
    }

    /// Whether the entry at a position equals this one.
    #[must_use]
    pub fn has<C>(&self, position: u32, entry: &Entry<C>) -> bool {
        let Some(stored) = self.stored(position) else {
            return false;
        };
        let is_body_equal = match &entry.body {
            Body::Directory => stored.kind == StoredKind::Directory,
            Body::File {
                executable, size, id, ..
            } => {
                let kind = StoredKind::of_file(*executable);
                stored.kind == kind && stored.size == *size && *self.id_of(stored) == **id
            }
        };
        is_body_equal && self.path_of(stored) == entry.path
    }

    /// Appends the bytes that [`Listing::read`] reads.
    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        put_number(bytes, self.entries.len());
        let mut before: &[u8] = &[];
        for stored in &self.entries {
            let path = self.path_of(stored);
            let shared = shared_prefix(before, path);
            bytes.push(match stored.kind {
                StoredKind::Directory => 0,
                StoredKind::File => 1,
                StoredKind::Executable => 2,
            });
            let rest = &path[shared..];
            for length in [shared, rest.len()] {
                bytes.extend_from_slice(&u16::try_from(length).unwrap_or_default().to_be_bytes());
            }
            bytes.extend_from_slice(rest);
            if stored.kind != StoredKind::Directory {
                bytes.extend_from_slice(&stored.size.to_be_bytes());
                bytes.push(stored.id);
                bytes.extend_from_slice(self.id_of(stored));
            }
            before = path;
        }
    }

    /// Reads a listing from the start of `bytes`; `None` if there is none, or it exceeds a limit.
    pub(super) fn read(bytes: &mut &[u8]) -> Option<Self> {
        let count = take_number(bytes)?;
        let mut listing = Self::default();
        let mut path: Vec<u8> = Vec::new();
        for _ in 0..count {
            let kind = match take::<1>(bytes)? {
                [0] => StoredKind::Directory,
                [1] => StoredKind::File,
                [2] => StoredKind::Executable,
                _ => return None,
            };
            let shared = usize::from(u16::from_be_bytes(take(bytes)?));
            let length = usize::from(u16::from_be_bytes(take(bytes)?));
            let (rest, later) = bytes.split_at_checked(length)?;
            *bytes = later;
            // One encoding of each listing: as much as possible is shared.
            let next = path.get(shared);
            if shared > path.len() || (next.is_some() && next == rest.first()) {
                return None;
            }
            path.truncate(shared);
            path.extend_from_slice(rest);
            if kind == StoredKind::Directory {
                listing.append(&path, kind, 0, &[]);
            } else {
                let size = u64::from_be_bytes(take(bytes)?);
                let [id_length] = take::<1>(bytes)?;
                let (id, later) = bytes.split_at_checked(usize::from(id_length))?;
                *bytes = later;
                listing.append(&path, kind, size, id);
            }
            if listing.overflowed {
                return None;
            }
        }
        Some(listing)
    }
}

/// Compares paths as a walk visits them: a directory before its entries, names ordered by bytes.
fn archive_order(one: &[u8], other: &[u8]) -> Ordering {
    names(one).cmp(names(other))
}

fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
}

fn shared_prefix(one: &[u8], other: &[u8]) -> usize {
    one.iter()
        .zip(other)
        .take_while(|(one, other)| one == other)
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a listing of directories and files with names of several lengths.
    fn listing() -> Listing {
        let mut listing = Listing::default();
        for number in 0..20_u8 {
            let path = format!("d{}/{}", number / 5, "x".repeat(number.into()));
            match number % 5 {
                0 => listing.append(path.as_bytes(), StoredKind::Directory, 0, &[]),
                1 => listing.append(path.as_bytes(), StoredKind::Executable, 7, &[number; 32]),
                _ => listing.append(path.as_bytes(), StoredKind::File, 9, &[number; 20]),
            }
        }
        listing
    }

    /// Appends entries of another listing one by one.
    fn extend_slowly(target: &mut Listing, other: &Listing, range: Range<u32>) -> u64 {
        let mut files = 0;
        for stored in range.filter_map(|position| other.stored(position)) {
            let (path, id) = (other.path_of(stored), other.id_of(stored));
            target.append(path, stored.kind, stored.size, id);
            files += u64::from(stored.kind != StoredKind::Directory);
        }
        files
    }

    #[test]
    fn entries_of_another_listing_are_appended_as_if_one_by_one() {
        let other = listing();
        let mut partial = listing();
        partial.overflow();
        for target in [Listing::default(), listing(), partial] {
            for (start, end) in [
                (0, 20),
                (0, 1),
                (3, 17),
                (19, 20),
                (15, 40),
                (20, 21),
                (30, 40),
                (4, 4),
            ] {
                let (mut found, mut expected) = (target.clone(), target.clone());
                let files = extend_slowly(&mut expected, &other, start..end);
                assert_eq!(found.extend(&other, start..end), files, "{start}..{end}");
                assert_eq!(found, expected, "{start}..{end}");
            }
        }
    }

    #[test]
    fn a_listing_that_gets_too_many_entries_is_partial() {
        let other = listing();
        let mut target = Listing::default();
        for _ in 0..MAX_ENTRIES / other.len() {
            target.extend(&other, 0..20);
        }
        assert_eq!((target.len(), target.is_partial()), (MAX_ENTRIES, false));
        assert_eq!(target.extend(&other, 1..2), 1);
        assert_eq!((target.len(), target.is_partial()), (0, true));
    }
}
