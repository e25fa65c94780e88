//! The first response of a server: the capabilities of protocol version 2, or the ref advertisement of an older one.

use bytes::BytesMut;

use super::pkt_line::{Packet, PacketError, decode};
use super::sanitize_text;
use super::v0::{self, RefAdvertisement, RefAdvertisementError};

/// Maximum number of bytes that are read. A version 2 response has a few hundred bytes. An older one lists all refs,
/// and its first line contains the capabilities.
pub const MAX_BYTES: usize = 64 * 1024;

/// Capabilities of a server, by protocol version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Capabilities {
    /// Version 2, since Git 2.18.
    V2(V2),
    /// Version 0 or 1.
    V0(v0::Capabilities),
}

/// Capabilities of a version 2 server, limited to those in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct V2 {
    /// `fetch=shallow`: depth limits.
    pub shallow: bool,
    /// `fetch=filter`: partial clones.
    pub filter: bool,
    /// The server expects the object format in requests.
    pub object_format: bool,
}

/// Why a response is not a usable advertisement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdvertisementError {
    /// A web page, a dumb HTTP repository, or something else.
    #[error("the response is not Git's smart HTTP protocol")]
    NotGit,
    /// An error message of the server.
    #[error("remote: {0}")]
    Remote(String),
    /// A repository with an unsupported hash function.
    #[error("the repository's object format is {0}; only sha1 is supported")]
    ObjectFormat(String),
    /// A required command or feature is missing.
    #[error("the server does not offer '{0}'")]
    Missing(&'static str),
    /// The response ended early, or was longer than [`MAX_BYTES`].
    #[error("the list of the server's capabilities is incomplete")]
    Incomplete,
}

impl From<RefAdvertisementError> for AdvertisementError {
    fn from(error: RefAdvertisementError) -> Self {
        match error {
            RefAdvertisementError::Remote(message) => Self::Remote(message),
            RefAdvertisementError::ObjectFormat(format) => Self::ObjectFormat(format),
            RefAdvertisementError::Malformed(_) | RefAdvertisementError::Broken => Self::NotGit,
        }
    }
}

impl From<PacketError> for AdvertisementError {
    fn from(_: PacketError) -> Self {
        Self::NotGit
    }
}

/// Parses a response, of which the first [`MAX_BYTES`] bytes suffice.
///
/// # Errors
/// The response is not an advertisement of a readable repository.
pub fn parse(response: &[u8]) -> Result<Capabilities, AdvertisementError> {
    let mut buffer = BytesMut::from(&response[..response.len().min(MAX_BYTES)]);
    // The service line is the same in all versions; Git's own server omits it in version 2.
    let mut advertisement = RefAdvertisement::default();
    while !advertisement.has_capabilities() {
        let packet = decode(&mut buffer)?.ok_or(AdvertisementError::NotGit)?;
        if packet.text() == Some(b"version 2") {
            return capabilities(&lines(&mut buffer)?).map(Capabilities::V2);
        }
        advertisement.accept(&packet)?;
    }
    Ok(Capabilities::V0(advertisement.capabilities()))
}

/// Reads all packets up to a flush.
fn lines(buffer: &mut BytesMut) -> Result<Vec<Packet>, AdvertisementError> {
    let mut lines = Vec::new();
    loop {
        match decode(buffer)?.ok_or(AdvertisementError::Incomplete)? {
            Packet::Flush => return Ok(lines),
            packet => lines.push(packet),
        }
    }
}

fn capabilities(lines: &[Packet]) -> Result<V2, AdvertisementError> {
    let mut found = V2::default();
    let (mut ls_refs, mut fetch) = (false, false);
    for line in lines.iter().filter_map(Packet::text) {
        let (name, value) = match line.iter().position(|byte| *byte == b'=') {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &b""[..]),
        };
        match name {
            b"ls-refs" => ls_refs = true,
            b"fetch" => {
                fetch = true;
                let has = |feature: &[u8]| value.split(|byte| *byte == b' ').any(|word| word == feature);
                (found.shallow, found.filter) = (has(b"shallow"), has(b"filter"));
            }
            b"object-format" if value == b"sha1" => found.object_format = true,
            b"object-format" => return Err(AdvertisementError::ObjectFormat(sanitize_text(value))),
            _ => {}
        }
    }
    match (ls_refs, fetch, found.shallow) {
        (false, ..) => Err(AdvertisementError::Missing("ls-refs")),
        (_, false, _) => Err(AdvertisementError::Missing("fetch")),
        (.., false) => Err(AdvertisementError::Missing("fetch=shallow")),
        _ => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn response(lines: &[&str]) -> Vec<u8> {
        lines.iter().fold(Vec::new(), |mut bytes, line| {
            match *line {
                "0000" => bytes.extend_from_slice(b"0000"),
                line => bytes.extend_from_slice(format!("{:04x}{line}\n", line.len() + 5).as_bytes()),
            }
            bytes
        })
    }

    const ID: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn version_2_is_parsed_with_and_without_a_service_line() {
        let lines = [
            "version 2",
            "agent=git/2.39",
            "ls-refs=unborn",
            "fetch=shallow filter",
            "object-format=sha1",
            "0000",
        ];
        let expected = Ok(Capabilities::V2(V2 {
            shallow: true,
            filter: true,
            object_format: true,
        }));
        assert_eq!(parse(&response(&lines)), expected);
        let with_service: Vec<_> = ["# service=git-upload-pack", "0000"]
            .into_iter()
            .chain(lines)
            .collect();
        assert_eq!(parse(&response(&with_service)), expected);
    }

    #[test]
    fn older_versions_are_detected_by_the_first_line() {
        let first = format!("{ID} HEAD\0shallow ofs-delta");
        let offered = v0::Capabilities {
            shallow: true,
            ofs_delta: true,
            ..v0::Capabilities::default()
        };
        for lines in [
            vec!["# service=git-upload-pack", "0000", &first, "0000"],
            vec!["# service=git-upload-pack", "0000", "version 1", &first],
            vec![&first],
        ] {
            assert_eq!(
                parse(&response(&lines)),
                Ok(Capabilities::V0(offered)),
                "{lines:?}"
            );
        }
        // No refs and no capabilities.
        let none = Ok(Capabilities::V0(v0::Capabilities::default()));
        assert_eq!(
            parse(&response(&["# service=git-upload-pack", "0000", "0000"])),
            none
        );
        let other = format!("{ID} HEAD\0object-format=sha256");
        assert_eq!(
            parse(&response(&[&other])),
            Err(AdvertisementError::ObjectFormat("sha256".into()))
        );
    }

    #[test]
    fn unsupported_advertisements_are_reported() {
        use AdvertisementError as E;
        let cases: &[(&[&str], E)] = &[
            (&["# service=git-upload-pack", "0000", "version 1"], E::NotGit),
            (&["ERR access denied"], E::Remote("access denied".into())),
            (
                &[
                    "version 2",
                    "ls-refs",
                    "fetch=shallow",
                    "object-format=sha256",
                    "0000",
                ],
                E::ObjectFormat("sha256".into()),
            ),
            (&["version 2", "fetch=shallow", "0000"], E::Missing("ls-refs")),
            (&["version 2", "ls-refs", "0000"], E::Missing("fetch")),
            (
                &["version 2", "ls-refs", "fetch=filter", "0000"],
                E::Missing("fetch=shallow"),
            ),
            (&["version 2", "ls-refs"], E::Incomplete),
            (&[], E::NotGit),
            (&["hello"], E::NotGit),
        ];
        for (lines, error) in cases {
            assert_eq!(parse(&response(lines)), Err(error.clone()), "{lines:?}");
        }
        let dumb = format!("{ID}\trefs/heads/main\n");
        assert_eq!(parse(dumb.as_bytes()), Err(E::NotGit));
        assert_eq!(parse(b"<!DOCTYPE html>"), Err(E::NotGit));
    }

    proptest! {
        #[test]
        fn any_response_is_parsed_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn any_lines_are_parsed_or_refused(lines in proptest::collection::vec("(version 2|ls-refs|fetch=shallow|0000|[ -~]{0,60})", 0..12)) {
            let lines: Vec<_> = lines.iter().map(String::as_str).collect();
            let _ = parse(&response(&lines));
        }
    }
}
