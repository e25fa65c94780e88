//! The settings that determine an artifact's content, and whether they changed since it was built. Pure.

use sha2::{Digest as _, Sha256};
use sluice_api::digest::Digest;
use sluice_api::source::{Artifact, GitInclude, GitRepositorySpec, GitRepositoryStatus};

use super::include::Included;

/// The settings beside the commit that determine an artifact's content. URL, credentials and intervals do not.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ContentConfig {
    ignore: Option<String>,
    include: Vec<GitInclude>,
    included: Vec<Artifact>,
    recurse_submodules: bool,
    sparse_checkout: Vec<String>,
}

/// The setting that requires a new artifact for the same commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// `spec.ignore`; absent differs from empty.
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
    /// Returns the field name as users know it.
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
    /// Returns the settings of a spec, with the current artifacts of its includes.
    #[must_use]
    pub(super) fn new(spec: &GitRepositorySpec, included: &[Included]) -> Self {
        Self {
            ignore: spec.ignore.clone(),
            include: spec.include.clone(),
            included: included.iter().map(|left| left.artifact.clone()).collect(),
            recurse_submodules: spec.recurse_submodules,
            sparse_checkout: spec.sparse_checkout.clone(),
        }
    }

    /// Returns the first setting that differs from those recorded in a status.
    #[must_use]
    pub(super) fn change_since(&self, status: &GitRepositoryStatus) -> Option<Change> {
        [
            (self.ignore != status.observed_ignore, Change::Ignore),
            (
                self.recurse_submodules != status.observed_recurse_submodules,
                Change::Submodules,
            ),
            (
                !pairwise(&self.include, &status.observed_include, same_include),
                Change::Include,
            ),
            (
                !pairwise(&self.included, &status.included_artifacts, same_artifact),
                Change::IncludedArtifact,
            ),
            (
                self.sparse_checkout != status.observed_sparse_checkout,
                Change::SparseCheckout,
            ),
        ]
        .into_iter()
        .find_map(|(differs, change)| differs.then_some(change))
    }

    /// Records the settings and their checksum in a status.
    pub(super) fn record(self, status: &mut GitRepositoryStatus, keys: Option<&Digest>) {
        self.record_checksum(status, keys);
        status.observed_ignore = self.ignore;
        status.observed_include = self.include;
        status.included_artifacts = self.included;
        status.observed_recurse_submodules = self.recurse_submodules;
        status.observed_sparse_checkout = self.sparse_checkout;
    }

    /// Records only the checksum of the settings. It also covers the keys that signatures were verified with.
    pub(super) fn record_checksum(&self, status: &mut GitRepositoryStatus, keys: Option<&Digest>) {
        status.content_config_checksum = Some(self.checksum(keys).to_string());
    }

    /// Returns whether this is the text of the checksum without keys. Unlike a comparison with the text, this allocates no digest.
    #[must_use]
    pub(super) fn has_checksum(&self, text: &str) -> bool {
        let mut digits = [0_u8; 64];
        let is_encoded = hex::encode_to_slice(self.hash(None), &mut digits).is_ok();
        let found = text.strip_prefix("sha256:").map(str::as_bytes);
        is_encoded && found == Some(&digits[..])
    }

    /// Returns a digest over all settings and the digest of the verification keys. Each field is prefixed with its
    /// length, so that no two configurations encode to the same bytes; an absent setting differs from an empty one.
    #[must_use]
    pub(super) fn checksum(&self, keys: Option<&Digest>) -> Digest {
        Digest::sha256(self.hash(keys))
    }

    fn hash(&self, keys: Option<&Digest>) -> [u8; 32] {
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
        // Appended last and only if present, so that checksums without keys do not change.
        if let Some(keys) = keys {
            put(Some(&keys.to_string()));
        }
        hash.finalize().into()
    }
}

fn pairwise<T>(left: &[T], right: &[T], same: impl Fn(&T, &T) -> bool) -> bool {
    left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
}

/// An empty path equals an absent one.
fn same_include(left: &GitInclude, right: &GitInclude) -> bool {
    let to = |include: &GitInclude| include.to_path.clone().unwrap_or_default();
    left.repository == right.repository && left.source_path() == right.source_path() && to(left) == to(right)
}

/// URL and build time do not affect the content.
fn same_artifact(left: &Artifact, right: &Artifact) -> bool {
    (&left.revision, &left.digest) == (&right.revision, &right.digest)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Builds a config from settings by their spec names; `artifacts` holds pairs of revision and digest.
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
        ContentConfig::new(&serde_json::from_value(spec).unwrap(), &included)
    }

    /// Returns the change that the second settings make to a status recorded with the first.
    fn change(before: &Value, after: &Value) -> Option<Change> {
        let mut status = GitRepositoryStatus::default();
        config(before).record(&mut status, None);
        config(after).change_since(&status)
    }

    fn assert_changes(cases: &[(Value, Value, Option<Change>)]) {
        for (before, after, changed) in cases {
            assert_eq!(change(before, after), *changed, "{before} {after}");
        }
    }

    #[test]
    fn ignore_submodules_and_sparse_paths_are_compared_literally() {
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
        let left = include("x", "a", "b");
        let bare = json!({ "include": [{ "repository": { "name": "x" } }] });
        assert_changes(&[
            (json!({}), left.clone(), Some(Change::Include)),
            (left.clone(), json!({}), Some(Change::Include)),
            (left.clone(), left.clone(), None),
            (left.clone(), include("y", "a", "b"), Some(Change::Include)),
            (left.clone(), include("x", "c", "b"), Some(Change::Include)),
            (left, include("x", "a", "c"), Some(Change::Include)),
            (include("x", "", ""), bare, None),
        ]);
    }

    #[test]
    fn included_artifacts_are_compared_by_revision_and_digest() {
        let artifacts = |pairs: &[[&str; 2]]| json!({ "artifacts": pairs });
        let (left, two) = (artifacts(&[["r", "d"]]), artifacts(&[["r", "d"], ["s", "e"]]));
        let changed = Some(Change::IncludedArtifact);
        assert_changes(&[
            (left.clone(), left.clone(), None),
            (left.clone(), artifacts(&[["s", "d"]]), changed),
            (left.clone(), artifacts(&[["r", "e"]]), changed),
            (left.clone(), artifacts(&[]), changed),
            (artifacts(&[]), left.clone(), changed),
            (left, two.clone(), changed),
            (two, artifacts(&[["s", "e"], ["r", "d"]]), changed),
        ]);
    }

    #[test]
    fn every_difference_changes_the_checksum() {
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
            .map(|left| config(left).checksum(None).to_string())
            .collect();
        assert_eq!(checksums.len(), settings.len());
    }

    #[test]
    fn keys_affect_only_the_checksum() {
        let (left, right) = (Digest::sha256([1; 32]), Digest::sha256([2; 32]));
        let config = config(&json!({}));
        let sums = [None, Some(&left), Some(&right)].map(|keys| config.checksum(keys));
        assert!(sums[0] != sums[1] && sums[1] != sums[2] && sums[0] != sums[2]);
        let mut status = GitRepositoryStatus::default();
        config.clone().record(&mut status, Some(&left));
        assert_eq!(config.change_since(&status), None);
    }

    #[test]
    fn recorded_settings_are_unchanged() {
        let config = config(&json!({ "ignore": "a", "sparseCheckout": ["b"], "artifacts": [["r", "d"]] }));
        let mut status = GitRepositoryStatus::default();
        config.clone().record(&mut status, None);
        assert_eq!(config.change_since(&status), None);
        assert_eq!(status.included_artifacts[0].revision, "r");
        let checksum = config.checksum(None).to_string();
        assert!(config.has_checksum(&checksum));
        assert!(!config.has_checksum(&checksum.to_uppercase()));
        assert!(!config.has_checksum(&config.checksum(Some(&Digest::sha256([1; 32]))).to_string()));
        assert_eq!(status.content_config_checksum, Some(checksum));
    }
}
