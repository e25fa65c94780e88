//! Which settings shape the content of an artifact, and whether they are the ones it was made with. Pure.

use sha2::{Digest as _, Sha256};
use sluice_api::digest::Digest;
use sluice_api::source::{Artifact, GitInclude, GitRepositorySpec, GitRepositoryStatus};

use super::include::Included;

/// What shapes an artifact's content beside the commit. Address, credentials and times do not.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ContentConfig {
    ignore: Option<String>,
    include: Vec<GitInclude>,
    included: Vec<Artifact>,
    recurse_submodules: bool,
    sparse_checkout: Vec<String>,
}

/// The setting that makes an artifact of the same commit another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// `spec.ignore`; absent is not the same as empty.
    Ignore,
    /// `spec.recurseSubmodules`.
    Submodules,
    /// `spec.include`, by position.
    Include,
    /// The revision or digest of an included artifact.
    IncludedArtifact,
    /// `spec.sparseCheckout`, by position.
    SparseCheckout,
}

impl Change {
    /// In the words of the object.
    #[must_use]
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Ignore => "spec.ignore",
            Self::Submodules => "spec.recurseSubmodules",
            Self::Include => "spec.include",
            Self::IncludedArtifact => "an included artifact",
            Self::SparseCheckout => "spec.sparseCheckout",
        }
    }
}

impl ContentConfig {
    /// What the spec asks for, with the artifacts that its includes mean now.
    #[must_use]
    pub(super) fn wanted(spec: &GitRepositorySpec, included: &[Included]) -> Self {
        Self {
            ignore: spec.ignore.clone(),
            include: spec.include.clone(),
            included: included.iter().map(|one| one.artifact.clone()).collect(),
            recurse_submodules: spec.recurse_submodules,
            sparse_checkout: spec.sparse_checkout.clone(),
        }
    }

    /// The first setting in which the artifact of a status was made otherwise.
    #[must_use]
    pub(super) fn change_since(&self, made: &GitRepositoryStatus) -> Option<Change> {
        [
            (self.ignore != made.observed_ignore, Change::Ignore),
            (
                self.recurse_submodules != made.observed_recurse_submodules,
                Change::Submodules,
            ),
            (
                !pairwise(&self.include, &made.observed_include, same_include),
                Change::Include,
            ),
            (
                !pairwise(&self.included, &made.included_artifacts, same_artifact),
                Change::IncludedArtifact,
            ),
            (
                self.sparse_checkout != made.observed_sparse_checkout,
                Change::SparseCheckout,
            ),
        ]
        .into_iter()
        .find_map(|(differs, change)| differs.then_some(change))
    }

    /// Writes the settings into a status, next to their digest.
    pub(super) fn record(self, status: &mut GitRepositoryStatus, keys: Option<&Digest>) {
        self.seal(status, keys);
        status.observed_ignore = self.ignore;
        status.observed_include = self.include;
        status.included_artifacts = self.included;
        status.observed_recurse_submodules = self.recurse_submodules;
        status.observed_sparse_checkout = self.sparse_checkout;
    }

    /// Writes the digest of the settings alone, which also covers the keys that signatures were verified with.
    pub(super) fn seal(&self, status: &mut GitRepositoryStatus, keys: Option<&Digest>) {
        status.content_config_checksum = Some(self.checksum(keys).to_string());
    }

    /// One digest over all settings and the digest of the keys, if signatures are verified. Each is preceded by its length,
    /// so that no two configurations give the same bytes, and an absent setting differs from an empty one.
    #[must_use]
    pub(super) fn checksum(&self, keys: Option<&Digest>) -> Digest {
        let mut hash = Sha256::new();
        let mut put = |field: Option<&str>| match field {
            None => hash.update([0]),
            Some(text) => {
                hash.update([1]);
                hash.update((text.len() as u64).to_be_bytes());
                hash.update(text);
            }
        };
        put(self.ignore.as_deref());
        put(Some(if self.recurse_submodules { "submodules" } else { "" }));
        put(Some(&self.include.len().to_string()));
        for include in &self.include {
            put(Some(&include.repository.name));
            put(Some(include.source_path()));
            put(include.to_path.as_deref().filter(|path| !path.is_empty()));
        }
        put(Some(&self.included.len().to_string()));
        for artifact in &self.included {
            put(Some(&artifact.revision));
            put(Some(&artifact.digest));
        }
        put(Some(&self.sparse_checkout.len().to_string()));
        for path in &self.sparse_checkout {
            put(Some(path));
        }
        // Behind all others and only where there are any: a checksum without keys stays what it was.
        if let Some(keys) = keys {
            put(Some(&keys.to_string()));
        }
        Digest::sha256(hash.finalize().into())
    }
}

fn pairwise<T>(one: &[T], other: &[T], same: impl Fn(&T, &T) -> bool) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
}

/// An empty path is no other than an absent one.
fn same_include(one: &GitInclude, other: &GitInclude) -> bool {
    let to = |include: &GitInclude| include.to_path.clone().unwrap_or_default();
    one.repository == other.repository && one.source_path() == other.source_path() && to(one) == to(other)
}

/// Where an artifact is served, and when it was made, shapes nothing.
fn same_artifact(one: &Artifact, other: &Artifact) -> bool {
    (&one.revision, &one.digest) == (&other.revision, &other.digest)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Settings by their names in the spec, and `artifacts` as pairs of revision and digest.
    fn config(settings: &Value) -> ContentConfig {
        let mut spec = json!({ "url": "https://h/r", "interval": "1m" });
        let mut included = Vec::new();
        for (name, value) in settings.as_object().unwrap() {
            if name != "artifacts" {
                spec[name] = value.clone();
                continue;
            }
            for pair in value.as_array().unwrap() {
                let (include, artifact) = (
                    json!({ "repository": { "name": "x" } }),
                    json!({ "revision": pair[0], "digest": pair[1], "path": "p", "url": "u",
                        "lastUpdateTime": "2026-01-02T03:04:05Z" }),
                );
                included.push(Included {
                    include: serde_json::from_value(include).unwrap(),
                    namespace: "ns".into(),
                    artifact: serde_json::from_value(artifact).unwrap(),
                });
            }
        }
        ContentConfig::wanted(&serde_json::from_value(spec).unwrap(), &included)
    }

    /// What the second settings change for a status that the first ones made.
    fn change(made: &Value, wanted: &Value) -> Option<Change> {
        let mut status = GitRepositoryStatus::default();
        config(made).record(&mut status, None);
        config(wanted).change_since(&status)
    }

    fn assert_changes(cases: &[(Value, Value, Option<Change>)]) {
        for (made, wanted, changed) in cases {
            assert_eq!(change(made, wanted), *changed, "{made} {wanted}");
        }
    }

    #[test]
    fn patterns_submodules_and_sparse_paths_are_compared_as_they_are_written() {
        use Change::{Ignore, SparseCheckout, Submodules};
        let (none, ignore) = (json!({}), |text: &str| json!({ "ignore": text }));
        let sparse = |paths: &[&str]| json!({ "sparseCheckout": paths });
        let submodules = json!({ "recurseSubmodules": true });
        assert_changes(&[
            (none.clone(), ignore("a"), Some(Ignore)),
            (none.clone(), ignore(""), Some(Ignore)),
            (ignore(""), none.clone(), Some(Ignore)),
            (ignore("a"), ignore("b"), Some(Ignore)),
            (ignore("a"), ignore("a"), None),
            (none.clone(), submodules.clone(), Some(Submodules)),
            (submodules.clone(), submodules, None),
            (none.clone(), sparse(&["a"]), Some(SparseCheckout)),
            (sparse(&["a", "b"]), sparse(&["a", "b"]), None),
            (sparse(&["a", "b"]), sparse(&["b", "a"]), Some(SparseCheckout)),
            (sparse(&["a"]), sparse(&["A"]), Some(SparseCheckout)),
            (sparse(&["a"]), sparse(&["/a"]), Some(SparseCheckout)),
            (sparse(&[]), none, None),
            (
                json!({ "url": "https://h/a" }),
                json!({ "url": "https://h/b", "interval": "2m" }),
                None,
            ),
        ]);
    }

    #[test]
    fn includes_are_compared_by_position() {
        let include = |name: &str, from: &str, to: &str| json!({ "include": [{ "repository": { "name": name }, "fromPath": from, "toPath": to }] });
        let one = include("x", "a", "b");
        let bare = json!({ "include": [{ "repository": { "name": "x" } }] });
        assert_changes(&[
            (json!({}), one.clone(), Some(Change::Include)),
            (one.clone(), json!({}), Some(Change::Include)),
            (one.clone(), one.clone(), None),
            (one.clone(), include("y", "a", "b"), Some(Change::Include)),
            (one.clone(), include("x", "c", "b"), Some(Change::Include)),
            (one, include("x", "a", "c"), Some(Change::Include)),
            (include("x", "", ""), bare, None),
        ]);
    }

    #[test]
    fn included_artifacts_are_compared_by_revision_and_digest() {
        let artifacts = |pairs: &[[&str; 2]]| json!({ "artifacts": pairs });
        let (one, two) = (artifacts(&[["r", "d"]]), artifacts(&[["r", "d"], ["s", "e"]]));
        let changed = Some(Change::IncludedArtifact);
        assert_changes(&[
            (one.clone(), one.clone(), None),
            (one.clone(), artifacts(&[["s", "d"]]), changed),
            (one.clone(), artifacts(&[["r", "e"]]), changed),
            (one.clone(), artifacts(&[]), changed),
            (artifacts(&[]), one.clone(), changed),
            (one, two.clone(), changed),
            (two, artifacts(&[["s", "e"], ["r", "d"]]), changed),
        ]);
    }

    #[test]
    fn every_difference_shows_in_the_checksum() {
        let include = json!({ "repository": { "name": "x" } });
        let settings = [
            json!({}),
            json!({ "ignore": "" }),
            json!({ "ignore": "a" }),
            json!({ "recurseSubmodules": true }),
            json!({ "sparseCheckout": ["a"] }),
            json!({ "sparseCheckout": ["a", "b"] }),
            json!({ "sparseCheckout": ["ab"] }),
            json!({ "sparseCheckout": ["b", "a"] }),
            json!({ "include": [include] }),
            json!({ "include": [include, include] }),
            json!({ "artifacts": [["r", "d"]] }),
            json!({ "artifacts": [["r", "e"]] }),
            json!({ "artifacts": [["rd", ""]] }),
        ];
        let checksums: std::collections::BTreeSet<_> = settings
            .iter()
            .map(|one| config(one).checksum(None).to_string())
            .collect();
        assert_eq!(checksums.len(), settings.len());
    }

    #[test]
    fn the_keys_show_in_the_checksum_alone() {
        let (one, other) = (Digest::sha256([1; 32]), Digest::sha256([2; 32]));
        let config = config(&json!({}));
        let sums = [None, Some(&one), Some(&other)].map(|keys| config.checksum(keys));
        assert!(sums[0] != sums[1] && sums[1] != sums[2] && sums[0] != sums[2]);
        let mut status = GitRepositoryStatus::default();
        config.clone().record(&mut status, Some(&one));
        assert_eq!(config.change_since(&status), None);
    }

    #[test]
    fn what_is_recorded_is_what_was_wanted() {
        let wanted = config(&json!({ "ignore": "a", "sparseCheckout": ["b"], "artifacts": [["r", "d"]] }));
        let mut status = GitRepositoryStatus::default();
        wanted.clone().record(&mut status, None);
        assert_eq!(wanted.change_since(&status), None);
        assert_eq!(status.included_artifacts[0].revision, "r");
        assert_eq!(
            status.content_config_checksum,
            Some(wanted.checksum(None).to_string())
        );
    }
}
