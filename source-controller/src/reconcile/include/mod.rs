//! Includes artifacts of other repositories. [`resolve`] looks them up before any request to the remote; [`merge()`]
//! overlays them on the tree before packing.

mod error;
mod merge;

use std::sync::Arc;
use std::time::Duration;

pub use error::{CopyError, IncludeError};
pub(super) use merge::merge;
use sluice_api::source::{Artifact, GitInclude, GitRepository, GitRepositorySpec};
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::watch::ObjectCache;

/// The repositories in this controller's cache. Those of other shards are missing.
pub trait Repositories: Send + Sync {
    /// Returns a repository from the cache.
    fn get(&self, key: &ObjectKey) -> Option<Arc<GitRepository>>;
}

impl Repositories for ObjectCache<GitRepository> {
    fn get(&self, key: &ObjectKey) -> Option<Arc<GitRepository>> {
        Self::get(self, key)
    }
}

/// An include with the current artifact of its repository.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Included {
    /// The include as specified: source and target path.
    pub include: GitInclude,
    /// The namespace of both repositories.
    pub namespace: String,
    /// The artifact.
    pub artifact: Artifact,
}

/// Returns the artifacts of all includes, in the order of the spec. An artifact is used even if its repository is not
/// ready.
///
/// # Errors
/// A repository is not in the cache or has no artifact; carries `wait` as the retry delay.
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

/// Returns whether the includes changed since the last artifact: a different number of includes, or an unobserved
/// revision. Order and digests do not count. Used for progress messages only.
#[must_use]
pub(super) fn differ(included: &[Included], observed: &[Artifact]) -> bool {
    let is_observed = |new: &Included| observed.iter().any(|old| old.revision == new.artifact.revision);
    included.len() != observed.len() || !included.iter().all(is_observed)
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
    fn only_the_number_and_new_revisions_of_includes_count() {
        let (one, two) = (included("one"), included("two"));
        for (new, old, expected) in [
            (vec![], vec![], false),
            (vec![one.clone()], vec![], true),
            (vec![], vec!["one"], true),
            (vec![one.clone(), two.clone()], vec!["two", "one"], false),
            (vec![one.clone()], vec!["two"], true),
            (vec![one.clone(), one], vec!["one", "two"], false),
        ] {
            let old: Vec<_> = old.into_iter().map(|name| artifact(name, "sha256:2")).collect();
            assert_eq!(differ(&new, &old), expected, "{new:?} {old:?}");
        }
    }
}
