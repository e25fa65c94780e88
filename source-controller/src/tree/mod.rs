//! The tree that is archived: the content of a work tree, without a work tree on disk.
//!
//! [`Tree`] combines layers: a commit; at its gitlinks the commits of submodules, or empty directories; a selection of
//! paths ([`Sparse`]); and above them files and directories on disk ([`Overlay`]), which provide included artifacts.
//! [`Tree::nodes`] walks the result in archive order, one directory at a time. Content is read one file at a time. All
//! methods block: they read from disk.

mod error;
mod find;
mod layer;
mod node;
mod overlay;
mod read;
mod sparse;

use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use error::lossy_path;
pub use error::{SparseError, TreeError};
use layer::{Layer, Leaf};
pub use node::{Kind, Node, Nodes};
pub(crate) use node::{KnownTrees, Visit};
use overlay::MountedOverlay;
pub use overlay::{Overlay, OverlayError};
pub use read::Content;
pub use sparse::Sparse;

use crate::git::{Checkout, Commit, Limits, Oid};

/// A commit with its checked out submodules, by path from its root.
#[derive(Clone, Debug)]
pub struct Module {
    checkout: Checkout,
    submodules: BTreeMap<Vec<u8>, Self>,
}

impl Module {
    /// Creates a module; a gitlink without an entry in `submodules` becomes an empty directory.
    #[must_use]
    pub const fn new(checkout: Checkout, submodules: BTreeMap<Vec<u8>, Self>) -> Self {
        Self { checkout, submodules }
    }

    /// Returns the commit.
    #[must_use]
    pub fn commit(&self) -> &Commit {
        self.checkout.commit()
    }
}

impl From<Checkout> for Module {
    fn from(checkout: Checkout) -> Self {
        Self::new(checkout, BTreeMap::new())
    }
}

/// The composed tree. Cheap to clone; a clone shares the commit but not later overlays.
#[derive(Clone, Debug)]
pub struct Tree {
    base: Arc<Module>,
    sparse: Option<Arc<Sparse>>,
    overlays: Vec<Arc<MountedOverlay>>,
}

impl Tree {
    /// Creates the tree of a commit and its submodules, limited to the paths that `sparse` selects.
    #[must_use]
    pub fn new(base: impl Into<Module>, sparse: Option<Sparse>) -> Self {
        Self {
            base: Arc::new(base.into()),
            sparse: sparse.map(Arc::new),
            overlays: Vec::new(),
        }
    }

    /// Returns the tree of the sparse paths, or of everything if there are none. Every path must exist.
    pub(crate) fn select(base: Module, paths: &[String]) -> Result<Self, SparseError> {
        let tree = Self::new(base, Sparse::new(paths));
        for path in paths {
            if !tree.has(path.as_bytes())? {
                return Err(SparseError::Missing { path: path.clone() });
            }
        }
        Ok(tree)
    }

    /// Returns the commit of the lowest layer.
    #[must_use]
    pub fn commit(&self) -> &Commit {
        self.base.commit()
    }

    /// Returns the limits for reading.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.base.checkout.limits()
    }

    /// Iterates over all nodes: depth first, a directory before its entries, names ordered by bytes. The root itself is
    /// not included.
    ///
    /// As in a work tree, a directory of a commit exists only if it is not empty. A directory of a submodule or an
    /// overlay may be empty.
    #[must_use]
    pub fn nodes(&self) -> Nodes {
        Nodes::new(self)
    }

    /// As [`Tree::nodes`], without files and symlinks of another name, and without directories that exist only because of them.
    pub(crate) fn files_named(&self, name: &'static [u8]) -> Nodes {
        self.nodes().only(name)
    }

    /// Returns the file at this path of the lowest layer, whose content is this object.
    pub(crate) fn file(&self, path: &[u8], id: Oid, executable: bool) -> Node {
        let kind = if executable { Kind::Executable } else { Kind::File };
        let checkout = self.base.checkout.clone();
        Node {
            path: path.to_vec(),
            kind,
            leaf: Some(Leaf::Object { checkout, id, kind }),
            tree: None,
            limits: self.limits(),
        }
    }

    /// Whether the node is a file or symlink of the lowest layer, as [`Tree::file`] returns it.
    pub(crate) fn is_file_of_commit(&self, node: &Node) -> bool {
        match &node.leaf {
            Some(Leaf::Object { checkout, .. }) => checkout.is_same(&self.base.checkout),
            _ => false,
        }
    }

    /// Returns how many tree objects of the lowest layer were listed.
    pub(crate) fn trees_listed(&self) -> u64 {
        self.base.checkout.trees_listed()
    }

    /// Returns the layers of the root directory, lowest first.
    fn root(&self) -> Vec<Layer> {
        let commit = Layer::commit(Arc::clone(&self.base), self.sparse.clone());
        let overlays = self
            .overlays
            .iter()
            .map(|mounted| Layer::overlay(Arc::clone(mounted)));
        std::iter::once(commit).chain(overlays).collect()
    }
}

#[cfg(test)]
mod tests;
