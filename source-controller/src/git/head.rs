//! Finding out which commit a reference names now: one small request on a kept connection.

use git2::Oid;

use super::error::FetchError;
use super::protocol::ls_refs::RemoteRef;
use super::protocol::object_id;
use super::reference::Reference;
use super::refs::{self, Refs};
use super::remote::Remote;
use sluice_runtime::semver::{Constraint, Selection};

/// Where tags are.
const TAGS: &str = "refs/tags/";

/// The commit that a reference named when it was looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The commit; a tag has been followed to it.
    pub commit: Oid,
    /// The object that the ref itself holds: the commit, or an annotated tag.
    pub object: Oid,
    /// What was looked up; the tag that was picked in the place of a constraint.
    pub reference: Reference,
}

/// A tag that was looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagRef<'a> {
    /// Its name, without `refs/tags/`.
    pub name: &'a str,
    /// The annotated tag that the ref holds; none if it holds a commit, or was not looked at.
    pub object: Option<Oid>,
}

impl Head {
    /// The tag by which the commit was found, if it was one.
    #[must_use]
    pub fn tag(&self) -> Option<TagRef<'_>> {
        Some(TagRef {
            name: self.reference.tag()?,
            object: (self.object != self.commit).then_some(self.object),
        })
    }

    /// The revision as it is written into an artifact: `main@sha1:…`.
    #[must_use]
    pub fn revision(&self) -> String {
        self.reference.revision(self.commit)
    }

    fn of(found: &RemoteRef, reference: Reference) -> Self {
        Self {
            commit: found.peeled.unwrap_or(found.id),
            object: found.id,
            reference,
        }
    }
}

/// Looks the reference up. With protocol version 2 the answer's size does not depend on how many refs the repository
/// has, except for a constraint, which all tags are held against. A pinned commit needs no request at all, unless a tag
/// is to be its name. Dropping the future ends the lookup.
///
/// Several tags may satisfy a constraint equally well; then the last of them by name is given, and [`resolve`] decides
/// better.
///
/// [`resolve`]: super::resolve
///
/// # Errors
/// The remote cannot be reached or understood, has no such ref, or is empty.
#[cfg(test)]
pub async fn head(remote: &Remote, reference: &Reference) -> Result<Head, FetchError> {
    candidates(remote, reference).await.map(Candidates::last)
}

/// Heads that fit equally well: one, but for constraints.
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

/// The lookup, within the remote's time.
pub(super) async fn candidates(remote: &Remote, reference: &Reference) -> Result<Candidates, FetchError> {
    let limit = remote.timeout;
    tokio::time::timeout(limit, look_up(remote, reference))
        .await
        .unwrap_or_else(|_| {
            Err(FetchError::TimedOut {
                host: remote.address.host(),
                limit,
            })
        })
        .inspect_err(|_| {
            remote.transport.forget(remote);
        })
}

async fn look_up(remote: &Remote, reference: &Reference) -> Result<Candidates, FetchError> {
    match reference {
        Reference::Commit { commit, .. } => pinned(remote, commit, reference).await.map(Candidates::from),
        Reference::Semver(constraint) => pick(remote, constraint).await,
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
                Some(found) => Ok(Head::of(&found, reference.clone()).into()),
                None => Err(missing(remote, reference, name).await?),
            }
        }
    }
}

/// The commit alone, unless the object calls it by the name of a tag that leads to it: then the tag belongs to it, because
/// it may be signed.
async fn pinned(remote: &Remote, commit: &str, reference: &Reference) -> Result<Head, FetchError> {
    let id = object_id(commit.as_bytes()).ok_or_else(|| FetchError::CommitNotFound {
        commit: commit.to_owned(),
    })?;
    let alone = Head {
        commit: id,
        object: id,
        reference: reference.clone(),
    };
    let Some(tag) = reference.tag().filter(|_| reference.is_well_formed()) else {
        return Ok(alone);
    };
    let found = refs::find(remote, &format!("{TAGS}{tag}")).await?;
    let found = found.map(|found| Head::of(&found, reference.clone()));
    Ok(found.filter(|found| found.commit == id).unwrap_or(alone))
}

/// The tags of the highest version that the constraint admits. However many tags there are, only these are kept.
async fn pick(remote: &Remote, text: &str) -> Result<Candidates, FetchError> {
    let constraint: Constraint = text.parse()?;
    let mut selection = Selection::new(&constraint);
    let mut refs = Refs::ask(remote, &[TAGS]).await?;
    let mut any = false;
    while let Some(found) = refs.next().await? {
        any = true;
        // A name that is no text is no version either.
        let name = std::str::from_utf8(&found.name)
            .ok()
            .and_then(|name| name.strip_prefix(TAGS));
        if let Some(name) = name {
            selection.offer(name, Head::of(&found, Reference::Tag(name.to_owned())));
        }
    }
    refs.finish().await;
    let mut best = selection.best();
    // A server may list in any order; what is picked must not depend on it.
    best.sort_by_key(|head| head.reference.remote_name());
    match best.pop() {
        Some(last) => Ok(Candidates { last, others: best }),
        None if !any && refs::is_empty(remote).await? => Err(empty(remote, "clone")),
        None => Err(FetchError::NoMatch {
            constraint: text.to_owned(),
        }),
    }
}

/// Why a ref was not found.
async fn missing(remote: &Remote, reference: &Reference, name: String) -> Result<FetchError, FetchError> {
    let is_empty = refs::is_empty(remote).await?;
    Ok(match reference {
        Reference::Branch(_) if is_empty => FetchError::Empty,
        Reference::Name(_) if is_empty => empty(remote, "list remote for"),
        _ if is_empty => empty(remote, "clone"),
        Reference::Name(written) => FetchError::UnresolvedName {
            name: written.clone(),
        },
        _ => FetchError::MissingReference {
            url: remote.address.to_string(),
            name,
        },
    })
}

fn empty(remote: &Remote, doing: &'static str) -> FetchError {
    FetchError::EmptyRemote {
        url: remote.address.to_string(),
        doing,
    }
}
