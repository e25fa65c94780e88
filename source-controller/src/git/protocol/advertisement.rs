//! What a server begins with: the capabilities of protocol version 2, or the list of refs of an older one.

use bytes::BytesMut;

use super::packet::{Packet, PacketError, decode};
use super::remote_text;
use super::v0::{self, Listing, ListingError};

/// Longest answer that is looked at. A version 2 answer has a few hundred bytes; an older one lists every ref, and
/// its first line tells.
pub const LONGEST: usize = 64 * 1024;

/// What a server offers, in the version of the protocol that it speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Capabilities {
    /// Version 2, since Git 2.18.
    V2(V2),
    /// Version 0 or 1.
    V0(v0::Capabilities),
}

/// What a version 2 server offers, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct V2 {
    /// `fetch=shallow`: depth limits.
    pub shallow: bool,
    /// `fetch=filter`: partial clones.
    pub filter: bool,
    /// The server wants to be told the object format.
    pub object_format: bool,
}

/// Why an answer offers nothing that can be spoken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdvertisementError {
    /// A web page, a dumb HTTP repository, or anything else.
    #[error("the answer is not Git's smart HTTP protocol")]
    NotGit,
    /// The server's own words.
    #[error("remote: {0}")]
    Remote(String),
    /// A repository of a hash function that revisions have no form for.
    #[error("the repository's object format is {0}; only sha1 is supported")]
    ObjectFormat(String),
    /// A command or feature that nothing works without.
    #[error("the server does not offer '{0}'")]
    Missing(&'static str),
    /// The answer ended early, or was longer than [`LONGEST`].
    #[error("the list of the server's capabilities is incomplete")]
    Incomplete,
}

impl From<ListingError> for AdvertisementError {
    fn from(error: ListingError) -> Self {
        match error {
            ListingError::Remote(words) => Self::Remote(words),
            ListingError::ObjectFormat(format) => Self::ObjectFormat(format),
            ListingError::Form(_) | ListingError::Broken => Self::NotGit,
        }
    }
}

impl From<PacketError> for AdvertisementError {
    fn from(_: PacketError) -> Self {
        Self::NotGit
    }
}

/// Reads an answer, of which at most [`LONGEST`] bytes need to be there.
///
/// # Errors
/// The answer is no advertisement of a repository that can be read.
pub fn parse(answer: &[u8]) -> Result<Capabilities, AdvertisementError> {
    let mut buffer = BytesMut::from(&answer[..answer.len().min(LONGEST)]);
    // The line that says which service answers is the same in all versions; Git's own server leaves it out in version 2.
    let mut listing = Listing::default();
    while !listing.has_begun() {
        let packet = decode(&mut buffer)?.ok_or(AdvertisementError::NotGit)?;
        if packet.text() == Some(b"version 2") {
            return capabilities(&lines(&mut buffer)?).map(Capabilities::V2);
        }
        listing.accept(&packet)?;
    }
    Ok(Capabilities::V0(listing.capabilities()))
}

/// All packets up to a flush.
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
            b"object-format" => return Err(AdvertisementError::ObjectFormat(remote_text(value))),
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

    fn answer(lines: &[&str]) -> Vec<u8> {
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
    fn version_2_is_read_with_and_without_a_service_line() {
        let lines = [
            "version 2",
            "agent=git/2.39",
            "ls-refs=unborn",
            "fetch=shallow filter",
            "object-format=sha1",
            "0000",
        ];
        let wanted = Ok(Capabilities::V2(V2 {
            shallow: true,
            filter: true,
            object_format: true,
        }));
        assert_eq!(parse(&answer(&lines)), wanted);
        let with_service: Vec<_> = ["# service=git-upload-pack", "0000"]
            .into_iter()
            .chain(lines)
            .collect();
        assert_eq!(parse(&answer(&with_service)), wanted);
    }

    #[test]
    fn older_versions_are_told_by_their_first_line() {
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
            assert_eq!(parse(&answer(&lines)), Ok(Capabilities::V0(offered)), "{lines:?}");
        }
        // Nothing at all: no refs, and nothing offered.
        let none = Ok(Capabilities::V0(v0::Capabilities::default()));
        assert_eq!(
            parse(&answer(&["# service=git-upload-pack", "0000", "0000"])),
            none
        );
        let other = format!("{ID} HEAD\0object-format=sha256");
        assert_eq!(
            parse(&answer(&[&other])),
            Err(AdvertisementError::ObjectFormat("sha256".into()))
        );
    }

    #[test]
    fn what_cannot_be_spoken_is_named() {
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
            assert_eq!(parse(&answer(lines)), Err(error.clone()), "{lines:?}");
        }
        let dumb = format!("{ID}\trefs/heads/main\n");
        assert_eq!(parse(dumb.as_bytes()), Err(E::NotGit));
        assert_eq!(parse(b"<!DOCTYPE html>"), Err(E::NotGit));
    }

    proptest! {
        #[test]
        fn any_answer_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn any_lines_are_read_or_refused(lines in proptest::collection::vec("(version 2|ls-refs|fetch=shallow|0000|[ -~]{0,60})", 0..12)) {
            let lines: Vec<_> = lines.iter().map(String::as_str).collect();
            let _ = parse(&answer(&lines));
        }
    }
}
