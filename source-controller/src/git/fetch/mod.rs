//! Fetches a commit into a mirror: nothing if it exists, the difference if a related commit exists, everything
//! otherwise.
//!
//! `partial` serves selections of files if the server supports filters: it fetches the trees first, then the selected
//! blobs by hash. `transfer` is one request with its response, `job` its blocking half. `search` finds a pinned commit
//! that the server does not serve by hash. `restore` fills a mirror that this disk lacks. `objects` opens what a fetch has
//! received.

mod job;
mod objects;
mod partial;
mod restore;
mod search;
mod transfer;

use std::future::Future;
use std::sync::Arc;

use job::{CommitRef, Outcome};
use objects::Objects;
use restore::Restore;
use search::NOT_OUR_REF;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use transfer::{Attempt, Haves, TransferRequest};

use super::access::Extent;
use super::checkout::{Checkout, Selection};
use super::error::{FetchError, ReadError};
use super::mirror::{Mirror, Mirrors, OpenGeneration, Writer};
use super::protocol::fetch::PackMode;
use super::reference::{Head, Reference};
use super::remote::{DELTA_BYTES_FLAG, Remote};

/// Fetches the commit of `head` and returns a checkout of it. The whole operation, including the wait for the mirror,
/// ends within the remote's timeout or when `stop` is cancelled. In that case the mirror is unchanged.
///
/// # Errors
/// The remote is unreachable, breaks the protocol, no longer has the commit, or sends more than allowed, or the mirror
/// cannot be written.
pub async fn fetch(
    mirror: &Arc<Mirror>,
    remote: &Remote,
    head: &Head,
    stop: &CancellationToken,
) -> Result<Checkout, FetchError> {
    with_timeout(remote, stop, async |inner| {
        let fetch = Fetch {
            mirror,
            remote,
            head,
            extent: Extent::Full,
            stop: inner,
        };
        fetch.run().await
    })
    .await
}

/// Like [`fetch`], but fetches only the blobs that `selection` selects if the server supports it; otherwise everything.
///
/// # Errors
/// Same as [`fetch`].
pub async fn fetch_partial(
    mirrors: &Mirrors,
    remote: &Remote,
    head: &Head,
    selection: &Arc<dyn Selection>,
    stop: &CancellationToken,
) -> Result<Checkout, FetchError> {
    with_timeout(remote, stop, async |inner| {
        partial::fetch(mirrors, remote, head, selection, inner).await
    })
    .await
}

/// Runs `work` within the remote's timeout and until `stop` is cancelled.
async fn with_timeout(
    remote: &Remote,
    stop: &CancellationToken,
    work: impl AsyncFnOnce(CancellationToken) -> Result<Checkout, FetchError>,
) -> Result<Checkout, FetchError> {
    let inner = stop.child_token();
    // Blocking work cannot be dropped: cancel it on every exit.
    let cancel_on_drop = inner.clone().drop_guard();
    let result = until_stopped(remote.within_timeout(Box::pin(work(inner))), stop).await;
    drop(cancel_on_drop);
    let result = result.unwrap_or(Err(FetchError::Stopped));
    result.inspect_err(|_| {
        remote.transport.forget(remote);
    })
}

async fn until_stopped<T>(work: impl Future<Output = T>, stop: &CancellationToken) -> Option<T> {
    tokio::select! {
        result = work => Some(result),
        () = stop.cancelled() => None,
    }
}

type Guard = OwnedMutexGuard<Writer>;

/// Context of one fetch.
struct Fetch<'a> {
    mirror: &'a Arc<Mirror>,
    remote: &'a Remote,
    head: &'a Head,
    extent: Extent,
    stop: CancellationToken,
}

impl Extent {
    /// Returns what packs with new commits may omit.
    const fn pack(self) -> PackMode {
        match self {
            Self::Full => PackMode::Thin,
            Self::Partial => PackMode::WithoutBlobs,
        }
    }
}

/// Content of a mirror in relation to a head.
enum MirrorState {
    /// The commit itself.
    Complete(Checkout),
    /// Other commits, which may be related.
    Incomplete(OpenGeneration),
    /// No commits.
    Empty(OpenGeneration),
}

impl Fetch<'_> {
    async fn run(&self) -> Result<Checkout, FetchError> {
        let guard = self.mirror.lock().await;
        let (guard, state) = self.inspect_mirror(guard).await?;
        let (opened, is_new) = match state {
            MirrorState::Complete(checkout) => return Ok(checkout),
            MirrorState::Incomplete(opened) => (opened, false),
            MirrorState::Empty(opened) => (opened, true),
        };
        let mut attempt = self.request_head(guard, opened).await;
        // The mirror does not match the server's assumptions: retry once with an empty generation.
        if !is_new
            && attempt
                .result
                .as_ref()
                .is_err_and(|error| may_succeed_from_empty(error, attempt.refused))
            && let Some(guard) = attempt.guard.take()
        {
            tracing::info!(url = %self.remote.address, "replacing the mirror");
            let (guard, opened) = self.new_generation(guard).await?;
            attempt = self.request_head(guard, opened).await;
        }
        match (attempt.guard, attempt.result) {
            (Some(guard), Err(error)) if attempt.refused && self.is_pinned() => {
                self.handle_refusal(guard, error).await
            }
            (_, Ok(Outcome::Commit(checkout))) => Ok(checkout),
            (_, Ok(Outcome::Missing(_))) => Err(self.commit_not_found()),
            (_, Err(error)) => Err(error),
        }
    }

    /// Checks whether a transfer is necessary, and selects the generation for it.
    async fn inspect_mirror(&self, mut guard: Guard) -> Result<(Guard, MirrorState), FetchError> {
        let (mirror, limits) = (Arc::clone(self.mirror), self.remote.limits);
        let restore = Restore {
            mirror: Arc::clone(self.mirror),
            limits,
            stop: self.stop.clone(),
            deadline: Instant::now() + self.remote.timeout / restore::PART_OF_TIMEOUT,
        };
        let (named, extent) = (self.commit_ref(), self.extent);
        let CommitRef { commit, object } = named;
        let (host, stop) = (self.remote.address.host(), self.stop.clone());
        let threads = self.mirror.threads();
        let result = threads.run(move || {
            let mut opened = guard.open_current()?;
            if opened.record.tips.is_empty() {
                restore.run(&mut guard, &mut opened);
            }
            if opened.record.tips.contains(&commit) && !opened.generation.is_corrupt() {
                let odb = Objects::of(&opened.generation).open();
                let verified = odb.map_err(FetchError::Storage).and_then(|odb| {
                    job::open_verified(odb, mirror, &mut opened, commit, extent, limits, &stop)
                });
                match verified {
                    // The commit was fetched by another ref: the tag that names it is missing.
                    Ok(checkout) if !checkout.contains(object) => {
                        return Ok((guard, MirrorState::Incomplete(opened)));
                    }
                    Ok(checkout) => {
                        named.check(&checkout, &host)?;
                        guard.install(opened);
                        return Ok((guard, MirrorState::Complete(checkout)));
                    }
                    Err(FetchError::Stopped) => return Err(FetchError::Stopped),
                    Err(error) => {
                        tracing::info!(
                            error = &error as &dyn std::error::Error,
                            "objects of a mirror are missing"
                        );
                        opened.generation.mark_corrupt();
                    }
                }
            }
            let state = match (opened.needs_replacement(), opened.record.tips.is_empty()) {
                (true, _) => MirrorState::Empty(guard.create_next()?),
                (false, true) => MirrorState::Empty(opened),
                (false, false) => MirrorState::Incomplete(opened),
            };
            Ok((guard, state))
        });
        result.await?
    }

    /// Creates an empty generation of the mirror.
    async fn new_generation(&self, guard: Guard) -> Result<(Guard, OpenGeneration), FetchError> {
        let created = self
            .mirror
            .threads()
            .run(move || guard.create_next().map(|opened| (guard, opened)));
        Ok(created.await??)
    }

    /// Sends the usual request: the object of the ref, without history.
    async fn request_head(&self, guard: Guard, opened: OpenGeneration) -> Attempt {
        let request = TransferRequest {
            wants: vec![self.head.object],
            haves: Haves::Tips,
            depth: Some(1),
            pack: self.extent.pack(),
            budget: self.remote.limits.pack_bytes,
        };
        let mut attempt = self.transfer(guard, opened, &request).await;
        if let Ok(Outcome::Missing(_)) = attempt.result {
            attempt.result = Err(FetchError::Read(ReadError::Object {
                id: self.head.commit,
                why: "the server did not send it".into(),
            }));
        }
        attempt
    }

    const fn commit_ref(&self) -> CommitRef {
        CommitRef {
            commit: self.head.commit,
            object: self.head.object,
        }
    }

    const fn is_pinned(&self) -> bool {
        matches!(self.head.reference, Reference::Commit { .. })
    }

    fn commit_not_found(&self) -> FetchError {
        FetchError::CommitNotFound {
            commit: self.head.commit.to_string(),
        }
    }
}

/// Whether a fetch into an empty generation may succeed after an incremental one failed.
fn may_succeed_from_empty(error: &FetchError, refused: bool) -> bool {
    match error {
        // After garbage collection, a server may reject the `have` lines.
        FetchError::Protocol { why, .. } => refused && !why.contains(NOT_OUR_REF),
        FetchError::Pack { .. } | FetchError::Read(ReadError::Object { .. }) => true,
        // Without deltas to existing objects, a large file is usually sent undeltified.
        FetchError::TooLarge { flag, .. } => *flag == DELTA_BYTES_FLAG,
        _ => false,
    }
}
