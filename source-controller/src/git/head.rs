//! Looks up the commit that a reference names: one small request on a pooled connection.

use git2::Oid;
use sluice_runtime::semver::{Constraint, Selection};

use super::error::FetchError;
use super::protocol::ls_refs::RemoteRef;
use super::protocol::parse_object_id;
use super::reference::Reference;
use super::refs::{self, Refs};
use super::remote::Remote;

/// Namespace of tags.
const TAGS_PREFIX: &str = "refs/tags/";

/// The commit that a reference named at the time of the lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The commit; tags are peeled.
    pub commit: Oid,
    /// The object that the ref points to: the commit, or an annotated tag.
    pub object: Oid,
    /// The reference; for a version constraint, the selected tag.
    pub reference: Reference,
}

/// A tag from a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagRef<'a> {
    /// Its name, without `refs/tags/`.
    pub name: &'a str,
    /// The annotated tag object; `None` for a lightweight tag, or if the tag was not looked up.
    pub object: Option<Oid>,
}

impl Head {
    /// Returns the tag by which the commit was found, if any.
    #[must_use]
    pub fn tag(&self) -> Option<TagRef<'_>> {
        Some(TagRef {
            name: self.reference.tag()?,
            object: (self.object != self.commit).then_some(self.object),
        })
    }

    /// Returns the revision for the artifact: `main@sha1:…`.
    #[must_use]
    pub fn revision(&self) -> String {
        self.reference.revision(self.commit)
    }

    fn from_ref(found: &RemoteRef, reference: Reference) -> Self {
        Self {
            commit: found.peeled.unwrap_or(found.id),
            object: found.id,
            reference,
        }
    }
}

/// Looks up the reference. With protocol version 2, the size of the response does not depend on the number of refs,
/// except for a version constraint, which needs all tags. A pinned commit needs no request, unless the object names a
/// tag for it. Dropping the future cancels the lookup.
///
/// If several tags satisfy a constraint equally well, this returns the last of them by name; [`resolve`] compares their
/// commits.
///
/// [`resolve`]: super::resolve
///
/// # Errors
/// The remote is unreachable, breaks the protocol, has no such ref, or is empty.
#[cfg(test)]
pub async fn head(remote: &Remote, reference: &Reference) -> Result<Head, FetchError> {
    candidates(remote, reference).await.map(Candidates::last)
}

/// Heads that satisfy the reference equally well; more than one only for constraints.
#[derive(Debug)]
pub(super) struct Candidates {
    /// The last of them by name.
    pub(super) last: Head,
    /// The others.
    pub(super) others: Vec<Head>,
}

#[cfg(test)]
impl Candidates {
    fn last(self) -> Head {
        self.last
    }
}

impl From<Head> for Candidates {
    fn from(last: Head) -> Self {
        Self {
            last,
            others: Vec::new(),
        }
    }
}

/// Looks up the reference within the remote's timeout.
pub(super) async fn candidates(remote: &Remote, reference: &Reference) -> Result<Candidates, FetchError> {
    let result = remote.within_timeout(resolve_reference(remote, reference)).await;
    result.inspect_err(|_| {
        remote.transport.forget(remote);
    })
}

async fn resolve_reference(remote: &Remote, reference: &Reference) -> Result<Candidates, FetchError> {
    match reference {
        Reference::Commit { commit, .. } => {
            pinned_head(remote, commit, reference).await.map(Candidates::from)
        }
        Reference::Semver(constraint) => select_tag(remote, constraint).await,
        Reference::Name(name) if name.starts_with('/') || name.ends_with('/') => {
            Err(FetchError::InvalidName { name: name.clone() })
        }
        Reference::Branch(_) | Reference::Tag(_) | Reference::Name(_) => {
            let name = reference.remote_name().unwrap_or_default();
            let found = if reference.is_well_formed() {
                refs::find(remote, &name).await?
            } else {
                None
            };
            match found {
                Some(found) => Ok(Head::from_ref(&found, reference.clone()).into()),
                None => Err(missing_ref_error(remote, reference, name).await?),
            }
        }
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
    let found = found.map(|found| Head::from_ref(&found, reference.clone()));
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
            selection.consider(name, Head::from_ref(&found, Reference::Tag(name.to_owned())));
        }
    }
    refs.finish().await;
    let mut best = selection.best();
    // A server may list in any order; the selection must not depend on it.
    best.sort_by_key(|head| head.reference.remote_name());
    match best.pop() {
        Some(last) => Ok(Candidates { last, others: best }),
        None if !has_tags && refs::is_empty(remote).await? => Err(empty_remote_error(remote, "clone")),
        None => Err(FetchError::NoMatch {
            constraint: text.to_owned(),
        }),
    }
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
