//! An HTTP server on loopback for the real `git http-backend`: several repositories, optional authentication, a log of
//! requests, and faults that can be switched while it runs.
//!
//! The protocol is Git's; only the faults ([`fault`]) are implemented here. [`cgi`] runs the requests.

mod cgi;
mod fault;
mod log;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine;
pub use fault::{Fault, Gate, Injection, Scope};
use http::{HeaderValue, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
pub use log::{Request, Step};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::repository::Repository;
use crate::tls;

/// A response body; an error in it closes the connection.
type Body = UnsyncBoxBody<Bytes, io::Error>;
type Response = http::Response<Body>;

/// Why the server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// No free port on loopback.
    #[error("cannot listen on loopback: {0}")]
    Listen(#[source] io::Error),
    /// A certificate cannot be created.
    #[error(transparent)]
    Certificate(#[from] tls::CertificateError),
}

/// A running server; dropping it closes its port and its connections and ends its `git` processes.
#[derive(Debug)]
pub struct GitServer {
    address: SocketAddr,
    authority: Option<tls::Authority>,
    state: Arc<State>,
    accepting: JoinHandle<()>,
}

/// State that the connections share.
#[derive(Debug, Default)]
struct State {
    repositories: Mutex<BTreeMap<String, PathBuf>>,
    /// The required value of `Authorization`, if any.
    credentials: Mutex<Option<HeaderValue>>,
    faults: Mutex<Vec<Injection>>,
    /// The highest protocol version, if it is limited.
    version: Mutex<Option<u8>>,
    log: log::Log,
}

/// Locks despite poisoning: a panic in one test's closure must not hide the requests.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl GitServer {
    /// Starts a server for plain HTTP at a free port of 127.0.0.1.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start() -> Result<Self, ServeError> {
        Self::start_with(None, &tls::TlsOptions::default()).await
    }

    /// Starts a server with TLS: a certificate for 127.0.0.1 and `localhost` from a new authority
    /// ([`GitServer::authority_pem`]).
    ///
    /// # Errors
    /// When no port is free or no certificate can be created.
    pub async fn start_tls() -> Result<Self, ServeError> {
        Self::start_tls_with(&tls::TlsOptions::default()).await
    }

    /// As [`GitServer::start_tls`], with these settings.
    ///
    /// # Errors
    /// When no port is free or no certificate can be created.
    pub async fn start_tls_with(terms: &tls::TlsOptions<'_>) -> Result<Self, ServeError> {
        Self::start_with(Some(tls::Authority::create()?), terms).await
    }

    async fn start_with(
        authority: Option<tls::Authority>,
        terms: &tls::TlsOptions<'_>,
    ) -> Result<Self, ServeError> {
        let acceptor = authority
            .as_ref()
            .map(|authority| authority.acceptor(terms))
            .transpose()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .map_err(ServeError::Listen)?;
        let address = listener.local_addr().map_err(ServeError::Listen)?;
        let state = Arc::new(State::default());
        let accepting = tokio::spawn(accept(listener, acceptor, Arc::clone(&state)));
        Ok(Self {
            address,
            authority,
            state,
            accepting,
        })
    }

    /// Returns its address.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the authority's certificate if the server uses TLS.
    #[must_use]
    pub fn authority_pem(&self) -> Option<&str> {
        self.authority.as_ref().map(tls::Authority::pem)
    }

    /// Returns the authority if the server uses TLS; it also issues client certificates.
    #[must_use]
    pub const fn authority(&self) -> Option<&tls::Authority> {
        self.authority.as_ref()
    }

    /// Serves a repository as `/<name>.git`; replaces another one with that name. Returns its URL.
    pub fn serve(&self, name: &str, repository: &Repository) -> String {
        self.serve_git_dir(name, &repository.git_dir())
    }

    /// Serves the `.git` folder or bare repository of any other origin.
    #[must_use]
    pub fn serve_git_dir(&self, name: &str, git_dir: &Path) -> String {
        lock(&self.state.repositories).insert(name.to_owned(), git_dir.to_owned());
        self.url(name)
    }

    /// Stops serving a repository: its URL responds with 404.
    pub fn withdraw(&self, name: &str) {
        lock(&self.state.repositories).remove(name);
    }

    /// Returns the URL of a repository, whether it is served or not.
    #[must_use]
    pub fn url(&self, name: &str) -> String {
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        format!("{scheme}://{}/{name}.git", self.address)
    }

    /// Requires these basic credentials from now on.
    pub fn require_basic(&self, username: &str, password: &str) {
        let encoded = base64::engine::general_purpose::STANDARD.encode(format!("{username}:{password}"));
        *lock(&self.state.credentials) = HeaderValue::try_from(format!("Basic {encoded}")).ok();
    }

    /// Requires this bearer token from now on.
    pub fn require_bearer(&self, token: &str) {
        *lock(&self.state.credentials) = HeaderValue::try_from(format!("Bearer {token}")).ok();
    }

    /// Requires no credentials from now on.
    pub fn allow_anonymous(&self) {
        *lock(&self.state.credentials) = None;
    }

    /// Limits the protocol version to 0, 1 or 2 from now on.
    pub fn limit_protocol_version(&self, version: u8) {
        *lock(&self.state.version) = Some(version);
    }

    /// Injects a fault for every repository until [`GitServer::clear_faults`].
    pub fn fault(&self, scope: Scope, fault: Fault) {
        self.inject(Injection::new(scope, fault));
    }

    /// Injects a fault for one repository or a number of requests. The oldest matching fault applies.
    pub fn inject(&self, injection: Injection) {
        lock(&self.state.faults).push(injection);
    }

    /// Removes every fault; requests in progress keep theirs.
    pub fn clear_faults(&self) {
        lock(&self.state.faults).clear();
    }

    /// Returns the requests so far, oldest first; byte counts of responses in progress still grow.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.state.log.requests()
    }

    /// Returns the number of requests of this step.
    #[must_use]
    pub fn count(&self, step: Step) -> usize {
        self.requests()
            .iter()
            .filter(|request| request.step == step)
            .count()
    }

    /// Clears the log of requests.
    pub fn clear_requests(&self) {
        self.state.log.clear();
    }
}

impl Drop for GitServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Owns the connections: aborting this task closes them and ends their `git` processes.
async fn accept(listener: TcpListener, acceptor: Option<TlsAcceptor>, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((socket, _)) = listener.accept().await else {
            continue;
        };
        // As other servers: a response is several small writes, and each would wait for the acknowledgement of the one before it.
        drop(socket.set_nodelay(true));
        let (state, acceptor) = (Arc::clone(&state), acceptor.clone());
        connections.spawn(async move {
            match acceptor {
                None => serve_connection(socket, false, state).await,
                Some(acceptor) => {
                    if let Ok(socket) = acceptor.accept(socket).await {
                        let has_client_certificate = socket.get_ref().1.peer_certificates().is_some();
                        serve_connection(socket, has_client_certificate, state).await;
                    }
                }
            }
        });
    }
}

async fn serve_connection<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    socket: S,
    has_client_certificate: bool,
    state: Arc<State>,
) {
    let service = service_fn(move |request| {
        let state = Arc::clone(&state);
        async move { Ok::<_, Infallible>(answer(request, has_client_certificate, &state).await) }
    });
    // Half of the faults break the connection; the log shows the number of bytes that were sent.
    drop(
        auto::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(socket), service)
            .await,
    );
}

async fn answer(request: http::Request<Incoming>, has_client_certificate: bool, state: &State) -> Response {
    let (mut head, body) = request.into_parts();
    let Ok(body) = http_body_util::Limited::new(body, cgi::BODY_LIMIT)
        .collect()
        .await
    else {
        return plain(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the request is too large or was interrupted",
        );
    };
    let body = body.to_bytes();
    let request = Request::of(&head, &body, has_client_certificate);
    let version = *lock(&state.version);
    match version {
        Some(0) => drop(head.headers.remove("git-protocol")),
        // As Git: the version that the client requests, up to the one that the server supports.
        Some(1) if head.headers.contains_key("git-protocol") => {
            let supported = HeaderValue::from_static("version=1");
            head.headers.insert("git-protocol", supported);
        }
        _ => {}
    }
    let injected = take_matching_fault(state, &request);
    let response = respond(&head, body, &request, state, injected.as_ref()).await;
    state.log.record(request, response)
}

/// Returns the first matching fault and decrements its remaining count.
fn take_matching_fault(state: &State, request: &Request) -> Option<Fault> {
    let mut faults = lock(&state.faults);
    let found = faults.iter().position(|injection| injection.matches(request))?;
    let fault = faults[found].fault.clone();
    if faults[found].consume() {
        faults.remove(found);
    }
    Some(fault)
}

async fn respond(
    head: &http::request::Parts,
    body: Bytes,
    request: &Request,
    state: &State,
    fault: Option<&Fault>,
) -> Response {
    if let Some(response) = fault.and_then(|fault| fault.replacement(request)) {
        return response;
    }
    match fault {
        Some(Fault::Hung) => std::future::pending::<()>().await,
        Some(Fault::Wait(gate)) => gate.pass().await,
        _ => {}
    }
    let required = lock(&state.credentials).clone();
    if required.is_some() && head.headers.get(header::AUTHORIZATION) != required.as_ref() {
        return fault::status(StatusCode::UNAUTHORIZED, None);
    }
    let git_dir = lock(&state.repositories).get(&request.repository).cloned();
    let Some(git_dir) = git_dir else {
        return plain(StatusCode::NOT_FOUND, "no such repository");
    };
    match cgi::run(head, body, &git_dir, &request.inner_path).await {
        Ok(response) => match fault {
            Some(fault) => fault.apply_to(response).await,
            None => response,
        },
        Err(error) => plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            &format!("http-backend: {error}"),
        ),
    }
}

fn plain(status: StatusCode, text: &str) -> Response {
    let body = Full::new(Bytes::from(format!("{text}\n")))
        .map_err(|never| match never {})
        .boxed_unsync();
    let mut response = http::Response::new(body);
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

#[cfg(test)]
mod tests;
