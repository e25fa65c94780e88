//! Artifacts of other repositories, merged into this one's. [`resolve`] finds them before the remote is asked, [`merge`]
//! lays them over the tree before it is packed.

mod error;
mod merge;

use std::sync::Arc;
use std::time::Duration;

use sluice_api::source::{Artifact, GitInclude, GitRepository, GitRepositorySpec};
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::watch::Objects;

pub use error::{CopyError, IncludeError};
pub(super) use merge::{Bounds, merge};

/// The repositories that this controller sees. One of another shard is not among them.
pub trait Repositories: Send + Sync {
    /// One of them, as last seen.
    fn get(&self, key: &ObjectKey) -> Option<Arc<GitRepository>>;
}

impl Repositories for Objects<GitRepository> {
    fn get(&self, key: &ObjectKey) -> Option<Arc<GitRepository>> {
        Self::get(self, key)
    }
}

/// An include and the artifact that it means now.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Included {
    /// What is taken, and where it goes.
    pub include: GitInclude,
    /// The namespace of both repositories.
    pub namespace: String,
    /// The artifact.
    pub artifact: Artifact,
}

/// The artifacts of all includes of a spec, in its order. Whether those repositories are ready does not matter: an artifact
/// that is there is good.
///
/// # Errors
/// A repository is not seen, or has no artifact: to be looked at again after `wait`.
pub(super) fn resolve(
    spec: &GitRepositorySpec,
    namespace: &str,
    repositories: &dyn Repositories,
    wait: Duration,
) -> Result<Vec<Included>, IncludeError> {
    let resolved = spec.include.iter().map(|include| {
        let name = include.repository.name.clone();
        let key = ObjectKey {
            namespace: namespace.to_owned(),
            name: name.clone(),
        };
        let Some(found) = repositories.get(&key) else {
            return Err(IncludeError::NotFound { name, wait });
        };
        match found.status.as_ref().and_then(|status| status.artifact.clone()) {
            None => Err(IncludeError::NoArtifact { name, wait }),
            Some(artifact) => Ok(Included {
                include: include.clone(),
                namespace: namespace.to_owned(),
                artifact,
            }),
        }
    });
    resolved.collect()
}

/// Whether an artifact is to be made anew as far as includes go, as others are told: another number of them, or a revision
/// that was not among those of the last time. Their order and digests do not matter for this.
#[must_use]
pub(super) fn differ(included: &[Included], observed: &[Artifact]) -> bool {
    let known = |new: &Included| observed.iter().any(|old| old.revision == new.artifact.revision);
    included.len() != observed.len() || !included.iter().all(known)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn artifact(revision: &str, digest: &str) -> Artifact {
        serde_json::from_value(json!({
            "digest": digest, "lastUpdateTime": "2026-01-02T03:04:05Z", "path": "x", "revision": revision, "url": "x",
        }))
        .unwrap()
    }

    fn included(revision: &str) -> Included {
        Included {
            include: serde_json::from_value(json!({ "repository": { "name": "x" } })).unwrap(),
            namespace: "ns".into(),
            artifact: artifact(revision, "sha256:1"),
        }
    }

    #[test]
    fn number_and_new_revisions_count_and_order_and_digests_do_not() {
        let (one, two) = (included("one"), included("two"));
        for (new, old, wanted) in [
            (vec![], vec![], false),
            (vec![one.clone()], vec![], true),
            (vec![], vec!["one"], true),
            (vec![one.clone(), two.clone()], vec!["two", "one"], false),
            (vec![one.clone()], vec!["two"], true),
            (vec![one.clone(), one], vec!["one", "two"], false),
        ] {
            let old: Vec<_> = old.into_iter().map(|name| artifact(name, "sha256:2")).collect();
            assert_eq!(differ(&new, &old), wanted, "{new:?} {old:?}");
        }
    }
}
