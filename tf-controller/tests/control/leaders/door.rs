//! The way to the API for controllers and runners: each comes by a path of its own, may be refused its Lease, and is told of pods,
//! which the embedded API does not have.

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header::USER_AGENT};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};
use tokio::net::TcpListener;

type Failed = std::io::Error;
type Answer = Response<UnsyncBoxBody<Bytes, Failed>>;

#[derive(Default)]
struct Held {
    refused: BTreeSet<String>,
    /// By name: the pods that there are.
    pods: BTreeMap<String, Value>,
    /// What was asked for, as method and address; behind `cli ` what the CLI asked for.
    asked: Vec<String>,
}

/// The door.
#[derive(Clone)]
pub(crate) struct Door {
    client: Client,
    address: String,
    held: Arc<Mutex<Held>>,
}

impl Door {
    pub(crate) async fn open(client: Client) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let door = Self {
            client,
            address: format!("http://{}", listener.local_addr().unwrap()),
            held: Arc::default(),
        };
        let keeper = door.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let door = keeper.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        let door = door.clone();
                        async move { door.pass(request).await }
                    });
                    let served = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                    // Whoever came may have been killed.
                    drop(served);
                });
            }
        });
        door
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap()
    }

    /// Writes the kubeconfig of one who comes.
    pub(crate) fn way(&self, folder: &Path, who: &str) -> PathBuf {
        let server = format!("{}/as/{who}", self.address);
        let config = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{ "name": "c", "context": { "cluster": "k", "user": "u" } }],
            "clusters": [{ "name": "k", "cluster": { "server": server } }],
            "users": [{ "name": "u", "user": { "token": "t" } }] });
        let path = folder.join(format!("kubeconfig-{who}"));
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }

    /// What was asked for so far, as method and address; behind `cli ` what the CLI asked for.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.held().asked.clone()
    }

    /// Forgets what was asked for.
    pub(crate) fn forget(&self) {
        self.held().asked.clear();
    }

    /// From now on nobody's Lease is written for this one.
    pub(crate) fn refuse_lease(&self, who: &str) {
        self.held().refused.insert(who.to_owned());
    }

    /// A pod is there and works.
    pub(crate) fn pod_works(&self, name: &str, uid: &str) {
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "uid": uid },
            "status": { "phase": "Running" } });
        self.held().pods.insert(name.to_owned(), pod);
    }

    /// A pod is gone.
    pub(crate) fn pod_goes(&self, name: &str) {
        self.held().pods.remove(name);
    }

    async fn pass(&self, request: Request<Incoming>) -> Result<Answer, Failed> {
        let (mut head, body) = request.into_parts();
        let whole = head.uri.to_string();
        let (who, rest) = whole
            .strip_prefix("/as/")
            .and_then(|rest| rest.split_once('/'))
            .ok_or_else(|| Failed::other("nobody comes"))?;
        head.uri = format!("/{rest}").parse().map_err(Failed::other)?;
        let agent = head.headers.get(USER_AGENT);
        let agent = agent.map_or("", |agent| agent.to_str().unwrap_or_default());
        let by = if agent.contains("Terraform") || agent.contains("OpenTofu") {
            "cli "
        } else {
            ""
        };
        self.held()
            .asked
            .push(format!("{by}{} {}", head.method, head.uri));
        let path = head.uri.path();
        if head.method != Method::GET && path.ends_with(super::LEASE) && self.held().refused.contains(who) {
            return Ok(answer(
                StatusCode::INTERNAL_SERVER_ERROR,
                &json!({ "code": 500, "status": "Failure",
                "kind": "Status", "apiVersion": "v1", "message": "not written", "reason": "InternalError" }),
            ));
        }
        if let Some((_, name)) = path.split_once("/pods/") {
            let found = self.held().pods.get(name).cloned();
            return Ok(found.map_or_else(
                || {
                    answer(
                        StatusCode::NOT_FOUND,
                        &json!({ "code": 404, "status": "Failure", "kind": "Status",
                        "apiVersion": "v1", "message": "pod not found", "reason": "NotFound",
                        "details": { "kind": "pods", "name": name } }),
                    )
                },
                |pod| answer(StatusCode::OK, &pod),
            ));
        }
        let bytes = body.collect().await.map_err(Failed::other)?.to_bytes();
        let answer = self
            .client
            .send(Request::from_parts(head, Body::from(bytes)))
            .await;
        Ok(answer
            .map_err(Failed::other)?
            .map(|body| body.map_err(Failed::other).boxed_unsync()))
    }
}

fn answer(code: StatusCode, body: &Value) -> Answer {
    let body = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {});
    let mut answer = Response::new(body.boxed_unsync());
    *answer.status_mut() = code;
    answer
}
