//! The directories of Git that the entries of an artifact come from. Pure.
//!
//! The next build of the same object takes the entries of a directory whose tree object, path and rules are the same from the listing:
//! it neither reads the tree objects nor matches the rules again.

use std::collections::HashMap;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

/// Maximum number of directories that are recorded.
const MAX_DIRECTORIES: usize = 50_000;
/// Length of an encoded directory.
const DIRECTORY_BYTES: usize = 32 + 4 * 4 + 1;

/// Names a directory: SHA-256 of its path and its tree object.
type DirectoryKey = [u8; 32];

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
