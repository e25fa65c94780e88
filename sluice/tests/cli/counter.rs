//! A proxy of the API on loopback that counts the connections and the requests of a command, and the bytes of the answers. Its kubeconfig
//! has plain HTTP and a token without a meaning.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::process::Command;

use crate::fixture::{TIMEOUT, TestEnvironment};

const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");

type Failed = std::io::Error;

/// One request and its answer.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    /// Method and URL.
    pub(crate) request: String,
    /// Bytes of the body of the answer.
    pub(crate) bytes: usize,
}

/// What a command asked the API for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Count {
    /// Connections that it opened.
    pub(crate) connections: usize,
    /// Its requests.
    pub(crate) exchanges: Vec<Exchange>,
}

impl Count {
    /// Returns the bytes of all answers.
    pub(crate) fn bytes(&self) -> usize {
        self.exchanges.iter().map(|exchange| exchange.bytes).sum()
    }

    /// Returns the bytes of the answers to requests whose URL contains this text.
    pub(crate) fn bytes_of(&self, part: &str) -> usize {
        let found = self
            .exchanges
            .iter()
            .filter(|exchange| exchange.request.contains(part));
        found.map(|exchange| exchange.bytes).sum()
    }
}

/// The proxy; it ends with the runtime of the test.
#[derive(Clone)]
pub(crate) struct Counter {
    client: Client,
    kubeconfig: PathBuf,
    count: Arc<Mutex<Count>>,
}

impl Counter {
    /// Opens a proxy of the API.
    pub(crate) async fn open(environment: &TestEnvironment) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let counter = Self {
            client: environment.client(),
            kubeconfig: write_kubeconfig(environment.directory(), &server),
            count: Arc::default(),
        };
        tokio::spawn(counter.clone().accept(listener));
        counter
    }

    /// Runs the program, which must succeed, and returns what it asked for.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Count {
        *self.count.lock().unwrap() = Count::default();
        let mut command = Command::new(SLUICE);
        command
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = tokio::time::timeout(TIMEOUT, command.output()).await;
        let output = output.expect("the command ends").unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        let count = self.count.lock().unwrap().clone();
        eprintln!(
            "{arguments:?}: {} connections, {} requests, {} bytes",
            count.connections,
            count.exchanges.len(),
            count.bytes()
        );
        count
    }

    async fn accept(self, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            self.count.lock().unwrap().connections += 1;
            let counter = self.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let counter = counter.clone();
                    async move { counter.forward(request).await }
                });
                let served = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
                // Commands disconnect at their end.
                drop(served);
            });
        }
    }

    /// Forwards a request. The answer is counted before the command has it.
    async fn forward(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Failed> {
        let (head, body) = request.into_parts();
        let text = format!("{} {}", head.method, head.uri);
        let bytes = body.collect().await.map_err(Failed::other)?.to_bytes();
        let answer = self
            .client
            .send(Request::from_parts(head, Body::from(bytes)))
            .await;
        let (head, body) = answer.map_err(Failed::other)?.into_parts();
        let bytes = body.collect().await.map_err(Failed::other)?.to_bytes();
        self.count.lock().unwrap().exchanges.push(Exchange {
            request: text,
            bytes: bytes.len(),
        });
        Ok(Response::from_parts(head, Full::new(bytes)))
    }
}

fn write_kubeconfig(directory: &Path, server: &str) -> PathBuf {
    let config = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{ "name": "c", "context": { "cluster": "k", "user": "u" } }],
        "clusters": [{ "name": "k", "cluster": { "server": server } }],
        "users": [{ "name": "u", "user": { "token": "t" } }] });
    let path = directory.join("counter");
    std::fs::write(&path, config.to_string()).unwrap();
    path
}
