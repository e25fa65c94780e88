//! Bodies of responses: bytes in memory, or a range of a file in chunks.

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

use super::buffers::{Buffer, Buffers, CHUNK};
use super::downloads::Download;

/// Number of bytes after which a download lets others proceed: a fast reader is always ready for more.
const TURN: usize = 8 * CHUNK;

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

/// A range of a file, read chunk by chunk when the client has taken nearly all of the previous one.
pub(super) struct FileBody {
    file: Arc<File>,
    range: Range<u64>,
    buffers: Buffers,
    /// Whether the file system can read without waiting, as far as known.
    reads_without_waiting: bool,
    /// The chunk that is read on a blocking thread.
    reading: Option<JoinHandle<io::Result<Buffer>>>,
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
    pub(super) fn file(file: Arc<File>, range: Range<u64>, buffers: Buffers, download: Download) -> Self {
        Self::File(Box::new(FileBody {
            file,
            range,
            buffers,
            reads_without_waiting: true,
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
            Self::File(body) => body.poll_chunk(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Memory(body) => body.bytes.is_none(),
            // The server would drop it, and with it the slot, before it has sent the last chunk.
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
    fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.range.is_empty() {
            return Poll::Ready(None);
        }
        if self.in_turn >= TURN {
            self.in_turn = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let read = loop {
            if let Some(reading) = &mut self.reading {
                let read = ready!(Pin::new(reading).poll(context));
                self.reading = None;
                break read.unwrap_or_else(|error| Err(io::Error::other(error)));
            }
            match self.read_without_waiting() {
                Some(chunk) => break Ok(chunk),
                None => self.reading = Some(self.read_on_a_thread()),
            }
        };
        Poll::Ready(Some(read.map(|chunk| self.frame(chunk))))
    }

    /// Reads what is in the page cache of the next chunk; `None` if the disk has to be read, or the file is too short.
    fn read_without_waiting(&mut self) -> Option<Buffer> {
        if !self.reads_without_waiting {
            return None;
        }
        let mut buffer = self.buffers.take();
        let mut space = [IoSliceMut::new(buffer.space(self.next_length()))];
        let read = preadv2(&self.file, &mut space, self.range.start, ReadWriteFlags::NOWAIT);
        if read == Err(Errno::OPNOTSUPP) {
            self.reads_without_waiting = false;
        }
        let count = read.ok().filter(|count| *count > 0)?;
        buffer.set_filled(count);
        Some(buffer)
    }

    /// Reads the next chunk on a blocking thread. A truncated file causes an error, never other content.
    fn read_on_a_thread(&self) -> JoinHandle<io::Result<Buffer>> {
        let (file, start) = (Arc::clone(&self.file), self.range.start);
        let (mut buffer, length) = (self.buffers.take(), self.next_length());
        tokio::task::spawn_blocking(move || {
            file.read_exact_at(buffer.space(length), start)?;
            buffer.set_filled(length);
            Ok(buffer)
        })
    }

    fn next_length(&self) -> usize {
        usize::try_from(self.range.end - self.range.start).map_or(CHUNK, |left| left.min(CHUNK))
    }

    /// Moves on by one chunk.
    fn frame(&mut self, chunk: Buffer) -> Frame<Bytes> {
        let length = chunk.as_ref().len();
        self.range.start += length as u64;
        self.in_turn += length;
        Frame::data(Bytes::from_owner(chunk))
    }
}
