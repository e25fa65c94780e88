//! The fake API.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::StreamExt as _;
use futures::channel::mpsc;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tower::BoxError;

use super::LONG;
use crate::sync::lock;

/// An API of ConfigMaps that lists, watches and records events.
#[derive(Default)]
pub(super) struct FakeApi {
    pub(super) objects: Mutex<BTreeMap<String, Value>>,
    pub(super) watchers: Mutex<Vec<mpsc::UnboundedSender<Value>>>,
    pub(super) events: Mutex<Vec<Value>>,
    pub(super) changed: Notify,
}

type Answer = Response<http_body_util::combinators::UnsyncBoxBody<Bytes, BoxError>>;

fn whole(content: &Value) -> Answer {
    Response::new(
        Full::new(Bytes::from(content.to_string()))
            .map_err(|never| match never {})
            .boxed_unsync(),
    )
}

impl FakeApi {
    async fn answer(&self, request: Request<Body>) -> Answer {
        let (parts, body) = request.into_parts();
        if parts.method == Method::POST {
            let event: Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
            lock(&self.events).push(event.clone());
            self.changed.notify_waiters();
            return whole(&event);
        }
        let items: Vec<Value> = lock(&self.objects).values().cloned().collect();
        if parts.uri.query().unwrap_or_default().contains("watch=true") {
            let (sender, receiver) = mpsc::unbounded();
            lock(&self.watchers).push(sender);
            self.changed.notify_waiters();
            let lines = receiver.map(|event: Value| Ok(Frame::data(Bytes::from(format!("{event}\n")))));
            return Response::new(StreamBody::new(lines).boxed_unsync());
        }
        whole(
            &json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}),
        )
    }

    pub(super) fn client(self: &Arc<Self>) -> Client {
        let api = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = Arc::clone(&api);
            async move { Ok::<_, BoxError>(api.answer(request).await) }
        });
        Client::new(service, "ns")
    }

    pub(super) fn put(&self, name: &str, change: &Value) {
        let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "2", "generation": 1}});
        for (key, value) in change.as_object().unwrap() {
            match (key.as_str(), value) {
                ("metadata", Value::Object(more)) => {
                    object["metadata"].as_object_mut().unwrap().extend(more.clone());
                }
                _ => object[key] = value.clone(),
            }
        }
        lock(&self.objects).insert(name.to_owned(), object.clone());
        for watcher in lock(&self.watchers).iter() {
            drop(watcher.unbounded_send(json!({"type": "MODIFIED", "object": object})));
        }
    }

    /// Deletes an object while no watch is open: the open ones end, and must list again.
    pub(super) fn delete_unseen(&self, name: &str) {
        lock(&self.objects).remove(name);
        let expired = json!({"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "metadata": {},
            "status": "Failure", "code": 410, "reason": "Expired", "message": "too old resource version"}});
        for watcher in std::mem::take(&mut *lock(&self.watchers)) {
            drop(watcher.unbounded_send(expired.clone()));
        }
    }

    /// Waits until `seen` returns true, after each change.
    pub(super) async fn until(&self, mut seen: impl FnMut(&Self) -> bool) {
        tokio::time::timeout(LONG, async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if seen(self) {
                    return;
                }
                changed.await;
            }
        })
        .await
        .unwrap();
    }
}
