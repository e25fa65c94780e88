//! A commit on disk: its message, its trees and its blobs. There is no work tree.

mod counterpart;
mod undeltified;

use std::collections::HashSet;
use std::fmt::Debug;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use counterpart::Counterpart;
use git2::{ErrorCode, ObjectType, Odb, OdbLookupFlags, OdbObject, Oid};
use tokio_util::sync::CancellationToken;

use super::access::Extent;
use super::error::{FetchError, ReadError};
use super::mirror::{Generation, Mirror, Reader};
use super::object::{Commit, Kind, TreeEntry, tag_target, tree_entries};
use super::remote::{BLOB_BYTES_FLAG, ENTRIES_FLAG, Limits};

/// Bytes of a tree object for each entry that a commit may have. By default one directory has at most 16 MB, about
/// 400,000 names. Listing it takes ten times as much memory.
const TREE_BYTES_PER_ENTRY: u64 = 16;
/// Lower limit of the bound on a tree object.
const MIN_TREE_LIMIT: u64 = 1 << 20;
/// Maximum path length in bytes; Linux accepts no longer path.
pub(crate) const MAX_PATH_BYTES: usize = 4096;
/// Maximum total length of the paths of directories that are queued in a walk, in bytes.
pub(crate) const MAX_PENDING_PATH_BYTES: usize = 32 << 20;
/// Entries between two checks for cancellation.
const STOP_CHECK_INTERVAL: u64 = 256;
/// Maximum length of a chain of tags.
const MAX_TAG_CHAIN: usize = 16;
/// Maximum size of a commit or tag object.
const MAX_COMMIT_BYTES: usize = 4 << 20;

/// A selection of files by their paths from the root of a commit, without a slash at either end.
pub trait Selection: Debug + Send + Sync {
    /// Whether the file or symlink is selected.
    fn selects(&self, path: &[u8]) -> bool;

    /// Whether anything in the directory may be selected.
    fn may_contain(&self, directory: &[u8]) -> bool;
}

/// A commit and everything below it. Cheap to clone, readable from many threads at once. All methods block: they read
/// from disk.
#[derive(Clone)]
pub struct Checkout(Arc<Inner>);

struct Inner {
    // Closed before the directory may be deleted.
    odb: Odb<'static>,
    /// For [`Checkout::read_undeltified`], which opens it; `None` if it cannot be opened.
    reader: OnceLock<Option<Reader>>,
    generation: Arc<Generation>,
    commit: Commit,
    limits: Limits,
    /// How many trees [`Checkout::directory`] read.
    trees_listed: AtomicU64,
    // Keeps the mirror open, so that the same directory is not opened twice.
    mirror: Arc<Mirror>,
}

impl Checkout {
    /// Opens a commit of a generation, whose object database is `odb`.
    pub(super) fn open(
        odb: Odb<'static>,
        mirror: Arc<Mirror>,
        generation: Arc<Generation>,
        commit: Oid,
        limits: Limits,
    ) -> Result<Self, FetchError> {
        let (_, kind) = odb
            .read_header(commit)
            .map_err(|error| unreadable(commit, &error))?;
        if kind != ObjectType::Commit {
            return Err(FetchError::NotACommit {
                id: commit,
                kind: kind.str().to_owned(),
            });
        }
        let commit =
            Commit::parse(commit, &read(&odb, commit, MAX_COMMIT_BYTES)?).map_err(ReadError::from)?;
        Ok(Self(Arc::new(Inner {
            odb,
            reader: OnceLock::new(),
            generation,
            commit,
            limits,
            trees_listed: AtomicU64::new(0),
            mirror,
        })))
    }

    /// Returns the commit.
    #[must_use]
    pub fn commit(&self) -> &Commit {
        &self.0.commit
    }

    /// Returns the raw commit object, which is what a signature covers.
    ///
    /// # Errors
    /// The object cannot be read.
    pub(crate) fn raw_commit(&self) -> Result<Vec<u8>, ReadError> {
        self.raw(self.0.commit.id)
    }

    /// Returns the raw object of an annotated tag.
    ///
    /// # Errors
    /// The object is missing or cannot be read.
    pub(crate) fn raw_tag(&self, id: Oid) -> Result<Vec<u8>, ReadError> {
        self.raw(id)
    }

    fn raw(&self, id: Oid) -> Result<Vec<u8>, ReadError> {
        let found = read(&self.0.odb, id, MAX_COMMIT_BYTES).map(|raw| raw.to_vec());
        self.mark_if_unreadable(found)
    }

    /// Returns the generation that contains the commit.
    pub(super) fn generation(&self) -> &Generation {
        &self.0.generation
    }

    /// Whether the object exists.
    pub(super) fn contains(&self, id: Oid) -> bool {
        self.0.odb.exists(id)
    }

    /// Whether an object is the commit, or a tag that peels to it. The server's statement is not sufficient proof.
    pub(super) fn is_peeled_from(&self, object: Oid) -> Result<bool, ReadError> {
        let (odb, mut current) = (&self.0.odb, object);
        for _ in 0..MAX_TAG_CHAIN {
            if current == self.0.commit.id {
                return Ok(true);
            }
            let (_, kind) = odb
                .read_header(current)
                .map_err(|error| unreadable(current, &error))?;
            if kind != ObjectType::Tag {
                return Ok(false);
            }
            current = tag_target(current, &read(odb, current, MAX_COMMIT_BYTES)?)?;
        }
        Ok(false)
    }

    /// Returns the selected files that are missing, each once.
    pub(super) fn missing_blobs(
        &self,
        selection: &dyn Selection,
        stop: &CancellationToken,
    ) -> Result<Vec<Oid>, FetchError> {
        let (odb, limits) = (&self.0.odb, &self.0.limits);
        // One refresh is enough: otherwise each lookup of a missing object would list the directory of packs again.
        odb.refresh()
            .map_err(|error| unreadable(self.0.commit.id, &error))?;
        let (mut missing_blobs, mut visited) = (Vec::new(), HashSet::new());
        let (mut entries, mut paths) = (0, 0);
        let mut pending = vec![(Vec::new(), self.0.commit.tree)];
        while let Some((directory, tree)) = pending.pop() {
            paths -= directory.len();
            let raw = self.mark_if_unreadable(read_tree(odb, tree, limits))?;
            for entry in tree_entries(tree, &raw) {
                let TreeEntry { name, kind, id } = entry.map_err(ReadError::from)?;
                count_entry(&mut entries, limits, stop)?;
                let path = [&directory[..], &raw[name]].concat();
                match kind {
                    Kind::Directory if selection.may_contain(&path) => {
                        let inner = [&path[..], b"/"].concat();
                        paths += inner.len();
                        if inner.len() > MAX_PATH_BYTES {
                            return Err(ReadError::PathTooLong(MAX_PATH_BYTES).into());
                        }
                        if paths > MAX_PENDING_PATH_BYTES {
                            return Err(ReadError::PathsTooLong(MAX_PENDING_PATH_BYTES).into());
                        }
                        pending.push((inner, id));
                    }
                    Kind::Gitlink | Kind::Directory => {}
                    _ if selection.selects(&path)
                        && visited.insert(id)
                        && !odb.exists_ext(id, OdbLookupFlags::NO_REFRESH) =>
                    {
                        missing_blobs.push(id);
                    }
                    _ => {}
                }
            }
        }
        Ok(missing_blobs)
    }

    /// Returns the limits for reading.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.0.limits
    }

    /// Lists a directory in Git's order.
    ///
    /// # Errors
    /// The tree cannot be read.
    pub fn directory(&self, tree: Oid) -> Result<Vec<DirectoryEntry>, ReadError> {
        self.0.trees_listed.fetch_add(1, Ordering::Relaxed);
        self.mark_if_unreadable(children(&self.0.odb, tree, &self.0.limits))
    }

    /// Whether this is a clone of the other one.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns how many directories were listed.
    pub(crate) fn trees_listed(&self) -> u64 {
        self.0.trees_listed.load(Ordering::Relaxed)
    }

    /// Returns the content of a file, or the target of a symlink.
    ///
    /// # Errors
    /// The object is larger than allowed, or cannot be read.
    pub fn read(&self, id: Oid) -> Result<Blob<'_>, ReadError> {
        self.allowed_size(id)?;
        let blob = self.0.odb.read(id).map(Blob);
        self.mark_if_unreadable(blob.map_err(|error| unreadable(id, &error)))
    }

    /// As [`Checkout::size`], for an object that [`Checkout::read`] returns later.
    ///
    /// # Errors
    /// The object is larger than allowed, or missing.
    pub(crate) fn allowed_size(&self, id: Oid) -> Result<u64, ReadError> {
        let (limit, size) = (self.0.limits.blob_bytes, self.size(id)?);
        if size <= limit {
            return Ok(size);
        }
        Err(ReadError::BlobTooLarge {
            id,
            size,
            limit,
            flag: BLOB_BYTES_FLAG,
        })
    }

    /// Returns the size of an object in bytes, without reading it.
    ///
    /// # Errors
    /// The object is missing.
    pub fn size(&self, id: Oid) -> Result<u64, ReadError> {
        let header = self.0.odb.read_header(id).map_err(|error| unreadable(id, &error));
        self.mark_if_unreadable(header).map(|(size, _)| size as u64)
    }

    /// Checks that every object of the commit that the mirror should contain exists. Subtrees shared with `base` are
    /// assumed to be complete.
    pub(super) fn verify(
        &self,
        base: Option<Oid>,
        extent: Extent,
        stop: &CancellationToken,
    ) -> Result<(), FetchError> {
        let (odb, limits) = (&self.0.odb, &self.0.limits);
        let base = base.and_then(|id| Commit::parse(id, &read(odb, id, MAX_COMMIT_BYTES).ok()?).ok());
        let (mut visited, mut entries) = (HashSet::new(), 0);
        let mut pending = vec![(self.0.commit.tree, base.map(|commit| commit.tree))];
        while let Some((tree, counterpart)) = pending.pop() {
            if Some(tree) == counterpart || !visited.insert(tree) {
                continue;
            }
            let other_tree = counterpart.and_then(|id| Some((id, read_tree(odb, id, limits).ok()?)));
            let mut other_tree = Counterpart::new(other_tree.as_ref().map(|(id, raw)| (*id, &raw[..])));
            let raw = read_tree(odb, tree, limits)?;
            for entry in tree_entries(tree, &raw) {
                let TreeEntry { name, kind, id } = entry.map_err(ReadError::from)?;
                count_entry(&mut entries, limits, stop)?;
                let counterpart = other_tree.find(&raw[name], kind);
                match kind {
                    Kind::Gitlink => {}
                    Kind::Directory => {
                        let other = counterpart.filter(|(kind, _)| *kind == Kind::Directory);
                        pending.push((id, other.map(|(_, id)| id)));
                    }
                    _ if extent == Extent::Partial => {}
                    _ if counterpart.is_some_and(|(_, other)| other == id) || odb.exists(id) => {}
                    _ => {
                        let why = "the server did not send it".into();
                        return Err(ReadError::Object { id, why }.into());
                    }
                }
            }
        }
        Ok(())
    }

    /// Marks the generation as corrupt if an object that must exist is unreadable.
    pub(super) fn mark_if_unreadable<T>(&self, result: Result<T, ReadError>) -> Result<T, ReadError> {
        if let Err(ReadError::Object { .. }) = &result {
            self.0.generation.mark_corrupt();
        }
        result
    }
}

impl std::fmt::Debug for Checkout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checkout")
            .field("commit", &self.0.commit)
            .finish_non_exhaustive()
    }
}

/// The content of one object.
pub struct Blob<'a>(OdbObject<'a>);

impl Deref for Blob<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.data()
    }
}

/// One entry of a directory of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The name, not necessarily UTF-8.
    pub name: Vec<u8>,
    /// Type of the entry.
    pub kind: Kind,
    /// Object name of the entry.
    pub id: Oid,
}

fn children(odb: &Odb<'_>, tree: Oid, limits: &Limits) -> Result<Vec<DirectoryEntry>, ReadError> {
    let raw = read_tree(odb, tree, limits)?;
    let child = |TreeEntry { name, kind, id }| DirectoryEntry {
        name: raw[name].to_vec(),
        kind,
        id,
    };
    let children = tree_entries(tree, &raw).map(|entry| entry.map(child));
    Ok(children.collect::<Result<_, _>>()?)
}

fn read_tree<'a>(odb: &'a Odb<'_>, id: Oid, limits: &Limits) -> Result<Blob<'a>, ReadError> {
    let (size, _) = odb.read_header(id).map_err(|error| unreadable(id, &error))?;
    let limit = limits.entries.saturating_mul(TREE_BYTES_PER_ENTRY);
    let (size, limit) = (size as u64, limit.max(MIN_TREE_LIMIT));
    if size > limit {
        return Err(ReadError::TreeTooLarge {
            id,
            size,
            limit,
            flag: ENTRIES_FLAG,
        });
    }
    odb.read(id).map(Blob).map_err(|error| unreadable(id, &error))
}

/// Counts an entry of a walk. Fails at the limit or after cancellation.
fn count_entry(entries: &mut u64, limits: &Limits, stop: &CancellationToken) -> Result<(), FetchError> {
    *entries += 1;
    if *entries > limits.entries {
        return Err(ReadError::too_many_entries(limits).into());
    }
    if entries.is_multiple_of(STOP_CHECK_INTERVAL) && stop.is_cancelled() {
        return Err(FetchError::Stopped);
    }
    Ok(())
}

fn read<'a>(odb: &'a Odb<'_>, id: Oid, limit: usize) -> Result<Blob<'a>, ReadError> {
    let (size, _) = odb.read_header(id).map_err(|error| unreadable(id, &error))?;
    if size > limit {
        return Err(ReadError::Object {
            id,
            why: format!("{size} bytes are too many for its kind"),
        });
    }
    odb.read(id).map(Blob).map_err(|error| unreadable(id, &error))
}

fn unreadable(id: Oid, error: &git2::Error) -> ReadError {
    let why = if error.code() == ErrorCode::NotFound {
        "it does not exist".into()
    } else {
        error.message().to_owned()
    };
    ReadError::Object { id, why }
}
