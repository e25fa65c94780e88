//! A directory of the composed tree is a pile of layers; this lists it, one name after the other, upper layers first.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{TreeError, shown};
use super::overlay::Placed;
use super::sparse::{Reach, Sparse};
use super::{Kind, Module};
use crate::git::{self, Checkout, Child, Oid, ReadError, WAITING_PATHS};

/// One source of a directory's content.
#[derive(Clone, Debug)]
pub(super) enum Layer {
    /// A tree of a commit.
    Commit {
        /// The commit.
        module: Arc<Module>,
        /// The tree.
        tree: Oid,
        /// Its path from the root of that commit.
        path: Vec<u8>,
        /// What of it is wanted, if that is not settled yet.
        sparse: Option<Arc<Sparse>>,
    },
    /// A directory on disk, with the overlay that keeps it there.
    Disk(PathBuf, Arc<Placed>),
    /// A directory on the way to where an overlay begins: this many names down from the root.
    Way(usize, Arc<Placed>),
}

/// What a name in a directory stands for.
#[derive(Clone, Debug)]
pub(super) enum Item {
    /// Another directory.
    Directory {
        /// Its layers, lowest first.
        layers: Vec<Layer>,
        /// Whether it is there even with nothing in it.
        certain: bool,
    },
    /// A file or a link.
    Leaf(Leaf),
}

/// A file or a link.
#[derive(Clone, Debug)]
pub(super) enum Leaf {
    /// Of a commit.
    Object {
        /// The commit.
        checkout: Checkout,
        /// The object.
        id: Oid,
        /// What it is.
        kind: Kind,
    },
    /// On disk.
    File {
        /// Where.
        path: PathBuf,
        /// Whether it is a link.
        link: bool,
        /// Whether it may be executed.
        executable: bool,
        /// Its size in bytes.
        size: u64,
        /// Keeps it there.
        _placed: Arc<Placed>,
    },
}

impl Leaf {
    pub(super) const fn kind(&self) -> Kind {
        match self {
            Self::Object { kind, .. } => *kind,
            Self::File { link: true, .. } => Kind::Symlink,
            Self::File { executable: true, .. } => Kind::Executable,
            Self::File { .. } => Kind::File,
        }
    }
}

impl Layer {
    /// The root of a commit.
    pub(super) fn commit(module: Arc<Module>, sparse: Option<Arc<Sparse>>) -> Self {
        Self::Commit {
            tree: module.commit().tree,
            module,
            path: Vec::new(),
            sparse,
        }
    }

    /// The root as seen by an overlay.
    pub(super) fn way(placed: Arc<Placed>) -> Self {
        if placed.target.is_empty() {
            Self::Disk(placed.overlay.path.clone(), placed)
        } else {
            Self::Way(0, placed)
        }
    }

    /// What is in the directory, in no order. `at` is its path, for errors.
    fn list(&self, at: &[u8]) -> Result<Vec<(Vec<u8>, Item)>, TreeError> {
        match self {
            Self::Commit {
                module,
                tree,
                path,
                sparse,
            } => {
                let children = module.checkout.directory(*tree)?;
                let directories = children.iter().filter(|child| child.kind == git::Kind::Directory);
                // Each of them gets a path of its own.
                if directories.count().saturating_mul(path.len()) > WAITING_PATHS {
                    return Err(TreeError::Read(ReadError::PathsTooLong(WAITING_PATHS)));
                }
                Ok(children
                    .into_iter()
                    .filter_map(|child| of_commit(module, path, sparse.as_ref(), child))
                    .collect())
            }
            Self::Disk(path, placed) => on_disk(path, placed).map_err(|source| TreeError::Disk {
                path: shown(at),
                source,
            }),
            Self::Way(depth, placed) => {
                let Some(name) = placed.target.get(*depth) else {
                    return Ok(Vec::new());
                };
                let item = if depth + 1 < placed.target.len() {
                    Item::Directory {
                        layers: vec![Self::Way(depth + 1, Arc::clone(placed))],
                        certain: true,
                    }
                } else {
                    let found = item(&placed.overlay.path, placed).map_err(|source| TreeError::Disk {
                        path: shown(&placed.target.join(&b'/')),
                        source,
                    })?;
                    match found {
                        Some(item) => item,
                        None => return Ok(Vec::new()),
                    }
                };
                Ok(vec![(name.clone(), item)])
            }
        }
    }
}

/// A name of a commit, unless it is not wanted.
fn of_commit(
    module: &Arc<Module>,
    directory: &[u8],
    sparse: Option<&Arc<Sparse>>,
    child: Child,
) -> Option<(Vec<u8>, Item)> {
    let path = joined(directory, &child.name);
    let selected = || sparse.is_none_or(|sparse| sparse.selects(&path));
    let kind = match child.kind {
        git::Kind::Directory => {
            let sparse = match sparse.map(|sparse| sparse.reach(&path)) {
                Some(Reach::Nothing) => return None,
                Some(Reach::Part) => sparse.cloned(),
                Some(Reach::Whole) | None => None,
            };
            let layer = Layer::Commit {
                module: Arc::clone(module),
                tree: child.id,
                path,
                sparse,
            };
            let item = Item::Directory {
                layers: vec![layer],
                certain: false,
            };
            return Some((child.name, item));
        }
        git::Kind::Gitlink => {
            let submodule = module.submodules.get(&path).filter(|_| selected());
            let layers = submodule.map(|submodule| Layer::commit(Arc::new(submodule.clone()), None));
            let item = Item::Directory {
                layers: layers.into_iter().collect(),
                certain: true,
            };
            return selected().then_some((child.name, item));
        }
        git::Kind::File => Kind::File,
        git::Kind::Executable => Kind::Executable,
        git::Kind::Symlink => Kind::Symlink,
    };
    let leaf = Leaf::Object {
        checkout: module.checkout.clone(),
        id: child.id,
        kind,
    };
    selected().then_some((child.name, Item::Leaf(leaf)))
}

fn on_disk(directory: &Path, placed: &Arc<Placed>) -> io::Result<Vec<(Vec<u8>, Item)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if let Some(item) = item(&entry.path(), placed)? {
            found.push((entry.file_name().into_vec(), item));
        }
    }
    Ok(found)
}

/// What lies at a path on disk; nothing if it is no file, directory or link.
fn item(path: &Path, placed: &Arc<Placed>) -> io::Result<Option<Item>> {
    let metadata = fs::symlink_metadata(path)?;
    let (kind, placed) = (metadata.file_type(), Arc::clone(placed));
    let path = path.to_owned();
    Ok(if kind.is_dir() {
        Some(Item::Directory {
            layers: vec![Layer::Disk(path, placed)],
            certain: true,
        })
    } else if kind.is_file() || kind.is_symlink() {
        Some(Item::Leaf(Leaf::File {
            link: kind.is_symlink(),
            executable: metadata.permissions().mode() & 0o111 != 0,
            size: if kind.is_symlink() {
                fs::read_link(&path)?.as_os_str().as_bytes().len() as u64
            } else {
                metadata.len()
            },
            path,
            _placed: placed,
        }))
    } else {
        None
    })
}

/// What is in a directory, names in the order of their bytes. Where layers have the same name, directories become one
/// and otherwise the upper one counts.
pub(super) fn list(layers: &[Layer], at: &[u8]) -> Result<Vec<(Vec<u8>, Item)>, TreeError> {
    if let [layer] = layers {
        let mut found = layer.list(at)?;
        found.sort_by(|one, other| one.0.cmp(&other.0));
        // A tree that names something twice was not written by Git; a work tree would have it once.
        found.dedup_by(|later, earlier| later.0 == earlier.0);
        return Ok(found);
    }
    let mut merged: BTreeMap<Vec<u8>, Item> = BTreeMap::new();
    for layer in layers {
        for (name, upper) in layer.list(at)? {
            let item = match (merged.remove(&name), upper) {
                (
                    Some(Item::Directory {
                        layers: mut pile,
                        certain,
                    }),
                    Item::Directory {
                        layers,
                        certain: also,
                    },
                ) => {
                    pile.extend(layers);
                    Item::Directory {
                        layers: pile,
                        certain: certain || also,
                    }
                }
                (_, upper) => upper,
            };
            merged.insert(name, item);
        }
    }
    Ok(merged.into_iter().collect())
}

/// A name below a directory.
pub(super) fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() {
        name.to_vec()
    } else {
        [directory, b"/", name].concat()
    }
}
