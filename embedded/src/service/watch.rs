//! watch: a stream of changes that match the selectors.
//!
//! A watch keeps the last revision it has read, and reads the next changes from the watch cache in batches. Events are encoded
//! when they are sent, and each change once for all watches. A watch that begins before the cache, or falls behind it, first reads a replay
//! of the history of the store. If there is none, it gets 410 and ends; the client then lists again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use rand::Rng;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::sync::watch::Receiver;
use tokio::time::Instant;

use super::negotiation::Shape;
use super::request::ObjectRequest;
use super::response::{self, Reply};
use super::{list_options, read, table};
use crate::meta;
use crate::resource::Registry;
use crate::selector::Selector;
use crate::status_error::StatusError;
use crate::store::{Change, ChangeType, Expired, Replayed};

/// Interval of bookmarks.
const BOOKMARK_INTERVAL: Duration = Duration::from_mins(1);

/// Maximum number of changes read at once.
const BATCH_SIZE: usize = 64;

/// An event to send.
enum WatchEvent {
    /// An encoded event.
    Encoded(Bytes),
    /// An object that existed at the start.
    Existing(Arc<Value>),
    /// A change, with the type of the event.
    Changed(&'static str, Arc<Change>),
    /// An object that a change removed from the selection: its state before, and the revision of the change.
    Deselected(Arc<Value>, u64),
}

/// A running watch.
struct Watch {
    request: ObjectRequest,
    selector: Selector,
    revisions: Receiver<u64>,
    /// The watch ends when its kind is no longer served, or by another definition.
    registry: Receiver<Arc<Registry>>,
    revision: u64,
    /// Changes from before the watch cache, which come first.
    replay: Option<mpsc::Receiver<Replayed>>,
    /// Events to send.
    pending: VecDeque<WatchEvent>,
    deadline: Instant,
    bookmark: Instant,
    /// Only the first table has column definitions.
    columns_sent: bool,
    done: bool,
}

/// Starts a watch.
pub(super) fn start(request: &ObjectRequest) -> Result<Reply, StatusError> {
    let frames = stream::unfold(open(request)?, |mut watch| async move {
        let bytes = watch.next().await?;
        Some((Ok(Frame::data(bytes)), watch))
    });
    Ok(Reply::Stream(StreamBody::new(frames).boxed_unsync()))
}

fn open(request: &ObjectRequest) -> Result<Watch, StatusError> {
    let selector = read::selector(request)?;
    let version = match request.query.resource_version.as_str() {
        "" => 0,
        text => read::parse_version(text).map_err(|reason| StatusError::invalid_resource_version(&reason))?,
    };
    list_options::check(&request.query)?;
    let revisions = request.api.store.subscribe();
    // Random, as in kube-apiserver, so that watches do not all reconnect at once.
    let random = || rand::rng().random_range(1800..3600);
    let seconds = request.query.timeout_seconds.filter(|seconds| *seconds != 0);
    let seconds = seconds.map_or_else(random, |seconds| u64::try_from(seconds).unwrap_or(0));
    let seconds = seconds.min(7 * 86400);
    let now = Instant::now();
    let mut watch = Watch {
        request: request.clone(),
        selector,
        revisions,
        registry: request.api.subscribe_to_registry(),
        revision: version,
        replay: None,
        pending: VecDeque::new(),
        deadline: now + Duration::from_secs(seconds),
        bookmark: now + BOOKMARK_INTERVAL,
        columns_sent: false,
        done: false,
    };
    watch.queue_existing(version);
    Ok(watch)
}

impl Watch {
    /// Queues the existing objects, unless the client resumes from a version.
    fn queue_existing(&mut self, version: u64) {
        let begins_with_existing = self.request.query.begins_with_existing();
        let (objects, revision) = {
            let (state, request) = (self.request.api.store.read(), &self.request);
            let kind = request.resource.group_resource();
            let objects = begins_with_existing.then(|| state.list(&kind, &request.at.namespace));
            (objects.unwrap_or_default(), state.revision())
        };
        if version > revision {
            // The version is not from this store, which may be new. This error makes the client list again.
            self.expire(revision);
            return;
        }
        if version == 0 || begins_with_existing {
            self.revision = revision;
        }
        if !begins_with_existing {
            return;
        }
        for object in objects {
            if self.selector.matches(&object) {
                self.pending.push_back(WatchEvent::Existing(object));
            }
        }
        if self.request.query.allow_watch_bookmarks {
            self.queue_bookmark(&json!({"k8s.io/initial-events-end": "true"}));
        }
    }

    /// Returns the next event; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Some(self.encode(event));
            }
            if self.done {
                return None;
            }
            if self.replay.is_some() {
                self.read_replay().await;
                continue;
            }
            // Marked as seen before reading, so that a change after the read ends the wait.
            self.revisions.borrow_and_update();
            self.read_changes();
            if self.pending.is_empty() && !self.done && self.revision >= *self.revisions.borrow() {
                if self.is_served() {
                    self.wait().await;
                } else {
                    self.done = true;
                }
            }
        }
    }

    /// Whether the kind is still that of the request.
    fn is_served(&mut self) -> bool {
        let kind = &self.request.requested_resource;
        let registry = self.registry.borrow_and_update();
        registry
            .by_path(&kind.group, &kind.version, &kind.plural)
            .is_some_and(|served| Arc::ptr_eq(served, kind))
    }

    async fn wait(&mut self) {
        let bookmarks = self.request.query.allow_watch_bookmarks;
        tokio::select! {
            () = self.request.api.stop.cancelled() => self.done = true,
            () = tokio::time::sleep_until(self.deadline) => self.end(),
            () = tokio::time::sleep_until(self.bookmark), if bookmarks => self.queue_bookmark(&Value::Null),
            changed = self.revisions.changed() => self.done = changed.is_err(),
            // The loop checks whether the kind is still served.
            changed = self.registry.changed() => self.done = changed.is_err(),
        }
    }

    /// Reads the next batch of changes.
    fn read_changes(&mut self) {
        let resource = self.request.resource.group_resource();
        let changes = self.request.api.store.read().changes_of(&resource, self.revision);
        match changes {
            Ok(changes) => {
                for change in changes.into_iter().take(BATCH_SIZE) {
                    self.revision = change.revision;
                    self.queue_change(change);
                }
            }
            Err(Expired { oldest }) => {
                self.replay = self.request.api.store.replay(&resource, self.revision);
                if self.replay.is_none() {
                    self.expire(oldest);
                }
            }
        }
    }

    /// Waits for the next change of the replay.
    async fn read_replay(&mut self) {
        let Some(replay) = &mut self.replay else { return };
        let replayed = tokio::select! {
            () = self.request.api.stop.cancelled() => {
                self.done = true;
                return;
            }
            // The next watch would begin the replay again, and might never reach its end.
            () = tokio::time::sleep_until(self.deadline) => None,
            replayed = replay.recv() => replayed,
        };
        match replayed {
            Some(Replayed::Change(change)) => {
                self.revision = change.revision;
                self.queue_change(change);
            }
            Some(Replayed::UpTo(revision)) => {
                self.revision = revision;
                self.replay = None;
            }
            None => {
                let newest = self.request.api.store.read().revision();
                self.expire(newest);
            }
        }
    }

    /// Ends the watch at its timeout.
    fn end(&mut self) {
        self.done = true;
        if self.request.query.allow_watch_bookmarks {
            self.queue_bookmark(&Value::Null);
        }
    }

    /// Ends the watch with 410.
    fn expire(&mut self, oldest: u64) {
        let status = StatusError::expired(format!("too old resource version: {} ({oldest})", self.revision));
        self.queue_encoded("ERROR", &status.to_value());
        self.done = true;
    }

    /// Queues the event of a change. An object that leaves the selection is deleted, one that enters it is added.
    fn queue_change(&mut self, change: Arc<Change>) {
        if change.key.resource != self.request.resource.group_resource() {
            return;
        }
        let before = change
            .before
            .as_ref()
            .filter(|object| self.selector.matches(object));
        let after = (change.kind == ChangeType::Put)
            .then_some(&change.object)
            .filter(|object| self.selector.matches(object));
        let event = match (before, after) {
            (None, Some(_)) => WatchEvent::Changed("ADDED", change),
            (Some(_), Some(_)) => WatchEvent::Changed("MODIFIED", change),
            (Some(_), None) if change.kind == ChangeType::Remove => WatchEvent::Changed("DELETED", change),
            (Some(before), None) => WatchEvent::Deselected(before.clone(), change.revision),
            (None, None) => return,
        };
        self.pending.push_back(event);
    }

    fn encode(&mut self, event: WatchEvent) -> Bytes {
        match event {
            WatchEvent::Encoded(bytes) => bytes,
            WatchEvent::Existing(object) => self.encode_event("ADDED", &object),
            WatchEvent::Changed(type_, change) => {
                let as_stored = self.request.format.shape == Shape::Full
                    && change.object["apiVersion"] == self.request.requested_resource.api_version().as_str();
                if as_stored {
                    let front = format!("{{\"type\":\"{type_}\",\"object\":");
                    Bytes::from([front.as_bytes(), change.json(), b"}\n"].concat())
                } else {
                    self.encode_event(type_, &change.object)
                }
            }
            WatchEvent::Deselected(before, revision) => {
                let mut last = Value::clone(&before);
                meta::set(&mut last, "resourceVersion", revision.to_string().into());
                self.encode_event("DELETED", &Arc::new(last))
            }
        }
    }

    fn encode_event(&mut self, type_: &str, object: &Arc<Value>) -> Bytes {
        match self.request.format.shape {
            Shape::Full => encode_event(type_, &self.request.to_requested(object)),
            Shape::Metadata => encode_event(type_, &response::partial_object_metadata(object)),
            Shape::Table => {
                let version = object["metadata"]["resourceVersion"].clone();
                let columns_sent = std::mem::replace(&mut self.columns_sent, true);
                let table = table::render(
                    &self.request,
                    std::slice::from_ref(object),
                    &version,
                    !columns_sent,
                );
                encode_event(type_, &table)
            }
        }
    }

    /// Queues a bookmark with the current revision. `annotations` is null except at the end of the initial events.
    fn queue_bookmark(&mut self, annotations: &Value) {
        self.bookmark = Instant::now() + BOOKMARK_INTERVAL;
        let mut object = json!({
            "kind": self.request.requested_resource.kind, "apiVersion": self.request.requested_resource.api_version(),
            "metadata": {"resourceVersion": self.revision.to_string()},
        });
        if !annotations.is_null() {
            meta::set(&mut object, "annotations", annotations.clone());
        }
        let shaped = match self.request.format.shape {
            Shape::Full => object,
            Shape::Metadata => response::partial_object_metadata(&object),
            Shape::Table => table::render(&self.request, &[], &object["metadata"]["resourceVersion"], false),
        };
        self.queue_encoded("BOOKMARK", &shaped);
    }

    fn queue_encoded(&mut self, type_: &str, object: &Value) {
        self.pending
            .push_back(WatchEvent::Encoded(encode_event(type_, object)));
    }
}

/// Encodes one line of the stream.
fn encode_event(type_: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{{\"type\":\"{type_}\",\"object\":{object}}}\n"))
}

#[cfg(test)]
mod tests;
