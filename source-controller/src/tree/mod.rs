//! The tree that is packed: what a work tree would hold, without there being one.
//!
//! [`Tree`] puts layers over each other: a commit; in the places of its gitlinks the commits of submodules, or empty
//! directories; a choice of paths ([`Sparse`]); and above them files and directories on disk ([`Overlay`]), which is
//! how included artifacts come in. [`Tree::nodes`] walks the result in the order of the archive, one directory at a
//! time; content is read one file at a time. Everything here blocks: it reads from the disk.

mod error;
mod find;
mod layer;
mod node;
mod overlay;
mod sparse;
mod walk;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::git::{Checkout, Commit, Limits};

pub use error::TreeError;
pub use node::{Content, Kind, Node};
pub use overlay::{Overlay, OverlayError};
pub use sparse::Sparse;
pub use walk::Nodes;

use layer::Layer;
use overlay::Placed;

/// A commit with the submodules that are checked out in it, by their paths from its root.
#[derive(Clone, Debug)]
pub struct Module {
    checkout: Checkout,
    submodules: BTreeMap<Vec<u8>, Self>,
}

impl Module {
    /// A commit; a gitlink that `submodules` does not name is an empty directory.
    #[must_use]
    pub const fn new(checkout: Checkout, submodules: BTreeMap<Vec<u8>, Self>) -> Self {
        Self { checkout, submodules }
    }

    /// The commit.
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

/// The composed tree. Cheap to clone; a clone shares what is below but not what is laid over it later.
#[derive(Clone, Debug)]
pub struct Tree {
    base: Arc<Module>,
    sparse: Option<Arc<Sparse>>,
    overlays: Vec<Arc<Placed>>,
}

impl Tree {
    /// The tree of a commit and its submodules, of which only the paths that `sparse` selects are there.
    #[must_use]
    pub fn new(base: impl Into<Module>, sparse: Option<Sparse>) -> Self {
        Self {
            base: Arc::new(base.into()),
            sparse: sparse.map(Arc::new),
            overlays: Vec::new(),
        }
    }

    /// The commit at the bottom.
    #[must_use]
    pub fn commit(&self) -> &Commit {
        self.base.commit()
    }

    /// The bounds on what is read.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.base.checkout.limits()
    }

    /// Every name in the tree: depth first, a directory before what is in it, names in the order of their bytes. The
    /// root itself is not among them.
    ///
    /// As in a work tree, a directory of a commit is there only if something is in it; one that came from a submodule
    /// or an overlay may be empty.
    #[must_use]
    pub fn nodes(&self) -> Nodes {
        Nodes::over(self)
    }

    /// The layers of the root directory, lowest first.
    fn root(&self) -> Vec<Layer> {
        let commit = Layer::commit(Arc::clone(&self.base), self.sparse.clone());
        let overlays = self.overlays.iter().map(|placed| Layer::way(Arc::clone(placed)));
        std::iter::once(commit).chain(overlays).collect()
    }
}

#[cfg(test)]
mod tests;
