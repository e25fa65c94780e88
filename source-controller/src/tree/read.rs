//! The content of a node.

use std::fs::File;
use std::io::Read as _;
use std::ops::Deref;
use std::path::Path;

use super::error::{TreeError, lossy_path};
use super::layer::Leaf;
use super::node::Node;
use crate::git::{BLOB_BYTES_FLAG, Blob};

/// Bytes of a part of a large file.
const PART_BYTES: usize = 64 << 10;

impl Node {
    /// Passes the content of a file to `sink`: a large file in several parts, where its storage allows it, and any other one at once.
    ///
    /// # Errors
    /// As [`Node::read`], or an error of `sink`.
    pub(crate) fn read_parts<E: From<TreeError>>(
        &self,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let large = match &self.leaf {
            Some(Leaf::Object { checkout, id, .. }) => {
                if let Some(content) = checkout.read_undeltified(*id) {
                    return sink(&content);
                }
                checkout.open_large(*id).map_err(TreeError::from)?
            }
            Some(Leaf::File {
                path, link: false, ..
            }) => return self.read_disk_parts(path, sink),
            _ => None,
        };
        let Some(mut large) = large else {
            return sink(&self.read()?);
        };
        let mut buffer = vec![0; PART_BYTES];
        loop {
            match large.read_part(&mut buffer).map_err(TreeError::from)? {
                0 => return Ok(()),
                length => sink(&buffer[..length])?,
            }
        }
    }

    /// As [`Node::read_parts`], for a file on disk.
    fn read_disk_parts<E: From<TreeError>>(
        &self,
        path: &Path,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut file = File::open(path).map_err(TreeError::disk(&self.path))?;
        let (mut buffer, mut size) = (vec![0; PART_BYTES], 0);
        loop {
            let length = file.read(&mut buffer).map_err(TreeError::disk(&self.path))?;
            size += length as u64;
            if length == 0 {
                return Ok(());
            }
            if size > self.limits.blob_bytes {
                return Err(self.too_large(size).into());
            }
            sink(&buffer[..length])?;
        }
    }

    /// Returns how many bytes of memory [`Node::read_parts`] takes for a large file; 0 if it reads the file in several parts.
    pub(crate) fn held_bytes(&self) -> u64 {
        match &self.leaf {
            Some(Leaf::Object { checkout, id, .. }) => checkout.held_bytes(*id),
            _ => 0,
        }
    }

    pub(super) fn too_large(&self, size: u64) -> TreeError {
        TreeError::TooLarge {
            path: lossy_path(&self.path),
            size,
            limit: self.limits.blob_bytes,
            flag: BLOB_BYTES_FLAG,
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
                    return Err(self.too_large(self.size()?));
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
