//! A commit of which only some files are wanted: its trees come without files, and then those files by their hashes.
//!
//! Such commits are kept in a mirror of their own, in which files may be missing, so that nobody who needs a whole commit
//! ever reads one there.

use std::sync::Arc;

use git2::Oid;
use tokio_util::sync::CancellationToken;

use super::super::checkout::{Checkout, Extent};
use super::super::error::{FetchError, ReadError};
use super::super::head::Head;
use super::super::mirror::{Mirrors, Opened};
use super::super::protocol::advertisement::Capabilities;
use super::super::protocol::fetch::Pack;
use super::super::remote::Remote;
use super::super::selection::Selection;
use super::job::Got;
use super::transfer::{Held, Round};
use super::{Fetch, Guard};

/// Files that one request asks for: some 500 KB of request.
const MOST_WANTS: usize = 10_000;
/// How often a mirror may be made anew by others in between.
const TRIES: usize = 3;

/// Fetches what is selected, or everything where the server cannot select.
pub(super) async fn fetch(
    mirrors: &Mirrors,
    remote: &Remote,
    head: &Head,
    selection: &Arc<dyn Selection>,
    stop: CancellationToken,
) -> Result<Checkout, FetchError> {
    let endpoint = remote.transport.endpoint(remote).await?;
    let filters = matches!(&endpoint.capabilities, Capabilities::V2(offered) if offered.filter);
    if filters && let Some(mirror) = mirrors.open_partial(remote) {
        let part = Fetch {
            mirror: &mirror,
            remote,
            head,
            extent: Extent::Names,
            stop: stop.clone(),
        };
        match part.run_for(selection).await? {
            Some(checkout) => return Ok(checkout),
            None => mirrors.give_up_partial(remote),
        }
    }
    let whole = Fetch {
        mirror: &mirrors.open(remote),
        remote,
        head,
        extent: Extent::Whole,
        stop,
    };
    whole.run().await
}

impl Fetch<'_> {
    /// The names, then the files; none if the server leaves files out but does not give them by their hashes.
    async fn run_for(&self, selection: &Arc<dyn Selection>) -> Result<Option<Checkout>, FetchError> {
        let mut checkout = self.run().await?;
        for _ in 0..TRIES {
            let missing = self.missing(&checkout, selection).await?;
            if missing.is_empty() {
                return Ok(Some(checkout));
            }
            let (guard, opened) = self.current().await?;
            if opened.generation.directory() == checkout.generation().directory() {
                match self.files(guard, opened, &missing).await? {
                    Some(complete) => checkout = complete,
                    None => return Ok(None),
                }
            } else {
                drop(guard);
                checkout = self.run().await?;
            }
        }
        match self.missing(&checkout, selection).await?.first() {
            None => Ok(Some(checkout)),
            Some(id) => Err(FetchError::Read(ReadError::Object {
                id: *id,
                why: "it was not sent".into(),
            })),
        }
    }

    async fn current(&self) -> Result<(Guard, Opened), FetchError> {
        let mut guard = self.mirror.lock().await;
        Ok(self
            .mirror
            .threads()
            .run(move || guard.opened().map(|opened| (guard, opened)))
            .await??)
    }

    /// Files by their hashes, into the generation that has their names.
    async fn files(
        &self,
        mut guard: Guard,
        opened: Opened,
        missing: &[Oid],
    ) -> Result<Option<Checkout>, FetchError> {
        let mut budget = self.remote.limits.pack_bytes;
        let mut complete = None;
        for wants in missing.chunks(MOST_WANTS) {
            let round = Round {
                wants: wants.to_vec(),
                held: Held::Nothing,
                depth: None,
                pack: Pack::Plain,
                budget,
            };
            let attempt = self.transfer(guard, opened.clone(), &round).await;
            budget = budget.saturating_sub(attempt.bytes);
            match (attempt.result, attempt.guard) {
                (Err(error), _) if attempt.refused => {
                    tracing::info!(url = %self.remote.address, %error,
                        "the server does not give files by their hashes: whole commits are fetched");
                    return Ok(None);
                }
                (Err(error), _) => return Err(error),
                (Ok(Got::Commit(checkout)), Some(next)) => (complete, guard) = (Some(checkout), next),
                (Ok(_), _) => break,
            }
        }
        Ok(complete)
    }

    async fn missing(
        &self,
        checkout: &Checkout,
        selection: &Arc<dyn Selection>,
    ) -> Result<Vec<Oid>, FetchError> {
        let (checkout, selection) = (checkout.clone(), Arc::clone(selection));
        let stop = self.stop.clone();
        let looked = self
            .mirror
            .threads()
            .run(move || checkout.missing(&*selection, &stop));
        looked.await?
    }
}
