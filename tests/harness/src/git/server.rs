//! A small HTTP host on loopback for the real `git http-backend`: several repositories, optional basic
//! authentication, a log of what was asked, and faults that are switched on and off while it runs.
//!
//! The protocol is git's own; only the faults are ours ([`fault`]). Requests are run in [`cgi`].

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
use http::{HeaderValue, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

pub use fault::{Fault, Injection, Scope};
pub use log::{Request, Step};

use super::repository::Repository;
use crate::tls;

/// What a response is made of: bytes that may end in an error, which breaks the connection off.
type Body = UnsyncBoxBody<Bytes, io::Error>;
type Response = http::Response<Body>;

/// Why the server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// No port on loopback.
    #[error("cannot listen on loopback: {0}")]
    Listen(#[source] io::Error),
    /// No certificate.
    #[error(transparent)]
    Certificate(#[from] tls::CertificateError),
}

/// A running server; dropping it closes the port, breaks off every connection and ends its `git` processes.
#[derive(Debug)]
pub struct GitServer {
    address: SocketAddr,
    authority: Option<tls::Authority>,
    state: Arc<State>,
    accepting: JoinHandle<()>,
}

/// What the connections share.
#[derive(Debug, Default)]
struct State {
    repositories: Mutex<BTreeMap<String, PathBuf>>,
    /// The value of `Authorization` that is asked for, if any.
    credentials: Mutex<Option<HeaderValue>>,
    faults: Mutex<Vec<Injection>>,
    /// The version of the protocol that is spoken with clients that ask for a newer one, if not theirs.
    version: Mutex<Option<u8>>,
    log: log::Log,
}

/// A panic in one test's closure must not hide what the server saw: a poisoned lock is read all the same.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl GitServer {
    /// Starts a server over plain HTTP at a free port of 127.0.0.1.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start() -> Result<Self, ServeError> {
        Self::start_with(None, &tls::Terms::default()).await
    }

    /// Starts a server over TLS with a certificate for 127.0.0.1 and `localhost` of a new authority
    /// ([`GitServer::authority_pem`]).
    ///
    /// # Errors
    /// When no port can be had or no certificate can be made.
    pub async fn start_tls() -> Result<Self, ServeError> {
        Self::start_tls_on(&tls::Terms::default()).await
    }

    /// The same on other terms.
    ///
    /// # Errors
    /// When no port can be had or no certificate can be made.
    pub async fn start_tls_on(terms: &tls::Terms<'_>) -> Result<Self, ServeError> {
        Self::start_with(Some(tls::Authority::create()?), terms).await
    }

    async fn start_with(
        authority: Option<tls::Authority>,
        terms: &tls::Terms<'_>,
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

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The authority's certificate, when the server speaks TLS.
    #[must_use]
    pub fn authority_pem(&self) -> Option<&str> {
        self.authority.as_ref().map(tls::Authority::pem)
    }

    /// The authority itself, when the server speaks TLS: it issues the certificates of clients as well.
    #[must_use]
    pub const fn authority(&self) -> Option<&tls::Authority> {
        self.authority.as_ref()
    }

    /// Serves a repository as `/<name>.git`, in place of any other of that name. Answers its URL.
    pub fn serve(&self, name: &str, repository: &Repository) -> String {
        self.serve_git_dir(name, &repository.git_dir())
    }

    /// Serves a repository that something else made, given its `.git` folder or bare repository.
    #[must_use]
    pub fn serve_git_dir(&self, name: &str, git_dir: &Path) -> String {
        lock(&self.state.repositories).insert(name.to_owned(), git_dir.to_owned());
        self.url(name)
    }

    /// Serves a repository no longer: its URL answers 404.
    pub fn withdraw(&self, name: &str) {
        lock(&self.state.repositories).remove(name);
    }

    /// The URL of a repository, whether it is there or not.
    #[must_use]
    pub fn url(&self, name: &str) -> String {
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        format!("{scheme}://{}/{name}.git", self.address)
    }

    /// From now on every request must carry these basic credentials.
    pub fn require_basic(&self, username: &str, password: &str) {
        let encoded = base64::engine::general_purpose::STANDARD.encode(format!("{username}:{password}"));
        *lock(&self.state.credentials) = HeaderValue::try_from(format!("Basic {encoded}")).ok();
    }

    /// From now on every request must carry this bearer token.
    pub fn require_bearer(&self, token: &str) {
        *lock(&self.state.credentials) = HeaderValue::try_from(format!("Bearer {token}")).ok();
    }

    /// From now on no credentials are asked for.
    pub fn allow_anonymous(&self) {
        *lock(&self.state.credentials) = None;
    }

    /// From now on no newer version of the protocol than this one is spoken: 0, 1, or again 2.
    pub fn speak_at_most(&self, version: u8) {
        *lock(&self.state.version) = Some(version);
    }

    /// Switches a fault on for every repository until [`GitServer::clear_faults`].
    pub fn fault(&self, scope: Scope, fault: Fault) {
        self.inject(Injection::new(scope, fault));
    }

    /// Switches a fault on for one repository, or for a number of requests. The oldest that fits a request wins.
    pub fn inject(&self, injection: Injection) {
        lock(&self.state.faults).push(injection);
    }

    /// Switches every fault off; requests in flight keep theirs.
    pub fn clear_faults(&self) {
        lock(&self.state.faults).clear();
    }

    /// What was asked so far, oldest first; the byte counts of a response that is still being sent grow.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.state.log.requests()
    }

    /// How many requests of this kind there were.
    #[must_use]
    pub fn count(&self, step: Step) -> usize {
        self.requests()
            .iter()
            .filter(|request| request.step == step)
            .count()
    }

    /// Forgets what was asked so far.
    pub fn clear_requests(&self) {
        self.state.log.clear();
    }
}

impl Drop for GitServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Owns the connections: when this task is aborted they go with it, and their `git` processes with them.
async fn accept(listener: TcpListener, acceptor: Option<TlsAcceptor>, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((socket, _)) = listener.accept().await else {
            continue;
        };
        let (state, acceptor) = (Arc::clone(&state), acceptor.clone());
        connections.spawn(async move {
            match acceptor {
                None => converse(socket, false, state).await,
                Some(acceptor) => {
                    if let Ok(socket) = acceptor.accept(socket).await {
                        let certified = socket.get_ref().1.peer_certificates().is_some();
                        converse(socket, certified, state).await;
                    }
                }
            }
        });
    }
}

async fn converse<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    socket: S,
    certified: bool,
    state: Arc<State>,
) {
    let service = service_fn(move |request| {
        let state = Arc::clone(&state);
        async move { Ok::<_, Infallible>(answer(request, certified, &state).await) }
    });
    // A broken connection is what half of the faults are about; the log says how far it came.
    drop(
        auto::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(socket), service)
            .await,
    );
}

async fn answer(request: http::Request<Incoming>, certified: bool, state: &State) -> Response {
    let (mut head, body) = request.into_parts();
    let Ok(body) = http_body_util::Limited::new(body, cgi::BODY_LIMIT)
        .collect()
        .await
    else {
        return plain(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the request is too large or was broken off",
        );
    };
    let body = body.to_bytes();
    let request = Request::of(&head, &body, certified);
    let version = *lock(&state.version);
    match version {
        Some(0) => drop(head.headers.remove("git-protocol")),
        // As Git does it: the client's wish counts, up to what the server knows.
        Some(1) if head.headers.contains_key("git-protocol") => {
            let known = HeaderValue::from_static("version=1");
            head.headers.insert("git-protocol", known);
        }
        _ => {}
    }
    let injected = take_fault(state, &request);
    let response = respond(&head, body, &request, state, injected.as_ref()).await;
    state.log.record(request, response)
}

/// The first fault that fits, its remaining count lowered.
fn take_fault(state: &State, request: &Request) -> Option<Fault> {
    let mut faults = lock(&state.faults);
    let found = faults.iter().position(|injection| injection.fits(request))?;
    let fault = faults[found].fault.clone();
    if faults[found].used_up() {
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
    if let Some(response) = fault.and_then(|fault| fault.instead(request)) {
        return response;
    }
    if matches!(fault, Some(Fault::Hung)) {
        std::future::pending::<()>().await;
    }
    let asked = lock(&state.credentials).clone();
    if asked.is_some() && head.headers.get(header::AUTHORIZATION) != asked.as_ref() {
        return fault::status(StatusCode::UNAUTHORIZED, None);
    }
    let git_dir = lock(&state.repositories).get(&request.repository).cloned();
    let Some(git_dir) = git_dir else {
        return plain(StatusCode::NOT_FOUND, "no such repository");
    };
    match cgi::run(head, body, &git_dir, &request.inner_path).await {
        Ok(response) => match fault {
            Some(fault) => fault.upon(response).await,
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
