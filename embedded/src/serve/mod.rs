//! The API on a socket: TLS, one token, HTTP/1.1 and HTTP/2.

mod credentials;
mod kubeconfig;
mod lend;
mod pending;
mod stream;
mod tls;

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use http::{Request, header::AUTHORIZATION};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    credentials::{Credentials, Token},
    pending::{PendingConnection, PendingConnections},
    stream::TimedWrites,
};
use crate::{
    grant::Grant,
    server::Embedded,
    service::{StatusError, failure},
};

/// A connection that has not shown the token in this time is dropped, be it in its handshake.
const AUTHENTICATION: Duration = Duration::from_secs(10);
/// So many connections may wait for that at a time.
const PENDING: usize = 128;
/// From the start of a request's head to its end, and from one request to the next.
const HEADERS: Duration = Duration::from_secs(60);
/// An HTTP/2 client is asked for a sign of life after this time, and has as long to give it.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// A write that makes no progress in this time ends the connection.
const WRITE: Duration = Duration::from_secs(30);
/// Connections may finish what they do this long after the stop.
const GRACE: Duration = Duration::from_secs(5);

/// A server on a socket. Dropping it stops the server.
#[derive(Debug)]
pub struct Serving {
    /// The address that is bound.
    pub addr: SocketAddr,
    /// The kubeconfig for it, mode 0600.
    pub kubeconfig_path: PathBuf,
    lender: Lender,
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

/// Makes limited credentials.
#[derive(Clone)]
pub struct Lender {
    addr: SocketAddr,
    ca_pem: String,
    token: Arc<Token>,
}

impl Lender {
    /// A kubeconfig whose token is good for this grant alone, for as long as the directory of the server keeps its token.
    ///
    /// # Errors
    /// When the grant cannot be written.
    pub fn kubeconfig(&self, grant: &Grant) -> Result<String, ServeError> {
        let token = lend::token(grant, &self.token).map_err(|error| ServeError::Tls(error.to_string()))?;
        kubeconfig::text(self.addr, &self.ca_pem, &grant.namespace, &token)
    }
}

impl std::fmt::Debug for Lender {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Lender").finish_non_exhaustive()
    }
}

/// A server that cannot be put on a socket.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be bound.
    #[error("cannot listen on {addr}: {source}")]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// The system's words.
        source: io::Error,
    },
    /// A file of the directory cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// Keys or certificates cannot be made, or those of an earlier run cannot be read.
    #[error("TLS credentials: {0}")]
    Tls(String),
}

impl Serving {
    /// Makes limited credentials for this server.
    #[must_use]
    pub fn lender(&self) -> Lender {
        self.lender.clone()
    }

    /// Stops: no new connections, watches end, running requests get a moment.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.take() {
            // It ends by itself; a panic in it has been reported by the runtime.
            drop(task.await);
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Binds, prepares the directory and starts to accept.
pub(crate) async fn serve(embedded: Embedded, addr: SocketAddr, dir: &Path) -> Result<Serving, ServeError> {
    let credentials = Credentials::load_or_create(dir)?;
    let listener = bind(addr, credentials.last_port).await?;
    let addr = listener
        .local_addr()
        .map_err(|source| ServeError::Bind { addr, source })?;
    let config = tls::server_config(&credentials, addr.ip())?;
    let kubeconfig_path = kubeconfig::write(dir, addr, &credentials)?;
    let stop = CancellationToken::new();
    let token = Arc::new(credentials.token);
    let listening = Listening {
        listener,
        acceptor: TlsAcceptor::from(Arc::new(config)),
        embedded,
        token: Arc::clone(&token),
        pending: PendingConnections::new(PENDING),
        stop: stop.clone(),
    };
    let task = Some(tokio::spawn(listening.run()));
    Ok(Serving {
        addr,
        kubeconfig_path,
        lender: Lender {
            addr,
            ca_pem: credentials.ca_pem,
            token,
        },
        stop,
        task,
    })
}

/// For port 0 the port of an earlier run is tried first, so that its kubeconfig stays valid.
async fn bind(addr: SocketAddr, last_port: Option<u16>) -> Result<TcpListener, ServeError> {
    if addr.port() == 0
        && let Some(port) = last_port
        && let Ok(listener) = TcpListener::bind(SocketAddr::new(addr.ip(), port)).await
    {
        return Ok(listener);
    }
    TcpListener::bind(addr)
        .await
        .map_err(|source| ServeError::Bind { addr, source })
}

/// A bound listener with all that a connection needs.
struct Listening {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    embedded: Embedded,
    token: Arc<Token>,
    pending: Arc<PendingConnections>,
    stop: CancellationToken,
}

impl Listening {
    async fn run(self) {
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                () = self.stop.cancelled() => break,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    connections.spawn(self.connection(stream));
                }
                Err(error) => {
                    // Out of descriptors, most likely: give connections time to end.
                    tracing::warn!(error = &error as &dyn std::error::Error, "accept failed");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        drop(self.listener);
        connections.close();
        drop(tokio::time::timeout(GRACE, connections.wait()).await);
    }

    /// One connection, from handshake to end; told to finish at the stop.
    fn connection(&self, stream: TcpStream) -> impl Future<Output = ()> + Send + 'static {
        let (acceptor, embedded) = (self.acceptor.clone(), self.embedded.clone());
        let (token, stop) = (self.token.clone(), self.stop.clone());
        let pending = Arc::new(self.pending.enter());
        async move {
            // Small answers must not wait for more.
            drop(stream.set_nodelay(true));
            let expired = pending.ended(AUTHENTICATION);
            let mut expired = pin!(expired);
            let accepted = tokio::select! {
                accepted = acceptor.accept(stream) => accepted,
                () = &mut expired => return,
            };
            let Ok(stream) = accepted else { return };
            let (until, shown) = (stop.clone(), pending.clone());
            let service = service_fn(move |request: Request<Incoming>| {
                let (embedded, token, stop) = (embedded.clone(), token.clone(), stop.clone());
                let pending = shown.clone();
                async move { Ok::<_, Infallible>(answer(&embedded, &token, &pending, &stop, request).await) }
            });
            let builder = builder();
            let stream = TokioIo::new(TimedWrites::new(stream, WRITE));
            let mut connection = pin!(builder.serve_connection(stream, service));
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
                () = expired => return,
                () = until.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = ended {
                tracing::debug!(error, "connection ended");
            }
        }
    }
}

/// HTTP with bounds in time.
fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE);
    builder
}

async fn answer(
    embedded: &Embedded,
    token: &Token,
    pending: &PendingConnection,
    stop: &CancellationToken,
    mut request: Request<Incoming>,
) -> http::Response<crate::service::ResponseBody> {
    let given = request
        .headers()
        .get(AUTHORIZATION)
        .map(http::HeaderValue::as_bytes);
    if !token.is_given_by(given.unwrap_or_default()) {
        let Some(grant) = lend::grant(given.unwrap_or_default(), token) else {
            return failure(&StatusError::unauthorized());
        };
        request.extensions_mut().insert(Arc::new(grant));
    }
    pending.authenticate();
    crate::service::until(embedded.answer(request).await, stop.clone())
}
