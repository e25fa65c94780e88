//! The API over TLS: authentication by bearer tokens and client certificates, HTTP/1.1 and HTTP/2.

mod authentication;
mod client_certificate;
mod credentials;
mod kubeconfig;
mod limited_token;
mod pending;
mod stream;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http::header::AUTHORIZATION;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use jiff::Timestamp;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::client_certificate::ClientCertificate;
use self::credentials::{Credentials, Token};
use self::pending::{PendingConnection, PendingConnections};
use self::stream::TimedWrites;
use crate::account_token::TokenKey;
use crate::grant::Grant;
use crate::service::{Api, ResponseBody, end_on_stop, error_response};
use crate::status_error::StatusError;

/// Timeout for the authentication of a connection, including the TLS handshake.
const AUTHENTICATION_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of connections that are not yet authenticated.
const MAX_PENDING: usize = 128;
/// Timeout for the headers of a request, and for the next request of a connection.
const HEADER_TIMEOUT: Duration = Duration::from_mins(1);
/// Interval of HTTP/2 keep-alive pings, and timeout of each.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// A write without progress for this time closes the connection.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for running requests after the stop.
const GRACE_PERIOD: Duration = Duration::from_secs(5);

/// The error of a server that cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be bound.
    #[error("cannot listen on {addr}: {source}")]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file of the directory cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Keys or certificates cannot be created, or those of an earlier run cannot be read.
    #[error("TLS credentials: {0}")]
    Tls(String),
}

/// A server on a TLS socket. Dropping it stops the server.
#[derive(Debug)]
pub struct TlsServer {
    /// Bound address.
    pub addr: SocketAddr,
    /// Path of its kubeconfig, mode 0600.
    pub kubeconfig_path: PathBuf,
    credential_issuer: CredentialIssuer,
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

/// Issues limited credentials.
#[derive(Clone)]
pub struct CredentialIssuer {
    addr: SocketAddr,
    ca_pem: String,
    token: Arc<Token>,
}

impl CredentialIssuer {
    /// Returns a kubeconfig whose token is limited to this grant. It is valid as long as the directory of the server keeps its token.
    ///
    /// # Errors
    /// If the grant cannot be serialized.
    pub fn kubeconfig(&self, grant: &Grant) -> Result<String, ServeError> {
        let token =
            limited_token::issue(grant, &self.token).map_err(|error| ServeError::Tls(error.to_string()))?;
        kubeconfig::text(self.addr, &self.ca_pem, &grant.namespace, &token)
    }
}

impl std::fmt::Debug for CredentialIssuer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("CredentialIssuer").finish_non_exhaustive()
    }
}

impl TlsServer {
    /// Returns the issuer of limited credentials.
    #[must_use]
    pub fn credential_issuer(&self) -> CredentialIssuer {
        self.credential_issuer.clone()
    }

    /// Stops the server: new connections are rejected, watches end, running requests get a grace period.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.take() {
            // The runtime has already reported a panic of the task.
            drop(task.await);
        }
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Binds the address, prepares the directory and starts to accept connections.
pub(crate) async fn serve(api: Arc<Api>, addr: SocketAddr, dir: &Path) -> Result<TlsServer, ServeError> {
    let credentials = Credentials::load_or_create(dir)?;
    let socket = bind(addr, kubeconfig::port(dir)).await?;
    let addr = socket
        .local_addr()
        .map_err(|source| ServeError::Bind { addr, source })?;
    let config = credentials::server_config(&credentials, addr.ip())?;
    let kubeconfig_path = kubeconfig::write(dir, addr, &credentials)?;
    let stop = CancellationToken::new();
    // Tokens of ServiceAccounts remain valid across restarts, like the kubeconfig.
    if let Some(key) = TokenKey::derive(credentials.token.reveal()) {
        api.set_token_key(key);
    }
    let token = Arc::new(credentials.token);
    let admin = Arc::clone(&token);
    api.set_token_authenticator(move |header| authentication::issued_here(&admin, header));
    let listener = Listener {
        socket,
        acceptor: TlsAcceptor::from(Arc::new(config)),
        api,
        token: Arc::clone(&token),
        pending: PendingConnections::new(MAX_PENDING),
        stop: stop.clone(),
    };
    let task = Some(tokio::spawn(listener.run()));
    Ok(TlsServer {
        addr,
        kubeconfig_path,
        credential_issuer: CredentialIssuer {
            addr,
            ca_pem: credentials.ca_pem,
            token,
        },
        stop,
        task,
    })
}

/// Binds the address; for port 0 first with the port of an earlier run, so that its kubeconfig remains valid.
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

/// A bound listener with the shared state of its connections.
struct Listener {
    socket: TcpListener,
    acceptor: TlsAcceptor,
    api: Arc<Api>,
    token: Arc<Token>,
    pending: Arc<PendingConnections>,
    stop: CancellationToken,
}

impl Listener {
    async fn run(self) {
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                () = self.stop.cancelled() => break,
                accepted = self.socket.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    connections.spawn(self.connection(stream));
                }
                Err(error) => {
                    // Probably out of file descriptors: wait until connections end.
                    tracing::warn!(error = &error as &dyn std::error::Error, "accept failed");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        drop(self.socket);
        connections.close();
        drop(tokio::time::timeout(GRACE_PERIOD, connections.wait()).await);
    }

    /// Serves one connection from the handshake to its end; the stop shuts it down gracefully.
    fn connection(&self, stream: TcpStream) -> impl Future<Output = ()> + Send + 'static {
        let (acceptor, api) = (self.acceptor.clone(), self.api.clone());
        let (token, stop) = (self.token.clone(), self.stop.clone());
        let pending = Arc::new(self.pending.add());
        async move {
            // Small responses must not wait for more data.
            drop(stream.set_nodelay(true));
            let expired = pending.closed(AUTHENTICATION_TIMEOUT);
            let mut expired = pin!(expired);
            let accepted = tokio::select! {
                accepted = acceptor.accept(stream) => accepted,
                () = &mut expired => return,
            };
            let Ok(stream) = accepted else { return };
            let certificates = stream.get_ref().1.peer_certificates();
            let certificate = certificates.and_then(<[_]>::first);
            let certificate = certificate.and_then(|certificate| ClientCertificate::parse(certificate));
            let certificate = certificate.map(Arc::new);
            let (stopped, connection_state) = (stop.clone(), pending.clone());
            let service = service_fn(move |request: Request<Incoming>| {
                let (api, token, stop) = (api.clone(), token.clone(), stop.clone());
                let (pending, certificate) = (connection_state.clone(), certificate.clone());
                async move {
                    let certificate = certificate.as_deref();
                    Ok::<_, Infallible>(handle(&api, &token, certificate, &pending, &stop, request).await)
                }
            });
            let http_builder = http_builder();
            let stream = TokioIo::new(TimedWrites::new(stream, WRITE_TIMEOUT));
            let mut connection = pin!(http_builder.serve_connection(stream, service));
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
                () = expired => return,
                () = stopped.cancelled() => {
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

/// Returns an HTTP server with timeouts.
fn http_builder() -> auto::Builder<TokioExecutor> {
    let mut http_builder = auto::Builder::new(TokioExecutor::new());
    http_builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT);
    http_builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_INTERVAL);
    http_builder
}

async fn handle(
    api: &Arc<Api>,
    token: &Token,
    certificate: Option<&ClientCertificate>,
    pending: &PendingConnection,
    stop: &CancellationToken,
    mut request: Request<Incoming>,
) -> http::Response<ResponseBody> {
    let authorization = request
        .headers()
        .get(AUTHORIZATION)
        .map(http::HeaderValue::as_bytes);
    let authorization = authorization.unwrap_or_default();
    let user = certificate.and_then(|certificate| certificate.user_at(Timestamp::now()));
    let Some(requester) = authentication::authenticate(api, token, user, authorization) else {
        return error_response(&StatusError::unauthorized());
    };
    request.extensions_mut().insert(Arc::new(requester));
    pending.authenticate();
    end_on_stop(Arc::clone(api).handle(request).await, stop.clone())
}
