//! The real server and the embedded ones, and the execution of steps.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use futures::{AsyncBufReadExt, StreamExt, TryStreamExt};
use http_body_util::BodyExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use serde_json::{Value, json};
use sluice_embedded::ApiServer;
use sluice_harness::cluster::ControlPlane;
use tempfile::TempDir;

use crate::case::Step;
use crate::stores::StoreType;

/// Timeout of a step.
const STEP_TIMEOUT: Duration = Duration::from_mins(1);

/// Kinds of the suite, which cover the features of schemas.
const DEFINITIONS: &str = include_str!("definitions.yaml");

/// The real server and an embedded one for each store, with the same definitions.
pub(crate) struct TestServers {
    plane: ControlPlane,
    embedded: Vec<(StoreType, ApiServer)>,
    /// Files of the stores, removed after the servers.
    _dir: TempDir,
}

impl TestServers {
    pub(crate) async fn start() -> Self {
        let plane = ControlPlane::start().await.unwrap();
        plane.apply(DEFINITIONS).await.unwrap();
        plane.start_controllers().unwrap();
        let documents = serde_yaml_ng::Deserializer::from_str(DEFINITIONS);
        let definitions: Vec<_> = documents
            .map(|document| CustomResourceDefinition::deserialize(document).unwrap())
            .collect();
        let dir = tempfile::tempdir().unwrap();
        let server = |store: StoreType| {
            let builder = ApiServer::builder().crds(definitions.clone());
            let opened = store.open(dir.path(), &definitions);
            (store, builder.store(opened).build().unwrap())
        };
        let embedded = StoreType::ALL.map(server).into();
        Self {
            plane,
            embedded,
            _dir: dir,
        }
    }

    pub(crate) async fn real(&self) -> TestServer {
        TestServer(self.plane.client().await.unwrap())
    }

    pub(crate) fn embedded(&self) -> Vec<(StoreType, TestServer)> {
        let servers = self.embedded.iter();
        servers
            .map(|(store, server)| (*store, TestServer(server.client())))
            .collect()
    }
}

/// A client of one server.
pub(crate) struct TestServer(pub(crate) Client);

/// The response to a step: status, headers and body, or watch events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Values by name; only compared headers.
    pub(crate) headers: BTreeMap<String, Vec<String>>,
    pub(crate) body: Value,
}

/// The `Accept` header of aggregated discovery.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Headers that are not compared, with the reasons.
const NOT_COMPARED: [(&str, &str); 7] = [
    (
        "audit-id",
        "the identity of a request in the audit log, which the embedded API lacks",
    ),
    ("date", "the time"),
    (
        "content-length",
        "depends on identities and times; whole bodies are compared",
    ),
    (
        "transfer-encoding",
        "the framing of the connection, which an in-process client lacks",
    ),
    (
        "content-encoding",
        "depends on the size of the response and the connection",
    ),
    (
        "x-kubernetes-pf-flowschema-uid",
        "priority and fairness, which the embedded API lacks",
    ),
    (
        "x-kubernetes-pf-prioritylevel-uid",
        "priority and fairness, which the embedded API lacks",
    ),
];

fn compared_headers(headers: &http::HeaderMap) -> BTreeMap<String, Vec<String>> {
    let mut compared: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        if NOT_COMPARED.iter().all(|(left_out, _)| name != left_out) {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            compared.entry(name.to_string()).or_default().push(value);
        }
    }
    compared
}

impl TestServer {
    pub(crate) async fn create_namespace(&self, name: &str) -> Result<(), String> {
        let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        let created = self
            .execute(&crate::case::post("/api/v1/namespaces", &body), name, &[])
            .await?;
        if created.status == 201 {
            Ok(())
        } else {
            Err(format!("namespace {name}: {created:?}"))
        }
    }

    pub(crate) async fn execute(
        &self,
        step: &Step,
        namespace: &str,
        earlier: &[Response],
    ) -> Result<Response, String> {
        let fill = |text: &str| fill(text, namespace, earlier);
        let execution = async {
            match step {
                Step::Send {
                    method,
                    path,
                    headers,
                    body,
                } => self.send(method, &fill(path), headers, fill(body)).await,
                Step::Watch(path, events) => self.watch(&fill(path), *events).await,
                Step::WaitForItems(path, items) => self.wait_for_items(&fill(path), *items).await,
                Step::Until(status, request) => self.send_until(*status, request, fill).await,
                Step::WaitForCondition(path, type_) => self.wait_for_condition(&fill(path), type_).await,
                Step::Managers(path) => self.managers(&fill(path)).await,
                Step::Discovery(group) => self.discovery(group).await,
                Step::NotModified(path) => self.not_modified(path).await,
                Step::WaitUntilGone(path) => self.wait_until_gone(&fill(path)).await,
                Step::SameVersion(one, other) => {
                    let same = version(earlier, *one) == version(earlier, *other);
                    Ok(Response {
                        body: json!({ "sameVersion": same }),
                        ..Response::default()
                    })
                }
            }
        };
        let late = |_| Err(format!("timeout after {STEP_TIMEOUT:?}: {step:?}"));
        tokio::time::timeout(STEP_TIMEOUT, execution)
            .await
            .unwrap_or_else(late)
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Result<Response, String> {
        let mut request = http::Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request
            .body(Body::from(body.into_bytes()))
            .map_err(|error| error.to_string())?;
        let response = self
            .0
            .send(request)
            .await
            .map_err(|error| format!("{method} {path}: {error}"))?;
        let (status, headers) = (response.status().as_u16(), compared_headers(response.headers()));
        let body = read_body(response).await?;
        Ok(Response {
            status,
            headers,
            body,
        })
    }

    async fn watch(&self, path: &str, events: usize) -> Result<Response, String> {
        let request = http::Request::get(path)
            .body(Body::empty())
            .map_err(|error| error.to_string())?;
        let sent = self.0.send(request).await;
        let response = sent.map_err(|error| format!("{path}: {error}"))?;
        let (status, headers) = (response.status().as_u16(), compared_headers(response.headers()));
        let body = if response.status().is_success() {
            let frames = response.into_body().into_data_stream().map_err(io::Error::other);
            let lines = frames
                .into_async_read()
                .lines()
                .map_ok(|line| serde_json::from_str(&line).unwrap_or(Value::String(line)));
            let watched: Result<Vec<Value>, _> = lines.take(events).try_collect().await;
            Value::Array(watched.map_err(|error| format!("{path}: {error}"))?)
        } else {
            read_body(response).await?
        };
        Ok(Response {
            status,
            headers,
            body,
        })
    }

    async fn send_until(
        &self,
        status: u16,
        request: &Step,
        fill: impl Fn(&str) -> String,
    ) -> Result<Response, String> {
        let Step::Send {
            method,
            path,
            headers,
            body,
        } = request
        else {
            return Err(format!("not a request: {request:?}"));
        };
        let end = Instant::now() + STEP_TIMEOUT / 2;
        loop {
            let response = self.send(method, &fill(path), headers, fill(body)).await?;
            if response.status == status {
                return Ok(response);
            }
            if Instant::now() > end {
                return Err(format!("no response with {status}, but {response:?}"));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn wait_for_condition(&self, path: &str, type_: &str) -> Result<Response, String> {
        loop {
            let response = self.send("GET", path, &[], String::new()).await?;
            let conditions = response.body["status"]["conditions"].as_array();
            let is_set = conditions.is_some_and(|conditions| conditions.iter().any(|c| c["type"] == type_));
            if response.status != 200 || is_set {
                return Ok(response);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn wait_for_items(&self, path: &str, items: usize) -> Result<Response, String> {
        loop {
            let response = self.send("GET", path, &[], String::new()).await?;
            let found = response.body["items"].as_array().map(Vec::len);
            if response.status != 200 || found == Some(items) {
                return Ok(response);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Returns the field managers of an object, sorted and without times, under a key that is compared.
    async fn managers(&self, path: &str) -> Result<Response, String> {
        let mut response = self.send("GET", path, &[], String::new()).await?;
        let entries = response.body["metadata"]["managedFields"].as_array();
        let mut entries = entries.cloned().unwrap_or_default();
        for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
            entry.remove("time");
        }
        entries.sort_by_cached_key(|entry| {
            ["manager", "operation", "apiVersion", "subresource"].map(|field| entry[field].to_string())
        });
        response.body = json!({ "managers": entries });
        Ok(response)
    }

    /// Returns a group of the aggregated discovery. The real server adds new groups later, and the entity tag covers all of them.
    async fn discovery(&self, group: &str) -> Result<Response, String> {
        loop {
            let mut response = self
                .send("GET", "/apis", &[("accept", AGGREGATED)], String::new())
                .await?;
            let items = response.body["items"].as_array().cloned().unwrap_or_default();
            let found = items.into_iter().find(|item| item["metadata"]["name"] == group);
            if response.status != 200 || found.is_some() {
                response.headers.remove("etag");
                response.body = found.unwrap_or_default();
                return Ok(response);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Requests aggregated discovery with the entity tag of the last response, until there is nothing new.
    async fn not_modified(&self, path: &str) -> Result<Response, String> {
        let mut etag = String::new();
        loop {
            let headers = [("accept", AGGREGATED), ("if-none-match", etag.as_str())];
            let mut response = self.send("GET", path, &headers, String::new()).await?;
            let found = response.headers.get("etag").map(|values| values.join(", "));
            if response.status != 200 {
                // The tags of two servers differ.
                let is_same = found.as_ref() == Some(&etag);
                let shown = format!("the tag of the request: {is_same}");
                response.headers.insert("etag".to_owned(), vec![shown]);
                return Ok(response);
            }
            etag = found.ok_or_else(|| format!("{path}: no entity tag"))?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn wait_until_gone(&self, path: &str) -> Result<Response, String> {
        loop {
            let response = self.send("GET", path, &[], String::new()).await?;
            if response.status == 404 {
                return Ok(response);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Returns the body as JSON, or as text if it is not JSON.
async fn read_body(response: http::Response<Body>) -> Result<Value, String> {
    let collected = response.into_body().collect().await;
    let bytes = collected.map_err(|error| error.to_string())?.to_bytes();
    let text = || Value::String(String::from_utf8_lossy(&bytes).trim().to_owned());
    Ok(serde_json::from_slice(&bytes).unwrap_or_else(|_| text()))
}

fn version(earlier: &[Response], number: usize) -> &str {
    earlier
        .get(number)
        .and_then(|response| response.body["metadata"]["resourceVersion"].as_str())
        .unwrap_or("none")
}

fn fill(text: &str, namespace: &str, earlier: &[Response]) -> String {
    let mut filled = text.replace("{ns}", namespace);
    for (number, response) in earlier.iter().enumerate() {
        let uid = response.body["metadata"]["uid"].as_str().unwrap_or("none");
        filled = filled.replace(&format!("{{rv:{number}}}"), version(earlier, number));
        filled = filled.replace(&format!("{{uid:{number}}}"), uid);
        let token = response.body["metadata"]["continue"].as_str().unwrap_or("none");
        filled = filled.replace(&format!("{{continue:{number}}}"), token);
        let token = response.body["status"]["token"].as_str().unwrap_or("none");
        filled = filled.replace(&format!("{{token:{number}}}"), token);
    }
    filled
}
