//! One node of the composed tree and its content.

use std::fs::File;
use std::io::Read as _;
use std::ops::Deref;

use super::error::{TreeError, lossy_path};
use super::layer::Leaf;
use crate::git::{BLOB_BYTES_FLAG, Blob, Limits};

/// Type of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A file.
    File,
    /// An executable file.
    Executable,
    /// A symlink; its content is its target.
    Symlink,
}

/// One node of the composed tree.
#[derive(Clone, Debug)]
pub struct Node {
    /// Path from the root, names joined by `/`; not necessarily UTF-8.
    pub path: Vec<u8>,
    /// Type of the node.
    pub kind: Kind,
    /// Source of the content; `None` for a directory.
    pub(super) leaf: Option<Leaf>,
    /// Limits for reading.
    pub(super) limits: Limits,
}

impl Node {
    /// Returns the size in bytes of a file or of a symlink's target; 0 for directories.
    ///
    /// # Errors
    /// The object is missing.
    pub fn size(&self) -> Result<u64, TreeError> {
        match &self.leaf {
            None => Ok(0),
            Some(Leaf::Object { checkout, id, .. }) => Ok(checkout.size(*id)?),
            Some(Leaf::File { size, .. }) => Ok(*size),
        }
    }

    /// Returns the content of a file, or the target of a symlink; empty for a directory.
    ///
    /// # Errors
    /// The file is larger than allowed, or cannot be read.
    pub fn read(&self) -> Result<Content<'_>, TreeError> {
        match &self.leaf {
            None => Ok(Content::File(Vec::new())),
            Some(Leaf::Object { checkout, id, .. }) => Ok(Content::Object(checkout.read(*id)?)),
            Some(Leaf::File {
                path, link: false, ..
            }) => {
                let limit = self.limits.blob_bytes;
                let mut bytes = Vec::new();
                let file = File::open(path).map_err(TreeError::disk(&self.path))?;
                // One byte over the limit proves that the file is too large, even if it has grown since the listing.
                file.take(limit.saturating_add(1))
                    .read_to_end(&mut bytes)
                    .map_err(TreeError::disk(&self.path))?;
                if bytes.len() as u64 > limit {
                    return Err(TreeError::TooLarge {
                        path: lossy_path(&self.path),
                        size: self.size()?,
                        limit,
                        flag: BLOB_BYTES_FLAG,
                    });
                }
                Ok(Content::File(bytes))
            }
            Some(Leaf::File { path, link: true, .. }) => {
                use std::os::unix::ffi::OsStringExt as _;
                let target = std::fs::read_link(path).map_err(TreeError::disk(&self.path))?;
                Ok(Content::File(target.into_os_string().into_vec()))
            }
        }
    }
}

/// The content of one file.
pub enum Content<'a> {
    /// From a mirror.
    Object(Blob<'a>),
    /// From the disk.
    File(Vec<u8>),
}

impl Deref for Content<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Object(blob) => blob,
            Self::File(bytes) => bytes,
        }
    }
}
