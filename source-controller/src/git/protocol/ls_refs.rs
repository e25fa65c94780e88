//! The command `ls-refs`: looks up the objects to which refs point.

use bytes::Bytes;
use git2::Oid;

use super::advertisement::V2;
use super::pkt_line::Request;
use super::{AGENT, parse_object_id, sanitize_text};

/// Length of the line of a prefix without the prefix.
const PREFIX_LINE_BYTES: usize = "0000ref-prefix \n".len();
/// Space for the other lines of a request.
const OTHER_LINES_BYTES: usize = 128;

/// Requests the refs that begin with one of `prefixes`, with peeled tags. Without prefixes, requests all refs.
#[must_use]
pub fn request(capabilities: &V2, prefixes: &[&str]) -> Bytes {
    let prefix_bytes: usize = prefixes
        .iter()
        .map(|prefix| prefix.len() + PREFIX_LINE_BYTES)
        .sum();
    let mut request = Request::with_capacity(OTHER_LINES_BYTES + prefix_bytes)
        .line("command=ls-refs")
        .line_of(&["agent=", AGENT]);
    if capabilities.object_format {
        request = request.line("object-format=sha1");
    }
    request = request.delimiter().line("peel");
    for &prefix in prefixes {
        request = request.line_of(&["ref-prefix ", prefix]);
    }
    request.finish()
}

/// One ref of the response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteRef {
    /// Full name as the server wrote it; not necessarily UTF-8.
    pub name: Vec<u8>,
    /// The object to which the ref points: a commit, or a tag object.
    pub id: Oid,
    /// The object to which an annotated tag is peeled.
    pub peeled: Option<Oid>,
}

/// A line of the response that is not a ref.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// An error message of the server.
    #[error("remote: {0}")]
    Remote(String),
    /// Not in the format `<object> <name> <attributes>`.
    #[error("'{0}' is not a ref")]
    Malformed(String),
}

/// Parses one line; returns `None` for an unborn branch.
///
/// # Errors
/// The line is an error message of the server, or is malformed.
pub fn parse(line: &[u8]) -> Result<Option<RemoteRef>, LineError> {
    if let Some(words) = line.strip_prefix(b"ERR ") {
        return Err(LineError::Remote(sanitize_text(words)));
    }
    let malformed = || LineError::Malformed(sanitize_text(line));
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(id), Some(name)) = (words.next(), words.next()) else {
        return Err(malformed());
    };
    if name.is_empty() {
        return Err(malformed());
    }
    if id == b"unborn" {
        return Ok(None);
    }
    let id = parse_object_id(id).ok_or_else(malformed)?;
    let mut peeled = None;
    for attribute in words {
        if let Some(target) = attribute.strip_prefix(b"peeled:") {
            peeled = Some(parse_object_id(target).ok_or_else(malformed)?);
        }
    }
    Ok(Some(RemoteRef {
        name: name.to_vec(),
        id,
        peeled,
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: &str = "0123456789abcdef0123456789abcdef01234567";
    const B: &str = "89abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn the_request_contains_the_prefixes() {
        let capabilities = V2 {
            object_format: true,
            ..V2::default()
        };
        let bytes = request(&capabilities, &["refs/heads/main"]);
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.starts_with("0014command=ls-refs\n"), "{text}");
        assert!(
            text.ends_with("0017object-format=sha1\n00010009peel\n001fref-prefix refs/heads/main\n0000"),
            "{text}"
        );
        assert!(!String::from_utf8_lossy(&request(&V2::default(), &[])).contains("object-format"));
        assert!(text.len() - "001fref-prefix refs/heads/main\n".len() <= OTHER_LINES_BYTES);
    }

    #[test]
    fn refs_have_peeled_objects() {
        let read = |line: String| parse(line.as_bytes());
        let plain = read(format!("{A} refs/heads/main")).unwrap().unwrap();
        assert_eq!(
            (plain.id.to_string(), plain.peeled, &plain.name[..]),
            (A.into(), None, &b"refs/heads/main"[..])
        );
        let tag = read(format!("{A} refs/tags/v1 peeled:{B}")).unwrap().unwrap();
        assert_eq!(tag.peeled.map(|id| id.to_string()).as_deref(), Some(B));
        assert_eq!(
            read(format!("{A} HEAD symref-target:refs/heads/main"))
                .unwrap()
                .unwrap()
                .peeled,
            None
        );
        assert_eq!(read("unborn HEAD symref-target:refs/heads/main".into()), Ok(None));
    }

    #[test]
    fn other_lines_are_refused() {
        assert_eq!(
            parse(b"ERR no access"),
            Err(LineError::Remote("no access".into()))
        );
        for bad in [
            "",
            "main",
            A,
            &format!("{A} "),
            "0123 refs/heads/main",
            &format!("{A} x peeled:1"),
        ] {
            assert!(
                matches!(parse(bad.as_bytes()), Err(LineError::Malformed(_))),
                "{bad}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_line_is_parsed_or_refused(line in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&line);
        }

        #[test]
        fn any_name_is_preserved(name in "[!-~]{1,80}") {
            let read = parse(format!("{A} {name}").as_bytes()).unwrap().unwrap();
            prop_assert_eq!(read.name, name.as_bytes());
        }
    }
}
