//! Finding out which commit a reference names, where the names of refs alone do not tell.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::error::FetchError;
use super::fetch::fetch;
use super::head::{Candidates, Head, candidates};
use super::mirror::Mirror;
use super::reference::Reference;
use super::refs;
use super::remote::Remote;

/// Most tags of one and the same version whose commits are compared.
const MOST_TIED: usize = 20;

/// Looks the reference up as [`head`] does. Of tags that satisfy a constraint equally well (they differ in build metadata
/// or in how they write the same numbers), the one whose commit was made last is taken; for that, and only then, their
/// commits are fetched into the mirror, once.
///
/// [`head`]: super::head
///
/// # Errors
/// The remote cannot be reached or understood, has no such ref, or is empty.
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
    let limit = remote.timeout;
    let decided = tokio::time::timeout(limit, newest(mirror, remote, last, others, stop)).await;
    decided.unwrap_or_else(|_| {
        Err(FetchError::TimedOut {
            host: remote.address.host(),
            limit,
        })
    })
}

/// Makes sure that the server lets in whoever asks here, by one small request.
///
/// # Errors
/// The remote cannot be reached or understood, or refuses.
pub async fn prove(remote: &Remote) -> Result<(), FetchError> {
    let limit = remote.timeout;
    let asked = tokio::time::timeout(limit, refs::find(remote, "HEAD")).await;
    let asked = asked.unwrap_or_else(|_| {
        Err(FetchError::TimedOut {
            host: remote.address.host(),
            limit,
        })
    });
    asked.map(drop).inspect_err(|_| {
        remote.transport.forget(remote);
    })
}

/// By date, then by name, and the last wins.
async fn newest(
    mirror: &Arc<Mirror>,
    remote: &Remote,
    last: Head,
    others: Vec<Head>,
    stop: &CancellationToken,
) -> Result<Head, FetchError> {
    let mut newest = (made(mirror, remote, &last, stop).await?, last);
    for other in others.into_iter().rev().take(MOST_TIED) {
        let date = made(mirror, remote, &other, stop).await?;
        if date > newest.0 {
            newest = (date, other);
        }
    }
    Ok(newest.1)
}

/// When the commit was made, in seconds since 1970.
async fn made(
    mirror: &Arc<Mirror>,
    remote: &Remote,
    head: &Head,
    stop: &CancellationToken,
) -> Result<i64, FetchError> {
    let checkout = fetch(mirror, remote, head, stop).await?;
    Ok(checkout.commit().committed_at().unwrap_or_default())
}
