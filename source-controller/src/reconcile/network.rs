//! Access to remotes, behind a trait so that tests can inject faults.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use sluice_runtime::clock::Clock;
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::shutdown::Token;

use super::lookups::SharedLookups;
use super::resolve::Source;
use super::throttle::HostThrottle;
use crate::git::{self, Checkout, FetchError, Head, Heads, Mirror, Mirrors, Reference, Remote, Selection};
use crate::storage::is_full;
use crate::tree::Sparse;

/// Resolves references and fetches commits.
pub trait Origin: Send + Sync {
    /// Returns the commit that the source's reference names, now or at most [`Source::max_age`] ago. Costs at most one small
    /// request, unless that fails.
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

    /// Returns objects to reconcile at once, because the result of a lookup that they reused has changed. The stream can be
    /// taken once.
    fn changed(&self) -> BoxStream<'static, ObjectKey> {
        stream::empty().boxed()
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
    /// Makes all lookups older, as if this time had passed.
    #[cfg(test)]
    pub(in crate::reconcile) fn age_lookups(&self, time: std::time::Duration) {
        self.lookups.age(time);
    }

    /// Returns the number of references whose lookup keeps its channel.
    #[cfg(test)]
    pub(in crate::reconcile) fn lookup_channels(&self) -> usize {
        self.lookups.channels()
    }

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

    /// Looks up the reference of the source, and further ones at its remote.
    async fn look_up(
        &self,
        mirror: &Arc<Mirror>,
        source: &Source,
        further: Vec<Reference>,
        stop: &Token,
    ) -> Result<Heads, FetchError> {
        let Source {
            remote, reference, ..
        } = source;
        let resolved = pin!(git::resolve(mirror, remote, reference, &further, stop));
        let heads = self.throttled(remote, resolved).await?;
        if remote.needs_access_check() && !is_pinned(&heads.head) {
            // Only a pinned commit is resolved without a request. Remotes without a check do not need the record.
            self.mirrors.record_access(remote);
        }
        Ok(heads)
    }

    async fn fetch_once(&self, source: &Source, head: &Head, stop: &Token) -> Result<Checkout, FetchError> {
        let Source { remote, parts, .. } = source;
        let Some(sparse) = Sparse::new(&parts.sparse) else {
            let mirror = self.mirrors.open(remote);
            let fetched = pin!(git::fetch(&mirror, remote, head, stop));
            return self.throttled(remote, fetched).await;
        };
        let sparse: Arc<dyn Selection> = Arc::new(sparse);
        let part = pin!(git::fetch_partial(&self.mirrors, remote, head, &sparse, stop));
        self.throttled(remote, part).await
    }

    /// Sends a request unless the host has asked to wait, and records a new throttling response. It is pinned, because a
    /// future that is passed on by value takes its space twice.
    async fn throttled<T>(
        &self,
        remote: &Remote,
        request: impl Future<Output = Result<T, FetchError>> + Unpin,
    ) -> Result<T, FetchError> {
        self.throttle.check(remote, self.clock.now())?;
        let answer = request.await;
        answer.map_err(|error| self.throttle.record(remote, error, self.clock.now()))
    }
}

impl Origin for Network {
    fn head<'a>(&'a self, source: &'a Source, stop: &'a Token) -> BoxFuture<'a, Result<Head, FetchError>> {
        Box::pin(async move {
            // Every reconciliation counts as a use of its mirror, also if the lookup of another object suffices.
            let mirror = self.mirrors.open(&source.remote);
            if !source.parts.sparse.is_empty() {
                self.mirrors.touch_partial(&source.remote);
            }
            let look_up = |further| self.look_up(&mirror, source, further, stop);
            if !source.reference.needs_request() {
                return Ok(look_up(Vec::new()).await?.head);
            }
            tokio::select! {
                head = self.lookups.share(source, look_up) => head,
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
                self.throttled(remote, pin!(git::verify_access(remote))).await?;
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

    fn changed(&self) -> BoxStream<'static, ObjectKey> {
        self.lookups.changed().boxed()
    }
}

/// Returns whether the head is a commit pinned by its hash.
const fn is_pinned(head: &Head) -> bool {
    matches!(head.reference, Reference::Commit { .. })
}
