//! Where revisions come from: behind a trait, so that tests can put a fault in the place of a network.

use std::future::Future;
use std::sync::Arc;

use futures::future::BoxFuture;
use sluice_runtime::clock::Clock;
use sluice_runtime::shutdown::Token;

use super::patience::Patience;
use super::polls::Polls;
use super::resolve::Source;
use crate::git::{self, Checkout, FetchError, Head, Mirrors, Remote, Selection};
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
            self.patiently(&source.remote, looked).await
        };
        Box::pin(self.polls.share(source, lookup))
    }

    fn fetch<'a>(
        &'a self,
        source: &'a Source,
        head: &'a Head,
        stop: &'a Token,
    ) -> BoxFuture<'a, Result<Checkout, FetchError>> {
        Box::pin(async move {
            let Source { remote, parts, .. } = source;
            let Some(sparse) = Sparse::new(&parts.sparse) else {
                let mirror = self.mirrors.open(remote);
                return self
                    .patiently(remote, git::fetch(&mirror, remote, head, stop))
                    .await;
            };
            let sparse: Arc<dyn Selection> = Arc::new(sparse);
            let part = git::fetch_part(&self.mirrors, remote, head, &sparse, stop);
            self.patiently(remote, part).await
        })
    }
}
