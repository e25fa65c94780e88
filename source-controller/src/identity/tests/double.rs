//! A double of a provider's endpoint on loopback: it answers as it is told, and remembers what it was asked.

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
use sluice_harness::tls::{Authority, Terms};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// A request as it came in.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Method, a blank, and path with query.
    pub(crate) line: String,
    /// Headers by lower-case name.
    pub(crate) headers: BTreeMap<String, String>,
    /// The body.
    pub(crate) body: String,
}

impl Asked {
    fn of(head: &Parts, body: &[u8]) -> Self {
        let headers = head.headers.iter();
        Self {
            // With HTTP/2 the address is written in full.
            line: format!("{} {}", head.method, head.uri.path_and_query().unwrap()),
            headers: headers
                .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
                .collect(),
            body: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    /// A header, or nothing.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// The fields of a form.
    pub(crate) fn form(&self) -> BTreeMap<String, String> {
        url::form_urlencoded::parse(self.body.as_bytes())
            .into_owned()
            .collect()
    }
}

/// What the double says.
#[derive(Clone, Debug)]
pub(crate) enum Say {
    /// A status and a text.
    Text(u16, String),
    /// 429 or the like, with `Retry-After`.
    Wait(u16, &'static str),
    /// Nothing, ever.
    Nothing,
}

impl Say {
    /// 200 and JSON.
    pub(crate) fn json(value: &serde_json::Value) -> Self {
        Self::Text(200, value.to_string())
    }
}

type Answering = Box<dyn Fn(&Asked) -> Say + Send + Sync>;

struct State {
    answering: Mutex<Answering>,
    asked: Mutex<Vec<Asked>>,
}

/// A running double; dropping it closes its port.
pub(crate) struct Double {
    /// `http://127.0.0.1:<port>`, or with `https`.
    pub(crate) url: String,
    state: Arc<State>,
    accepting: JoinHandle<()>,
}

impl Double {
    /// Starts one that answers so.
    pub(crate) async fn start(answering: impl Fn(&Asked) -> Say + Send + Sync + 'static) -> Self {
        Self::start_with(None, answering).await
    }

    /// Starts one that speaks TLS with a certificate of this authority.
    pub(crate) async fn start_tls(
        authority: &Authority,
        answering: impl Fn(&Asked) -> Say + Send + Sync + 'static,
    ) -> Self {
        Self::start_with(Some(authority.acceptor(&Terms::default()).unwrap()), answering).await
    }

    async fn start_with(
        acceptor: Option<TlsAcceptor>,
        answering: impl Fn(&Asked) -> Say + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scheme = if acceptor.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        let state = Arc::new(State {
            answering: Mutex::new(Box::new(answering)),
            asked: Mutex::default(),
        });
        let accepting = tokio::spawn(accept(listener, acceptor, Arc::clone(&state)));
        Self {
            url,
            state,
            accepting,
        }
    }

    /// From now on it answers so.
    pub(crate) fn answer(&self, answering: impl Fn(&Asked) -> Say + Send + Sync + 'static) {
        *self.state.answering.lock().unwrap() = Box::new(answering);
    }

    /// What it was asked, oldest first.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.state.asked.lock().unwrap().clone()
    }

    /// The first lines of what it was asked.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.asked().into_iter().map(|asked| asked.line).collect()
    }

    /// `127.0.0.1:<port>`.
    pub(crate) fn host(&self) -> &str {
        self.url.split_once("://").unwrap().1
    }
}

impl Drop for Double {
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
                None => converse(stream, state).await,
                Some(acceptor) => {
                    // A client that does not trust the certificate goes away here.
                    if let Ok(stream) = acceptor.accept(stream).await {
                        converse(stream, state).await;
                    }
                }
            }
        });
    }
}

async fn converse<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S, state: Arc<State>) {
    let service = service_fn(move |request| respond(request, Arc::clone(&state)));
    // A client that goes away is what some tests are about.
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
    let asked = Asked::of(&head, &body);
    let say = (state.answering.lock().unwrap())(&asked);
    state.asked.lock().unwrap().push(asked);
    let (status, after, text) = match say {
        Say::Text(status, text) => (status, None, text),
        Say::Wait(status, after) => (status, Some(after), String::new()),
        Say::Nothing => std::future::pending().await,
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    if let Some(after) = after {
        let value = http::HeaderValue::from_static(after);
        response.headers_mut().insert(http::header::RETRY_AFTER, value);
    }
    Ok(response)
}
