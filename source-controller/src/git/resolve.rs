//! Resolves a reference to a commit where the names of refs are not enough.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::error::FetchError;
use super::fetch::fetch;
use super::head::{Candidates, Head, candidates};
use super::mirror::Mirror;
use super::reference::Reference;
use super::refs;
use super::remote::Remote;

/// Maximum number of tags of equal version whose commits are compared.
const MAX_TIED_TAGS: usize = 20;

/// Looks up the reference as [`head`] does. Among tags that satisfy a constraint equally well (they differ in build
/// metadata or in the notation of the same numbers), it selects the one with the most recent commit. Only in that case
/// the commits are fetched into the mirror, once.
///
/// [`head`]: super::head
///
/// # Errors
/// The remote is unreachable, breaks the protocol, has no such ref, or is empty.
pub async fn resolve(
    mirror: &Arc<Mirror>,
    remote: &Remote,
    reference: &Reference,
    stop: &CancellationToken,
) -> Result<Head, FetchError> {
    let Candidates { last, others } = candidates(remote, reference).await?;
    if others.iter().all(|other| other.commit == last.commit) {
        return Ok(last);
    }
    let newest = newest(mirror, remote, last, others, stop);
    remote.within_timeout(newest).await
}

/// Verifies with one small request that the server accepts the credentials.
///
/// # Errors
/// The remote is unreachable, breaks the protocol, or denies access.
pub async fn verify_access(remote: &Remote) -> Result<(), FetchError> {
    let result = remote.within_timeout(refs::find(remote, "HEAD")).await;
    result.map(drop).inspect_err(|_| {
        remote.transport.forget(remote);
    })
}

/// Selects by commit date, then by name; the last one wins.
async fn newest(
    mirror: &Arc<Mirror>,
    remote: &Remote,
    last: Head,
    others: Vec<Head>,
    stop: &CancellationToken,
) -> Result<Head, FetchError> {
    let mut newest = (committed_at(mirror, remote, &last, stop).await?, last);
    for other in others.into_iter().rev().take(MAX_TIED_TAGS) {
        let date = committed_at(mirror, remote, &other, stop).await?;
        if date > newest.0 {
            newest = (date, other);
        }
    }
    Ok(newest.1)
}

/// Returns the committer date in seconds since 1970.
async fn committed_at(
    mirror: &Arc<Mirror>,
    remote: &Remote,
    head: &Head,
    stop: &CancellationToken,
) -> Result<i64, FetchError> {
    let checkout = fetch(mirror, remote, head, stop).await?;
    Ok(checkout.commit().committed_at().unwrap_or_default())
}
