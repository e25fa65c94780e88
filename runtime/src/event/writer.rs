//! The task that writes the events of its objects in order, and counts repetitions of recent events.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event as CoreEvent, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::mpsc;

use super::correlator::{Aggregation, WINDOW, evict_older_half};
use super::{Command, Event, MAX_MESSAGE, Reporter, Severity, boundary, bounded};
use crate::clock::Clock;

/// Prefix of the message of a combined event, as in client-go.
const COMBINED: &str = "(combined from similar events): ";

/// The properties that equal events share.
#[derive(Debug, Hash)]
struct Key<'a> {
    uid: Option<&'a str>,
    kind: Option<&'a str>,
    namespace: &'a str,
    name: Option<&'a str>,
    severity: Severity,
    reason: &'a str,
    /// `None` for a combined event, whose message changes.
    message: Option<&'a str>,
}

/// An event that was written.
#[derive(Clone, Debug)]
struct Written {
    name: String,
    count: i32,
    last: Timestamp,
}

pub(super) struct Writer {
    client: Client,
    reporter: Reporter,
    clock: Arc<dyn Clock>,
    /// Timeout of one event.
    limit: Duration,
    hasher: RandomState,
    /// By the hash of their [`Key`], whose texts would take more memory than all else that is kept of an event.
    written: HashMap<u64, Written>,
    /// Distinguishes events of the same time.
    sequence: i128,
}

impl Writer {
    pub(super) fn new(client: Client, reporter: Reporter, clock: Arc<dyn Clock>, limit: Duration) -> Self {
        Self {
            client,
            reporter,
            clock,
            limit,
            hasher: RandomState::new(),
            written: HashMap::new(),
            sequence: 0,
        }
    }

    pub(super) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        while let Some(command) = commands.recv().await {
            match command {
                Command::Flush(done) => drop(done.send(())),
                Command::Write(event) => {
                    let (object, event, form) = *event;
                    let (kind, name, reason) =
                        (object.kind.clone(), object.name.clone(), event.reason.clone());
                    let limit = self.limit;
                    match tokio::time::timeout(limit, self.write(object, event, form)).await {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => {
                            let error = &error as &dyn std::error::Error;
                            tracing::warn!(error, kind, name, reason, "unable to record event");
                        }
                        Err(_) => {
                            tracing::warn!(kind, name, reason, ?limit, "unable to record event: timed out");
                        }
                    }
                }
            }
        }
    }

    async fn write(&mut self, object: ObjectReference, event: Event, form: Aggregation) -> kube::Result<()> {
        let now = self.clock.now();
        evict_older_half(&mut self.written, |written| written.last);
        self.written
            .retain(|_, written| now.duration_since(written.last) < WINDOW);
        let message = match form {
            Aggregation::Single => bounded(&event.message, MAX_MESSAGE),
            Aggregation::Combined => bounded(&format!("{COMBINED}{}", event.message), MAX_MESSAGE),
        };
        let namespace = object.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let key = self.hasher.hash_one(Key {
            uid: object.uid.as_deref(),
            kind: object.kind.as_deref(),
            namespace: &namespace,
            name: object.name.as_deref(),
            severity: event.severity,
            reason: &event.reason,
            message: (form == Aggregation::Single).then_some(&*message),
        });
        let api: Api<CoreEvent> = Api::namespaced(self.client.clone(), &namespace);
        if let Some(earlier) = self.written.get(&key).cloned() {
            if self.repeat(&api, key, &earlier, (&event, &message), now).await? {
                return Ok(());
            }
            self.written.remove(&key);
        }
        let name = self.name_for(&object, now);
        let new = self.compose(object, &event, message, &namespace, &name, now);
        api.create(&PostParams::default(), &new).await?;
        let (count, last) = (1, now);
        self.written.insert(key, Written { name, count, last });
        Ok(())
    }

    /// Increments the count of an existing event; `false` if it does not exist any more.
    async fn repeat(
        &mut self,
        api: &Api<CoreEvent>,
        key: u64,
        earlier: &Written,
        (event, message): (&Event, &str),
        now: Timestamp,
    ) -> kube::Result<bool> {
        let count = earlier.count.saturating_add(1);
        let mut patch = json!({ "count": count, "lastTimestamp": Time(now), "message": message });
        if !event.annotations.is_empty() {
            patch["metadata"] = json!({ "annotations": event.annotations });
        }
        let (name, last) = (earlier.name.clone(), now);
        match api
            .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
            .await
        {
            Ok(_) => {
                self.written.insert(key, Written { name, count, last });
                Ok(true)
            }
            // Expired (after an hour by default) or deleted.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn compose(
        &self,
        object: ObjectReference,
        event: &Event,
        message: String,
        namespace: &str,
        name: &str,
        now: Timestamp,
    ) -> CoreEvent {
        let is_warning = event.severity == Severity::Warning;
        let kind = if is_warning { "Warning" } else { "Normal" };
        CoreEvent {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(namespace.to_owned()),
                annotations: (!event.annotations.is_empty()).then(|| event.annotations.clone()),
                ..ObjectMeta::default()
            },
            involved_object: object,
            type_: Some(kind.to_owned()),
            reason: Some(event.reason.clone()),
            message: Some(message),
            source: Some(EventSource {
                component: Some(self.reporter.component.clone()),
                host: None,
            }),
            reporting_component: Some(self.reporter.component.clone()),
            reporting_instance: Some(self.reporter.instance.clone()),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            count: Some(1),
            ..CoreEvent::default()
        }
    }

    /// Returns a unique name `<object>.<nanoseconds in hex>`, as in client-go.
    fn name_for(&mut self, object: &ObjectReference, now: Timestamp) -> String {
        self.sequence = now.as_nanosecond().max(self.sequence + 1);
        let mut name = object.name.clone().unwrap_or_default();
        name.truncate(boundary(&name, 230));
        format!("{}.{:x}", name.trim_end_matches(['.', '-']), self.sequence)
    }
}
