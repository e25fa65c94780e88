//! Replays: changes from before the watch cache, which a backend with a history reads again for a watch.
//!
//! A replay ends at the newest revision that was published when it began. The watch continues there with the watch cache, or with another
//! replay if the cache does not reach back to that revision any more. So each change comes once, and none is missing.
//!
//! A backend computes its objects again, and these need as much memory as those of the store. So one replay runs at a time, and ends if the
//! watch does not read it in time. A watch that waits as long for its replay ends, too: a list costs its client less than many replays of
//! others.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::Instant;

use super::Store;
use super::backend::{Record, ReplayJob};
use super::error::StoreError;
use super::watch_cache::Change;

/// Changes that wait for a watch.
const WAITING: usize = 16;
/// Replays that run at a time.
const CONCURRENT: usize = 1;
/// Longest duration of a replay with the wait for others: a client that reads nothing must not keep others waiting.
const MAX_DURATION: Duration = Duration::from_mins(2);

/// The limits of the replays of a store.
#[derive(Debug)]
pub(super) struct ReplayLimits {
    pub(super) permits: Arc<Semaphore>,
    /// Longest duration of a replay, with the wait for a permit.
    pub(super) max_duration: Duration,
}

impl Default for ReplayLimits {
    fn default() -> Self {
        Self {
            permits: Arc::new(Semaphore::new(CONCURRENT)),
            max_duration: MAX_DURATION,
        }
    }
}

/// What a watch receives. It cannot continue if the channel closes before [`Replayed::UpTo`].
#[derive(Debug)]
pub(crate) enum Replayed {
    /// The next change of the resource.
    Change(Arc<Change>),
    /// The end: these are all changes up to this revision.
    UpTo(u64),
}

/// The watch for which a backend reads its history.
#[derive(Debug)]
pub(super) struct Replay {
    /// Group resource of the changes.
    resource: String,
    /// The changes are those after this revision.
    since: u64,
    sender: Sender<Replayed>,
}

impl Replay {
    /// Returns whether the watch has closed its channel: it has ended, or has not read the changes in time.
    pub(super) fn is_abandoned(&self) -> bool {
        self.sender.is_closed()
    }

    /// Whether the watch receives this change.
    pub(super) fn includes(&self, record: &Record) -> bool {
        record.revision > self.since && record.key.resource == self.resource
    }

    /// Sends a change. Blocks until the watch has read most of those before it.
    pub(super) fn send(&self, change: Change) {
        self.send_item(Replayed::Change(Arc::new(change)));
    }

    fn send_item(&self, item: Replayed) {
        // It fails only if the replay is abandoned, which its next step detects.
        drop(self.sender.blocking_send(item));
    }
}

impl Store {
    /// Replays the changes of a resource after a revision. Returns `None` if the store has no history of them. Needs a runtime.
    pub(crate) fn replay(self: &Arc<Self>, resource: &str, since: u64) -> Option<Receiver<Replayed>> {
        if !self.keeps_history || !self.read().has_history(resource) {
            return None;
        }
        let (watch, replayed) = mpsc::channel(WAITING);
        drop(tokio::spawn(serve(
            self.clone(),
            resource.to_owned(),
            since,
            watch,
        )));
        Some(replayed)
    }

    /// Returns the job of a replay, and the revision of its end. Blocks.
    fn replay_job(&self, since: u64) -> Option<(ReplayJob, u64)> {
        let backend = self.lock_backend();
        let job = backend.replay(since).unwrap_or_else(|error| {
            log_failure(&error);
            None
        })?;
        // All changes of the history are published, because the backend is locked.
        Some((job, self.read().revision()))
    }
}

/// Runs a replay for a watch as soon as no other one runs.
async fn serve(store: Arc<Store>, resource: String, since: u64, watch: Sender<Replayed>) {
    let permits = store.replays.permits.clone();
    let deadline = Instant::now() + store.replays.max_duration;
    let permit = tokio::select! {
        permit = permits.acquire_owned() => permit,
        () = watch.closed() => return,
        () = tokio::time::sleep_until(deadline) => return,
    };
    let Ok(permit) = permit else { return };
    let (sender, mut replayed) = mpsc::channel(WAITING);
    let replay = Replay {
        resource,
        since,
        sender,
    };
    drop(tokio::task::spawn_blocking(move || {
        run(store, replay);
        drop(permit);
    }));
    // Whichever ends first, the channels close.
    tokio::select! {
        () = forward(&mut replayed, &watch) => {}
        () = watch.closed() => {}
        () = tokio::time::sleep_until(deadline) => {}
    }
}

async fn forward(replayed: &mut Receiver<Replayed>, watch: &Sender<Replayed>) {
    while let Some(item) = replayed.recv().await {
        if watch.send(item).await.is_err() {
            return;
        }
    }
}

/// Runs a replay on this thread.
fn run(store: Arc<Store>, replay: Replay) {
    let job = store.replay_job(replay.since);
    // The end of a server does not wait for the replay.
    drop(store);
    let Some((job, until)) = job else { return };
    let replay = Arc::new(replay);
    match job(replay.clone()) {
        Ok(()) => replay.send_item(Replayed::UpTo(until)),
        Err(_) if replay.is_abandoned() => {}
        Err(error) => log_failure(&error),
    }
}

fn log_failure(error: &StoreError) {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        "cannot read the history for a watch, so that its client lists again"
    );
}
