//! A proxy of the API on loopback that holds answers, gives others, or loses connections. Its kubeconfig has plain HTTP and a token
//! without a meaning.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::fixture::{TIMEOUT, TestEnvironment};

type Failed = std::io::Error;
type Answer = Response<UnsyncBoxBody<Bytes, Failed>>;

/// What the proxy does with requests and new connections.
#[derive(Clone, Debug, Default)]
pub(crate) enum Fault {
    /// Forwards them.
    #[default]
    None,
    /// Gives this answer, a code and the message of a `Status`, so many times; then it forwards again.
    Answer(u16, &'static str, usize),
    /// Gives this answer to requests whose method and URL contain the text, and forwards the others.
    AnswerTo(&'static str, u16, &'static str),
    /// Never answers.
    Hold,
    /// Closes new connections.
    Close,
}

/// What the proxy changes in the answers of the API.
pub(crate) type Change = fn(&mut Value);

/// The proxy; it ends with the runtime of the test.
#[derive(Clone)]
pub(crate) struct Proxy {
    client: Client,
    kubeconfig: PathBuf,
    change: Option<Change>,
    fault: Arc<Mutex<Fault>>,
    /// How often a fault met a request or a connection.
    met: watch::Sender<usize>,
    /// A change closes all connections.
    cut: watch::Sender<()>,
}

impl Proxy {
    /// Opens a proxy of the API.
    pub(crate) async fn open(environment: &TestEnvironment) -> Self {
        Self::open_with(environment, None).await
    }

    /// Opens a proxy of the API that changes each answer except for those of watches.
    pub(crate) async fn open_with(environment: &TestEnvironment, change: Option<Change>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let proxy = Self {
            client: environment.client(),
            kubeconfig: write_kubeconfig(environment.directory(), "proxy", &server),
            change,
            fault: Arc::default(),
            met: watch::Sender::default(),
            cut: watch::Sender::default(),
        };
        tokio::spawn(proxy.clone().accept(listener));
        proxy
    }

    /// Returns the path of its kubeconfig.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns how often a fault met a request or a connection.
    pub(crate) fn met(&self) -> usize {
        *self.met.borrow()
    }

    /// Sets the fault of later requests and connections.
    pub(crate) fn set(&self, fault: Fault) {
        *self.fault.lock().unwrap() = fault;
    }

    /// Closes all connections. There must be one.
    pub(crate) fn cut(&self) {
        assert!(self.cut.receiver_count() > 0, "a connection is open");
        self.cut.send_modify(|()| ());
    }

    /// Closes all connections, and new ones until a client has tried one.
    pub(crate) async fn lose_connections(&self) {
        let before = self.met();
        self.set(Fault::Close);
        self.cut();
        let mut met = self.met.subscribe();
        let waiting = met.wait_for(|met| *met > before);
        let waited = tokio::time::timeout(TIMEOUT, waiting).await;
        drop(waited.expect("a client tries again").unwrap());
        self.set(Fault::None);
    }

    async fn accept(self, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            if matches!(*self.fault.lock().unwrap(), Fault::Close) {
                self.met.send_modify(|met| *met += 1);
                continue;
            }
            let (proxy, mut cut) = (self.clone(), self.cut.subscribe());
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let proxy = proxy.clone();
                    async move { proxy.answer(request).await }
                });
                let serving = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                tokio::select! {
                    // Commands connect and disconnect.
                    served = serving => drop(served),
                    changed = cut.changed() => drop(changed),
                }
            });
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Answer, Failed> {
        let fault = self.take_fault(&request);
        if !matches!(fault, Fault::None) {
            self.met.send_modify(|met| *met += 1);
        }
        match fault {
            Fault::None => self.forward(request).await,
            Fault::Answer(code, message, _) | Fault::AnswerTo(_, code, message) => Ok(status(code, message)),
            Fault::Hold | Fault::Close => std::future::pending().await,
        }
    }

    /// Returns the fault of one request.
    fn take_fault(&self, request: &Request<Incoming>) -> Fault {
        let mut fault = self.fault.lock().unwrap();
        if let Fault::AnswerTo(part, ..) = &*fault
            && !format!("{} {}", request.method(), request.uri()).contains(part)
        {
            return Fault::None;
        }
        let taken = fault.clone();
        if let Fault::Answer(_, _, left) = &mut *fault {
            *left -= 1;
            if *left == 0 {
                *fault = Fault::None;
            }
        }
        taken
    }

    async fn forward(&self, request: Request<Incoming>) -> Result<Answer, Failed> {
        let (head, body) = request.into_parts();
        let bytes = body.collect().await.map_err(Failed::other)?.to_bytes();
        let query = head.uri.query().unwrap_or_default();
        let is_watch = query.contains("watch=true");
        let answer = self
            .client
            .send(Request::from_parts(head, Body::from(bytes)))
            .await;
        let answer = answer.map_err(Failed::other)?;
        match self.change {
            Some(change) if !is_watch => changed(answer, change).await,
            _ => Ok(answer.map(|body| body.map_err(Failed::other).boxed_unsync())),
        }
    }
}

/// Changes an answer, if it is JSON.
async fn changed(answer: Response<Body>, change: Change) -> Result<Answer, Failed> {
    let (mut head, body) = answer.into_parts();
    let mut bytes = body.collect().await.map_err(Failed::other)?.to_bytes();
    let document: Result<Value, _> = serde_json::from_slice(&bytes);
    if let Ok(mut document) = document {
        change(&mut document);
        bytes = Bytes::from(document.to_string());
    }
    head.headers.remove(CONTENT_LENGTH);
    Ok(Response::from_parts(head, whole(bytes)))
}

/// Returns a body that has arrived.
fn whole(bytes: Bytes) -> UnsyncBoxBody<Bytes, Failed> {
    let body = Full::new(bytes).map_err(|never| match never {});
    body.boxed_unsync()
}

fn status(code: u16, message: &str) -> Answer {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": "Test", "code": code });
    let mut answer = Response::new(whole(Bytes::from(status.to_string())));
    *answer.status_mut() = StatusCode::from_u16(code).unwrap();
    answer
}

/// Writes a kubeconfig for this server.
pub(crate) fn write_kubeconfig(directory: &Path, name: &str, server: &str) -> PathBuf {
    let config = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{ "name": "c", "context": { "cluster": "k", "user": "u" } }],
        "clusters": [{ "name": "k", "cluster": { "server": server } }],
        "users": [{ "name": "u", "user": { "token": "t" } }] });
    let path = directory.join(name);
    std::fs::write(&path, config.to_string()).unwrap();
    path
}
