//! The files that are served: the content, or a handle to it, and the headers of a response with all of it.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{self, HeaderValue};
use jiff::Timestamp;

use super::conditional::{self, FileInfo};
use crate::storage::{LocalDirectory, open_below};

/// Maximum size of a file that is read as a whole, in bytes.
pub(super) const MAX_SMALL: u64 = 64 * 1024;

/// A file and what a response says of it.
#[derive(Debug)]
pub(super) struct ServedFile {
    pub(super) content: Content,
    pub(super) info: FileInfo,
    /// The headers of a response with the whole file.
    pub(super) headers: HeaderMap,
}

/// The content of a file.
#[derive(Debug)]
pub(super) enum Content {
    /// A small file.
    Memory(Bytes),
    /// The handle of another file. It stays readable if the file is renamed or removed.
    File(Arc<File>),
}

impl ServedFile {
    /// Opens a file below the root of the storage, and reads it if it is small. Blocks.
    ///
    /// # Errors
    /// The file does not exist, is not a regular file, or cannot be read.
    pub(super) fn open(storage: &LocalDirectory, path: &Path) -> io::Result<Self> {
        let file = open_below(storage.root(), path)?;
        Self::of(storage, path, file)
    }

    /// As [`ServedFile::open`], for a file of that path that is open.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn of(storage: &LocalDirectory, path: &Path, file: File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let digest = storage.cached_digest(path, &metadata);
        let info = FileInfo {
            size: metadata.len(),
            modified: Timestamp::from_second(metadata.mtime()).map_err(io::Error::other)?,
            tag: digest.map(|digest| format!("\"{digest}\"")),
        };
        let content = if info.size <= MAX_SMALL {
            Content::Memory(read(file, info.size)?)
        } else {
            Content::File(Arc::new(file))
        };
        Ok(Self {
            headers: headers(&info),
            content,
            info,
        })
    }
}

/// Reads a small file of this size.
fn read(file: File, size: u64) -> io::Result<Bytes> {
    let mut content = Vec::with_capacity(usize::try_from(size).map_err(io::Error::other)?);
    file.take(size).read_to_end(&mut content)?;
    if content.len() as u64 == size {
        Ok(content.into())
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

fn headers(info: &FileInfo) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(8);
    let mut put = |name, value: Option<String>| {
        if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
            headers.insert(name, value);
        }
    };
    put(header::LAST_MODIFIED, conditional::date(info.modified));
    put(header::ETAG, info.tag.clone());
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/gzip"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(info.size));
    headers
}
