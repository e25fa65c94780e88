//! Where revisions come from: behind a trait, so that tests can put a fault in the place of a network.

use std::future::Future;
use std::sync::Arc;

use futures::future::BoxFuture;
use sluice_runtime::clock::Clock;
use sluice_runtime::shutdown::Token;

use super::patience::Patience;
use super::polls::Polls;
use super::resolve::Source;
use crate::git::{self, Checkout, FetchError, Head, Mirrors, Reference, Remote, Selection};
use crate::storage::is_full;
use crate::tree::Sparse;

/// Finds out heads and fetches commits.
pub trait Origin: Send + Sync {
    /// The commit that the source's reference names now. One small request, as a rule.
    fn head<'a>(&'a self, source: &'a Source, stop: &'a Token) -> BoxFuture<'a, Result<Head, FetchError>>;

    /// Brings that commit here.
    fn fetch<'a>(
        &'a self,
        source: &'a Source,
        head: &'a Head,
        stop: &'a Token,
    ) -> BoxFuture<'a, Result<Checkout, FetchError>>;

    /// Gives up of what it keeps, since the disk is full; whether that was anything.
    fn make_room(&self) -> BoxFuture<'_, bool> {
        Box::pin(async { false })
    }
}

/// Real remotes, mirrored on disk. Objects share lookups, and together leave a host alone that asks for it.
pub struct Network {
    mirrors: Arc<Mirrors>,
    clock: Arc<dyn Clock>,
    patience: Patience,
    polls: Polls,
}

impl Network {
    /// With mirrors in this directory.
    #[must_use]
    pub fn new(mirrors: Arc<Mirrors>, clock: Arc<dyn Clock>) -> Self {
        Self {
            mirrors,
            clock,
            patience: Patience::default(),
            polls: Polls::default(),
        }
    }

    async fn fetch_once(&self, source: &Source, head: &Head, stop: &Token) -> Result<Checkout, FetchError> {
        let Source { remote, parts, .. } = source;
        let Some(sparse) = Sparse::new(&parts.sparse) else {
            let mirror = self.mirrors.open(remote);
            let fetched = git::fetch(&mirror, remote, head, stop);
            return self.patiently(remote, fetched).await;
        };
        let sparse: Arc<dyn Selection> = Arc::new(sparse);
        let part = git::fetch_part(&self.mirrors, remote, head, &sparse, stop);
        self.patiently(remote, part).await
    }

    /// A request, unless the host asked to wait; what it asks for now is remembered.
    async fn patiently<T>(
        &self,
        remote: &Remote,
        request: impl Future<Output = Result<T, FetchError>>,
    ) -> Result<T, FetchError> {
        self.patience.check(remote, self.clock.now())?;
        let answer = request.await;
        answer.map_err(|error| self.patience.heed(remote, error, self.clock.now()))
    }
}

impl Origin for Network {
    fn head<'a>(&'a self, source: &'a Source, stop: &'a Token) -> BoxFuture<'a, Result<Head, FetchError>> {
        let lookup = async move {
            let mirror = self.mirrors.open(&source.remote);
            if !source.parts.sparse.is_empty() {
                self.mirrors.keep_partial(&source.remote);
            }
            let looked = git::resolve(&mirror, &source.remote, &source.reference, stop);
            let head = self.patiently(&source.remote, looked).await?;
            if !is_pinned(&head) {
                // Only a pin is looked up without a request.
                self.mirrors.prove(&source.remote);
            }
            Ok(head)
        };
        Box::pin(async move {
            tokio::select! {
                head = self.polls.share(source, lookup) => head,
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
            if is_pinned(head) && remote.needs_proof() && !self.mirrors.is_proved(remote) {
                self.patiently(remote, git::prove(remote)).await?;
                self.mirrors.prove(remote);
            }
            match self.fetch_once(source, head, stop).await {
                Err(FetchError::Storage(error)) if is_full(&error) && self.make_room().await => {
                    self.fetch_once(source, head, stop).await
                }
                fetched => fetched,
            }
        })
    }

    fn make_room(&self) -> BoxFuture<'_, bool> {
        let mirrors = Arc::clone(&self.mirrors);
        Box::pin(async move {
            let removed = tokio::task::spawn_blocking(move || mirrors.make_room()).await;
            removed.is_ok_and(|removed| removed > 0)
        })
    }
}

/// Whether the head is a commit that the object names by its hash.
const fn is_pinned(head: &Head) -> bool {
    matches!(head.reference, Reference::Commit { .. })
}
