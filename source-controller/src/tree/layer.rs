//! Each directory of the composed tree is a stack of layers. Lists it by name; upper layers take precedence.

use std::collections::BTreeMap;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use super::error::TreeError;
use super::overlay::MountedOverlay;
use super::sparse::{Coverage, Sparse};
use super::{Kind, Module};
use crate::git::{self, Checkout, DirectoryEntry, MAX_PENDING_PATH_BYTES, Oid, ReadError};

/// One source of a directory's entries.
#[derive(Clone, Debug)]
pub(super) enum Layer {
    /// A tree of a commit.
    Commit {
        /// The commit.
        module: Arc<Module>,
        /// The tree object.
        tree: Oid,
        /// Its path from the root of that commit.
        path: Vec<u8>,
        /// The selection, if it does not include the whole directory.
        sparse: Option<Arc<Sparse>>,
    },
    /// A directory on disk, with the overlay that owns it.
    Disk(PathBuf, Arc<MountedOverlay>),
    /// A parent directory of an overlay's target, this many names below the root.
    Parent(usize, Arc<MountedOverlay>),
}

/// An entry of a directory.
#[derive(Clone, Debug)]
pub(super) enum Item {
    /// Another directory.
    Directory {
        /// Its layers, lowest first.
        layers: Vec<Layer>,
        /// Whether it exists even if it is empty.
        certain: bool,
    },
    /// A file or a symlink.
    Leaf(Leaf),
}

/// A file or a symlink.
#[derive(Clone, Debug)]
pub(super) enum Leaf {
    /// From a commit.
    Object {
        /// The commit.
        checkout: Checkout,
        /// The object.
        id: Oid,
        /// Type of the entry.
        kind: Kind,
    },
    /// On disk.
    File {
        /// Its path.
        path: PathBuf,
        /// Whether it is a symlink.
        link: bool,
        /// Whether it is executable.
        executable: bool,
        /// Its size in bytes.
        size: u64,
        /// Keeps the file alive.
        _mounted: Arc<MountedOverlay>,
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
    /// Returns the root of a commit.
    pub(super) fn commit(module: Arc<Module>, sparse: Option<Arc<Sparse>>) -> Self {
        Self::Commit {
            tree: module.commit().tree,
            module,
            path: Vec::new(),
            sparse,
        }
    }

    /// Returns the root layer of an overlay.
    pub(super) fn overlay(mounted: Arc<MountedOverlay>) -> Self {
        if mounted.target.is_empty() {
            Self::Disk(mounted.overlay.path.clone(), mounted)
        } else {
            Self::Parent(0, mounted)
        }
    }

    /// Returns the tree object if it decides everything below the directory `at` of the composed tree: the selection includes all
    /// of it, and no submodule is checked out there.
    pub(super) fn whole_tree(&self, at: &[u8]) -> Option<Oid> {
        let Self::Commit {
            module,
            tree,
            path,
            sparse: None,
        } = self
        else {
            return None;
        };
        // The path of a directory of a submodule begins at the submodule.
        if path != at {
            return None;
        }
        let inside = [at, b"/"].concat();
        let submodule = module.submodules.range(inside.clone()..).next();
        let has_submodule = submodule.is_some_and(|(path, _)| path.starts_with(&inside));
        (!has_submodule).then_some(*tree)
    }

    /// Lists the directory without order. `at` is its path, for errors.
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
                // Each of them gets its own path.
                if directories.count().saturating_mul(path.len()) > MAX_PENDING_PATH_BYTES {
                    return Err(TreeError::Read(ReadError::PathsTooLong(MAX_PENDING_PATH_BYTES)));
                }
                Ok(children
                    .into_iter()
                    .filter_map(|child| commit_item(module, path, sparse.as_ref(), child))
                    .collect())
            }
            Self::Disk(path, mounted) => list_disk(path, mounted).map_err(TreeError::disk(at)),
            Self::Parent(depth, mounted) => {
                let Some(name) = mounted.target.get(*depth) else {
                    return Ok(Vec::new());
                };
                let item = if depth + 1 < mounted.target.len() {
                    Item::Directory {
                        layers: vec![Self::Parent(depth + 1, Arc::clone(mounted))],
                        certain: true,
                    }
                } else {
                    let target = mounted.target.join(&b'/');
                    match disk_item(&mounted.overlay.path, mounted).map_err(TreeError::disk(&target))? {
                        Some(item) => item,
                        None => return Ok(Vec::new()),
                    }
                };
                Ok(vec![(name.clone(), item)])
            }
        }
    }
}

/// Converts an entry of a commit; `None` if it is not selected.
fn commit_item(
    module: &Arc<Module>,
    directory: &[u8],
    sparse: Option<&Arc<Sparse>>,
    child: DirectoryEntry,
) -> Option<(Vec<u8>, Item)> {
    let path = join_path(directory, &child.name);
    let selected = || sparse.is_none_or(|sparse| sparse.selects(&path));
    let kind = match child.kind {
        git::Kind::Directory => {
            let sparse = match sparse.map(|sparse| sparse.coverage(&path)) {
                Some(Coverage::None) => return None,
                Some(Coverage::Partial) => sparse.cloned(),
                Some(Coverage::Complete) | None => None,
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

fn list_disk(directory: &Path, mounted: &Arc<MountedOverlay>) -> io::Result<Vec<(Vec<u8>, Item)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if let Some(item) = disk_item(&entry.path(), mounted)? {
            found.push((entry.file_name().into_vec(), item));
        }
    }
    Ok(found)
}

/// Returns the entry at a path on disk; `None` if it is not a file, directory or symlink.
fn disk_item(path: &Path, mounted: &Arc<MountedOverlay>) -> io::Result<Option<Item>> {
    let metadata = fs::symlink_metadata(path)?;
    let (kind, mounted) = (metadata.file_type(), Arc::clone(mounted));
    let path = path.to_owned();
    Ok(if kind.is_dir() {
        Some(Item::Directory {
            layers: vec![Layer::Disk(path, mounted)],
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
            _mounted: mounted,
        }))
    } else {
        None
    })
}

/// Lists a directory, ordered by the bytes of the names. Directories of equal name are merged; otherwise the upper
/// layer wins.
pub(super) fn list(layers: &[Layer], at: &[u8]) -> Result<Vec<(Vec<u8>, Item)>, TreeError> {
    if let [layer] = layers {
        let mut found = layer.list(at)?;
        found.sort_by(|one, other| one.0.cmp(&other.0));
        // Git never writes a tree with a duplicate name; a work tree would contain it once.
        found.dedup_by(|later, earlier| later.0 == earlier.0);
        return Ok(found);
    }
    let mut merged: BTreeMap<Vec<u8>, Item> = BTreeMap::new();
    for layer in layers {
        for (name, upper) in layer.list(at)? {
            let item = match (merged.remove(&name), upper) {
                (
                    Some(Item::Directory {
                        layers: mut merged_layers,
                        certain,
                    }),
                    Item::Directory {
                        layers,
                        certain: also,
                    },
                ) => {
                    merged_layers.extend(layers);
                    Item::Directory {
                        layers: merged_layers,
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

/// Joins a directory and a name.
pub(super) fn join_path(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() {
        name.to_vec()
    } else {
        [directory, b"/", name].concat()
    }
}
