//! The entries of an artifact in their order, and the directories of Git that they come from. Pure.
//!
//! The next build of the same object takes a directory from here whose tree object, path and rules are the same: it reads neither the
//! tree objects nor the ignore rules for it again. The index of the artifact stores the listing; [`Listing::push`] keeps it bounded.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::{Body, Entry};

/// Maximum bytes of paths and names of content. A larger artifact has no listing, and each build lists its tree.
const MAX_BYTES: usize = 6 << 20;
/// Maximum number of entries of a listing.
const MAX_ENTRIES: usize = 200_000;
/// Maximum number of directories that are recorded.
const MAX_DIRECTORIES: usize = 50_000;
/// Length of an encoded directory.
const DIRECTORY_BYTES: usize = 32 + 4 * 4 + 1;

/// Names a directory: SHA-256 of its path and its tree object.
type DirectoryKey = [u8; 32];

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

#[derive(Clone, Debug, PartialEq, Eq)]
struct Stored {
    /// Where its bytes begin.
    start: usize,
    path: u16,
    id: u8,
    kind: StoredKind,
    size: u64,
}

/// A directory of a commit whose entries are consecutive ones of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// Names its path and its tree.
    key: DirectoryKey,
    /// Position of its first entry: its own one, unless a rule excludes it.
    pub first: u32,
    /// Number of its entries, its own one included.
    pub entries: u32,
    /// Number of items of all tree objects below it, which count towards the limit of a walk.
    pub items: u32,
    /// Number of recorded directories below it, which follow it.
    pub inner: u32,
    /// Whether an ignore file is below it.
    pub has_rules: bool,
}

impl Directory {
    /// Returns a record of a directory that has no entries yet.
    #[must_use]
    pub fn new(path: &[u8], tree: &[u8], first: u32) -> Self {
        Self {
            key: directory_key(path, tree),
            first,
            entries: 0,
            items: 0,
            inner: 0,
            has_rules: false,
        }
    }
}

fn directory_key(path: &[u8], tree: &[u8]) -> DirectoryKey {
    let hash = Sha256::new_with_prefix((path.len() as u64).to_be_bytes());
    hash.chain_update(path).chain_update(tree).finalize().into()
}

/// The directories of an artifact, depth first.
#[derive(Clone, Debug, Default)]
pub struct Directories {
    list: Arc<Vec<Directory>>,
    by_key: HashMap<DirectoryKey, usize>,
}

impl Directories {
    pub(super) fn new(list: &Arc<Vec<Directory>>) -> Self {
        let keys = list.iter().zip(0..);
        Self {
            by_key: keys.map(|(directory, at)| (directory.key, at)).collect(),
            list: Arc::clone(list),
        }
    }

    /// Returns the directory with this path and tree, followed by those below it.
    #[must_use]
    pub fn find(&self, path: &[u8], tree: &[u8]) -> Option<&[Directory]> {
        let at = *self.by_key.get(&directory_key(path, tree))?;
        let inner = usize::try_from(self.list.get(at)?.inner).ok()?;
        self.list.get(at..=at.checked_add(inner)?)
    }
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
        let (kind, size, id): (_, _, &[u8]) = match &entry.body {
            Body::Directory => (StoredKind::Directory, 0, &[]),
            Body::File {
                executable, size, id, ..
            } => (
                if *executable {
                    StoredKind::Executable
                } else {
                    StoredKind::File
                },
                *size,
                id,
            ),
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
        let mut files = 0;
        for stored in range.filter_map(|position| other.stored(position)) {
            self.append(
                other.path_of(stored),
                stored.kind,
                stored.size,
                other.id_of(stored),
            );
            files += u64::from(stored.kind != StoredKind::Directory);
        }
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
        let first = usize::from(self.path(0) == Some(b"."));
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
                let kind = if *executable {
                    StoredKind::Executable
                } else {
                    StoredKind::File
                };
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
        let mut path = Vec::new();
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

/// Appends the bytes that [`read_directories`] reads.
pub(super) fn encode_directories(directories: &[Directory], bytes: &mut Vec<u8>) {
    put_number(bytes, directories.len());
    for directory in directories {
        bytes.extend_from_slice(&directory.key);
        for number in [
            directory.first,
            directory.entries,
            directory.items,
            directory.inner,
        ] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        bytes.push(u8::from(directory.has_rules));
    }
}

/// Whether an index can store so many directories.
pub(super) const fn can_store(directories: &[Directory]) -> bool {
    directories.len() <= MAX_DIRECTORIES
}

/// Reads directories, which have their entries among `entries`, from the start of `bytes`.
pub(super) fn read_directories(bytes: &mut &[u8], entries: usize) -> Option<Vec<Directory>> {
    let count = take_number(bytes)?;
    if count > MAX_DIRECTORIES {
        return None;
    }
    let (encoded, rest) = bytes.split_at_checked(count.checked_mul(DIRECTORY_BYTES)?)?;
    *bytes = rest;
    let mut directories = Vec::with_capacity(count);
    for (at, mut encoded) in encoded.chunks_exact(DIRECTORY_BYTES).enumerate() {
        let directory = read_directory(&mut encoded)?;
        let end = u64::from(directory.first) + u64::from(directory.entries);
        let last = at as u64 + u64::from(directory.inner);
        if end > entries as u64 || last >= count as u64 {
            return None;
        }
        directories.push(directory);
    }
    Some(directories)
}

fn read_directory(bytes: &mut &[u8]) -> Option<Directory> {
    Some(Directory {
        key: take(bytes)?,
        first: u32::from_be_bytes(take(bytes)?),
        entries: u32::from_be_bytes(take(bytes)?),
        items: u32::from_be_bytes(take(bytes)?),
        inner: u32::from_be_bytes(take(bytes)?),
        has_rules: match take::<1>(bytes)? {
            [0] => false,
            [1] => true,
            _ => return None,
        },
    })
}

/// Takes bytes from the start.
pub(super) fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*taken)
}

pub(super) fn take_number(bytes: &mut &[u8]) -> Option<usize> {
    usize::try_from(u32::from_be_bytes(take(bytes)?)).ok()
}

pub(super) fn put_number(bytes: &mut Vec<u8>, number: usize) {
    bytes.extend_from_slice(&u32::try_from(number).unwrap_or_default().to_be_bytes());
}
