//! The file server: what consumers fetch artifacts from. Plain HTTP/1.1, no authentication, read only.
//!
//! It serves the published artifacts of a [`LocalDirectory`] and nothing else: no lock, no unfinished file, no link, no
//! listing. A file is never changed in place, so an open one can be streamed whatever happens to its name.

mod answer;
mod condition;
mod file;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use sluice_runtime::shutdown::Token;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::storage::LocalDirectory;

/// Connections served at once; each holds at most two chunks of a file in memory.
const CONNECTIONS: usize = 512;
/// How long a client may take for the head of a request, and may stay silent between two.
const HEAD_LIMIT: Duration = Duration::from_secs(30);
/// How long running answers may take once the program stops.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// Pause after the system refused a connection (no file descriptors left, mostly).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop`, then lets running answers end, for five seconds at most.
pub async fn serve(listener: TcpListener, storage: LocalDirectory, stop: Token) {
    let storage = Arc::new(storage);
    let connections = TaskTracker::new();
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&free).acquire_owned().await else {
            break;
        };
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let (storage, stop) = (Arc::clone(&storage), stop.clone());
                connections.spawn(async move {
                    connection(stream, storage, stop).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "connection refused by the system"
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
        tracing::info!("file server stopped with answers unfinished");
    }
}

async fn connection(stream: TcpStream, storage: Arc<LocalDirectory>, stop: Token) {
    // Small answers must not wait for an acknowledgement. A socket that refuses the option still works.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let storage = Arc::clone(&storage);
        async move { Ok::<_, Infallible>(answer::answer(&storage, &request).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_LIMIT);
    let mut serving = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
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
