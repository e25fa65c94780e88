//! Searches a pinned commit that the server does not serve by hash: fetches the histories of branches and tags with
//! increasing depth until they contain the commit.

use git2::Oid;

use super::super::checkout::Checkout;
use super::super::error::FetchError;
use super::super::protocol::advertisement::Capabilities;
use super::super::protocol::fetch::INFINITE_DEPTH;
use super::super::reference::Reference;
use super::super::refs::{self, Refs};
use super::super::remote::PACK_BYTES_FLAG;
use super::job::Outcome;
use super::transfer::{Haves, TransferRequest};
use super::{Fetch, Guard};

/// Depth of each step. Most pinned commits are recent.
const DEPTHS: [u32; 4] = [50, 500, 5_000, INFINITE_DEPTH];
/// Message of Git's own server about an object that it does not have or does not serve.
pub(super) const NOT_OUR_REF: &str = "not our ref";

impl Fetch<'_> {
    /// Handles a server that did not serve the commit by hash: it does not exist, or the server never serves hashes.
    pub(super) async fn handle_refusal(
        &self,
        guard: Guard,
        error: FetchError,
    ) -> Result<Checkout, FetchError> {
        let message = error.to_string();
        let endpoint = self.remote.transport.endpoint(self.remote).await?;
        let gives_by_hash = match &endpoint.capabilities {
            // Git's own server accepts any hash in version 2; other servers, with other messages, may not.
            Capabilities::V2(_) => true,
            Capabilities::V0(offered) => offered.allow_any || offered.allow_reachable,
        };
        if gives_by_hash && message.contains(NOT_OUR_REF) {
            return Err(self.commit_not_found());
        }
        tracing::info!(url = %self.remote.address, message = message, "searching the commit on the branches");
        self.search(guard).await
    }

    /// Searches in a new generation, which is installed if the commit is found.
    async fn search(&self, guard: Guard) -> Result<Checkout, FetchError> {
        let wants = self.search_roots().await?;
        if wants.is_empty() {
            return Err(self.commit_not_found());
        }
        let (mut guard, mut opened) = self.new_generation(guard).await?;
        let limit = self.remote.limits.pack_bytes;
        let mut budget = limit;
        for depth in DEPTHS {
            let request = TransferRequest {
                wants: wants.clone(),
                haves: if depth == DEPTHS[0] {
                    Haves::Tips
                } else {
                    Haves::Wants
                },
                depth: Some(depth),
                pack: self.extent.pack(),
                budget,
            };
            let attempt = self.transfer(guard, opened, &request).await;
            budget = budget.saturating_sub(attempt.bytes);
            let got = attempt.result.map_err(|error| match error {
                // The limit applies to all steps together.
                FetchError::TooLarge {
                    flag: PACK_BYTES_FLAG,
                    unit,
                    ..
                } => FetchError::TooLarge {
                    limit,
                    unit,
                    flag: PACK_BYTES_FLAG,
                },
                other => other,
            })?;
            match (got, attempt.guard) {
                (Outcome::Commit(checkout), _) => return Ok(checkout),
                // Without shallow commits the history is complete.
                (Outcome::Missing(all), Some(next)) if !all.record.shallow.is_empty() => {
                    (guard, opened) = (next, all);
                }
                _ => break,
            }
        }
        Err(self.commit_not_found())
    }

    /// Returns the objects at which the search begins: the branch of the reference, else all branches and tags.
    async fn search_roots(&self) -> Result<Vec<Oid>, FetchError> {
        let Reference::Commit { branch, name, .. } = &self.head.reference else {
            return Ok(vec![self.head.object]);
        };
        if let Some(branch) = branch {
            let name = format!("refs/heads/{branch}");
            let found = refs::find(self.remote, &name).await?;
            return found
                .map(|found| vec![found.id])
                .ok_or_else(|| FetchError::MissingReference {
                    url: self.remote.address.to_string(),
                    name,
                });
        }
        let name = name.as_deref().unwrap_or("refs/heads/");
        let mut refs = Refs::request(self.remote, &["refs/heads/", "refs/tags/", name]).await?;
        let mut search_roots = Vec::new();
        while let Some(found) = refs.next().await? {
            let expected = found.name.starts_with(b"refs/heads/")
                || found.name.starts_with(b"refs/tags/")
                || found.name == name.as_bytes();
            if expected {
                search_roots.push(found.id);
            }
        }
        refs.finish().await;
        search_roots.sort_unstable();
        search_roots.dedup();
        Ok(search_roots)
    }
}
