//! watch: a stream of changes, each cut to what the selectors let through.
//!
//! A watch keeps the version it has seen and reads on in the store's window of changes, a few at a time. Events are encoded
//! when they are sent, and a change once for all watches. One that falls behind the window is told so (410) and ends; the
//! client lists again.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use rand::Rng;
use serde_json::{Value, json};
use tokio::{sync::watch::Receiver, time::Instant};

use super::{Call, Cause, Reply, StatusError, negotiate::Shape, query::Query, read, respond, table};
use crate::{
    meta,
    selector::Selector,
    store::{Change, Gone, Verb},
};

/// How often an idle watch that allows bookmarks gets one.
const BOOKMARKS: Duration = Duration::from_secs(60);

/// Changes that are taken out of the window at once.
const BATCH: usize = 64;

/// An event that waits to be sent.
enum Event {
    /// One that is encoded.
    Line(Bytes),
    /// An object that was there at the start.
    Initial(Arc<Value>),
    /// An object after a change, with the event's type.
    After(&'static str, Arc<Change>),
    /// An object that left the selection by a change: its state before, at the version of the change.
    Left(Arc<Value>, u64),
}

/// A running watch.
struct Watch {
    call: Call,
    selector: Selector,
    newest: Receiver<u64>,
    seen: u64,
    /// Events that wait to be sent.
    ready: VecDeque<Event>,
    deadline: Instant,
    bookmark: Instant,
    /// Columns go with the first table only.
    headed: bool,
    over: bool,
}

/// Starts a watch.
pub(super) fn start(call: &Call) -> Result<Reply, StatusError> {
    let frames = stream::unfold(open(call)?, |mut watch| async move {
        let bytes = watch.next().await?;
        Some((Ok(Frame::data(bytes)), watch))
    });
    Ok(Reply::Stream(StreamBody::new(frames).boxed_unsync()))
}

fn open(call: &Call) -> Result<Watch, StatusError> {
    let selector = read::selector(call)?;
    let version = match call.query.resource_version.as_str() {
        "" => 0,
        text => read::version(text).map_err(|why| StatusError::unreadable_version(&why))?,
    };
    check_match(&call.query)?;
    let newest = call.api.store.subscribe();
    let seconds = call.query.timeout_seconds.filter(|seconds| *seconds > 0);
    // Spread, as kube-apiserver does, so that watches do not all come back at once.
    let seconds = seconds
        .unwrap_or_else(|| rand::rng().random_range(1800..3600))
        .min(7 * 86400);
    let now = Instant::now();
    let mut watch = Watch {
        call: Call::new(
            call.api.clone(),
            call.resource.clone(),
            call.shown.clone(),
            call.at.clone(),
            call.query.clone(),
            call.wanted,
        ),
        selector,
        newest,
        seen: version,
        ready: VecDeque::new(),
        deadline: now + Duration::from_secs(seconds),
        bookmark: now + BOOKMARKS,
        headed: false,
        over: false,
    };
    watch.begin(version);
    Ok(watch)
}

/// `resourceVersionMatch` belongs to `sendInitialEvents`, and the other way round.
fn check_match(query: &Query) -> Result<(), StatusError> {
    let forbidden = |why| {
        Err(StatusError::invalid_list_options(Cause::forbidden(
            "resourceVersionMatch",
            why,
        )))
    };
    match (query.initial_events, query.resource_version_match.as_str()) {
        (true, "NotOlderThan") | (false, "") => Ok(()),
        (true, _) => forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
        (false, _) => {
            forbidden("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
        }
    }
}

impl Watch {
    /// The objects there are, unless the client resumes from a version.
    fn begin(&mut self, version: u64) {
        let resumes = version > 0 && !self.call.query.initial_events;
        let (objects, revision) = {
            let state = self.call.api.store.read();
            let objects = if resumes {
                Vec::new()
            } else {
                state.list(&self.call.resource.id(), &self.call.at.namespace)
            };
            (objects, state.revision())
        };
        if version > revision {
            // Not of this store, which may have begun anew: only a new list helps, and this answer makes clients list.
            self.expire(revision);
            return;
        }
        if resumes {
            return;
        }
        self.seen = revision;
        for object in objects {
            if self.selector.matches(&object) {
                self.ready.push_back(Event::Initial(object));
            }
        }
        if self.call.query.initial_events && self.call.query.bookmarks {
            self.push_bookmark(&json!({"k8s.io/initial-events-end": "true"}));
        }
    }

    /// The next event, or the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(self.encode(event));
            }
            if self.over {
                return None;
            }
            // Marked as seen before looking, so that a change between look and wait wakes the wait.
            self.newest.borrow_and_update();
            self.catch_up();
            if self.ready.is_empty() && !self.over && self.seen >= *self.newest.borrow() {
                self.wait().await;
            }
        }
    }

    async fn wait(&mut self) {
        let bookmarks = self.call.query.bookmarks;
        tokio::select! {
            () = self.call.api.stop.cancelled() => self.over = true,
            () = tokio::time::sleep_until(self.deadline) => {
                self.over = true;
                if bookmarks {
                    self.push_bookmark(&Value::Null);
                }
            }
            () = tokio::time::sleep_until(self.bookmark), if bookmarks => self.push_bookmark(&Value::Null),
            changed = self.newest.changed() => self.over = changed.is_err(),
        }
    }

    /// Reads on in the window of changes.
    fn catch_up(&mut self) {
        let changes = self.call.api.store.read().changes_since(self.seen);
        match changes {
            Ok(changes) => {
                for change in changes.into_iter().take(BATCH) {
                    self.seen = change.revision;
                    self.take(change);
                }
            }
            Err(Gone { oldest }) => {
                self.expire(oldest);
            }
        }
    }

    /// Ends the watch with 410.
    fn expire(&mut self, oldest: u64) {
        let status = StatusError::gone(format!("too old resource version: {} ({oldest})", self.seen));
        self.push_raw("ERROR", &status.to_value());
        self.over = true;
    }

    /// A change as this watch sees it: what leaves the selection is deleted, what enters is added.
    fn take(&mut self, change: Arc<Change>) {
        if change.key.resource != self.call.resource.id() {
            return;
        }
        let before = change
            .before
            .as_ref()
            .filter(|object| self.selector.matches(object));
        let after = (change.verb == Verb::Put)
            .then_some(&change.object)
            .filter(|object| self.selector.matches(object));
        let event = match (before, after) {
            (None, Some(_)) => Event::After("ADDED", change),
            (Some(_), Some(_)) => Event::After("MODIFIED", change),
            (Some(_), None) if change.verb == Verb::Remove => Event::After("DELETED", change),
            (Some(before), None) => Event::Left(before.clone(), change.revision),
            (None, None) => return,
        };
        self.ready.push_back(event);
    }

    fn encode(&mut self, event: Event) -> Bytes {
        match event {
            Event::Line(bytes) => bytes,
            Event::Initial(object) => self.line("ADDED", &object),
            Event::After(type_, change) => {
                let as_stored = self.call.wanted.shape == Shape::Full
                    && change.object["apiVersion"] == self.call.shown.api_version().as_str();
                if as_stored {
                    let front = format!("{{\"type\":\"{type_}\",\"object\":");
                    Bytes::from([front.as_bytes(), change.json(), b"}\n"].concat())
                } else {
                    self.line(type_, &change.object)
                }
            }
            Event::Left(before, revision) => {
                let mut last = Value::clone(&before);
                meta::set(&mut last, "resourceVersion", revision.to_string().into());
                self.line("DELETED", &Arc::new(last))
            }
        }
    }

    fn line(&mut self, type_: &str, object: &Arc<Value>) -> Bytes {
        match self.call.wanted.shape {
            Shape::Full => line(type_, &self.call.present(object)),
            Shape::Metadata => line(type_, &respond::partial(object)),
            Shape::Table => {
                let version = object["metadata"]["resourceVersion"].clone();
                let headed = std::mem::replace(&mut self.headed, true);
                let table = table::of(&self.call, std::slice::from_ref(object), &version, !headed);
                line(type_, &table)
            }
        }
    }

    /// Tells how far the watch has come. `annotations` are null but at the end of the initial events.
    fn push_bookmark(&mut self, annotations: &Value) {
        self.bookmark = Instant::now() + BOOKMARKS;
        let mut object = json!({
            "kind": self.call.shown.kind, "apiVersion": self.call.shown.api_version(),
            "metadata": {"resourceVersion": self.seen.to_string(), "creationTimestamp": null},
        });
        if !annotations.is_null() {
            meta::set(&mut object, "annotations", annotations.clone());
        }
        let shaped = match self.call.wanted.shape {
            Shape::Full => object,
            Shape::Metadata => respond::partial(&object),
            Shape::Table => table::of(&self.call, &[], &object["metadata"]["resourceVersion"], false),
        };
        self.push_raw("BOOKMARK", &shaped);
    }

    fn push_raw(&mut self, type_: &str, object: &Value) {
        self.ready.push_back(Event::Line(line(type_, object)));
    }
}

/// One line of the stream. The parts are encoded where they lie.
fn line(type_: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{{\"type\":\"{type_}\",\"object\":{object}}}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        resource::Registry,
        service::{Api, route},
        store::{Key, Store, Write},
    };
    use http::Request;
    use tokio_util::sync::CancellationToken;

    fn api() -> Arc<Api> {
        Arc::new(Api {
            store: Arc::new(Store::memory()),
            registry: Registry::builtin(),
            stop: CancellationToken::new(),
        })
    }

    fn put(api: &Api, name: &str) -> Arc<Value> {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"},
            "data": {"a": "x".repeat(1 << 10)}});
        let key = Key::new("configmaps", "default", name);
        api.store.write_now(&key, |_| Ok(Write::Put(object))).unwrap()
    }

    fn watch(api: &Arc<Api>) -> Watch {
        let path = "/api/v1/namespaces/default/configmaps";
        let route::Target::Objects(at) = route::target(path) else {
            panic!("{path}")
        };
        let (parts, ()) = Request::get(format!("{path}?watch=1"))
            .body(())
            .unwrap()
            .into_parts();
        open(&api.call(&parts, at, "").unwrap()).unwrap()
    }

    #[tokio::test]
    async fn a_watch_that_is_not_read_holds_no_copies() {
        let api = api();
        let held: Vec<Arc<Value>> = (0..500)
            .map(|number| put(&api, &format!("m{number:03}")))
            .collect();
        let mut unread = watch(&api);
        assert_eq!(unread.ready.len(), held.len());
        for (event, object) in unread.ready.iter().zip(&held) {
            assert!(matches!(event, Event::Initial(shared) if Arc::ptr_eq(shared, object)));
        }
        unread.ready.clear();
        for number in 0..500 {
            put(&api, &format!("m{number:03}"));
        }
        unread.catch_up();
        assert_eq!(unread.ready.len(), BATCH, "it reads on when these are sent");
    }

    #[tokio::test]
    async fn a_change_is_encoded_once_for_all_watches() {
        let api = api();
        let (mut one, mut other) = (watch(&api), watch(&api));
        put(&api, "a");
        let (line, same) = (one.next().await.unwrap(), other.next().await.unwrap());
        assert_eq!(line, same);
        let event: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(
            (&event["type"], &event["object"]["metadata"]["name"]),
            (&json!("ADDED"), &json!("a"))
        );
        let change = api.store.read().changes_since(1).unwrap().remove(0);
        let json = change.json().clone();
        assert_eq!(json.as_ptr(), change.json().as_ptr());
    }
}
