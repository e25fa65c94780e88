//! Deduplicates lookups with equal URL, credentials, route and reference: they join a running lookup, or reuse a result
//! of less than one second. A reconciliation triggered by an event only reuses lookups that started after the event.
//! Failures are not shared; the waiting objects send their own request.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Mutex;
use std::time::Duration;

use sluice_runtime::sync::lock;
use tokio::sync::watch;
use tokio::time::Instant;

use super::resolve::Source;
use crate::git::{FetchError, Head, Reference};

/// How long a result can be reused, from the start of the lookup. Shorter than any sensible interval, and long enough
/// for objects triggered by the same event.
const REUSE_WINDOW: Duration = Duration::from_secs(1);

/// The remote's URL, a digest of credentials and route, and the reference.
type LookupKey = (String, [u8; 32], Reference);

/// Running and recent lookups.
#[derive(Debug, Default)]
pub(super) struct SharedLookups {
    lookups: Mutex<HashMap<LookupKey, Lookup>>,
}

#[derive(Clone, Debug)]
struct Lookup {
    since: Instant,
    result: watch::Receiver<Option<Head>>,
}

impl SharedLookups {
    /// Returns the result of a shared lookup if there is one, otherwise of `lookup`.
    pub(super) async fn share(
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
