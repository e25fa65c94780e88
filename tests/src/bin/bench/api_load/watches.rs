//! Watches of all objects of a kind, and what each of them receives.

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::stream::BoxStream;
use kube::Api;
use kube::api::{DynamicObject, ListParams, WatchEvent, WatchParams};
use sluice_tests::BoxError;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinSet;

/// Timeout of the next event.
const TIMEOUT: Duration = Duration::from_mins(1);

/// An event that a watch has received.
pub(crate) struct Received {
    /// Number of the watch, from 0.
    pub(crate) watch: usize,
    /// Version of the object.
    pub(crate) version: String,
    at: Instant,
}

/// Open watches. They end with the value.
pub(crate) struct Watches {
    count: usize,
    events: UnboundedReceiver<Result<Received, BoxError>>,
    _tasks: JoinSet<()>,
}

impl Watches {
    /// Opens watches from the newest version on, one after the other: a server may limit connections that are not authenticated yet.
    pub(crate) async fn open(api: &Api<DynamicObject>, count: usize) -> Result<Self, BoxError> {
        let newest = api.list(&ListParams::default().limit(1)).await?.metadata;
        let version = newest.resource_version.ok_or("a list has no version")?;
        let (sender, events) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        for watch in 0..count {
            let stream = api.watch(&WatchParams::default(), &version).await?.boxed();
            tasks.spawn(forward(watch, stream, sender.clone()));
        }
        Ok(Self {
            count,
            events,
            _tasks: tasks,
        })
    }

    /// Returns the next event of any watch.
    pub(crate) async fn next(&mut self) -> Result<Received, BoxError> {
        let next = tokio::time::timeout(TIMEOUT, self.events.recv())
            .await
            .map_err(|_| "no watch has received an event in time")?;
        next.ok_or("all watches have ended")?
    }

    /// Waits until each watch has received this version. Returns when the last one has. Fails if a watch receives anything else.
    pub(crate) async fn wait_for(&mut self, version: &str) -> Result<Instant, BoxError> {
        let mut has_received = vec![false; self.count];
        let mut last = None;
        for _ in 0..self.count {
            let event = self.next().await?;
            let is_repeated = std::mem::replace(&mut has_received[event.watch], true);
            if is_repeated || event.version != version {
                let (watch, other) = (event.watch, event.version);
                return Err(format!("watch {watch} has received {other} instead of {version} once").into());
            }
            last = last.max(Some(event.at));
        }
        Ok(last.ok_or("there is no watch")?)
    }
}

/// Sends the events of a watch until it ends.
async fn forward(
    watch: usize,
    mut stream: BoxStream<'static, kube::Result<WatchEvent<DynamicObject>>>,
    sender: UnboundedSender<Result<Received, BoxError>>,
) {
    while let Some(event) = stream.next().await {
        let at = Instant::now();
        let received: Result<_, BoxError> = match event {
            Ok(WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object)) => {
                let version = object.metadata.resource_version.unwrap_or_default();
                Ok(Received { watch, version, at })
            }
            Ok(WatchEvent::Bookmark(_)) => continue,
            Ok(WatchEvent::Error(status)) => Err(format!("watch {watch}: {status}").into()),
            Err(error) => Err(error.into()),
        };
        if sender.send(received).is_err() {
            return;
        }
    }
    // The receiver may be gone.
    drop(sender.send(Err(format!("watch {watch} has ended").into())));
}
