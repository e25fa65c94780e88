//! The task that writes events, one after the other, and remembers what it wrote to count repetitions.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event as CoreEvent, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::mpsc;

use super::{Event, MAX_MESSAGE, Order, Reporter, Severity, boundary, bounded};
use crate::clock::Clock;

/// Within this time an equal event counts up the earlier one (as client-go's correlator).
const AGGREGATION: SignedDuration = SignedDuration::from_mins(10);

/// Remembered events; the oldest are forgotten beyond it.
const REMEMBERED: usize = 4096;

/// What makes two events equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    uid: Option<String>,
    kind: Option<String>,
    namespace: String,
    name: Option<String>,
    severity: Severity,
    reason: String,
    message: String,
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
    written: HashMap<Key, Written>,
    /// Distinguishes events of the same instant.
    sequence: i128,
}

impl Writer {
    pub(super) fn new(client: Client, reporter: Reporter, clock: Arc<dyn Clock>) -> Self {
        Self {
            client,
            reporter,
            clock,
            written: HashMap::new(),
            sequence: 0,
        }
    }

    pub(super) async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        while let Some(order) = orders.recv().await {
            match order {
                Order::Flush(done) => drop(done.send(())),
                Order::Write(event) => {
                    let (object, event) = *event;
                    let (kind, name, reason) =
                        (object.kind.clone(), object.name.clone(), event.reason.clone());
                    if let Err(error) = self.write(object, event).await {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(error, kind, name, reason, "unable to record event");
                    }
                }
            }
        }
    }

    async fn write(&mut self, object: ObjectReference, event: Event) -> kube::Result<()> {
        let now = self.clock.now();
        self.forget(now);
        let message = bounded(&event.message, MAX_MESSAGE);
        let key = Key {
            uid: object.uid.clone(),
            kind: object.kind.clone(),
            namespace: object.namespace.clone().unwrap_or_else(|| "default".to_owned()),
            name: object.name.clone(),
            severity: event.severity,
            reason: event.reason.clone(),
            message: message.clone(),
        };
        let api: Api<CoreEvent> = Api::namespaced(self.client.clone(), &key.namespace);
        if let Some(earlier) = self.written.get(&key).cloned() {
            if self.repeat(&api, &key, &earlier, &event, now).await? {
                return Ok(());
            }
            self.written.remove(&key);
        }
        let name = self.name_for(&object, now);
        let new = self.compose(object, &event, message, &key.namespace, &name, now);
        api.create(&PostParams::default(), &new).await?;
        self.written.insert(
            key,
            Written {
                name,
                count: 1,
                last: now,
            },
        );
        Ok(())
    }

    /// Counts up an event that was written before; `false` when it is there no longer.
    async fn repeat(
        &mut self,
        api: &Api<CoreEvent>,
        key: &Key,
        earlier: &Written,
        event: &Event,
        now: Timestamp,
    ) -> kube::Result<bool> {
        let count = earlier.count.saturating_add(1);
        let mut patch = json!({ "count": count, "lastTimestamp": Time(now) });
        if !event.annotations.is_empty() {
            patch["metadata"] = json!({ "annotations": event.annotations });
        }
        match api
            .patch(&earlier.name, &PatchParams::default(), &Patch::Merge(patch))
            .await
        {
            Ok(_) => {
                self.written.insert(
                    key.clone(),
                    Written {
                        name: earlier.name.clone(),
                        count,
                        last: now,
                    },
                );
                Ok(true)
            }
            // Events live for an hour by default, or were deleted.
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
        let kind = if event.severity == Severity::Warning {
            "Warning"
        } else {
            "Normal"
        };
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

    /// `<object>.<nanoseconds in hex>` as client-go names them, no two alike.
    fn name_for(&mut self, object: &ObjectReference, now: Timestamp) -> String {
        self.sequence = now.as_nanosecond().max(self.sequence + 1);
        let mut name = object.name.clone().unwrap_or_default();
        name.truncate(boundary(&name, 230));
        format!("{}.{:x}", name.trim_end_matches(['.', '-']), self.sequence)
    }

    fn forget(&mut self, now: Timestamp) {
        if self.written.len() >= REMEMBERED {
            let mut times: Vec<Timestamp> = self.written.values().map(|written| written.last).collect();
            times.sort_unstable();
            let limit = times[times.len() / 2];
            self.written.retain(|_, written| written.last > limit);
        }
        self.written
            .retain(|_, written| now.duration_since(written.last) < AGGREGATION);
    }
}
