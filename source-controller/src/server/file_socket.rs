//! A socket that sends parts of files with `sendfile`: the kernel takes the bytes from the page cache, so they are copied nowhere, and a client
//! that reads slowly holds none of them in memory.
//!
//! hyper writes only bytes in memory. A body therefore adds the part of a file to the [`FileParts`] of its connection, and gives hyper a
//! placeholder of the same length: bytes of one static array, which the socket knows by their address. It sends none of them. Where hyper
//! writes a placeholder, the socket sends the next part of a file; without one, the connection ends with an error.
//!
//! The kernel sends the pages of the file itself, so a file must not change in place. Those of the storage do not.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use rustix::io::retry_on_intr;
use sluice_runtime::sync::lock;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// Longest part of a file in bytes: large enough that a request to the system costs little, and small enough to let other downloads proceed.
pub(super) const MAX_PART: usize = 512 * 1024;

/// Its bytes are never read, so it occupies no memory.
static PLACEHOLDER: [u8; MAX_PART] = [0; MAX_PART];

/// The parts of files that a connection sends next, in the order of their placeholders; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct FileParts(Arc<Mutex<VecDeque<FilePart>>>);

/// A part of a file, which is not empty.
#[derive(Debug)]
struct FilePart {
    file: Arc<File>,
    range: Range<u64>,
}

impl FileParts {
    /// Adds a part of a file, of `length` bytes from `start` on, and returns its placeholder. `length` is at most [`MAX_PART`].
    pub(super) fn add(&self, file: &Arc<File>, start: u64, length: usize) -> Bytes {
        let placeholder = &PLACEHOLDER[..length.min(MAX_PART)];
        lock(&self.0).push_back(FilePart {
            file: Arc::clone(file),
            range: start..start + placeholder.len() as u64,
        });
        Bytes::from_static(placeholder)
    }

    /// Sends up to `length` bytes of the next part. A file that was truncated is an error.
    fn send(&self, socket: &TcpStream, length: usize) -> io::Result<usize> {
        let mut parts = lock(&self.0);
        let Some(part) = parts.front_mut() else {
            return Err(io::Error::other("a placeholder has no part of a file"));
        };
        let mut offset = part.range.start;
        let left = usize::try_from(part.range.end - offset).unwrap_or(MAX_PART);
        let count = left.min(length);
        let sent = retry_on_intr(|| rustix::fs::sendfile(socket, &part.file, Some(&mut offset), count))?;
        if sent == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        part.range.start += sent as u64;
        if part.range.is_empty() {
            parts.pop_front();
        }
        Ok(sent)
    }
}

/// A socket that sends parts of files in place of their placeholders.
#[derive(Debug)]
pub(super) struct FileSocket {
    stream: TcpStream,
    parts: FileParts,
}

impl FileSocket {
    pub(super) const fn new(stream: TcpStream, parts: FileParts) -> Self {
        Self { stream, parts }
    }

    fn poll_send(&self, context: &mut Context<'_>, length: usize) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(context))?;
            let send = || self.parts.send(&self.stream, length);
            match self.stream.try_io(Interest::WRITABLE, send) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }
}

/// Whether bytes are those of a placeholder.
fn is_placeholder(bytes: &[u8]) -> bool {
    PLACEHOLDER.as_ptr_range().contains(&bytes.as_ptr()) && !bytes.is_empty()
}

impl AsyncWrite for FileSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if is_placeholder(bytes) {
            return self.poll_send(context, bytes.len());
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let empty = slices.iter().take_while(|slice| slice.is_empty()).count();
        let slices = &slices[empty..];
        if let Some(first) = slices.first().filter(|first| is_placeholder(first)) {
            return self.poll_send(context, first.len());
        }
        let bytes = slices.iter().take_while(|slice| !is_placeholder(slice)).count();
        Pin::new(&mut self.stream).poll_write_vectored(context, &slices[..bytes])
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl AsyncRead for FileSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Write as _;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Returns a socket with its parts, and the other end of its connection.
    async fn connected() -> (FileSocket, FileParts, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (near, _) = listener.accept().await.unwrap();
        let parts = FileParts::default();
        (FileSocket::new(near, parts.clone()), parts, far)
    }

    fn file(content: &[u8]) -> Arc<File> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        Arc::new(file)
    }

    #[tokio::test]
    async fn parts_of_files_are_sent_in_place_of_their_placeholders() {
        let (mut socket, parts, mut far) = connected().await;
        let content: Vec<u8> = (0..3_000_000_u32)
            .map(|n| u8::try_from(n % 251).unwrap())
            .collect();
        let file = file(&content);
        let mut expected = b"head".to_vec();
        let mut placeholders = Vec::new();
        for (start, length) in [(0, MAX_PART), (1_000_000, MAX_PART), (7, 3)] {
            placeholders.push(parts.add(&file, start, length));
            let start = usize::try_from(start).unwrap();
            expected.extend_from_slice(&content[start..start + length]);
        }
        expected.extend_from_slice(b"tail");
        let writing = async {
            let mut queue = VecDeque::from([Bytes::new(), Bytes::from_static(b"head")]);
            queue.extend(placeholders);
            queue.push_back(Bytes::from_static(b"tail"));
            while !queue.is_empty() {
                let slices: Vec<_> = queue.iter().map(|bytes| IoSlice::new(bytes)).collect();
                let write =
                    |context: &mut Context<'_>| Pin::new(&mut socket).poll_write_vectored(context, &slices);
                let mut written = poll_fn(write).await.unwrap();
                while let Some(first) = queue.front_mut() {
                    let of_first = written.min(first.len());
                    drop(first.split_to(of_first));
                    written -= of_first;
                    if !first.is_empty() {
                        break;
                    }
                    queue.pop_front();
                }
            }
            socket.shutdown().await.unwrap();
        };
        let mut received = Vec::new();
        let (read, ()) = tokio::join!(far.read_to_end(&mut received), writing);
        assert_eq!(read.unwrap(), expected.len());
        assert!(received == expected);
    }

    #[tokio::test]
    async fn no_byte_of_a_placeholder_is_sent() {
        let (mut socket, parts, mut far) = connected().await;
        let file = file(b"0123456789");
        let placeholder = parts.add(&file, 8, 4);
        assert_eq!(socket.write(&placeholder).await.unwrap(), 2);
        let error = socket.write(&placeholder[2..]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "the file is shorter");
        let (mut without, _, _far) = connected().await;
        let error = without.write(&placeholder).await.unwrap_err();
        assert_eq!(error.to_string(), "a placeholder has no part of a file");
        drop(socket);
        let mut received = Vec::new();
        far.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, b"89");
    }
}
