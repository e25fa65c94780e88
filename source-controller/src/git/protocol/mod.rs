//! Git's wire protocol, version 2 and older, as pure functions and state machines over bytes: no socket, no clock, no
//! disk.
//!
//! All parsed bytes are untrusted. Each parser is bounded, never panics, and reports what is wrong (`gitprotocol-v2`,
//! `gitprotocol-http` and `gitprotocol-common` of Git's documentation).

pub mod advertisement;
pub mod fetch;
pub mod ls_refs;
pub mod pkt_line;
pub mod v0;

use git2::Oid;

/// The agent name on the wire. Some hosts serve the smart protocol only to agents that begin with `git/`.
pub(crate) const AGENT: &str = concat!("git/2.0-sluice-", env!("CARGO_PKG_VERSION"));

/// Maximum length of a remote's text in a message, in characters.
const MAX_REMOTE_TEXT: usize = 512;

/// Parses a full SHA-1 object name: exactly 40 hexadecimal digits, in either case.
#[must_use]
pub(crate) fn parse_object_id(text: &[u8]) -> Option<Oid> {
    let mut raw = [0_u8; 20];
    hex::decode_to_slice(text, &mut raw).ok()?;
    Oid::from_bytes(&raw).ok()
}

/// Makes untrusted text safe for a message: bounded, one line, without control characters.
#[must_use]
pub(crate) fn sanitize_text(text: &[u8]) -> String {
    let head = &text[..text.len().min(4 * MAX_REMOTE_TEXT)];
    let lossy = String::from_utf8_lossy(head);
    let clean: String = lossy
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MAX_REMOTE_TEXT)
        .collect();
    clean.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_object_name_has_exactly_forty_digits() {
        let full = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(
            parse_object_id(full.as_bytes())
                .map(|id| id.to_string())
                .as_deref(),
            Some(full)
        );
        for bad in [
            "",
            "0123",
            &full[1..],
            &format!("{full}0"),
            &full.replace('0', "g"),
        ] {
            assert_eq!(parse_object_id(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn remote_text_is_one_printable_line() {
        assert_eq!(
            sanitize_text(b"  no\r\nsuch\x1b[31m thing\xff\n"),
            "no such [31m thing\u{fffd}"
        );
        assert!(sanitize_text(&vec![b'a'; 100_000]).len() <= MAX_REMOTE_TEXT);
    }

    proptest! {
        #[test]
        fn remote_text_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..4096)) {
            prop_assert!(!sanitize_text(&bytes).contains(char::is_control));
        }
    }
}
