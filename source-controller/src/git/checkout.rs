//! A commit that is on disk: its message, the names in its tree, and the bytes behind them. There is no work tree.

use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::sync::Arc;

use git2::{ErrorCode, ObjectType, Odb, OdbLookupFlags, OdbObject, Oid};

use super::error::{FetchError, ReadError};
use super::mirror::{Generation, Mirror, open_objects};
use super::object::{Commit, Kind, TreeEntry, parse_tree};
use super::remote::{BLOB_BYTES_FLAG, Limits};
use super::selection::Selection;

/// Largest tree object that is read. One directory of a million names has about 50 MB.
const LARGEST_TREE: usize = 128 << 20;
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

    /// The files that `selection` wants and that are not there, each once.
    pub(super) fn missing(&self, selection: &dyn Selection) -> Result<Vec<Oid>, ReadError> {
        let odb = &self.0.odb;
        // Once is enough: afterwards every look at what is not there would list the directory of packs again.
        odb.refresh()
            .map_err(|error| unreadable(self.0.commit.id, &error))?;
        let (mut missing, mut seen) = (Vec::new(), HashSet::new());
        let mut waiting = vec![(Vec::new(), self.0.commit.tree)];
        while let Some((directory, tree)) = waiting.pop() {
            for child in self.directory(tree)? {
                let path = [&directory[..], &child.name].concat();
                match child.kind {
                    Kind::Directory if selection.enters(&path) => {
                        waiting.push(([&path[..], b"/"].concat(), child.id));
                    }
                    Kind::Gitlink | Kind::Directory => {}
                    _ if selection.selects(&path)
                        && seen.insert(child.id)
                        && !odb.exists_ext(child.id, OdbLookupFlags::NO_REFRESH) =>
                    {
                        missing.push(child.id);
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
        self.condemning(children(&self.0.odb, tree))
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
    pub(super) fn verify(&self, base: Option<Oid>, extent: Extent) -> Result<(), ReadError> {
        let odb = &self.0.odb;
        let base = base.and_then(|id| Commit::parse(id, &read(odb, id, LARGEST_COMMIT).ok()?).ok());
        let mut seen = HashSet::new();
        let mut waiting = vec![(self.0.commit.tree, base.map(|commit| commit.tree))];
        while let Some((tree, counterpart)) = waiting.pop() {
            if Some(tree) == counterpart || !seen.insert(tree) {
                continue;
            }
            let known = counterpart
                .and_then(|id| children(odb, id).ok())
                .unwrap_or_default();
            let known: HashMap<_, _> = known
                .into_iter()
                .map(|child| (child.name, (child.kind, child.id)))
                .collect();
            for child in children(odb, tree)? {
                let same = known.get(&child.name);
                match child.kind {
                    Kind::Gitlink => {}
                    Kind::Directory => {
                        let other = same
                            .filter(|(kind, _)| *kind == Kind::Directory)
                            .map(|(_, id)| *id);
                        waiting.push((child.id, other));
                    }
                    _ if extent == Extent::Names => {}
                    _ if same.is_some_and(|(_, id)| *id == child.id) || odb.exists(child.id) => {}
                    _ => {
                        return Err(ReadError::Object {
                            id: child.id,
                            why: "it was not sent".into(),
                        });
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

fn children(odb: &Odb<'_>, tree: Oid) -> Result<Vec<Child>, ReadError> {
    let raw = read(odb, tree, LARGEST_TREE)?;
    let entries = parse_tree(tree, &raw)?;
    let child = |TreeEntry { name, kind, id }| Child {
        name: raw[name].to_vec(),
        kind,
        id,
    };
    Ok(entries.into_iter().map(child).collect())
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
