//! The trusted public keys in a Secret.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};
use sluice_api::digest::Digest;

/// Suffix of Secret keys with SSH keys.
const SSH_SUFFIX: &str = ".sshpub";

/// The entries of a Secret with public keys. They are parsed when a signature needs them, so malformed entries matter
/// only then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedKeys(BTreeMap<String, Vec<u8>>);

impl TrustedKeys {
    /// Creates the set from a Secret's data. Names with suffix `.sshpub` contain authorized keys, all others OpenPGP
    /// key rings.
    #[must_use]
    pub const fn new(entries: BTreeMap<String, Vec<u8>>) -> Self {
        Self(entries)
    }

    /// Returns the armored OpenPGP key rings.
    pub(super) fn key_rings(&self) -> impl Iterator<Item = &[u8]> {
        self.entries(false)
    }

    /// Returns the SSH keys in `authorized_keys` format.
    pub(super) fn ssh_keys(&self) -> impl Iterator<Item = &[u8]> {
        self.entries(true)
    }

    fn entries(&self, authorized: bool) -> impl Iterator<Item = &[u8]> {
        self.0
            .iter()
            .filter(move |(name, _)| name.ends_with(SSH_SUFFIX) == authorized)
            .map(|(_, text)| text.as_slice())
    }

    /// Returns a digest over names and contents. Each part is prefixed with its length, so that different sets never
    /// collide.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let mut hash = Sha256::new();
        for part in self
            .0
            .iter()
            .flat_map(|(name, text)| [name.as_bytes(), text.as_slice()])
        {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Digest::sha256(hash.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::TrustedKeys;

    fn keys(entries: &[(&str, &str)]) -> TrustedKeys {
        let entries = entries
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).into()));
        TrustedKeys::new(entries.collect())
    }

    #[test]
    fn the_suffix_of_the_name_selects_the_kind_of_keys() {
        let keys = keys(&[
            ("a.asc", "1"),
            ("b.sshpub", "2"),
            ("c", "3"),
            ("d.gpg", "4"),
            ("sshpub", "5"),
        ]);
        let texts = |found: Vec<&[u8]>| {
            found
                .iter()
                .map(|text| String::from_utf8_lossy(text).into_owned())
                .collect::<String>()
        };
        assert_eq!(texts(keys.key_rings().collect()), "1345");
        assert_eq!(texts(keys.ssh_keys().collect()), "2");
    }

    #[test]
    fn every_difference_changes_the_digest() {
        let sets = [
            keys(&[]),
            keys(&[("a", "b")]),
            keys(&[("a", "c")]),
            keys(&[("ab", "")]),
            keys(&[("", "ab")]),
            keys(&[("a", ""), ("b", "")]),
            keys(&[("a", "b"), ("c", "d")]),
        ];
        for (index, one) in sets.iter().enumerate() {
            for (other_index, other) in sets.iter().enumerate() {
                assert_eq!(one.digest() == other.digest(), index == other_index);
            }
        }
    }
}
