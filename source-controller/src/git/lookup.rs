//! Looks up the commit that a reference names: one small request on a pooled connection, except for tags of equal
//! version, whose commits are compared.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;

use sluice_runtime::semver::{Constraint, Selection};
use tokio_util::sync::CancellationToken;

use super::error::FetchError;
use super::fetch::fetch;
use super::mirror::Mirror;
use super::protocol::ls_refs::RemoteRef;
use super::protocol::parse_object_id;
use super::reference::{Head, Reference, TAGS_PREFIX};
use super::refs::{self, Refs};
use super::remote::Remote;

/// Maximum number of tags of equal version whose commits are compared.
const MAX_TIED_TAGS: usize = 20;

/// The heads that one lookup found.
#[derive(Clone, Debug)]
pub struct Heads {
    /// The head of the reference.
    pub head: Head,
    /// The heads of the further references; those without a ref are missing.
    pub others: HashMap<Reference, Head>,
}

/// Looks up the reference. With protocol version 2, the size of the response does not depend on the number of refs,
/// except for a version constraint, which needs all tags. A pinned commit needs no request, unless the object names a
/// tag for it. Dropping the future cancels the lookup.
///
/// The refs of the `further` references are looked up with the same request. They must be branches, tags or names, and
/// count only for such a reference.
///
/// Among tags that satisfy a constraint equally well (they differ in build metadata or in the notation of the same
/// numbers), this selects the one with the most recent commit. Only in that case the commits are fetched into the
/// mirror, once.
///
/// # Errors
/// The remote is unreachable, breaks the protocol, has no such ref, or is empty.
pub async fn resolve(
    mirror: &Arc<Mirror>,
    remote: &Remote,
    reference: &Reference,
    further: &[Reference],
    stop: &CancellationToken,
) -> Result<Heads, FetchError> {
    let Candidates { last, equal, others } = candidates(remote, reference, further).await?;
    if equal.iter().all(|other| other.commit == last.commit) {
        return Ok(Heads { head: last, others });
    }
    // Seldom: in a box, so that the future of all other lookups has no space for a fetch.
    let newest = Box::pin(newest(mirror, remote, last, equal, stop));
    let head = remote.within_timeout(newest).await?;
    Ok(Heads { head, others })
}

/// Looks up the reference as [`resolve`] does, and returns the last of several candidates.
#[cfg(test)]
pub(crate) async fn head(remote: &Remote, reference: &Reference) -> Result<Head, FetchError> {
    Ok(candidates(remote, reference, &[]).await?.last)
}

/// Verifies with one small request that the server accepts the credentials.
///
/// # Errors
/// The remote is unreachable, breaks the protocol, or denies access.
pub async fn verify_access(remote: &Remote) -> Result<(), FetchError> {
    let verified = pin!(async {
        match refs::find(remote, "HEAD").await {
            Err(error) if remote.transport.is_assumption_wrong(remote, &error) => {
                Box::pin(refs::find(remote, "HEAD")).await
            }
            found => found,
        }
    });
    let result = remote.within_timeout(verified).await;
    result.map(drop).inspect_err(|_| {
        remote.transport.forget(remote);
    })
}

/// Heads that satisfy the reference equally well; more than one only for constraints.
#[derive(Debug)]
struct Candidates {
    /// The last of them by name.
    last: Head,
    /// The others of them.
    equal: Vec<Head>,
    /// The heads of the further references.
    others: HashMap<Reference, Head>,
}

impl From<Head> for Candidates {
    fn from(last: Head) -> Self {
        Self {
            last,
            equal: Vec::new(),
            others: HashMap::new(),
        }
    }
}

/// Looks up the references within the remote's timeout. What most lookups do not need is in boxes, here and below, because
/// each lookup writes the space of its whole future.
async fn candidates(
    remote: &Remote,
    reference: &Reference,
    further: &[Reference],
) -> Result<Candidates, FetchError> {
    let resolved = pin!(async {
        match resolve_reference(remote, reference, further).await {
            Err(error) if remote.transport.is_assumption_wrong(remote, &error) => {
                Box::pin(resolve_reference(remote, reference, further)).await
            }
            resolved => resolved,
        }
    });
    let result = remote.within_timeout(resolved).await;
    result.inspect_err(|_| {
        remote.transport.forget(remote);
    })
}

async fn resolve_reference(
    remote: &Remote,
    reference: &Reference,
    further: &[Reference],
) -> Result<Candidates, FetchError> {
    match reference {
        Reference::Commit { commit, .. } => {
            let head = Box::pin(pinned_head(remote, commit, reference)).await;
            head.map(Candidates::from)
        }
        Reference::Semver(constraint) => Box::pin(select_tag(remote, constraint)).await,
        Reference::Name(name) if name.starts_with('/') || name.ends_with('/') => {
            Err(FetchError::InvalidName { name: name.clone() })
        }
        Reference::Branch(_) | Reference::Tag(_) | Reference::Name(_) => {
            named_heads(remote, reference, further).await
        }
    }
}

/// Looks up the refs that the references name, with one request.
async fn named_heads(
    remote: &Remote,
    reference: &Reference,
    further: &[Reference],
) -> Result<Candidates, FetchError> {
    let name = reference.remote_name().unwrap_or_default();
    if !reference.is_well_formed() {
        return Err(Box::pin(missing_ref_error(remote, reference, name)).await?);
    }
    let (found, others) = if further.is_empty() {
        (refs::find(remote, &name).await?, HashMap::new())
    } else {
        Box::pin(find_with_others(remote, &name, further)).await?
    };
    match found {
        Some(found) => Ok(Candidates {
            last: to_head(&found, reference.clone()),
            equal: Vec::new(),
            others,
        }),
        None => Err(Box::pin(missing_ref_error(remote, reference, name)).await?),
    }
}

/// Looks up the ref with this name, and the heads of the further references, with one request.
async fn find_with_others(
    remote: &Remote,
    name: &str,
    further: &[Reference],
) -> Result<(Option<RemoteRef>, HashMap<Reference, Head>), FetchError> {
    let named = further
        .iter()
        .filter_map(|other| Some((other, other.remote_name()?)));
    let named: Vec<_> = named.collect();
    let further_names = named.iter().map(|(_, name)| name.as_str());
    let all: Vec<_> = std::iter::once(name).chain(further_names).collect();
    let mut found = match refs::find_all(remote, &all).await {
        // The refs of others must not make this lookup fail.
        Err(FetchError::RefsTooLong { .. }) if !named.is_empty() => refs::find_all(remote, &[name]).await?,
        found => found?,
    };
    let others = named.into_iter().filter_map(|(other, name)| {
        let head = to_head(found.get(name.as_bytes())?, other.clone());
        Some((other.clone(), head))
    });
    let others = others.collect();
    Ok((found.remove(name.as_bytes()), others))
}

fn to_head(found: &RemoteRef, reference: Reference) -> Head {
    Head {
        commit: found.peeled.unwrap_or(found.id),
        object: found.id,
        reference,
    }
}

/// Returns the pinned commit. If the object names a tag that peels to it, the tag is included, because it may be
/// signed.
async fn pinned_head(remote: &Remote, commit: &str, reference: &Reference) -> Result<Head, FetchError> {
    let id = parse_object_id(commit.as_bytes()).ok_or_else(|| FetchError::CommitNotFound {
        commit: commit.to_owned(),
    })?;
    let without_tag = Head {
        commit: id,
        object: id,
        reference: reference.clone(),
    };
    let Some(tag) = reference.tag().filter(|_| reference.is_well_formed()) else {
        return Ok(without_tag);
    };
    let found = refs::find(remote, &format!("{TAGS_PREFIX}{tag}")).await?;
    let found = found.map(|found| to_head(&found, reference.clone()));
    Ok(found.filter(|found| found.commit == id).unwrap_or(without_tag))
}

/// Selects the tags of the highest version that the constraint allows. Only these are held in memory.
async fn select_tag(remote: &Remote, text: &str) -> Result<Candidates, FetchError> {
    let constraint: Constraint = text.parse()?;
    let mut selection = Selection::new(&constraint);
    let mut refs = Refs::request(remote, &[TAGS_PREFIX]).await?;
    let mut has_tags = false;
    while let Some(found) = refs.next().await? {
        has_tags = true;
        // A name that is not UTF-8 is not a version.
        let name = std::str::from_utf8(&found.name)
            .ok()
            .and_then(|name| name.strip_prefix(TAGS_PREFIX));
        if let Some(name) = name {
            selection.consider(name, to_head(&found, Reference::Tag(name.to_owned())));
        }
    }
    refs.finish().await;
    let mut best = selection.best();
    // A server may list in any order; the selection must not depend on it.
    best.sort_by_key(|head| head.reference.remote_name());
    match best.pop() {
        Some(last) => Ok(Candidates {
            equal: best,
            ..Candidates::from(last)
        }),
        None if !has_tags && refs::is_empty(remote).await? => Err(empty_remote_error(remote, "clone")),
        None => Err(FetchError::NoMatch {
            constraint: text.to_owned(),
        }),
    }
}

/// Selects by commit date, then by name; the last one wins.
async fn newest(
    mirror: &Arc<Mirror>,
    remote: &Remote,
    last: Head,
    equal: Vec<Head>,
    stop: &CancellationToken,
) -> Result<Head, FetchError> {
    let mut newest = (committed_at(mirror, remote, &last, stop).await?, last);
    for other in equal.into_iter().rev().take(MAX_TIED_TAGS) {
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

/// Explains why a ref was not found.
async fn missing_ref_error(
    remote: &Remote,
    reference: &Reference,
    name: String,
) -> Result<FetchError, FetchError> {
    let is_empty = refs::is_empty(remote).await?;
    Ok(match reference {
        Reference::Branch(_) if is_empty => FetchError::Empty,
        Reference::Name(_) if is_empty => empty_remote_error(remote, "list remote for"),
        _ if is_empty => empty_remote_error(remote, "clone"),
        Reference::Name(written) => FetchError::UnresolvedName {
            name: written.clone(),
        },
        _ => FetchError::MissingReference {
            url: remote.address.to_string(),
            name,
        },
    })
}

fn empty_remote_error(remote: &Remote, operation: &'static str) -> FetchError {
    FetchError::EmptyRemote {
        url: remote.address.to_string(),
        operation,
    }
}
