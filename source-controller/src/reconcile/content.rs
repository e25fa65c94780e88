//! Which fields of a spec shape the content of an artifact, and whether they are the ones it was made with. Pure.

use sha2::{Digest as _, Sha256};
use sluice_api::digest::Digest;
use sluice_api::source::{GitInclude, GitRepositorySpec, GitRepositoryStatus};

/// The fields of a spec that shape an artifact's content. Address, credentials and times do not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContentConfig {
    ignore: Option<String>,
    include: Vec<GitInclude>,
    recurse_submodules: bool,
    sparse_checkout: Vec<String>,
}

impl ContentConfig {
    /// What the spec asks for.
    #[must_use]
    pub(super) fn wanted(spec: &GitRepositorySpec) -> Self {
        Self {
            ignore: spec.ignore.clone(),
            include: spec.include.clone(),
            recurse_submodules: spec.recurse_submodules,
            sparse_checkout: spec.sparse_checkout.clone(),
        }
    }

    /// What the artifact in the status was made with.
    #[must_use]
    pub(super) fn observed(status: &GitRepositoryStatus) -> Self {
        Self {
            ignore: status.observed_ignore.clone(),
            include: status.observed_include.clone(),
            recurse_submodules: status.observed_recurse_submodules,
            sparse_checkout: status.observed_sparse_checkout.clone(),
        }
    }

    /// Writes the fields into a status, next to their digest, which also covers the keys that signatures were verified
    /// with.
    pub(super) fn record(self, status: &mut GitRepositoryStatus, keys: Option<&Digest>) {
        status.content_config_checksum = Some(self.checksum(keys).to_string());
        status.observed_ignore = self.ignore;
        status.observed_include = self.include;
        status.observed_recurse_submodules = self.recurse_submodules;
        status.observed_sparse_checkout = self.sparse_checkout;
    }

    /// One digest over all fields and the digest of the keys, if signatures are verified. Each is preceded by its length, so that no two configurations give the same bytes, and
    /// an absent field differs from an empty one.
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
            put(include.from_path.as_deref());
            put(include.to_path.as_deref());
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

#[cfg(test)]
mod tests {
    use sluice_api::digest::Digest;
    use sluice_api::interval::Interval;
    use sluice_api::source::{GitRepositorySpec, GitRepositoryStatus};

    use super::ContentConfig;

    fn config(ignore: Option<&str>, sparse: &[&str]) -> ContentConfig {
        let mut spec = GitRepositorySpec::new("https://h/r", Interval::from_secs(60));
        spec.ignore = ignore.map(str::to_owned);
        spec.sparse_checkout = sparse.iter().map(|path| (*path).to_owned()).collect();
        ContentConfig::wanted(&spec)
    }

    #[test]
    fn every_difference_shows_in_the_checksum() {
        let configs = [
            config(None, &[]),
            config(Some(""), &[]),
            config(Some("a"), &[]),
            config(None, &["a"]),
            config(None, &["a", "b"]),
            config(None, &["ab"]),
            config(None, &["b", "a"]),
        ];
        for (index, one) in configs.iter().enumerate() {
            for (other_index, other) in configs.iter().enumerate() {
                assert_eq!(
                    one.checksum(None) == other.checksum(None),
                    index == other_index,
                    "{one:?} {other:?}"
                );
                assert_eq!(one == other, index == other_index);
            }
        }
    }

    #[test]
    fn the_keys_show_in_the_checksum_alone() {
        let (one, other) = (Digest::sha256([1; 32]), Digest::sha256([2; 32]));
        let config = config(None, &[]);
        let sums = [None, Some(&one), Some(&other)].map(|keys| config.checksum(keys));
        assert!(sums[0] != sums[1] && sums[1] != sums[2] && sums[0] != sums[2]);
        let mut status = GitRepositoryStatus::default();
        config.clone().record(&mut status, Some(&one));
        assert_eq!(ContentConfig::observed(&status), config);
    }

    #[test]
    fn what_is_recorded_is_what_is_observed() {
        let wanted = config(Some("a"), &["b"]);
        let mut status = GitRepositoryStatus::default();
        assert_ne!(ContentConfig::observed(&status), wanted);
        wanted.clone().record(&mut status, None);
        assert_eq!(ContentConfig::observed(&status), wanted);
        assert_eq!(
            status.content_config_checksum,
            Some(wanted.checksum(None).to_string())
        );
    }
}
