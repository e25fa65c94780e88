//! Git's wire protocol before version 2, for servers that have no other: every ref is listed at each lookup, and objects
//! are asked for against that list (`gitprotocol-pack`). Version 1 is version 0 behind a line that says so.

mod fetch;
mod listing;

use super::remote_text;

pub use fetch::{Answer, request};
pub use listing::{Listing, ListingError};

/// What a server offers, as far as it matters here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a word that a server says or does not say, independent of the others"
)]
pub struct Capabilities {
    /// Depth limits.
    pub shallow: bool,
    /// The pack comes in packets of up to 64 KiB.
    pub side_band_64k: bool,
    /// The pack comes in packets of up to 1000 bytes.
    pub side_band: bool,
    /// What the server has in common is told one by one.
    pub multi_ack_detailed: bool,
    /// The pack may refer to objects that are held.
    pub thin_pack: bool,
    /// The pack may refer to its own objects by their place.
    pub ofs_delta: bool,
    /// Nothing for people is sent.
    pub no_progress: bool,
    /// The server wants to know who asks.
    pub agent: bool,
    /// The server wants to be told the object format.
    pub object_format: bool,
    /// Commits below the refs may be asked for by their hash.
    pub reachable: bool,
    /// Anything may be asked for by its hash.
    pub any: bool,
}

impl Capabilities {
    /// Reads the words behind the first ref's name.
    ///
    /// # Errors
    /// The repository's hash function is not supported; the error is its name.
    pub fn parse(words: &[u8]) -> Result<Self, String> {
        let mut found = Self::default();
        for word in words.split(|byte| *byte == b' ') {
            match word {
                b"shallow" => found.shallow = true,
                b"side-band-64k" => found.side_band_64k = true,
                b"side-band" => found.side_band = true,
                b"multi_ack_detailed" => found.multi_ack_detailed = true,
                b"thin-pack" => found.thin_pack = true,
                b"ofs-delta" => found.ofs_delta = true,
                b"no-progress" => found.no_progress = true,
                b"allow-reachable-sha1-in-want" => found.reachable = true,
                b"allow-any-sha1-in-want" => found.any = true,
                b"object-format=sha1" => found.object_format = true,
                _ if word.starts_with(b"agent=") => found.agent = true,
                _ => {
                    if let Some(format) = word.strip_prefix(b"object-format=") {
                        return Err(remote_text(format));
                    }
                }
            }
        }
        Ok(found)
    }

    /// Whether the pack comes in packets at all.
    #[must_use]
    pub const fn has_side_band(&self) -> bool {
        self.side_band_64k || self.side_band
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_words_that_matter_are_found() {
        let words = b"multi_ack thin-pack side-band side-band-64k ofs-delta shallow no-progress include-tag \
            multi_ack_detailed allow-tip-sha1-in-want allow-reachable-sha1-in-want symref=HEAD:refs/heads/main \
            object-format=sha1 agent=git/2.39.5";
        let found = Capabilities::parse(words).unwrap();
        let all = Capabilities {
            shallow: true,
            side_band_64k: true,
            side_band: true,
            multi_ack_detailed: true,
            thin_pack: true,
            ofs_delta: true,
            no_progress: true,
            agent: true,
            object_format: true,
            reachable: true,
            any: false,
        };
        assert_eq!(found, all);
        assert_eq!(Capabilities::parse(b""), Ok(Capabilities::default()));
        assert!(Capabilities::parse(b"allow-any-sha1-in-want").is_ok_and(|found| found.any));
        assert_eq!(Capabilities::parse(b"object-format=sha256"), Err("sha256".into()));
    }

    proptest! {
        #[test]
        fn any_words_are_read(words in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Capabilities::parse(&words);
        }
    }
}
