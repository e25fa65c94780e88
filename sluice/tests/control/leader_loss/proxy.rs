//! A proxy of the API for controllers and runners: each has its own path, may be refused its Lease, and sees pods, which the
//! embedded API does not have.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use http::header::USER_AGENT;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::net::TcpListener;

type Failed = std::io::Error;
type Answer = Response<UnsyncBoxBody<Bytes, Failed>>;

#[derive(Default)]
struct State {
    refused: BTreeSet<String>,
    /// The existing pods by name.
    pods: BTreeMap<String, Value>,
    /// The requests as method and URL; those of the CLI begin with `cli `.
    requests: Vec<String>,
}

/// The proxy.
#[derive(Clone)]
pub(crate) struct ApiProxy {
    client: Client,
    address: String,
    state: Arc<Mutex<State>>,
}

impl ApiProxy {
    pub(crate) async fn open(client: Client) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let door = Self {
            client,
            address: format!("http://{}", listener.local_addr().unwrap()),
            state: Arc::default(),
        };
        let keeper = door.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let door = keeper.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        let door = door.clone();
                        async move { door.forward(request).await }
                    });
                    let served = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                    // The client may have been killed.
                    drop(served);
                });
            }
        });
        door
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Writes the kubeconfig of a client.
    pub(crate) fn write_kubeconfig(&self, folder: &Path, client_name: &str) -> PathBuf {
        let server = format!("{}/as/{client_name}", self.address);
        let config = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{ "name": "c", "context": { "cluster": "k", "user": "u" } }],
            "clusters": [{ "name": "k", "cluster": { "server": server } }],
            "users": [{ "name": "u", "user": { "token": "t" } }] });
        let path = folder.join(format!("kubeconfig-{client_name}"));
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }

    /// Returns the requests so far as method and URL; those of the CLI begin with `cli `.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }

    /// Clears the requests.
    pub(crate) fn clear_requests(&self) {
        self.state().requests.clear();
    }

    /// Refuses writes of this client's Lease from now on.
    pub(crate) fn refuse_lease(&self, client_name: &str) {
        self.state().refused.insert(client_name.to_owned());
    }

    /// Adds a running pod.
    pub(crate) fn add_pod(&self, name: &str, uid: &str) {
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "uid": uid },
            "status": { "phase": "Running" } });
        self.state().pods.insert(name.to_owned(), pod);
    }

    /// Removes a pod.
    pub(crate) fn remove_pod(&self, name: &str) {
        self.state().pods.remove(name);
    }

    async fn forward(&self, request: Request<Incoming>) -> Result<Answer, Failed> {
        let (mut head, body) = request.into_parts();
        let whole = head.uri.to_string();
        let (client_name, rest) = whole
            .strip_prefix("/as/")
            .and_then(|rest| rest.split_once('/'))
            .ok_or_else(|| Failed::other("the request names no client"))?;
        head.uri = format!("/{rest}").parse().map_err(Failed::other)?;
        let agent = head.headers.get(USER_AGENT);
        let agent = agent.map_or("", |agent| agent.to_str().unwrap_or_default());
        let by = if agent.contains("Terraform") || agent.contains("OpenTofu") {
            "cli "
        } else {
            ""
        };
        self.state()
            .requests
            .push(format!("{by}{} {}", head.method, head.uri));
        let path = head.uri.path();
        if head.method != Method::GET
            && path.ends_with(super::LEASE)
            && self.state().refused.contains(client_name)
        {
            return Ok(response_of(
                StatusCode::INTERNAL_SERVER_ERROR,
                &json!({ "code": 500, "status": "Failure",
                "kind": "Status", "apiVersion": "v1", "message": "not written", "reason": "InternalError" }),
            ));
        }
        if let Some((_, name)) = path.split_once("/pods/") {
            let found = self.state().pods.get(name).cloned();
            return Ok(found.map_or_else(
                || {
                    response_of(
                        StatusCode::NOT_FOUND,
                        &json!({ "code": 404, "status": "Failure", "kind": "Status",
                        "apiVersion": "v1", "message": "pod not found", "reason": "NotFound",
                        "details": { "kind": "pods", "name": name } }),
                    )
                },
                |pod| response_of(StatusCode::OK, &pod),
            ));
        }
        let bytes = body.collect().await.map_err(Failed::other)?.to_bytes();
        let response_of = self
            .client
            .send(Request::from_parts(head, Body::from(bytes)))
            .await;
        Ok(response_of
            .map_err(Failed::other)?
            .map(|body| body.map_err(Failed::other).boxed_unsync()))
    }
}

fn response_of(code: StatusCode, body: &Value) -> Answer {
    let body = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {});
    let mut response_of = Response::new(body.boxed_unsync());
    *response_of.status_mut() = code;
    response_of
}
