//! A socket that can be closed from outside the task that reads it.
//!
//! The ssh library drives each connection in its own task, which ends only when the socket ends. Cancelling the token
//! ends the socket, so neither a dropped handshake nor a dropped connection leaves a task behind.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A socket that fails after its token is cancelled.
pub(super) struct CancellableStream<S> {
    socket: S,
    cancelled: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<S> CancellableStream<S> {
    pub(super) fn new(socket: S, token: CancellationToken) -> Self {
        Self {
            socket,
            cancelled: Box::pin(token.cancelled_owned()),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CancellableStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.cancelled.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CancellableStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.cancelled.as_mut().poll(context).is_ready() {
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
    async fn cancellation_ends_a_pending_read() {
        let (local, _remote) = tokio::io::duplex(16);
        let token = CancellationToken::new();
        let mut stream = CancellableStream::new(local, token.clone());
        let reading = tokio::spawn(async move { stream.read_u8().await });
        token.cancel();
        let error = tokio::time::timeout(std::time::Duration::from_secs(20), reading)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
    }
}
