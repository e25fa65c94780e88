//! Splits raw commits and tags into payload and signature. The payload is every byte outside the signature, as in Git.

use super::armor::SignatureFormat;

/// A signed payload and its signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedObject {
    /// The object without its signature.
    pub payload: Vec<u8>,
    /// The signature; may be empty.
    pub signature: Vec<u8>,
}

impl SignedObject {
    /// Splits a raw commit. The signature is the value of the header `gpgsig`, with continuation lines indented by a
    /// space. The header `gpgsig-sha256` is the signature of the same commit in the other object format: it belongs
    /// neither to the payload nor to the signature.
    #[must_use]
    pub fn commit(raw: &[u8]) -> Self {
        let (mut payload, mut signature) = (Vec::with_capacity(raw.len()), Vec::new());
        let mut part = HeaderPart::Payload;
        let mut rest = raw;
        while !rest.is_empty() {
            let (line, after) = split_line(rest);
            if line == b"\n" {
                // The message follows; it contains no headers.
                payload.extend_from_slice(rest);
                break;
            }
            let text = if let Some(continued) = line.strip_prefix(b" ") {
                continued
            } else if let Some(value) = line.strip_prefix(b"gpgsig ") {
                part = HeaderPart::Signature;
                value
            } else {
                let other = line.starts_with(b"gpgsig-sha256 ");
                part = if other {
                    HeaderPart::Other
                } else {
                    HeaderPart::Payload
                };
                line
            };
            match part {
                HeaderPart::Payload => payload.extend_from_slice(line),
                HeaderPart::Signature => signature.extend_from_slice(text),
                HeaderPart::Other => {}
            }
            rest = after;
        }
        Self { payload, signature }
    }

    /// Splits a raw tag. The signature is the end of the text, from the last line that starts one.
    #[must_use]
    pub fn tag(raw: &[u8]) -> Self {
        let (mut at, mut found) = (0, raw.len());
        while at < raw.len() {
            let (line, _) = split_line(&raw[at..]);
            if SignatureFormat::starts_at(line) {
                found = at;
            }
            at += line.len();
        }
        Self {
            payload: raw[..found].to_vec(),
            signature: raw[found..].to_vec(),
        }
    }

    /// Returns the format of the signature.
    #[must_use]
    pub fn format(&self) -> SignatureFormat {
        SignatureFormat::of(&self.signature)
    }
}

/// The part of a commit that a header line belongs to.
#[derive(Clone, Copy)]
enum HeaderPart {
    Payload,
    Signature,
    Other,
}

/// Returns the name in a raw tag, which may differ from the name of its ref.
#[must_use]
pub fn tag_name(raw: &[u8]) -> Option<String> {
    let mut rest = raw;
    while !rest.is_empty() {
        let (line, after) = split_line(rest);
        if line == b"\n" {
            return None;
        }
        if let Some(name) = line.strip_prefix(b"tag ") {
            return Some(String::from_utf8_lossy(name.trim_ascii_end()).into_owned());
        }
        rest = after;
    }
    None
}

/// Returns the first line with its line break, and the rest.
fn split_line(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text
        .iter()
        .position(|byte| *byte == b'\n')
        .map_or(text.len(), |at| at + 1);
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn the_signature_of_a_commit_is_a_header_with_continued_lines() {
        let raw =
            b"tree t\nparent p\nauthor a\ncommitter c\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n abc\n \
            -----END PGP SIGNATURE-----\nencoding x\n\nSubject\n\ngpgsig no header\n";
        let signed = SignedObject::commit(raw);
        assert_eq!(
            text(&signed.payload),
            "tree t\nparent p\nauthor a\ncommitter c\nencoding x\n\nSubject\n\ngpgsig no header\n"
        );
        assert_eq!(
            text(&signed.signature),
            "-----BEGIN PGP SIGNATURE-----\n\nabc\n-----END PGP SIGNATURE-----\n"
        );
        assert_eq!(signed.format(), SignatureFormat::OpenPgp);
    }

    #[test]
    fn the_signature_for_the_other_object_format_is_ignored() {
        let raw =
            b"tree t\ngpgsig-sha256 one\n two\ngpgsig mine\n more\nmergetag object o\n gpgsig inner\n\nm\n";
        let signed = SignedObject::commit(raw);
        assert_eq!(
            text(&signed.payload),
            "tree t\nmergetag object o\n gpgsig inner\n\nm\n"
        );
        assert_eq!(text(&signed.signature), "mine\nmore\n");
    }

    #[test]
    fn similar_headers_belong_to_the_payload() {
        let raw = b"tree t\ngpgsigs x\ngpgsig\n\nm";
        let signed = SignedObject::commit(raw);
        assert_eq!(
            (signed.payload.as_slice(), signed.format()),
            (&raw[..], SignatureFormat::Empty)
        );
    }

    #[test]
    fn the_signature_of_a_tag_is_its_end() {
        let raw = b"object o\ntype commit\ntag v1\ntagger t\n\nText\n-----BEGIN SSH SIGNATURE-----\nabc\n";
        let signed = SignedObject::tag(raw);
        assert_eq!(
            text(&signed.payload),
            "object o\ntype commit\ntag v1\ntagger t\n\nText\n"
        );
        assert_eq!(text(&signed.signature), "-----BEGIN SSH SIGNATURE-----\nabc\n");
        assert_eq!(tag_name(raw).as_deref(), Some("v1"));
    }

    #[test]
    fn the_last_signature_at_the_start_of_a_line_of_a_tag_counts() {
        let raw = b"tag a\n\n-----BEGIN PGP SIGNATURE-----\nx\n-----BEGIN PGP SIGNATURE-----\ny\n";
        assert!(text(&SignedObject::tag(raw).signature).ends_with("y\n"));
        assert!(!text(&SignedObject::tag(raw).signature).contains('x'));
        let raw = b"tag a\n\nsee -----BEGIN PGP SIGNATURE-----\n";
        assert_eq!(SignedObject::tag(raw).format(), SignatureFormat::Empty);
        assert_eq!(tag_name(b"object o\n\ntag a\n"), None);
    }

    proptest! {
        #[test]
        fn splitting_keeps_every_byte(raw in proptest::collection::vec(any::<u8>(), 0..2048)) {
            let tag = SignedObject::tag(&raw);
            prop_assert_eq!([tag.payload, tag.signature].concat(), raw.clone());
            let commit = SignedObject::commit(&raw);
            prop_assert!(commit.payload.len() + commit.signature.len() <= raw.len());
            let _ = tag_name(&raw);
        }

        #[test]
        fn an_inserted_signature_is_extracted(
            head in "(tree [a-f]{4}\n)(author [a-z ]{0,9}\n){0,2}",
            signature in "-----BEGIN PGP SIGNATURE-----\n([A-Za-z0-9+/=: ]{0,20}\n){0,6}",
            message in "[ -~\n]{0,60}",
        ) {
            let header = signature.trim_end_matches('\n').replace('\n', "\n ");
            let raw = format!("{head}gpgsig {header}\n\n{message}");
            let signed = SignedObject::commit(raw.as_bytes());
            prop_assert_eq!(text(&signed.payload), format!("{head}\n{message}"));
            prop_assert_eq!(text(&signed.signature).trim_end(), signature.trim_end());
        }
    }
}
