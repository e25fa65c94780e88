//! Fetches a commit of which only some files are selected: its trees without blobs, then the selected blobs by hash.
//!
//! Such commits have a separate mirror, in which blobs may be missing, so that readers of complete commits never use
//! it.

use std::sync::Arc;

use git2::Oid;
use tokio_util::sync::CancellationToken;

use super::super::access::Extent;
use super::super::checkout::{Checkout, Selection};
use super::super::error::{FetchError, ReadError};
use super::super::mirror::{Mirrors, OpenGeneration};
use super::super::protocol::advertisement::Capabilities;
use super::super::protocol::fetch::PackMode;
use super::super::reference::Head;
use super::super::remote::Remote;
use super::job::Outcome;
use super::transfer::{Haves, TransferRequest};
use super::{Fetch, Guard};

/// Blobs per request: about 500 KB of request.
const MAX_WANTS: usize = 10_000;
/// Maximum number of attempts while other fetches replace the generation.
const MAX_ATTEMPTS: usize = 3;

/// Fetches the selected files, or everything if the server cannot filter.
pub(super) async fn fetch(
    mirrors: &Mirrors,
    remote: &Remote,
    head: &Head,
    selection: &Arc<dyn Selection>,
    stop: CancellationToken,
) -> Result<Checkout, FetchError> {
    let endpoint = remote.transport.discovered_endpoint(remote).await?;
    let filters = matches!(&endpoint.capabilities, Capabilities::V2(offered) if offered.filter);
    if filters && let Some(mirror) = mirrors.open_partial(remote) {
        let partial = Fetch {
            mirror: &mirror,
            remote,
            head,
            extent: Extent::Partial,
            stop: stop.clone(),
        };
        match partial.run_partial(selection).await? {
            Some(checkout) => return Ok(checkout),
            None => mirrors.disable_partial(remote),
        }
    }
    let full = Fetch {
        mirror: &mirrors.open(remote),
        remote,
        head,
        extent: Extent::Full,
        stop,
    };
    full.run().await
}

impl Fetch<'_> {
    /// Fetches the trees, then the blobs; `None` if the server filters blobs but does not serve them by hash.
    async fn run_partial(&self, selection: &Arc<dyn Selection>) -> Result<Option<Checkout>, FetchError> {
        let mut checkout = self.run().await?;
        for _ in 0..MAX_ATTEMPTS {
            let missing = self.missing_blobs(&checkout, selection).await?;
            if missing.is_empty() {
                return Ok(Some(checkout));
            }
            let (guard, opened) = self.lock_current().await?;
            if opened.generation.directory() == checkout.generation().directory() {
                match self.fetch_blobs(guard, opened, &missing).await? {
                    Some(complete) => checkout = complete,
                    None => return Ok(None),
                }
            } else {
                drop(guard);
                checkout = self.run().await?;
            }
        }
        match self.missing_blobs(&checkout, selection).await?.first() {
            None => Ok(Some(checkout)),
            Some(id) => Err(FetchError::Read(ReadError::Object {
                id: *id,
                why: "the server did not send it".into(),
            })),
        }
    }

    async fn lock_current(&self) -> Result<(Guard, OpenGeneration), FetchError> {
        let mut guard = self.mirror.lock().await;
        Ok(self
            .mirror
            .threads()
            .run(move || guard.open_current().map(|opened| (guard, opened)))
            .await??)
    }

    /// Fetches blobs by hash into the generation that contains their trees.
    async fn fetch_blobs(
        &self,
        mut guard: Guard,
        opened: OpenGeneration,
        missing: &[Oid],
    ) -> Result<Option<Checkout>, FetchError> {
        let mut budget = self.remote.limits.pack_bytes;
        let mut complete = None;
        for wants in missing.chunks(MAX_WANTS) {
            let request = TransferRequest {
                wants: wants.to_vec(),
                haves: Haves::None,
                depth: None,
                pack: PackMode::SelfContained,
                budget,
            };
            let attempt = self.transfer(guard, opened.clone(), &request).await;
            budget = budget.saturating_sub(attempt.bytes);
            match (attempt.result, attempt.guard) {
                (Err(error), _) if attempt.refused => {
                    tracing::info!(url = %self.remote.address, %error,
                        "the server does not serve blobs by hash: fetching complete commits");
                    return Ok(None);
                }
                (Err(error), _) => return Err(error),
                (Ok(Outcome::Commit(checkout)), Some(next)) => (complete, guard) = (Some(checkout), next),
                (Ok(_), _) => break,
            }
        }
        Ok(complete)
    }

    async fn missing_blobs(
        &self,
        checkout: &Checkout,
        selection: &Arc<dyn Selection>,
    ) -> Result<Vec<Oid>, FetchError> {
        let (checkout, selection) = (checkout.clone(), Arc::clone(selection));
        let stop = self.stop.clone();
        let result = self
            .mirror
            .threads()
            .run(move || checkout.missing_blobs(&*selection, &stop));
        result.await?
    }
}
