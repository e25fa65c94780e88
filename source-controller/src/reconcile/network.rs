//! Access to remotes, behind a trait so that tests can inject faults.
//!
//! Lookups with equal URL, credentials, route and reference are shared: they join a running lookup, or reuse a result of
//! less than one second. A reconciliation triggered by an event only reuses lookups that started after the event.
//! Failures are not shared; the waiting objects send their own request.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use sluice_runtime::clock::Clock;
use sluice_runtime::shutdown::Token;
use sluice_runtime::sync::lock;
use tokio::sync::watch;
use tokio::time::Instant;

use super::resolve::Source;
use super::throttle::HostThrottle;
use crate::git::{self, Checkout, FetchError, Head, Mirrors, Reference, Remote, Selection};
use crate::storage::is_full;
use crate::tree::Sparse;

/// How long a result can be reused, from the start of the lookup. Shorter than any sensible interval, and long enough
/// for objects triggered by the same event.
const REUSE_WINDOW: Duration = Duration::from_secs(1);

/// The remote's URL, a digest of credentials and route, and the reference.
type LookupKey = (String, [u8; 32], Reference);

/// Resolves references and fetches commits.
pub trait Origin: Send + Sync {
    /// Returns the commit that the source's reference names now. Usually costs one small request.
    fn head<'a>(&'a self, source: &'a Source, stop: &'a Token) -> BoxFuture<'a, Result<Head, FetchError>>;

    /// Fetches the commit of `head`.
    fn fetch<'a>(
        &'a self,
        source: &'a Source,
        head: &'a Head,
        stop: &'a Token,
    ) -> BoxFuture<'a, Result<Checkout, FetchError>>;

    /// Frees disk space by removing cached data. Returns whether anything was removed.
    fn free_space(&self) -> BoxFuture<'_, bool> {
        Box::pin(async { false })
    }
}

/// Access to real remotes, mirrored on disk. Objects share lookups and throttling by hosts.
pub struct Network {
    mirrors: Arc<Mirrors>,
    clock: Arc<dyn Clock>,
    throttle: HostThrottle,
    lookups: SharedLookups,
}

impl Network {
    /// Creates an origin with these mirrors.
    #[must_use]
    pub fn new(mirrors: Arc<Mirrors>, clock: Arc<dyn Clock>) -> Self {
        Self {
            mirrors,
            clock,
            throttle: HostThrottle::default(),
            lookups: SharedLookups::default(),
        }
    }

    async fn fetch_once(&self, source: &Source, head: &Head, stop: &Token) -> Result<Checkout, FetchError> {
        let Source { remote, parts, .. } = source;
        let Some(sparse) = Sparse::new(&parts.sparse) else {
            let mirror = self.mirrors.open(remote);
            let fetched = git::fetch(&mirror, remote, head, stop);
            return self.throttled(remote, fetched).await;
        };
        let sparse: Arc<dyn Selection> = Arc::new(sparse);
        let part = git::fetch_partial(&self.mirrors, remote, head, &sparse, stop);
        self.throttled(remote, part).await
    }

    /// Sends a request unless the host has asked to wait, and records a new throttling response.
    async fn throttled<T>(
        &self,
        remote: &Remote,
        request: impl Future<Output = Result<T, FetchError>>,
    ) -> Result<T, FetchError> {
        self.throttle.check(remote, self.clock.now())?;
        let answer = request.await;
        answer.map_err(|error| self.throttle.record(remote, error, self.clock.now()))
    }
}

impl Origin for Network {
    fn head<'a>(&'a self, source: &'a Source, stop: &'a Token) -> BoxFuture<'a, Result<Head, FetchError>> {
        let lookup = async move {
            let mirror = self.mirrors.open(&source.remote);
            if !source.parts.sparse.is_empty() {
                self.mirrors.touch_partial(&source.remote);
            }
            let request = git::resolve(&mirror, &source.remote, &source.reference, &[], stop);
            let head = self.throttled(&source.remote, request).await?.head;
            if !is_pinned(&head) {
                // Only a pinned commit is resolved without a request.
                self.mirrors.record_access(&source.remote);
            }
            Ok(head)
        };
        Box::pin(async move {
            tokio::select! {
                head = self.lookups.share(source, lookup) => head,
                () = stop.cancelled() => Err(FetchError::Stopped),
            }
        })
    }

    fn fetch<'a>(
        &'a self,
        source: &'a Source,
        head: &'a Head,
        stop: &'a Token,
    ) -> BoxFuture<'a, Result<Checkout, FetchError>> {
        Box::pin(async move {
            let remote = &source.remote;
            if is_pinned(head) && remote.needs_access_check() && !self.mirrors.is_access_verified(remote) {
                self.throttled(remote, git::verify_access(remote)).await?;
                self.mirrors.record_access(remote);
            }
            match self.fetch_once(source, head, stop).await {
                Err(FetchError::Storage(error)) if is_full(&error) && self.free_space().await => {
                    self.fetch_once(source, head, stop).await
                }
                fetched => fetched,
            }
        })
    }

    fn free_space(&self) -> BoxFuture<'_, bool> {
        let mirrors = Arc::clone(&self.mirrors);
        Box::pin(async move {
            let removed = tokio::task::spawn_blocking(move || mirrors.free_space()).await;
            removed.is_ok_and(|removed| removed > 0)
        })
    }
}

/// Returns whether the head is a commit pinned by its hash.
const fn is_pinned(head: &Head) -> bool {
    matches!(head.reference, Reference::Commit { .. })
}

/// Running and recent lookups.
#[derive(Debug, Default)]
struct SharedLookups {
    lookups: Mutex<HashMap<LookupKey, Lookup>>,
}

#[derive(Clone, Debug)]
struct Lookup {
    since: Instant,
    result: watch::Receiver<Option<Head>>,
}

impl SharedLookups {
    /// Returns the result of a shared lookup if there is one, otherwise of `lookup`.
    async fn share(
        &self,
        source: &Source,
        lookup: impl Future<Output = Result<Head, FetchError>>,
    ) -> Result<Head, FetchError> {
        let remote = &source.remote;
        let key = (
            remote.address.url().as_str().to_owned(),
            remote.access_digest(),
            source.reference.clone(),
        );
        if let Some(mut shared) = self.reusable(&key, source.triggered_at) {
            // The sender is dropped without a result if the lookup failed or was cancelled.
            let waited = tokio::time::timeout(remote.timeout, shared.result.wait_for(Option::is_some)).await;
            match waited {
                Ok(Ok(head)) => {
                    if let Some(head) = head.clone() {
                        tracing::debug!("lookup shared with another object");
                        return Ok(head);
                    }
                }
                Ok(Err(_)) => {}
                Err(_) => return Err(remote.timed_out()),
            }
        }
        let (sender, receiver) = watch::channel(None);
        self.register(key, receiver);
        let head = lookup.await?;
        sender.send_replace(Some(head.clone()));
        Ok(head)
    }

    /// Returns a lookup that can be reused by a reconciliation triggered at the given time.
    fn reusable(&self, key: &LookupKey, triggered_at: Option<Instant>) -> Option<Lookup> {
        let lookups = lock(&self.lookups);
        lookups
            .get(key)
            .filter(|lookup| {
                lookup.is_reusable() && triggered_at.is_none_or(|triggered_at| lookup.since > triggered_at)
            })
            .cloned()
    }

    fn register(&self, key: LookupKey, result: watch::Receiver<Option<Head>>) {
        let mut lookups = lock(&self.lookups);
        lookups.retain(|_, lookup| lookup.is_reusable());
        let since = Instant::now();
        lookups.insert(key, Lookup { since, result });
    }
}

impl Lookup {
    fn is_reusable(&self) -> bool {
        let is_done = self.result.borrow().is_some();
        let is_running = !is_done && self.result.has_changed().is_ok();
        is_running || (is_done && self.since.elapsed() < REUSE_WINDOW)
    }
}
