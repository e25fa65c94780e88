//! One of the two servers, and the steps of a case taken on it.

use std::{collections::BTreeMap, io, time::Duration};

use futures::{AsyncBufReadExt, StreamExt, TryStreamExt};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use crate::case::Step;

/// No step takes longer, on the slowest machine that runs this.
const LIMIT: Duration = Duration::from_secs(60);

/// A server, seen through a client.
pub(crate) struct Side(pub(crate) Client);

/// What a step brought: status, headers and body, or what was watched.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Values by name, of the headers that are compared.
    pub(crate) headers: BTreeMap<String, Vec<String>>,
    pub(crate) body: Value,
}

/// Headers that are not compared: what they say has no counterpart on the other side, or depends on the way between.
const NOT_COMPARED: [(&str, &str); 7] = [
    (
        "audit-id",
        "the identity of a request in the audit log, which the embedded API has not",
    ),
    ("date", "the time"),
    (
        "content-length",
        "the length of a body with identities and times; whole bodies are compared",
    ),
    (
        "transfer-encoding",
        "how the connection frames the body, which a client in process has not",
    ),
    (
        "content-encoding",
        "answers are compressed by size, where the connection asks for it",
    ),
    (
        "x-kubernetes-pf-flowschema-uid",
        "priority and fairness, which the embedded API has not",
    ),
    (
        "x-kubernetes-pf-prioritylevel-uid",
        "priority and fairness, which the embedded API has not",
    ),
];

fn headers_of(headers: &http::HeaderMap) -> BTreeMap<String, Vec<String>> {
    let mut compared: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        if NOT_COMPARED.iter().all(|(left_out, _)| name != left_out) {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            compared.entry(name.to_string()).or_default().push(value);
        }
    }
    compared
}

impl Side {
    pub(crate) async fn make_namespace(&self, name: &str) -> Result<(), String> {
        let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        let made = self
            .take(&crate::case::post("/api/v1/namespaces", &body), name, &[])
            .await?;
        if made.status == 201 {
            Ok(())
        } else {
            Err(format!("namespace {name}: {made:?}"))
        }
    }

    pub(crate) async fn take(
        &self,
        step: &Step,
        namespace: &str,
        earlier: &[Answer],
    ) -> Result<Answer, String> {
        let fill = |text: &str| fill(text, namespace, earlier);
        let taken = async {
            match step {
                Step::Send {
                    method,
                    path,
                    headers,
                    body,
                } => self.send(method, &fill(path), headers, fill(body)).await,
                Step::Watch(path, events) => self.watch(&fill(path), *events).await,
                Step::CaughtUp(path, items) => self.caught_up(&fill(path), *items).await,
                Step::Gone(path) => self.gone(&fill(path)).await,
                Step::SameVersion(one, other) => {
                    let same = version(earlier, *one) == version(earlier, *other);
                    Ok(Answer {
                        body: json!({ "sameVersion": same }),
                        ..Answer::default()
                    })
                }
            }
        };
        let late = |_| Err(format!("no end within {LIMIT:?}: {step:?}"));
        tokio::time::timeout(LIMIT, taken).await.unwrap_or_else(late)
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&'static str, &'static str)],
        body: String,
    ) -> Result<Answer, String> {
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
        let (status, headers) = (response.status().as_u16(), headers_of(response.headers()));
        let body = body_of(response).await?;
        Ok(Answer {
            status,
            headers,
            body,
        })
    }

    async fn watch(&self, path: &str, events: usize) -> Result<Answer, String> {
        let request = http::Request::get(path)
            .body(Body::empty())
            .map_err(|error| error.to_string())?;
        let sent = self.0.send(request).await;
        let response = sent.map_err(|error| format!("{path}: {error}"))?;
        let (status, headers) = (response.status().as_u16(), headers_of(response.headers()));
        let body = if response.status().is_success() {
            let frames = response.into_body().into_data_stream().map_err(io::Error::other);
            let lines = frames
                .into_async_read()
                .lines()
                .map_ok(|line| serde_json::from_str(&line).unwrap_or(Value::String(line)));
            let seen: Result<Vec<Value>, _> = lines.take(events).try_collect().await;
            Value::Array(seen.map_err(|error| format!("{path}: {error}"))?)
        } else {
            body_of(response).await?
        };
        Ok(Answer {
            status,
            headers,
            body,
        })
    }

    async fn caught_up(&self, path: &str, items: usize) -> Result<Answer, String> {
        loop {
            let answer = self.send("GET", path, &[], String::new()).await?;
            let found = answer.body["items"].as_array().map(Vec::len);
            if answer.status != 200 || found == Some(items) {
                return Ok(answer);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn gone(&self, path: &str) -> Result<Answer, String> {
        loop {
            let answer = self.send("GET", path, &[], String::new()).await?;
            if answer.status == 404 {
                return Ok(answer);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// The body as JSON, or as text where it is none.
async fn body_of(response: http::Response<Body>) -> Result<Value, String> {
    let collected = response.into_body().collect().await;
    let bytes = collected.map_err(|error| error.to_string())?.to_bytes();
    let text = || Value::String(String::from_utf8_lossy(&bytes).trim().to_owned());
    Ok(serde_json::from_slice(&bytes).unwrap_or_else(|_| text()))
}

fn version(earlier: &[Answer], number: usize) -> &str {
    earlier
        .get(number)
        .and_then(|answer| answer.body["metadata"]["resourceVersion"].as_str())
        .unwrap_or("none")
}

fn fill(text: &str, namespace: &str, earlier: &[Answer]) -> String {
    let mut filled = text.replace("{ns}", namespace);
    for (number, answer) in earlier.iter().enumerate() {
        let uid = answer.body["metadata"]["uid"].as_str().unwrap_or("none");
        filled = filled.replace(&format!("{{rv:{number}}}"), version(earlier, number));
        filled = filled.replace(&format!("{{uid:{number}}}"), uid);
    }
    filled
}
