//! Finding out which commit a reference names now: one small request on a kept connection.

use git2::Oid;

use super::error::{FetchError, ProtocolError};
use super::protocol::ls_refs::{self, RemoteRef};
use super::protocol::object_id;
use super::protocol::packet::Packet;
use super::reference::Reference;
use super::remote::Remote;

/// The commit that a reference named when it was looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The commit; a tag has been followed to it.
    pub commit: Oid,
    /// The object that the ref itself holds: the commit, or an annotated tag.
    pub object: Oid,
    /// What was looked up.
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
        let name = match &self.reference {
            Reference::Tag(name) => name,
            Reference::Branch(_) | Reference::Commit { .. } => return None,
        };
        Some(TagRef {
            name,
            object: (self.object != self.commit).then_some(self.object),
        })
    }

    /// The revision as it is written into an artifact: `main@sha1:…`.
    #[must_use]
    pub fn revision(&self) -> String {
        self.reference.revision(self.commit)
    }
}

/// Looks the reference up. The answer's size does not depend on how many refs the repository has; a pinned commit
/// needs no request at all. Dropping the future ends the lookup.
///
/// # Errors
/// The remote cannot be reached or understood, has no such ref, or is empty.
pub async fn head(remote: &Remote, reference: &Reference) -> Result<Head, FetchError> {
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

async fn look_up(remote: &Remote, reference: &Reference) -> Result<Head, FetchError> {
    let reference = reference.clone();
    if let Reference::Commit { commit, .. } = &reference {
        let id = object_id(commit.as_bytes()).ok_or_else(|| FetchError::CommitNotFound {
            commit: commit.clone(),
        })?;
        return Ok(Head {
            commit: id,
            object: id,
            reference,
        });
    }
    let name = reference.remote_name().unwrap_or_default();
    let found = if reference.is_well_formed() {
        ask(remote, &name).await?
    } else {
        None
    };
    if let Some(found) = found {
        return Ok(Head {
            commit: found.peeled.unwrap_or(found.id),
            object: found.id,
            reference,
        });
    }
    if matches!(reference, Reference::Branch(_)) && is_empty(remote).await? {
        return Err(FetchError::Empty);
    }
    Err(FetchError::MissingReference {
        url: remote.address.to_string(),
        name,
    })
}

/// Asks with what is remembered about the server; if that fails, once more from the start, because the server may
/// have moved since.
async fn ask(remote: &Remote, name: &str) -> Result<Option<RemoteRef>, FetchError> {
    match one(remote, name).await {
        Err(
            FetchError::Status { .. } | FetchError::Redirect { .. } | FetchError::RepositoryNotFound { .. },
        ) if remote.transport.forget(remote) => one(remote, name).await,
        other => other,
    }
}

async fn one(remote: &Remote, name: &str) -> Result<Option<RemoteRef>, FetchError> {
    let endpoint = remote.transport.endpoint(remote).await?;
    let request = ls_refs::request(&endpoint.capabilities, &[name]);
    let mut packets = remote
        .transport
        .command(remote, &endpoint, request)
        .await?
        .at_most(remote.limits.refs_bytes);
    let mut found = None;
    loop {
        let packet = packets.next().await?;
        let Some(line) = packet.text() else { break };
        let line = ls_refs::parse(line).map_err(|error| ProtocolError::Line(error).of(packets.host()))?;
        // A prefix also matches longer names.
        found = line.filter(|line| line.name == name.as_bytes()).or(found);
    }
    packets.finish().await;
    Ok(found)
}

/// Whether the repository has no ref at all. Only the first line of the answer is read.
async fn is_empty(remote: &Remote) -> Result<bool, FetchError> {
    let endpoint = remote.transport.endpoint(remote).await?;
    let request = ls_refs::request(&endpoint.capabilities, &[]);
    let mut packets = remote
        .transport
        .command(remote, &endpoint, request)
        .await?
        .at_most(remote.limits.refs_bytes);
    Ok(packets.next().await? == Packet::Flush)
}
