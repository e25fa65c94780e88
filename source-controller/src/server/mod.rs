//! The file server: what consumers fetch artifacts from. Plain HTTP/1.1, no authentication, read only.
//!
//! It serves the published artifacts of a [`LocalDirectory`] and nothing else: no lock, no unfinished file, no link, no
//! listing. A file is never changed in place, so an open one can be streamed whatever happens to its name. On loopback it
//! answers only requests that name it (`admission.rs`).
//!
//! Clients that do not read cost nobody else: what they ask for ends when they stand still, one address has a share of
//! the downloads only, and connections are accepted beyond the downloads, so that probes are always answered.

mod admission;
mod answer;
mod condition;
mod downloads;
mod file;
mod stall;

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use sluice_runtime::serve::{Connections, Place};
use sluice_runtime::shutdown::Token;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;

use crate::storage::LocalDirectory;
pub(crate) use admission::Admission;
use answer::Files;
use downloads::Downloads;
use stall::StallLimit;

/// Connections at once: those of all downloads, and some for probes and for requests that wait. One more takes the place
/// of the one that has been idle longest.
const CONNECTIONS: usize = downloads::MOST + 128;
/// How long a client may read nothing of what is sent to it.
const STALL_LIMIT: Duration = Duration::from_secs(30);
/// How long a client may take for the head of a request, and may stay silent between two.
const HEAD_LIMIT: Duration = Duration::from_secs(30);
/// How long running answers may take once the program stops.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// Pause after the system refused a connection (no file descriptors left, mostly).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop`, then lets running answers end, for five seconds at most.
pub(crate) async fn serve(listener: TcpListener, storage: LocalDirectory, admission: Admission, stop: Token) {
    serve_within(listener, storage, admission, stop, STALL_LIMIT).await;
}

async fn serve_within(
    listener: TcpListener,
    storage: LocalDirectory,
    admission: Admission,
    stop: Token,
    stall: Duration,
) {
    let files = Arc::new(Files {
        storage,
        admission,
        downloads: Downloads::new(),
    });
    let places = Connections::new(CONNECTIONS);
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, client)) => {
                let (files, stop, place) = (Arc::clone(&files), stop.clone(), places.enter());
                // Small answers must not wait for an acknowledgement. A socket that refuses the option still works.
                let _ = stream.set_nodelay(true);
                let stream = StallLimit::new(stream, stall);
                connections.spawn(connection(stream, client.ip(), files, place, stop));
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

async fn connection(
    stream: StallLimit<TcpStream>,
    client: IpAddr,
    files: Arc<Files>,
    place: Place,
    stop: Token,
) {
    let used = place.clone();
    let service = service_fn(move |request| {
        let (files, place) = (Arc::clone(&files), used.clone());
        async move { Ok::<_, Infallible>(files.answer(&request, client, &place).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_LIMIT);
    let mut serving = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = place.lost() => return,
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
