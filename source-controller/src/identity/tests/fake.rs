//! A fake provider endpoint on loopback, with configurable responses and recorded requests.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use sluice_harness::tls::{Authority, TlsOptions};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// A recorded request.
#[derive(Clone, Debug)]
pub(crate) struct RecordedRequest {
    /// Method, a blank, and path with query.
    pub(crate) line: String,
    /// Headers by lower-case name.
    pub(crate) headers: BTreeMap<String, String>,
    /// The body.
    pub(crate) body: String,
}

impl RecordedRequest {
    fn of(head: &Parts, body: &[u8]) -> Self {
        let headers = head.headers.iter();
        Self {
            // With HTTP/2 the URI is absolute.
            line: format!("{} {}", head.method, head.uri.path_and_query().unwrap()),
            headers: headers
                .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
                .collect(),
            body: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    /// Returns a header; empty if absent.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// Returns the fields of a form body.
    pub(crate) fn form(&self) -> BTreeMap<String, String> {
        url::form_urlencoded::parse(self.body.as_bytes())
            .into_owned()
            .collect()
    }
}

/// A response of the fake.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// A status and a text.
    Text(u16, String),
    /// A throttling status with `Retry-After`.
    Wait(u16, &'static str),
    /// No response.
    Nothing,
}

impl Reply {
    /// Returns a successful JSON response.
    pub(crate) fn json(value: &serde_json::Value) -> Self {
        Self::Text(200, value.to_string())
    }
}

type Handler = Box<dyn Fn(&RecordedRequest) -> Reply + Send + Sync>;

struct State {
    handler: Mutex<Handler>,
    requests: Mutex<Vec<RecordedRequest>>,
}

/// A running fake; dropping it closes its port.
pub(crate) struct FakeEndpoint {
    /// `http://127.0.0.1:<port>`, or with `https`.
    pub(crate) url: String,
    state: Arc<State>,
    accepting: JoinHandle<()>,
}

impl FakeEndpoint {
    /// Starts a fake with this handler.
    pub(crate) async fn start(handler: impl Fn(&RecordedRequest) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_with(None, handler).await
    }

    /// Starts a fake with TLS and a certificate of this CA.
    pub(crate) async fn start_tls(
        authority: &Authority,
        handler: impl Fn(&RecordedRequest) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::start_with(Some(authority.acceptor(&TlsOptions::default()).unwrap()), handler).await
    }

    async fn start_with(
        acceptor: Option<TlsAcceptor>,
        handler: impl Fn(&RecordedRequest) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scheme = if acceptor.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        let state = Arc::new(State {
            handler: Mutex::new(Box::new(handler)),
            requests: Mutex::default(),
        });
        let accepting = tokio::spawn(accept(listener, acceptor, Arc::clone(&state)));
        Self {
            url,
            state,
            accepting,
        }
    }

    /// Replaces the handler.
    pub(crate) fn set_handler(&self, handler: impl Fn(&RecordedRequest) -> Reply + Send + Sync + 'static) {
        *self.state.handler.lock().unwrap() = Box::new(handler);
    }

    /// Returns the recorded requests, oldest first.
    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        self.state.requests.lock().unwrap().clone()
    }

    /// Returns the request lines.
    pub(crate) fn request_lines(&self) -> Vec<String> {
        self.requests().into_iter().map(|request| request.line).collect()
    }

    /// `127.0.0.1:<port>`.
    pub(crate) fn host(&self) -> &str {
        self.url.split_once("://").unwrap().1
    }
}

impl Drop for FakeEndpoint {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, acceptor: Option<TlsAcceptor>, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (state, acceptor) = (Arc::clone(&state), acceptor.clone());
        connections.spawn(async move {
            match acceptor {
                None => serve(stream, state).await,
                Some(acceptor) => {
                    // A client that does not trust the certificate disconnects here.
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serve(stream, state).await;
                    }
                }
            }
        });
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S, state: Arc<State>) {
    let service = service_fn(move |request| respond(request, Arc::clone(&state)));
    // Some tests disconnect early.
    let served = auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
    drop(served);
}

async fn respond(
    request: http::Request<Incoming>,
    state: Arc<State>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let request = RecordedRequest::of(&head, &body);
    let reply = (state.handler.lock().unwrap())(&request);
    state.requests.lock().unwrap().push(request);
    let (status, after, text) = match reply {
        Reply::Text(status, text) => (status, None, text),
        Reply::Wait(status, after) => (status, Some(after), String::new()),
        Reply::Nothing => std::future::pending().await,
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    if let Some(after) = after {
        let value = http::HeaderValue::from_static(after);
        response.headers_mut().insert(http::header::RETRY_AFTER, value);
    }
    Ok(response)
}
