//! A commit that is on disk: its message, the names in its tree, and the bytes behind them. There is no work tree.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::ops::Deref;
use std::sync::Arc;

use git2::{ErrorCode, ObjectType, Odb, OdbLookupFlags, OdbObject, Oid};
use tokio_util::sync::CancellationToken;

use super::error::{FetchError, ReadError};
use super::mirror::{Generation, Mirror, open_objects};
use super::object::{Commit, Kind, TreeEntry, tag_target, tree_entries};
use super::remote::{BLOB_BYTES_FLAG, ENTRIES_FLAG, Limits};
use super::selection::Selection;

/// Bytes of a tree object for each entry that a commit may have: by default one directory has at most 16 MB, some 400,000
/// names. Listing it takes ten times as much memory.
const TREE_BYTES: u64 = 16;
/// Smallest bound on a tree object.
const SMALL_TREE: u64 = 1 << 20;
/// Longest path in bytes; Linux takes none that is longer.
pub(crate) const LONGEST_PATH: usize = 4096;
/// Most bytes of the paths of directories that wait to be looked at.
pub(crate) const WAITING_PATHS: usize = 32 << 20;
/// Entries between two looks at whether a walk is still wanted.
const LOOKS: u64 = 256;
/// Tags that are followed from one to the next.
const TAGS: usize = 16;
/// Largest commit or tag object that is read.
const LARGEST_COMMIT: usize = 4 << 20;

/// How much of its commits a mirror holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// Everything.
    Whole,
    /// All names, and of the files those that were asked for.
    Names,
}

/// A commit and everything below it. Cheap to clone, readable from many threads at once. All methods block: they read
/// from the disk.
#[derive(Clone)]
pub struct Checkout(Arc<Inner>);

struct Inner {
    // Closed before the directory may go.
    odb: Odb<'static>,
    generation: Arc<Generation>,
    commit: Commit,
    limits: Limits,
    // As long as somebody reads, nobody opens the same directories a second time.
    _mirror: Arc<Mirror>,
}

impl Checkout {
    /// Opens a commit of a generation.
    pub(super) fn open(
        mirror: Arc<Mirror>,
        generation: Arc<Generation>,
        commit: Oid,
        limits: Limits,
    ) -> Result<Self, FetchError> {
        let odb = open_objects(generation.directory()).map_err(|error| unreadable(commit, &error))?;
        let (_, kind) = odb
            .read_header(commit)
            .map_err(|error| unreadable(commit, &error))?;
        if kind != ObjectType::Commit {
            return Err(FetchError::NotACommit {
                id: commit,
                kind: kind.str().to_owned(),
            });
        }
        let commit = Commit::parse(commit, &read(&odb, commit, LARGEST_COMMIT)?).map_err(ReadError::from)?;
        Ok(Self(Arc::new(Inner {
            odb,
            generation,
            commit,
            limits,
            _mirror: mirror,
        })))
    }

    /// The commit.
    #[must_use]
    pub fn commit(&self) -> &Commit {
        &self.0.commit
    }

    /// The commit as it is stored, which is what a signature is about.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn raw_commit(&self) -> Result<Vec<u8>, ReadError> {
        self.raw(self.0.commit.id)
    }

    /// An annotated tag as it is stored.
    ///
    /// # Errors
    /// It is not there, or cannot be read.
    pub fn raw_tag(&self, id: Oid) -> Result<Vec<u8>, ReadError> {
        self.raw(id)
    }

    fn raw(&self, id: Oid) -> Result<Vec<u8>, ReadError> {
        let found = read(&self.0.odb, id, LARGEST_COMMIT).map(|raw| raw.to_vec());
        self.condemning(found)
    }

    /// Where the commit lies.
    pub(super) fn generation(&self) -> &Generation {
        &self.0.generation
    }

    /// Whether an object is there.
    pub(super) fn holds(&self, id: Oid) -> bool {
        self.0.odb.exists(id)
    }

    /// Whether an object is the commit, or a tag that leads to it. What a server says about that is no proof.
    pub(super) fn is_named_by(&self, object: Oid) -> Result<bool, ReadError> {
        let (odb, mut at) = (&self.0.odb, object);
        for _ in 0..TAGS {
            if at == self.0.commit.id {
                return Ok(true);
            }
            let (_, kind) = odb.read_header(at).map_err(|error| unreadable(at, &error))?;
            if kind != ObjectType::Tag {
                return Ok(false);
            }
            at = tag_target(at, &read(odb, at, LARGEST_COMMIT)?)?;
        }
        Ok(false)
    }

    /// The files that `selection` wants and that are not there, each once.
    pub(super) fn missing(
        &self,
        selection: &dyn Selection,
        stop: &CancellationToken,
    ) -> Result<Vec<Oid>, FetchError> {
        let (odb, limits) = (&self.0.odb, &self.0.limits);
        // Once is enough: afterwards every look at what is not there would list the directory of packs again.
        odb.refresh()
            .map_err(|error| unreadable(self.0.commit.id, &error))?;
        let (mut missing, mut seen) = (Vec::new(), HashSet::new());
        let (mut entries, mut paths) = (0, 0);
        let mut waiting = vec![(Vec::new(), self.0.commit.tree)];
        while let Some((directory, tree)) = waiting.pop() {
            paths -= directory.len();
            let raw = self.condemning(read_tree(odb, tree, limits))?;
            for entry in tree_entries(tree, &raw) {
                let TreeEntry { name, kind, id } = entry.map_err(ReadError::from)?;
                one_more(&mut entries, limits, stop)?;
                let path = [&directory[..], &raw[name]].concat();
                match kind {
                    Kind::Directory if selection.enters(&path) => {
                        let inner = [&path[..], b"/"].concat();
                        paths += inner.len();
                        if inner.len() > LONGEST_PATH {
                            return Err(ReadError::PathTooLong(LONGEST_PATH).into());
                        }
                        if paths > WAITING_PATHS {
                            return Err(ReadError::PathsTooLong(WAITING_PATHS).into());
                        }
                        waiting.push((inner, id));
                    }
                    Kind::Gitlink | Kind::Directory => {}
                    _ if selection.selects(&path)
                        && seen.insert(id)
                        && !odb.exists_ext(id, OdbLookupFlags::NO_REFRESH) =>
                    {
                        missing.push(id);
                    }
                    _ => {}
                }
            }
        }
        Ok(missing)
    }

    /// The bounds on what is read.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.0.limits
    }

    /// What is in a directory, in the order in which Git keeps it.
    ///
    /// # Errors
    /// The tree cannot be read.
    pub fn directory(&self, tree: Oid) -> Result<Vec<Child>, ReadError> {
        self.condemning(children(&self.0.odb, tree, &self.0.limits))
    }

    /// The bytes of a file, or the target of a link.
    ///
    /// # Errors
    /// The object is larger than is allowed, or cannot be read.
    pub fn read(&self, id: Oid) -> Result<Blob<'_>, ReadError> {
        let limit = self.0.limits.blob_bytes;
        let size = self.size(id)?;
        if size > limit {
            return Err(ReadError::BlobTooLarge {
                id,
                size,
                limit,
                flag: BLOB_BYTES_FLAG,
            });
        }
        self.condemning(
            self.0
                .odb
                .read(id)
                .map(Blob)
                .map_err(|error| unreadable(id, &error)),
        )
    }

    /// The size of an object in bytes, without reading it.
    ///
    /// # Errors
    /// The object cannot be found.
    pub fn size(&self, id: Oid) -> Result<u64, ReadError> {
        let header = self.0.odb.read_header(id).map_err(|error| unreadable(id, &error));
        self.condemning(header).map(|(size, _)| size as u64)
    }

    /// Checks that everything of the commit that its mirror is to hold is there. What `base` has as well is taken to be
    /// complete.
    pub(super) fn verify(
        &self,
        base: Option<Oid>,
        extent: Extent,
        stop: &CancellationToken,
    ) -> Result<(), FetchError> {
        let (odb, limits) = (&self.0.odb, &self.0.limits);
        let base = base.and_then(|id| Commit::parse(id, &read(odb, id, LARGEST_COMMIT).ok()?).ok());
        let (mut seen, mut entries) = (HashSet::new(), 0);
        let mut waiting = vec![(self.0.commit.tree, base.map(|commit| commit.tree))];
        while let Some((tree, counterpart)) = waiting.pop() {
            if Some(tree) == counterpart || !seen.insert(tree) {
                continue;
            }
            let known = counterpart.and_then(|id| Some((id, read_tree(odb, id, limits).ok()?)));
            let mut known = Counterpart::new(known.as_ref().map(|(id, raw)| (*id, &raw[..])));
            let raw = read_tree(odb, tree, limits)?;
            for entry in tree_entries(tree, &raw) {
                let TreeEntry { name, kind, id } = entry.map_err(ReadError::from)?;
                one_more(&mut entries, limits, stop)?;
                let same = known.find(&raw[name], kind);
                match kind {
                    Kind::Gitlink => {}
                    Kind::Directory => {
                        let other = same.filter(|(kind, _)| *kind == Kind::Directory);
                        waiting.push((id, other.map(|(_, id)| id)));
                    }
                    _ if extent == Extent::Names => {}
                    _ if same.is_some_and(|(_, other)| other == id) || odb.exists(id) => {}
                    _ => {
                        let why = "it was not sent".into();
                        return Err(ReadError::Object { id, why }.into());
                    }
                }
            }
        }
        Ok(())
    }

    /// An object that has to be there and is not readable speaks against the whole generation.
    fn condemning<T>(&self, result: Result<T, ReadError>) -> Result<T, ReadError> {
        if let Err(ReadError::Object { .. }) = &result {
            self.0.generation.condemn();
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

/// The bytes of one object.
pub struct Blob<'a>(OdbObject<'a>);

impl Deref for Blob<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.data()
    }
}

/// A name in a directory of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// The name, not necessarily UTF-8.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// The object behind it.
    pub id: Oid,
}

fn children(odb: &Odb<'_>, tree: Oid, limits: &Limits) -> Result<Vec<Child>, ReadError> {
    let raw = read_tree(odb, tree, limits)?;
    let child = |TreeEntry { name, kind, id }| Child {
        name: raw[name].to_vec(),
        kind,
        id,
    };
    let children = tree_entries(tree, &raw).map(|entry| entry.map(child));
    Ok(children.collect::<Result<_, _>>()?)
}

/// A tree of an earlier commit that is gone through beside another one. Git writes both in one order, so that this takes
/// no memory; what stands in another order is not found.
struct Counterpart<'a> {
    tree: Option<(Oid, &'a [u8])>,
    /// How much of it lies behind.
    at: usize,
}

impl<'a> Counterpart<'a> {
    const fn new(tree: Option<(Oid, &'a [u8])>) -> Self {
        Self { tree, at: 0 }
    }

    /// What this name stands for there, if it is of the same sort: directory or not.
    fn find(&mut self, name: &[u8], kind: Kind) -> Option<(Kind, Oid)> {
        let (tree, raw) = self.tree?;
        let rest = raw.get(self.at..)?;
        for entry in tree_entries(tree, rest) {
            let entry = entry.ok()?;
            let found = &rest[entry.name.clone()];
            let next = self.at + entry.name.end + 21;
            match sorted(found, entry.kind).cmp(sorted(name, kind)) {
                Ordering::Less => self.at = next,
                Ordering::Equal => {
                    self.at = next;
                    return Some((entry.kind, entry.id));
                }
                Ordering::Greater => return None,
            }
        }
        None
    }
}

/// What Git sorts an entry by: directories as if their names ended in a slash.
fn sorted(name: &[u8], kind: Kind) -> impl Iterator<Item = &u8> {
    let slash: &[u8] = if kind == Kind::Directory { b"/" } else { b"" };
    name.iter().chain(slash)
}

fn read_tree<'a>(odb: &'a Odb<'_>, id: Oid, limits: &Limits) -> Result<Blob<'a>, ReadError> {
    let (size, _) = odb.read_header(id).map_err(|error| unreadable(id, &error))?;
    let (size, limit) = (
        size as u64,
        limits.entries.saturating_mul(TREE_BYTES).max(SMALL_TREE),
    );
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

/// Counts an entry of a walk that ends at the limit, or when it is unwanted.
fn one_more(entries: &mut u64, limits: &Limits, stop: &CancellationToken) -> Result<(), FetchError> {
    *entries += 1;
    if *entries > limits.entries {
        return Err(ReadError::too_many_entries(limits).into());
    }
    if entries.is_multiple_of(LOOKS) && stop.is_cancelled() {
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
        "it is not there".into()
    } else {
        error.message().to_owned()
    };
    ReadError::Object { id, why }
}
