//! One of the two servers, and the steps of a case taken on it.

use std::time::Duration;

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

/// What a step brought: status, warnings and body, or what was watched.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) warnings: Vec<String>,
    pub(crate) body: Value,
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
                        status: 0,
                        warnings: Vec::new(),
                        body: json!({ "sameVersion": same }),
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
        let status = response.status().as_u16();
        let warnings = response.headers().get_all("warning").iter();
        let warnings = warnings
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .collect();
        let bytes = response
            .into_body()
            .collect()
            .await
            .map_err(|error| error.to_string())?
            .to_bytes();
        let text = || Value::String(String::from_utf8_lossy(&bytes).trim().to_owned());
        let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| text());
        Ok(Answer {
            status,
            warnings,
            body,
        })
    }

    async fn watch(&self, path: &str, events: usize) -> Result<Answer, String> {
        let request = http::Request::get(path)
            .body(Vec::new())
            .map_err(|error| error.to_string())?;
        match self.0.request_stream(request).await {
            Ok(stream) => {
                let lines = stream
                    .lines()
                    .map_ok(|line| serde_json::from_str(&line).unwrap_or(Value::String(line)));
                let seen: Vec<Value> = lines
                    .take(events)
                    .try_collect()
                    .await
                    .map_err(|error| format!("{path}: {error}"))?;
                Ok(Answer {
                    status: 200,
                    warnings: Vec::new(),
                    body: Value::Array(seen),
                })
            }
            Err(kube::Error::Api(refused)) => {
                let body = serde_json::to_value(&refused).map_err(|error| error.to_string())?;
                Ok(Answer {
                    status: refused.code,
                    warnings: Vec::new(),
                    body,
                })
            }
            Err(error) => Err(format!("{path}: {error}")),
        }
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
