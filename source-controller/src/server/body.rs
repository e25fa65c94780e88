//! Bodies of responses: bytes in memory, or a range of a file in parts.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use sluice_runtime::serve::ResponseGuard;
use tokio::task::JoinHandle;

use super::downloads::Download;
use super::file_socket::{FileParts, MAX_PART};

/// Number of bytes after which a download lets others proceed: a fast reader is always ready for more.
const TURN: usize = 2 * MAX_PART;
/// Distance in bytes between the places of a part that are looked up in the page cache. The kernel reads and evicts files in runs of pages.
const PROBE_DISTANCE: u64 = 64 * 1024;
/// Number of bytes that are read at a time to fill the page cache.
const READ_LENGTH: usize = 64 * 1024;

/// The body of a response.
pub(super) enum Body {
    /// Bytes in memory.
    Memory(MemoryBody),
    /// A range of a file.
    File(Box<FileBody>),
}

/// Bytes in memory.
pub(super) struct MemoryBody {
    /// `None` once they were sent.
    bytes: Option<Bytes>,
    /// Marks the connection as busy.
    _answer: Option<ResponseGuard>,
}

/// A range of a file, sent part by part when the client has taken nearly all of the previous one.
pub(super) struct FileBody {
    file: Arc<File>,
    range: Range<u64>,
    /// The parts that the connection sends.
    parts: FileParts,
    /// Whether the file system can tell what is in the page cache, as far as known.
    has_probe: bool,
    /// The next part that is read into the page cache on a blocking thread, with its length.
    reading: Option<JoinHandle<io::Result<usize>>>,
    /// Number of bytes since others could proceed.
    in_turn: usize,
    /// The slot of the download, held until the end.
    _download: Download,
}

impl Body {
    /// Returns a body of these bytes.
    pub(super) fn memory(bytes: impl Into<Bytes>, answer: Option<ResponseGuard>) -> Self {
        let bytes: Bytes = bytes.into();
        Self::Memory(MemoryBody {
            bytes: (!bytes.is_empty()).then_some(bytes),
            _answer: answer,
        })
    }

    /// Returns a body without bytes.
    pub(super) fn empty() -> Self {
        Self::memory(Bytes::new(), None)
    }

    /// Returns the body of a range of a file.
    pub(super) fn file(file: Arc<File>, range: Range<u64>, parts: FileParts, download: Download) -> Self {
        Self::File(Box::new(FileBody {
            file,
            range,
            parts,
            has_probe: true,
            reading: None,
            in_turn: 0,
            _download: download,
        }))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Self::Memory(body) => Poll::Ready(body.bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::File(body) => body.poll_part(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Memory(body) => body.bytes.is_none(),
            // The server would drop it, and with it the slot, before it has sent the last part.
            Self::File(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match self {
            Self::Memory(body) => body.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64),
            Self::File(body) => body.range.end - body.range.start,
        })
    }
}

impl FileBody {
    fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.range.is_empty() {
            return Poll::Ready(None);
        }
        if self.in_turn >= TURN {
            self.in_turn = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let length = loop {
            if let Some(reading) = &mut self.reading {
                let read = ready!(Pin::new(reading).poll(context));
                self.reading = None;
                match read.unwrap_or_else(|error| Err(io::Error::other(error))) {
                    Ok(length) => break length,
                    Err(error) => return Poll::Ready(Some(Err(error))),
                }
            }
            let length = self.next_length();
            if self.is_cached(length) {
                break length;
            }
            self.reading = Some(self.read_on_a_thread(length));
        };
        Poll::Ready(Some(Ok(self.frame(length))))
    }

    /// Whether the next bytes are in the page cache, as far as a few of them tell: the socket would wait for the disk with all other
    /// connections of its thread.
    fn is_cached(&mut self, length: usize) -> bool {
        let end = self.range.start + length as u64;
        let mut byte = [0];
        let mut at = self.range.start;
        while self.has_probe && at < end {
            let mut space = [IoSliceMut::new(&mut byte)];
            match preadv2(&self.file, &mut space, at, ReadWriteFlags::NOWAIT) {
                Ok(1) => at += PROBE_DISTANCE,
                Err(Errno::OPNOTSUPP) => self.has_probe = false,
                _ => return false,
            }
        }
        self.has_probe
    }

    /// Reads the next bytes into the page cache on a blocking thread. A truncated file causes an error.
    fn read_on_a_thread(&self, length: usize) -> JoinHandle<io::Result<usize>> {
        let (file, start) = (Arc::clone(&self.file), self.range.start);
        tokio::task::spawn_blocking(move || {
            let mut space = vec![0; READ_LENGTH];
            let mut read = 0;
            while read < length {
                let count = READ_LENGTH.min(length - read);
                file.read_exact_at(&mut space[..count], start + read as u64)?;
                read += count;
            }
            Ok(length)
        })
    }

    fn next_length(&self) -> usize {
        usize::try_from(self.range.end - self.range.start).map_or(MAX_PART, |left| left.min(MAX_PART))
    }

    /// Moves on by one part.
    fn frame(&mut self, length: usize) -> Frame<Bytes> {
        let placeholder = self.parts.add(&self.file, self.range.start, length);
        self.range.start += length as u64;
        self.in_turn += length;
        Frame::data(placeholder)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Write as _;
    use std::net::Ipv4Addr;

    use super::super::downloads::Downloads;
    use super::*;

    /// Returns the lengths of the parts of a file that has this many bytes, up to its end or an error. No part is looked up in the page cache.
    async fn parts(length: usize, range: Range<u64>) -> (Vec<usize>, Option<io::ErrorKind>) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; length]).unwrap();
        let download = Downloads::new(4).acquire(Ipv4Addr::LOCALHOST.into()).await;
        let body = Body::file(Arc::new(file), range, FileParts::default(), download.unwrap());
        let Body::File(mut body) = body else {
            unreachable!("a body of a file")
        };
        body.has_probe = false;
        let mut lengths = Vec::new();
        loop {
            match poll_fn(|context| body.poll_part(context)).await {
                Some(Ok(frame)) => lengths.push(frame.into_data().unwrap().len()),
                Some(Err(error)) => return (lengths, Some(error.kind())),
                None => return (lengths, None),
            }
        }
    }

    #[tokio::test]
    async fn a_part_that_is_not_in_the_page_cache_is_read_on_another_thread() {
        let length = 2 * MAX_PART + 10;
        let (lengths, error) = parts(length, 4..length as u64).await;
        assert_eq!((lengths, error), (vec![MAX_PART, MAX_PART, 6], None));
        // The file was truncated before its second part.
        let (lengths, error) = parts(MAX_PART, 0..length as u64).await;
        assert_eq!(
            (lengths, error),
            (vec![MAX_PART], Some(io::ErrorKind::UnexpectedEof))
        );
    }
}
