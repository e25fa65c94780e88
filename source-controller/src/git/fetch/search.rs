//! Looking for a pinned commit that the server does not give out by its hash: the histories of the branches and tags are
//! fetched, deeper and deeper, until it is among them.

use git2::Oid;

use super::super::checkout::Checkout;
use super::super::error::FetchError;
use super::super::protocol::advertisement::Capabilities;
use super::super::protocol::fetch::WHOLE_HISTORY;
use super::super::reference::Reference;
use super::super::refs::{self, Refs};
use super::super::remote::PACK_BYTES_FLAG;
use super::job::Got;
use super::transfer::{Held, Round};
use super::{Fetch, Guard};

/// How deep, step by step. Most pins are recent.
const DEPTHS: [u32; 4] = [50, 500, 5_000, WHOLE_HISTORY];
/// What Git's own server says about an object that it does not have, or must not give out.
pub(super) const NOT_OURS: &str = "not our ref";

impl Fetch<'_> {
    /// The server did not give the commit by its hash: because there is none, or because it never does.
    pub(super) async fn refused(&self, guard: Guard, error: FetchError) -> Result<Checkout, FetchError> {
        let words = error.to_string();
        let endpoint = self.remote.transport.endpoint(self.remote).await?;
        let gives_by_hash = match &endpoint.capabilities {
            // Git's own server takes any hash in version 2; others, which have other words, may not.
            Capabilities::V2(_) => true,
            Capabilities::V0(offered) => offered.any || offered.reachable,
        };
        if gives_by_hash && words.contains(NOT_OURS) {
            return Err(self.not_there());
        }
        tracing::info!(url = %self.remote.address, said = words, "the commit is looked for on the branches");
        self.search(guard).await
    }

    /// In a generation of its own, which becomes the mirror's if the commit is found.
    async fn search(&self, guard: Guard) -> Result<Checkout, FetchError> {
        let wants = self.starts().await?;
        if wants.is_empty() {
            return Err(self.not_there());
        }
        let (mut guard, mut opened) = self.anew(guard).await?;
        let limit = self.remote.limits.pack_bytes;
        let mut budget = limit;
        for depth in DEPTHS {
            let round = Round {
                wants: wants.clone(),
                held: if depth == DEPTHS[0] {
                    Held::Tips
                } else {
                    Held::Wanted
                },
                depth: Some(depth),
                pack: self.extent.pack(),
                budget,
            };
            let attempt = self.transfer(guard, opened, &round).await;
            budget = budget.saturating_sub(attempt.bytes);
            let got = attempt.result.map_err(|error| match error {
                // All steps together are one fetch to whoever set the limit.
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
                (Got::Commit(checkout), _) => return Ok(checkout),
                // Where nothing is cut off, there is nothing deeper.
                (Got::Without(all), Some(next)) if !all.record.shallow.is_empty() => {
                    (guard, opened) = (next, all);
                }
                _ => break,
            }
        }
        Err(self.not_there())
    }

    /// Where the search begins: at the branch that the object names, else at all branches and tags.
    async fn starts(&self) -> Result<Vec<Oid>, FetchError> {
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
        let mut refs = Refs::ask(self.remote, &["refs/heads/", "refs/tags/", name]).await?;
        let mut starts = Vec::new();
        while let Some(found) = refs.next().await? {
            let wanted = found.name.starts_with(b"refs/heads/")
                || found.name.starts_with(b"refs/tags/")
                || found.name == name.as_bytes();
            if wanted {
                starts.push(found.id);
            }
        }
        refs.finish().await;
        starts.sort_unstable();
        starts.dedup();
        Ok(starts)
    }
}
