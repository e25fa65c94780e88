//! Files on disk that are laid over a tree.

use std::any::Any;
use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::error::{TreeError, shown};
use super::find::Place;
use super::{Nodes, Tree};

/// A directory with all that is in it, or a single file, on disk. It has to stay as it is for as long as the tree.
#[derive(Clone)]
pub struct Overlay {
    pub(super) path: PathBuf,
    // Dropped with the last tree that reads from it.
    _keep: Option<Arc<dyn Any + Send + Sync>>,
}

impl Overlay {
    /// What lies at this path.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            _keep: None,
        }
    }

    /// What lies at this path, which is there as long as `owner` is: a temporary directory, say.
    #[must_use]
    pub fn kept_by<T: Any + Send + Sync>(path: impl Into<PathBuf>, owner: Arc<T>) -> Self {
        Self {
            path: path.into(),
            _keep: Some(owner),
        }
    }
}

impl fmt::Debug for Overlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Overlay").field(&self.path).finish()
    }
}

/// An overlay in its place.
#[derive(Debug)]
pub(super) struct Placed {
    /// The names on the way to it; none if it is the root.
    pub(super) target: Vec<Vec<u8>>,
    /// What lies there.
    pub(super) overlay: Overlay,
}

/// Why something cannot be laid over a tree.
#[derive(Debug, thiserror::Error)]
pub enum OverlayError {
    /// The tree cannot be read.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// What is to be laid over it cannot be read.
    #[error("{0}")]
    Source(#[source] io::Error),
    /// What is to be laid over it is neither a file nor a directory.
    #[error("it is neither a file nor a directory")]
    NoFile,
    /// The target is a directory with something in it, or of another kind than what is to be put there.
    #[error("'{path}' exists already")]
    Taken {
        /// The target.
        path: String,
    },
    /// A name on the way to the target is no directory.
    #[error("'{path}' is not a directory")]
    NotADirectory {
        /// The name, with its directory.
        path: String,
    },
}

impl Tree {
    /// Puts files from the disk at a path of the tree, over what was put there before; directories on the way appear as
    /// needed. Links in the path are followed and never lead out of the tree, nor does `..`.
    ///
    /// As a rename would, this replaces a file by a file and an empty directory by a directory, and nothing else.
    ///
    /// # Errors
    /// The target is taken, a name on the way to it is no directory, or something cannot be read.
    pub fn overlay(&mut self, target: &[u8], overlay: Overlay) -> Result<(), OverlayError> {
        let kind = fs::symlink_metadata(&overlay.path)
            .map_err(OverlayError::Source)?
            .file_type();
        if !kind.is_dir() && !kind.is_file() {
            return Err(OverlayError::NoFile);
        }
        let target = self.resolve(target)?;
        for end in 1..target.len() {
            let way = &target[..end];
            if matches!(self.place(way)?, Place::Leaf(_)) {
                let path = shown(&way.join(&b'/'));
                return Err(OverlayError::NotADirectory { path });
            }
        }
        let free = match self.place(&target)? {
            Place::Nowhere => true,
            Place::Leaf(_) => kind.is_file(),
            Place::Directory { layers, certain } => {
                let empty = Nodes::below(self, target.join(&b'/'), layers)
                    .next()
                    .transpose()?
                    .is_none();
                empty && (kind.is_dir() || !certain)
            }
        };
        if !free {
            let path = shown(&target.join(&b'/'));
            return Err(OverlayError::Taken { path });
        }
        self.overlays.push(Arc::new(Placed { target, overlay }));
        Ok(())
    }
}
