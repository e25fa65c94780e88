//! The public keys that a user trusts, as a Secret holds them.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};
use sluice_api::digest::Digest;

/// End of the names of entries that hold SSH keys.
const AUTHORIZED: &str = ".sshpub";

/// Public keys, entry by entry. They are read when a signature asks for them: which entries are well formed matters
/// only then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys(BTreeMap<String, Vec<u8>>);

impl Keys {
    /// The entries of a Secret. Names that end in `.sshpub` hold authorized keys, all others OpenPGP key rings,
    /// whatever their end.
    #[must_use]
    pub const fn new(entries: BTreeMap<String, Vec<u8>>) -> Self {
        Self(entries)
    }

    /// Armored OpenPGP key rings.
    pub(super) fn rings(&self) -> impl Iterator<Item = &[u8]> {
        self.entries(false)
    }

    /// Texts of the form `authorized_keys`.
    pub(super) fn authorized(&self) -> impl Iterator<Item = &[u8]> {
        self.entries(true)
    }

    fn entries(&self, authorized: bool) -> impl Iterator<Item = &[u8]> {
        self.0
            .iter()
            .filter(move |(name, _)| name.ends_with(AUTHORIZED) == authorized)
            .map(|(_, text)| text.as_slice())
    }

    /// One digest over names and contents, each behind its length, so that no two sets give the same bytes.
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
    use super::Keys;

    fn keys(entries: &[(&str, &str)]) -> Keys {
        let entries = entries
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).into()));
        Keys::new(entries.collect())
    }

    #[test]
    fn the_end_of_the_name_tells_the_kind_of_keys() {
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
        assert_eq!(texts(keys.rings().collect()), "1345");
        assert_eq!(texts(keys.authorized().collect()), "2");
    }

    #[test]
    fn every_difference_shows_in_the_digest() {
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
