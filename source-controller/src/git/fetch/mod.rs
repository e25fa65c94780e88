//! Bringing a commit into a mirror: nothing travels if it is there, the difference if a relative is, all otherwise.
//!
//! Where only a part of the files is wanted and the server can leave others out, `part` fetches names first and files by
//! their hashes then. `transfer` is one request with its answer, `job` the half of it that blocks. A pinned commit that the server does not
//! give out by its hash is looked for by `search`.

mod job;
mod part;
mod reply;
mod search;
mod transfer;

use std::future::Future;
use std::sync::Arc;

use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;

use super::checkout::{Checkout, Extent};
use super::error::{FetchError, ReadError};
use super::head::Head;
use super::mirror::{Mirror, Mirrors, Opened, Writer};
use super::protocol::fetch::Pack;
use super::reference::Reference;
use super::remote::{DELTA_BYTES_FLAG, Remote};
use super::selection::Selection;
use job::{Got, Named};
use search::NOT_OURS;
use transfer::{Attempt, Held, Round};

/// Fetches the commit of `head` and gives a checkout of it. The whole operation, waiting for the mirror included, ends
/// within the remote's timeout or when `stop` is cancelled; the mirror is then as it was before.
///
/// # Errors
/// The remote cannot be reached or understood, no longer has the commit, sends more than is allowed, or the mirror
/// cannot be written.
pub async fn fetch(
    mirror: &Arc<Mirror>,
    remote: &Remote,
    head: &Head,
    stop: &CancellationToken,
) -> Result<Checkout, FetchError> {
    bounded(remote, stop, async |inner| {
        let fetch = Fetch {
            mirror,
            remote,
            head,
            extent: Extent::Whole,
            stop: inner,
        };
        fetch.run().await
    })
    .await
}

/// As [`fetch`], of the files only what `selection` wants, where the server can leave others out; else everything.
///
/// # Errors
/// As [`fetch`].
pub async fn fetch_part(
    mirrors: &Mirrors,
    remote: &Remote,
    head: &Head,
    selection: &Arc<dyn Selection>,
    stop: &CancellationToken,
) -> Result<Checkout, FetchError> {
    bounded(remote, stop, async |inner| {
        part::fetch(mirrors, remote, head, selection, inner).await
    })
    .await
}

/// Does it within the remote's timeout and until `stop` is cancelled.
async fn bounded(
    remote: &Remote,
    stop: &CancellationToken,
    work: impl AsyncFnOnce(CancellationToken) -> Result<Checkout, FetchError>,
) -> Result<Checkout, FetchError> {
    let inner = stop.child_token();
    // Blocking work cannot be dropped: it is told, whichever way this function is left.
    let told = inner.clone().drop_guard();
    let limit = remote.timeout;
    let result = within(tokio::time::timeout(limit, Box::pin(work(inner))), stop).await;
    drop(told);
    let result = match result {
        Some(Ok(result)) => result,
        Some(Err(_)) => Err(FetchError::TimedOut {
            host: remote.address.host(),
            limit,
        }),
        None => Err(FetchError::Stopped),
    };
    result.inspect_err(|_| {
        remote.transport.forget(remote);
    })
}

async fn within<T>(work: impl Future<Output = T>, stop: &CancellationToken) -> Option<T> {
    tokio::select! {
        result = work => Some(result),
        () = stop.cancelled() => None,
    }
}

type Guard = OwnedMutexGuard<Writer>;

/// What one fetch is about.
struct Fetch<'a> {
    mirror: &'a Arc<Mirror>,
    remote: &'a Remote,
    head: &'a Head,
    extent: Extent,
    stop: CancellationToken,
}

impl Extent {
    /// What packs with new commits may leave out.
    const fn pack(self) -> Pack {
        match self {
            Self::Whole => Pack::Thin,
            Self::Names => Pack::WithoutFiles,
        }
    }
}

/// What a mirror has for a head.
enum Local {
    /// The commit itself.
    Held(Checkout),
    /// Other commits, of which it may be a relative.
    Behind(Opened),
    /// Nothing.
    Empty(Opened),
}

impl Fetch<'_> {
    async fn run(&self) -> Result<Checkout, FetchError> {
        let guard = self.mirror.lock().await;
        let (guard, local) = self.local(guard).await?;
        let (opened, fresh) = match local {
            Local::Held(checkout) => return Ok(checkout),
            Local::Behind(opened) => (opened, false),
            Local::Empty(opened) => (opened, true),
        };
        let mut attempt = self.ask_for_the_head(guard, opened).await;
        // What is held does not fit together with what the server takes it for: begin anew, once.
        if !fresh
            && attempt
                .result
                .as_ref()
                .is_err_and(|error| is_due_to_what_is_held(error, attempt.refused))
            && let Some(guard) = attempt.guard.take()
        {
            tracing::info!(url = %self.remote.address, "the mirror is made anew");
            let (guard, opened) = self.anew(guard).await?;
            attempt = self.ask_for_the_head(guard, opened).await;
        }
        match (attempt.guard, attempt.result) {
            (Some(guard), Err(error)) if attempt.refused && self.is_pinned() => {
                self.refused(guard, error).await
            }
            (_, Ok(Got::Commit(checkout))) => Ok(checkout),
            (_, Ok(Got::Without(_))) => Err(self.not_there()),
            (_, Err(error)) => Err(error),
        }
    }

    /// Looks whether anything has to travel at all, and into which generation.
    async fn local(&self, mut guard: Guard) -> Result<(Guard, Local), FetchError> {
        let (mirror, limits) = (Arc::clone(self.mirror), self.remote.limits);
        let (named, extent) = (self.named(), self.extent);
        let Named { commit, object } = named;
        let (host, stop) = (self.remote.address.host(), self.stop.clone());
        let threads = self.mirror.threads();
        let looked = threads.run(move || {
            let mut opened = guard.opened()?;
            if opened.record.tips.contains(&commit) && !opened.generation.is_condemned() {
                match job::complete(mirror, &mut opened, commit, extent, limits, &stop) {
                    // The commit came by another ref: the tag that names it now is still to come.
                    Ok(checkout) if !checkout.holds(object) => return Ok((guard, Local::Behind(opened))),
                    Ok(checkout) => {
                        named.check(&checkout, &host)?;
                        guard.keep(opened);
                        return Ok((guard, Local::Held(checkout)));
                    }
                    Err(FetchError::Stopped) => return Err(FetchError::Stopped),
                    Err(error) => {
                        tracing::info!(error = &error as &dyn std::error::Error, "a mirror lost objects");
                        opened.generation.condemn();
                    }
                }
            }
            let local = match (opened.is_frayed(), opened.record.tips.is_empty()) {
                (true, _) => Local::Empty(guard.fresh()?),
                (false, true) => Local::Empty(opened),
                (false, false) => Local::Behind(opened),
            };
            Ok((guard, local))
        });
        looked.await?
    }

    /// An empty generation of the mirror.
    async fn anew(&self, guard: Guard) -> Result<(Guard, Opened), FetchError> {
        let made = self
            .mirror
            .threads()
            .run(move || guard.fresh().map(|opened| (guard, opened)));
        Ok(made.await??)
    }

    /// The usual request: the object that the ref holds, without history.
    async fn ask_for_the_head(&self, guard: Guard, opened: Opened) -> Attempt {
        let round = Round {
            wants: vec![self.head.object],
            held: Held::Tips,
            depth: Some(1),
            pack: self.extent.pack(),
            budget: self.remote.limits.pack_bytes,
        };
        let mut attempt = self.transfer(guard, opened, &round).await;
        if let Ok(Got::Without(_)) = attempt.result {
            attempt.result = Err(FetchError::Read(ReadError::Object {
                id: self.head.commit,
                why: "it was not sent".into(),
            }));
        }
        attempt
    }

    const fn named(&self) -> Named {
        Named {
            commit: self.head.commit,
            object: self.head.object,
        }
    }

    const fn is_pinned(&self) -> bool {
        matches!(self.head.reference, Reference::Commit { .. })
    }

    fn not_there(&self) -> FetchError {
        FetchError::CommitNotFound {
            commit: self.head.commit.to_string(),
        }
    }
}

/// Whether a fetch from nothing may succeed where one of the difference failed.
fn is_due_to_what_is_held(error: &FetchError, refused: bool) -> bool {
    match error {
        // A server that collected its garbage may not understand any more what is said to be held.
        FetchError::Answer { why, .. } => refused && !why.contains(NOT_OURS),
        FetchError::Pack { .. } | FetchError::Read(ReadError::Object { .. }) => true,
        // From nothing, a large file comes as a whole, unless it is like another one.
        FetchError::TooLarge { flag, .. } => *flag == DELTA_BYTES_FLAG,
        _ => false,
    }
}
