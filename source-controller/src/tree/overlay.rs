//! Files on disk that are layered over a tree.

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;
use std::{fmt, fs, io};

use super::error::{TreeError, lossy_path};
use super::find::Lookup;
use super::{Nodes, Tree};

/// A directory with its content, or a single file, on disk. It must not change while the tree exists.
#[derive(Clone)]
pub struct Overlay {
    pub(super) path: PathBuf,
    // Dropped with the last tree that reads from it.
    _owner: Option<Arc<dyn Any + Send + Sync>>,
}

impl Overlay {
    /// Uses the file or directory at this path.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            _owner: None,
        }
    }

    /// Uses the file or directory at this path, which exists as long as `owner`, for example a temporary directory.
    #[must_use]
    pub(crate) fn owned_by<T: Any + Send + Sync>(path: impl Into<PathBuf>, owner: Arc<T>) -> Self {
        Self {
            path: path.into(),
            _owner: Some(owner),
        }
    }
}

impl fmt::Debug for Overlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Overlay").field(&self.path).finish()
    }
}

/// An overlay with its target.
#[derive(Debug)]
pub(super) struct MountedOverlay {
    /// The path of the target; empty for the root.
    pub(super) target: Vec<Vec<u8>>,
    /// The files on disk.
    pub(super) overlay: Overlay,
}

/// Why an overlay cannot be added.
#[derive(Debug, thiserror::Error)]
pub enum OverlayError {
    /// The tree cannot be read.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The source cannot be read.
    #[error("{0}")]
    Source(#[source] io::Error),
    /// The source is neither a file nor a directory.
    #[error("it is neither a file nor a directory")]
    UnsupportedType,
    /// The target is a directory that is not empty, or has another type than the source.
    #[error("'{path}' exists already")]
    TargetExists {
        /// The target.
        path: String,
    },
    /// A parent of the target is not a directory.
    #[error("'{path}' is not a directory")]
    NotADirectory {
        /// The path of the parent.
        path: String,
    },
}

impl Tree {
    /// Adds files on disk at a path of the tree, above earlier overlays; missing parent directories are created.
    /// Symlinks in the path are followed; symlinks and `..` never leave the tree.
    ///
    /// As in a rename, a file replaces a file and a directory replaces an empty directory; everything else is an error.
    ///
    /// # Errors
    /// The target exists, a parent of it is not a directory, or a read fails.
    pub fn overlay(&mut self, target: &[u8], overlay: Overlay) -> Result<(), OverlayError> {
        let kind = fs::symlink_metadata(&overlay.path)
            .map_err(OverlayError::Source)?
            .file_type();
        if !kind.is_dir() && !kind.is_file() {
            return Err(OverlayError::UnsupportedType);
        }
        let target = self.resolve(target)?;
        for end in 1..target.len() {
            let parent = &target[..end];
            if matches!(self.look_up(parent)?, Lookup::Leaf(_)) {
                let path = lossy_path(&parent.join(&b'/'));
                return Err(OverlayError::NotADirectory { path });
            }
        }
        let can_replace = match self.look_up(&target)? {
            Lookup::Missing => true,
            Lookup::Leaf(_) => kind.is_file(),
            Lookup::Directory { layers, certain } => {
                let empty = Nodes::below(self, target.join(&b'/'), layers).is_empty()?;
                empty && (kind.is_dir() || !certain)
            }
        };
        if !can_replace {
            let path = lossy_path(&target.join(&b'/'));
            return Err(OverlayError::TargetExists { path });
        }
        self.overlays.push(Arc::new(MountedOverlay { target, overlay }));
        Ok(())
    }
}
