//! Where revisions come from: behind a trait, so that tests can put a fault in the place of a network.

use std::sync::Arc;

use futures::future::BoxFuture;
use sluice_runtime::shutdown::Token;

use super::resolve::Source;
use crate::git::{self, Checkout, FetchError, Head, Mirrors};

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

/// Real remotes, mirrored on disk.
pub struct Network {
    mirrors: Arc<Mirrors>,
}

impl Network {
    /// With mirrors in this directory.
    #[must_use]
    pub const fn new(mirrors: Arc<Mirrors>) -> Self {
        Self { mirrors }
    }
}

impl Origin for Network {
    fn head<'a>(&'a self, source: &'a Source, stop: &'a Token) -> BoxFuture<'a, Result<Head, FetchError>> {
        Box::pin(async move {
            let mirror = self.mirrors.open(&source.remote);
            git::resolve(&mirror, &source.remote, &source.reference, stop).await
        })
    }

    fn fetch<'a>(
        &'a self,
        source: &'a Source,
        head: &'a Head,
        stop: &'a Token,
    ) -> BoxFuture<'a, Result<Checkout, FetchError>> {
        Box::pin(async move {
            let mirror = self.mirrors.open(&source.remote);
            git::fetch(&mirror, &source.remote, head, stop).await
        })
    }
}
