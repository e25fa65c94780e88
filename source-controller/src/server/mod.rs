//! The file server for artifacts. Plain HTTP/1.1, read-only, without user authentication.
//!
//! Serves the published artifacts of a [`LocalDirectory`] only: no locks, unfinished files, links or listings. Files
//! are never modified in place, so an open file can be streamed even if it is renamed or removed. On loopback, requests
//! must use a known host name (`admission`).
//!
//! Slow clients do not block others: stalled connections are closed, each address has a limited share of the downloads,
//! and more connections than downloads are accepted, so that probes are always answered. A request that waits for a bucket does
//! not count as a download yet. Small files are sent from memory (`memory`), and large
//! ones with `sendfile` ([`file_socket`]): a download holds none of its bytes.

mod admission;
mod body;
mod conditional;
mod downloads;
mod file;
mod file_socket;
mod memory;
mod response;
mod stall;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use admission::Admission;
use file_socket::{FileParts, FileSocket};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use response::{Client, FileService};
use sluice_runtime::serve::ConnectionLimit;
use sluice_runtime::shutdown::Token;
use stall::StallLimit;
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

use crate::storage::LocalDirectory;
use crate::storage::bucket::BucketStorage;

/// Maximum number of connections: downloads, and some for probes and waiting requests. Another connection replaces the
/// one that has been idle longest.
const CONNECTIONS: usize = downloads::MAX_DOWNLOADS + 128;
/// Maximum time without progress of a write.
const STALL_LIMIT: Duration = Duration::from_secs(30);
/// Maximum time for the head of a request, and of idleness between requests.
const HEAD_LIMIT: Duration = Duration::from_secs(30);
/// Grace period for running responses on shutdown.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// Maximum number of unsent bytes with which a connection prepares the next part of a file; also that of a request's head.
const CONNECTION_BUFFER: usize = 64 * 1024;
/// Pause after a failed accept, mostly for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop`, then lets running responses end within five seconds. With a bucket, the storage is its cache.
pub(crate) async fn serve(
    listener: TcpListener,
    storage: LocalDirectory,
    bucket: Option<BucketStorage>,
    admission: Admission,
    stop: Token,
) {
    let files = FileService::new(storage, admission).with_bucket(bucket);
    serve_within(listener, files, stop, STALL_LIMIT).await;
}

async fn serve_within(listener: TcpListener, files: FileService, stop: Token, stall: Duration) {
    let files = Arc::new(files);
    let slots = ConnectionLimit::new(CONNECTIONS);
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, client)) => {
                let (files, stop, slot) = (Arc::clone(&files), stop.clone(), slots.admit());
                // Send small responses immediately. The socket also works without the option.
                let _ = stream.set_nodelay(true);
                let client = Client {
                    address: client.ip(),
                    slot,
                    parts: FileParts::default(),
                };
                let stream = StallLimit::new(FileSocket::new(stream, client.parts.clone()), stall);
                connections.spawn(connection(stream, client, files, stop));
            }
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "cannot accept a connection"
                );
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(STOP_LIMIT, connections.wait())
        .await
        .is_err()
    {
        tracing::info!("file server stopped during running responses");
    }
}

async fn connection(stream: StallLimit<FileSocket>, client: Client, files: Arc<FileService>, stop: Token) {
    let slot = client.slot.clone();
    let client = Arc::new(client);
    let service = service_fn(move |request| {
        let (files, client) = (Arc::clone(&files), Arc::clone(&client));
        async move { Ok::<_, Infallible>(files.respond(&request, &client).await) }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        // Placeholders of parts of files must not be copied.
        .writev(true)
        .max_buf_size(CONNECTION_BUFFER);
    let mut serving = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = slot.evicted() => return,
        () = stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error = &error as &dyn std::error::Error, "connection ended early");
    }
}

#[cfg(test)]
mod tests;
