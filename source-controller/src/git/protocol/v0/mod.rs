//! Git's wire protocol before version 2, for servers that support no other: each lookup lists all refs, and fetches
//! refer to that list (`gitprotocol-pack`). Version 1 is version 0 after a line with the version.

mod fetch;
mod ref_advertisement;

pub use fetch::{ResponseParser, request};
pub use ref_advertisement::{RefAdvertisement, RefAdvertisementError};

use super::sanitize_text;

/// Capabilities of a server, limited to those in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a word that a server says or does not say, independent of the others"
)]
pub struct Capabilities {
    /// Limits of the depth.
    pub shallow: bool,
    /// The pack is sent in packets of up to 64 KiB.
    pub side_band_64k: bool,
    /// The pack is sent in packets of up to 1000 bytes.
    pub side_band: bool,
    /// Common commits are acknowledged one by one.
    pub multi_ack_detailed: bool,
    /// The pack may refer to objects of the receiver.
    pub thin_pack: bool,
    /// Deltas may refer to bases in the pack by offset.
    pub ofs_delta: bool,
    /// The server sends no progress.
    pub no_progress: bool,
    /// The server expects the agent in requests.
    pub agent: bool,
    /// The server expects the object format in requests.
    pub object_format: bool,
    /// Commits reachable from refs may be requested by hash.
    pub allow_reachable: bool,
    /// Any object may be requested by hash.
    pub allow_any: bool,
}

impl Capabilities {
    /// Parses the capabilities after the first ref's name.
    ///
    /// # Errors
    /// The repository's hash function is not supported; the error is its name.
    pub fn parse(capabilities: &[u8]) -> Result<Self, String> {
        let mut found = Self::default();
        for capability in capabilities.split(|byte| *byte == b' ') {
            match capability {
                b"shallow" => found.shallow = true,
                b"side-band-64k" => found.side_band_64k = true,
                b"side-band" => found.side_band = true,
                b"multi_ack_detailed" => found.multi_ack_detailed = true,
                b"thin-pack" => found.thin_pack = true,
                b"ofs-delta" => found.ofs_delta = true,
                b"no-progress" => found.no_progress = true,
                b"allow-reachable-sha1-in-want" => found.allow_reachable = true,
                b"allow-any-sha1-in-want" => found.allow_any = true,
                b"object-format=sha1" => found.object_format = true,
                _ if capability.starts_with(b"agent=") => found.agent = true,
                _ => {
                    if let Some(format) = capability.strip_prefix(b"object-format=") {
                        return Err(sanitize_text(format));
                    }
                }
            }
        }
        Ok(found)
    }

    /// Whether the pack is sent in packets at all.
    #[must_use]
    pub(crate) const fn has_side_band(&self) -> bool {
        self.side_band_64k || self.side_band
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_relevant_capabilities_are_parsed() {
        let capabilities = b"multi_ack thin-pack side-band side-band-64k ofs-delta shallow no-progress include-tag \
            multi_ack_detailed allow-tip-sha1-in-want allow-reachable-sha1-in-want symref=HEAD:refs/heads/main \
            object-format=sha1 agent=git/2.39.5";
        let found = Capabilities::parse(capabilities).unwrap();
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
            allow_reachable: true,
            allow_any: false,
        };
        assert_eq!(found, all);
        assert_eq!(Capabilities::parse(b""), Ok(Capabilities::default()));
        assert!(Capabilities::parse(b"allow-any-sha1-in-want").is_ok_and(|found| found.allow_any));
        assert_eq!(Capabilities::parse(b"object-format=sha256"), Err("sha256".into()));
    }

    proptest! {
        #[test]
        fn any_capabilities_are_parsed(capabilities in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Capabilities::parse(&capabilities);
        }
    }
}
