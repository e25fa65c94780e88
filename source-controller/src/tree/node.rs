//! One name of the composed tree and the bytes behind it.

use std::fs::File;
use std::io::Read as _;
use std::ops::Deref;

use super::error::{TreeError, shown};
use super::layer::Leaf;
use crate::git::{BLOB_BYTES_FLAG, Blob, Limits};

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A file.
    File,
    /// A file that may be executed.
    Executable,
    /// A link; its target is its content.
    Symlink,
}

/// One name of the composed tree.
#[derive(Clone, Debug)]
pub struct Node {
    /// Path from the root, names joined by `/`; not necessarily UTF-8.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Where the bytes are; nowhere for a directory.
    pub(super) leaf: Option<Leaf>,
    /// Bounds on what is read.
    pub(super) limits: Limits,
}

impl Node {
    /// Size in bytes of a file or of a link's target; 0 for directories.
    ///
    /// # Errors
    /// The object cannot be found.
    pub fn size(&self) -> Result<u64, TreeError> {
        match &self.leaf {
            None => Ok(0),
            Some(Leaf::Object { checkout, id, .. }) => Ok(checkout.size(*id)?),
            Some(Leaf::File { size, .. }) => Ok(*size),
        }
    }

    /// The bytes of a file, or the target of a link; none for a directory.
    ///
    /// # Errors
    /// The file is larger than is allowed, or cannot be read.
    pub fn read(&self) -> Result<Content<'_>, TreeError> {
        match &self.leaf {
            None => Ok(Content::File(Vec::new())),
            Some(Leaf::Object { checkout, id, .. }) => Ok(Content::Object(checkout.read(*id)?)),
            Some(Leaf::File {
                path, link: false, ..
            }) => {
                let limit = self.limits.blob_bytes;
                let mut bytes = Vec::new();
                let file = File::open(path).map_err(|source| self.unreadable(source))?;
                // One byte more than is allowed shows that there are too many, whatever the size was before.
                file.take(limit.saturating_add(1))
                    .read_to_end(&mut bytes)
                    .map_err(|source| self.unreadable(source))?;
                if bytes.len() as u64 > limit {
                    return Err(TreeError::TooLarge {
                        path: shown(&self.path),
                        size: self.size()?,
                        limit,
                        flag: BLOB_BYTES_FLAG,
                    });
                }
                Ok(Content::File(bytes))
            }
            Some(Leaf::File { path, link: true, .. }) => {
                use std::os::unix::ffi::OsStringExt as _;
                let target = std::fs::read_link(path).map_err(|source| self.unreadable(source))?;
                Ok(Content::File(target.into_os_string().into_vec()))
            }
        }
    }

    fn unreadable(&self, source: std::io::Error) -> TreeError {
        TreeError::Disk {
            path: shown(&self.path),
            source,
        }
    }
}

/// The bytes of one file.
pub enum Content<'a> {
    /// In a mirror.
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
