//! Lookups that objects share: those with equal URL, credentials and route.
//!
//! A lookup also refreshes the other refs that objects read at the remote, so that all of them cost one request. A
//! reconciliation joins a running lookup, or reuses a result that is not older than [`Source::max_age`]. If an event
//! triggered it, only a lookup that started after the event counts. Failures are not shared: the waiting objects send
//! their own request.
//!
//! An object that reused a result may have missed a push since. It is reconciled at once when a later lookup finds
//! another commit ([`SharedLookups::changed`]).

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::Stream;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::sync::lock;
use tokio::sync::watch;
use tokio::time::Instant;

use super::resolve::Source;
use crate::git::{FetchError, Head, Heads, Reference, Remote};

/// Maximum number of refs that a lookup refreshes for others: about 50 KB of request.
const MAX_FURTHER: usize = 500;
/// Bounds of the time for which a ref is refreshed for others, and its result is kept: two intervals of the object that asked
/// last. Objects with longer intervals share a lookup only if one of them asks this often.
const KEPT: RangeInclusive<Duration> = Duration::from_secs(4)..=Duration::from_hours(2);
/// Minimum number of new refs before unused ones are removed.
const MIN_ADDED: usize = 64;

/// [`SharedAccess::access_key`](crate::git::SharedAccess::access_key): a digest of the URL, the credentials and the route.
type RemoteKey = [u8; 32];

/// Running and recent lookups.
pub(super) struct SharedLookups {
    table: Mutex<Table>,
    changed: UnboundedSender<ObjectKey>,
    receiver: Mutex<Option<UnboundedReceiver<ObjectKey>>>,
}

#[derive(Debug, Default)]
struct Table {
    remotes: HashMap<RemoteKey, HashMap<Reference, Box<Entry>>>,
    /// Number of references that were added since unused ones were removed.
    added: usize,
    /// Number at which they are removed again.
    limit: usize,
}

/// The lookups of one reference.
#[derive(Debug)]
struct Entry {
    lookup: Option<Lookup>,
    /// The result of the last lookup that succeeded.
    head: Option<Arc<Head>>,
    /// The objects that reused this result.
    reused_by: HashSet<ObjectKey>,
    /// How long the reference counts as used.
    used_until: Instant,
}

#[derive(Debug)]
enum Lookup {
    Running {
        since: Instant,
        /// The sender is dropped without a result if the lookup fails or is cancelled.
        result: watch::Receiver<Option<Arc<Head>>>,
    },
    /// Without its channel, which takes more memory than all else that is kept of a remote.
    Done { since: Instant, head: Arc<Head> },
}

/// A lookup whose result an object may use.
enum Reusable {
    Running(watch::Receiver<Option<Arc<Head>>>),
    Done(Arc<Head>),
}

/// A reference of a lookup that the caller carries out.
struct Running {
    reference: Reference,
    result: watch::Sender<Option<Arc<Head>>>,
}

impl Default for SharedLookups {
    fn default() -> Self {
        let (changed, receiver) = unbounded();
        Self {
            table: Mutex::default(),
            changed,
            receiver: Mutex::new(Some(receiver)),
        }
    }
}

impl SharedLookups {
    /// Returns a stream of objects to reconcile again. It can be taken once; a second stream is empty.
    pub(super) fn changed(&self) -> impl Stream<Item = ObjectKey> + Send + 'static {
        let receiver = lock(&self.receiver).take();
        receiver.unwrap_or_else(|| unbounded().1)
    }

    /// Returns the result of a shared lookup if there is one, otherwise of `look_up`, which receives the further
    /// references to look up with the same request.
    pub(super) async fn share<F>(
        &self,
        source: &Source,
        look_up: impl FnOnce(Vec<Reference>) -> F,
    ) -> Result<Head, FetchError>
    where
        F: Future<Output = Result<Heads, FetchError>>,
    {
        let remote = &source.remote;
        let key = remote.access_key();
        if let Some(reusable) = self.reusable(&key, source)
            && let Some(head) = reusable.wait(remote).await?
        {
            tracing::debug!("lookup shared with another object");
            return Ok(head);
        }
        let running = self.begin(&key, source);
        let further = running.iter().skip(1).map(|running| running.reference.clone());
        let found = look_up(further.collect()).await?;
        Ok(self.end(&key, running, found))
    }

    /// Returns a lookup whose result the source may use.
    fn reusable(&self, key: &RemoteKey, source: &Source) -> Option<Reusable> {
        let now = Instant::now();
        let mut table = self.lock();
        let entry = table.remotes.get_mut(key)?.get_mut(&source.reference)?;
        entry.record_use(source, now);
        let lookup = entry.lookup.as_ref()?;
        let since = lookup.since();
        if source.triggered_at.is_some_and(|event| since <= event) {
            return None;
        }
        match lookup {
            Lookup::Running { result, .. } => lookup.is_running().then(|| Reusable::Running(result.clone())),
            Lookup::Done { head, .. } if now.saturating_duration_since(since) < source.max_age => {
                let head = Arc::clone(head);
                if let Some(reader) = &source.reader {
                    entry.reused_by.insert(reader.clone());
                }
                Some(Reusable::Done(head))
            }
            Lookup::Done { .. } => None,
        }
    }

    /// Begins a lookup of the source's reference, and of others at its remote. The first one is the source's.
    fn begin(&self, key: &RemoteKey, source: &Source) -> Vec<Running> {
        let now = Instant::now();
        let mut table = self.lock();
        table.remove_unused(now);
        let Table { remotes, added, .. } = &mut *table;
        let entries = remotes.entry(*key).or_default();
        let own = entries.entry(source.reference.clone()).or_insert_with(|| {
            *added += 1;
            Box::new(Entry::new(now))
        });
        own.record_use(source, now);
        if let Some(reader) = &source.reader {
            // It gets the new result itself.
            own.reused_by.remove(reader);
        }
        let mut running = vec![own.begin(&source.reference, now)];
        if source.reference.remote_name().is_some() {
            let others = entries
                .iter_mut()
                .filter(|(other, entry)| **other != source.reference && entry.is_refreshed_with(other, now));
            running.extend(
                others
                    .take(MAX_FURTHER)
                    .map(|(other, entry)| entry.begin(other, now)),
            );
        }
        running
    }

    /// Ends a lookup that succeeded, and returns the head of its first reference.
    fn end(&self, key: &RemoteKey, running: Vec<Running>, found: Heads) -> Head {
        let Heads { head, mut others } = found;
        let mut own = Some(head.clone());
        let mut table = self.lock();
        let mut entries = table.remotes.get_mut(key);
        for Running { reference, result } in running {
            // A ref may be gone. Its objects then send their own request, which reports that.
            let found = own.take().or_else(|| others.remove(&reference)).map(Arc::new);
            if let Some(found) = &found {
                result.send_replace(Some(Arc::clone(found)));
            }
            if let Some(entry) = entries.as_mut().and_then(|entries| entries.get_mut(&reference)) {
                for reader in entry.update(found) {
                    tracing::debug!(%reader, "the result of a shared lookup has changed");
                    // Sending fails only on shutdown.
                    drop(self.changed.unbounded_send(reader));
                }
            }
        }
        head
    }

    /// Makes all lookups and uses older, as if this time had passed.
    #[cfg(test)]
    pub(super) fn age(&self, time: Duration) {
        for entry in self.lock().remotes.values_mut().flat_map(HashMap::values_mut) {
            entry.used_until -= time;
            if let Some(Lookup::Running { since, .. } | Lookup::Done { since, .. }) = &mut entry.lookup {
                *since -= time;
            }
        }
    }

    /// Returns the number of references whose lookup keeps its channel.
    #[cfg(test)]
    pub(super) fn channels(&self) -> usize {
        let table = self.lock();
        let entries = table.remotes.values().flat_map(HashMap::values);
        entries
            .filter(|entry| matches!(entry.lookup, Some(Lookup::Running { .. })))
            .count()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }
}

impl Table {
    /// Removes references that no object asks for any more, once as many were added as there were before.
    fn remove_unused(&mut self, now: Instant) {
        if self.added < self.limit {
            return;
        }
        self.remotes.retain(|_, entries| {
            entries.retain(|_, entry| entry.is_used(now) || entry.is_running());
            !entries.is_empty()
        });
        let left = self.remotes.values().map(HashMap::len).sum::<usize>();
        (self.added, self.limit) = (0, left.max(MIN_ADDED));
    }
}

impl Entry {
    fn new(now: Instant) -> Self {
        Self {
            lookup: None,
            head: None,
            reused_by: HashSet::new(),
            used_until: now,
        }
    }

    fn record_use(&mut self, source: &Source, now: Instant) {
        let kept = source
            .interval
            .saturating_mul(2)
            .clamp(*KEPT.start(), *KEPT.end());
        self.used_until = self.used_until.max(now + kept);
    }

    fn is_used(&self, now: Instant) -> bool {
        now < self.used_until
    }

    fn is_running(&self) -> bool {
        self.lookup.as_ref().is_some_and(Lookup::is_running)
    }

    /// Returns whether the lookup of another reference at the same remote refreshes this one: only names that existed at
    /// the last lookup are sent, so that no object lengthens the responses of others with a short prefix.
    fn is_refreshed_with(&self, reference: &Reference, now: Instant) -> bool {
        self.head.is_some()
            && self.is_used(now)
            && !self.is_running()
            && reference.remote_name().is_some()
            && reference.is_well_formed()
    }

    fn begin(&mut self, reference: &Reference, now: Instant) -> Running {
        let (sender, result) = watch::channel(None);
        self.lookup = Some(Lookup::Running { since: now, result });
        Running {
            reference: reference.clone(),
            result: sender,
        }
    }

    /// Records the result of a lookup, which its channel already has, and returns the objects that reused another result.
    fn update(&mut self, found: Option<Arc<Head>>) -> HashSet<ObjectKey> {
        // A later lookup of the same reference may be running: its channel has no result.
        if let Some(Lookup::Running { since, result }) = &self.lookup {
            let (since, result) = (*since, result.borrow().clone());
            if let Some(head) = result {
                self.lookup = Some(Lookup::Done { since, head });
            }
        }
        let is_changed = self.head.is_some() && self.head != found;
        self.head = found;
        let readers = std::mem::take(&mut self.reused_by);
        if is_changed { readers } else { HashSet::new() }
    }
}

impl Lookup {
    /// Returns when it began.
    const fn since(&self) -> Instant {
        match self {
            Self::Running { since, .. } | Self::Done { since, .. } => *since,
        }
    }

    /// Returns whether it has no result and may still have one.
    fn is_running(&self) -> bool {
        match self {
            Self::Running { result, .. } => result.has_changed().is_ok(),
            Self::Done { .. } => false,
        }
    }
}

impl Reusable {
    /// Returns the result; none if the lookup fails.
    async fn wait(self, remote: &Remote) -> Result<Option<Head>, FetchError> {
        let mut result = match self {
            Self::Running(result) => result,
            Self::Done(head) => return Ok(Some(Head::clone(&head))),
        };
        let waited = tokio::time::timeout(remote.timeout, result.wait_for(Option::is_some)).await;
        match waited {
            Ok(Ok(head)) => Ok(head.as_deref().cloned()),
            Ok(Err(_)) => Ok(None),
            Err(_) => Err(remote.timed_out()),
        }
    }
}
