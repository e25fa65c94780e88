//! A socket that can be taken away from the task that reads it.
//!
//! The library drives each connection in a task of its own, which ends only when the socket does. With the leash cut
//! the socket ends, so neither a dropped handshake nor a dropped connection leaves anything behind.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A socket on a leash.
pub(super) struct Leashed<S> {
    socket: S,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<S> Leashed<S> {
    pub(super) fn new(socket: S, cut: CancellationToken) -> Self {
        Self {
            socket,
            cut: Box::pin(cut.cancelled_owned()),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Leashed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.cut.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Leashed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.cut.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn a_cut_leash_ends_a_read_that_waits() {
        let (near, _far) = tokio::io::duplex(16);
        let cut = CancellationToken::new();
        let mut leashed = Leashed::new(near, cut.clone());
        let reading = tokio::spawn(async move { leashed.read_u8().await });
        cut.cancel();
        let error = tokio::time::timeout(std::time::Duration::from_secs(20), reading)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
    }
}
