//! What a server answers to `GET info/refs`: the capabilities of protocol version 2, or an older protocol.

use bytes::BytesMut;

use super::packet::{Packet, PacketError, decode};
use super::{object_id, remote_text};

/// Longest answer that is looked at. A version 2 answer has a few hundred bytes; an older one lists every ref, and
/// its first line tells.
pub const LONGEST: usize = 64 * 1024;

/// What a version 2 server offers, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
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
    /// A server from before Git 2.18, or one with version 2 switched off.
    #[error("the server speaks Git protocol version {0} only; version 2 is required")]
    Version(u8),
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

impl From<PacketError> for AdvertisementError {
    fn from(_: PacketError) -> Self {
        Self::NotGit
    }
}

/// Reads an answer, of which at most [`LONGEST`] bytes need to be there.
///
/// # Errors
/// The answer is no version 2 advertisement of a repository that can be read.
pub fn parse(answer: &[u8]) -> Result<Capabilities, AdvertisementError> {
    let mut buffer = BytesMut::from(&answer[..answer.len().min(LONGEST)]);
    let first = match decode(&mut buffer)?.ok_or(AdvertisementError::NotGit)? {
        // Servers may say what follows; Git's own leaves it out in version 2.
        Packet::Data(service) if service.starts_with(b"# service=git-upload-pack") => {
            match next(&mut buffer)? {
                Packet::Flush => next(&mut buffer)?,
                other => other,
            }
        }
        other => other,
    };
    version(&first)?;
    let mut lines = Vec::new();
    loop {
        match next(&mut buffer)? {
            Packet::Flush => return capabilities(&lines),
            packet => lines.push(packet),
        }
    }
}

fn next(buffer: &mut BytesMut) -> Result<Packet, AdvertisementError> {
    decode(buffer)?.ok_or(AdvertisementError::Incomplete)
}

/// Version 0 has no version line: the first packet is a ref, or `capabilities^{}` in an empty repository.
fn version(first: &Packet) -> Result<(), AdvertisementError> {
    match first.text() {
        Some(b"version 2") => Ok(()),
        Some(b"version 1") => Err(AdvertisementError::Version(1)),
        Some(text) if text.get(..40).is_some_and(|id| object_id(id).is_some()) => {
            Err(AdvertisementError::Version(0))
        }
        Some(text) => match text.strip_prefix(b"ERR ") {
            Some(words) => Err(AdvertisementError::Remote(remote_text(words))),
            None => Err(AdvertisementError::NotGit),
        },
        // Version 0 of a server without any ref and without capabilities.
        None => Err(AdvertisementError::Version(0)),
    }
}

fn capabilities(lines: &[Packet]) -> Result<Capabilities, AdvertisementError> {
    let mut found = Capabilities::default();
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
        let wanted = Ok(Capabilities {
            shallow: true,
            filter: true,
            object_format: true,
        });
        assert_eq!(parse(&answer(&lines)), wanted);
        let with_service: Vec<_> = ["# service=git-upload-pack", "0000"]
            .into_iter()
            .chain(lines)
            .collect();
        assert_eq!(parse(&answer(&with_service)), wanted);
    }

    #[test]
    fn what_cannot_be_spoken_is_named() {
        use AdvertisementError as E;
        let version_0 = format!("{ID} HEAD\0multi_ack");
        let cases: &[(&[&str], E)] = &[
            (
                &["# service=git-upload-pack", "0000", &version_0, "0000"],
                E::Version(0),
            ),
            (&["# service=git-upload-pack", "0000", "0000"], E::Version(0)),
            (&["# service=git-upload-pack", "0000", "version 1"], E::Version(1)),
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
