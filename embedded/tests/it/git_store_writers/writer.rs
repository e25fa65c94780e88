//! A client that writes ConfigMaps at random and records the answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use kube::Client;
use serde_json::{Value, json};
use sluice_harness::sample::Rng;

use super::linearizability::{Action, Answer, Operation};
use crate::fixture::{CONFIGMAPS, TestResponse, call};

/// Pause after an error of the store, so that an outage does not fill the record.
const ERROR_PAUSE: Duration = Duration::from_millis(20);

/// The counters of all writers.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    /// The time: each start and end of a request has a number of its own.
    clock: Arc<AtomicU64>,
    acknowledged: Arc<AtomicUsize>,
    errors: Arc<AtomicUsize>,
}

impl Counters {
    /// Returns the number of acknowledged writes.
    pub(super) fn acknowledged(&self) -> usize {
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// Returns the number of errors of the store.
    pub(super) fn errors(&self) -> usize {
        self.errors.load(Ordering::SeqCst)
    }
}

/// One writer.
pub(super) struct Writer {
    number: usize,
    /// Number of the server.
    server: usize,
    client: Client,
    rng: Rng,
    objects: usize,
    counters: Counters,
    /// The resourceVersion of each object before the newest one that this writer knows.
    outdated: BTreeMap<String, u64>,
    /// The requests in their order, with the names of their objects.
    operations: Vec<(String, Operation)>,
}

impl Writer {
    /// Creates a writer of this many objects.
    pub(super) fn new(
        number: usize,
        (server, client): (usize, Client),
        rng: Rng,
        objects: usize,
        counters: &Counters,
    ) -> Self {
        Self {
            number,
            server,
            client,
            rng,
            objects,
            counters: counters.clone(),
            outdated: BTreeMap::new(),
            operations: Vec::new(),
        }
    }

    /// Writes until this many of its writes are acknowledged. Returns its requests with the names of their objects.
    pub(super) async fn run(mut self, writes: usize) -> Vec<(String, Operation)> {
        let mut acknowledged = 0;
        while acknowledged < writes {
            if matches!(self.write().await, Answer::Stored(_)) {
                acknowledged += 1;
            }
        }
        self.operations
    }

    /// Reads an object, and writes it.
    async fn write(&mut self) -> Answer {
        let name = format!("o{}", self.rng.below(self.objects));
        let action = match self.execute(&name, Action::Read).await {
            Answer::Found(Some(revision)) => {
                let outdated = self.outdated.insert(name.clone(), revision);
                match self.rng.below(10) {
                    0..=3 => Action::Update(revision),
                    4 => Action::Update(outdated.unwrap_or(revision)),
                    5..=7 => Action::Patch,
                    8 => Action::Delete(revision),
                    _ => Action::Create,
                }
            }
            _ if self.rng.below(10) == 0 => Action::Patch,
            _ => Action::Create,
        };
        self.execute(&name, action).await
    }

    async fn execute(&mut self, name: &str, action: Action) -> Answer {
        let token = format!("w{}-{}", self.number, self.operations.len());
        let start = self.counters.clock.fetch_add(1, Ordering::SeqCst);
        let response = send(&self.client, name, &token, action).await;
        let end = self.counters.clock.fetch_add(1, Ordering::SeqCst);
        let answer = answer(action, &response);
        match answer {
            Answer::Stored(_) => {
                self.counters.acknowledged.fetch_add(1, Ordering::SeqCst);
            }
            Answer::Unknown => {
                self.counters.errors.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(ERROR_PAUSE).await;
            }
            _ => {}
        }
        let operation = Operation {
            server: self.server,
            start,
            end,
            token,
            action,
            answer,
        };
        self.operations.push((name.to_owned(), operation));
        answer
    }
}

/// Sends a request about a ConfigMap in the namespace `default`.
async fn send(client: &Client, name: &str, token: &str, action: Action) -> TestResponse {
    let path = format!("{CONFIGMAPS}/{name}");
    let content = json!({"metadata": {"name": name}, "data": {"token": token}});
    match action {
        Action::Read => call(client, "GET", &path, None).await,
        Action::Create => call(client, "POST", CONFIGMAPS, Some(&content)).await,
        Action::Patch => call(client, "PATCH", &path, Some(&json!({"data": {"token": token}}))).await,
        Action::Update(revision) => {
            let mut content = content;
            content["metadata"]["resourceVersion"] = revision.to_string().into();
            call(client, "PUT", &path, Some(&content)).await
        }
        Action::Delete(revision) => {
            let options = json!({"kind": "DeleteOptions", "apiVersion": "v1",
                "preconditions": {"resourceVersion": revision.to_string()}});
            call(client, "DELETE", &path, Some(&options)).await
        }
    }
}

fn answer(action: Action, response: &TestResponse) -> Answer {
    let body = &response.body;
    match (response.code, body["reason"].as_str(), action) {
        (200, _, Action::Read) => Answer::Found(Some(revision(body))),
        (404, _, Action::Read) => Answer::Found(None),
        (200, _, Action::Delete(_)) => Answer::Stored(None),
        (200 | 201, ..) => Answer::Stored(Some(revision(body))),
        (404, ..) => Answer::Missing,
        (409, Some("AlreadyExists"), _) => Answer::Exists,
        (409, Some("Conflict"), _) => {
            let message = body["message"].as_str().unwrap_or_default();
            if message.ends_with("; please try again") {
                Answer::Outpaced
            } else {
                Answer::Conflict
            }
        }
        (500, ..) => Answer::Unknown,
        _ => unreachable!("{action:?}: {response:?}"),
    }
}

/// Returns the resourceVersion of an object or list.
pub(super) fn revision(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str();
    version.unwrap_or_default().parse().unwrap()
}
