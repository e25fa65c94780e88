//! Raw commits and tags, taken apart into what was signed and the signature. Byte for byte: what is not the signature
//! is what was signed, in the order in which it stands, as Git itself does it.

use super::armor::Form;

/// What was signed, and the signature over it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// The object without its signature.
    pub payload: Vec<u8>,
    /// The signature; empty where there is none.
    pub signature: Vec<u8>,
}

impl Signed {
    /// Takes a raw commit apart. The signature stands in the header `gpgsig`, each further line of it behind a space.
    /// The header `gpgsig-sha256` belongs to the same commit in a repository of the other object format: it is neither
    /// signed nor a signature here.
    #[must_use]
    pub fn commit(raw: &[u8]) -> Self {
        let (mut payload, mut signature) = (Vec::with_capacity(raw.len()), Vec::new());
        let mut within = Within::Payload;
        let mut rest = raw;
        while !rest.is_empty() {
            let (line, after) = split_line(rest);
            if line == b"\n" {
                // The message follows; nothing in it is a header.
                payload.extend_from_slice(rest);
                break;
            }
            let text = if let Some(continued) = line.strip_prefix(b" ") {
                continued
            } else if let Some(value) = line.strip_prefix(b"gpgsig ") {
                within = Within::Signature;
                value
            } else {
                let other = line.starts_with(b"gpgsig-sha256 ");
                within = if other { Within::Other } else { Within::Payload };
                line
            };
            match within {
                Within::Payload => payload.extend_from_slice(line),
                Within::Signature => signature.extend_from_slice(text),
                Within::Other => {}
            }
            rest = after;
        }
        Self { payload, signature }
    }

    /// Takes a raw tag apart. The signature is the end of its text, from the last line that begins one.
    #[must_use]
    pub fn tag(raw: &[u8]) -> Self {
        let (mut at, mut found) = (0, raw.len());
        while at < raw.len() {
            let (line, _) = split_line(&raw[at..]);
            if Form::begins_at(line) {
                found = at;
            }
            at += line.len();
        }
        Self {
            payload: raw[..found].to_vec(),
            signature: raw[found..].to_vec(),
        }
    }

    /// The kind of the signature.
    #[must_use]
    pub fn form(&self) -> Form {
        Form::of(&self.signature)
    }
}

/// What a line of a commit's header belongs to.
#[derive(Clone, Copy)]
enum Within {
    Payload,
    Signature,
    Other,
}

/// The name that a raw tag gives itself, which need not be that of the ref it was found at.
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

/// The first line with its end, and what follows it.
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
        let signed = Signed::commit(raw);
        assert_eq!(
            text(&signed.payload),
            "tree t\nparent p\nauthor a\ncommitter c\nencoding x\n\nSubject\n\ngpgsig no header\n"
        );
        assert_eq!(
            text(&signed.signature),
            "-----BEGIN PGP SIGNATURE-----\n\nabc\n-----END PGP SIGNATURE-----\n"
        );
        assert_eq!(signed.form(), Form::OpenPgp);
    }

    #[test]
    fn the_signature_for_the_other_object_format_counts_nowhere() {
        let raw =
            b"tree t\ngpgsig-sha256 one\n two\ngpgsig mine\n more\nmergetag object o\n gpgsig inner\n\nm\n";
        let signed = Signed::commit(raw);
        assert_eq!(
            text(&signed.payload),
            "tree t\nmergetag object o\n gpgsig inner\n\nm\n"
        );
        assert_eq!(text(&signed.signature), "mine\nmore\n");
    }

    #[test]
    fn headers_that_only_begin_alike_are_signed() {
        let raw = b"tree t\ngpgsigs x\ngpgsig\n\nm";
        let signed = Signed::commit(raw);
        assert_eq!(
            (signed.payload.as_slice(), signed.form()),
            (&raw[..], Form::Empty)
        );
    }

    #[test]
    fn the_signature_of_a_tag_is_its_end() {
        let raw = b"object o\ntype commit\ntag v1\ntagger t\n\nText\n-----BEGIN SSH SIGNATURE-----\nabc\n";
        let signed = Signed::tag(raw);
        assert_eq!(
            text(&signed.payload),
            "object o\ntype commit\ntag v1\ntagger t\n\nText\n"
        );
        assert_eq!(text(&signed.signature), "-----BEGIN SSH SIGNATURE-----\nabc\n");
        assert_eq!(tag_name(raw).as_deref(), Some("v1"));
    }

    #[test]
    fn the_last_signature_of_a_tag_counts_and_what_stands_inside_a_line_does_not() {
        let raw = b"tag a\n\n-----BEGIN PGP SIGNATURE-----\nx\n-----BEGIN PGP SIGNATURE-----\ny\n";
        assert!(text(&Signed::tag(raw).signature).ends_with("y\n"));
        assert!(!text(&Signed::tag(raw).signature).contains('x'));
        let raw = b"tag a\n\nsee -----BEGIN PGP SIGNATURE-----\n";
        assert_eq!(Signed::tag(raw).form(), Form::Empty);
        assert_eq!(tag_name(b"object o\n\ntag a\n"), None);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_nothing_invented(raw in proptest::collection::vec(any::<u8>(), 0..2048)) {
            let tag = Signed::tag(&raw);
            prop_assert_eq!([tag.payload, tag.signature].concat(), raw.clone());
            let commit = Signed::commit(&raw);
            prop_assert!(commit.payload.len() + commit.signature.len() <= raw.len());
            let _ = tag_name(&raw);
        }

        #[test]
        fn a_signature_that_is_put_in_comes_out(
            head in "(tree [a-f]{4}\n)(author [a-z ]{0,9}\n){0,2}",
            signature in "-----BEGIN PGP SIGNATURE-----\n([A-Za-z0-9+/=: ]{0,20}\n){0,6}",
            message in "[ -~\n]{0,60}",
        ) {
            let header = signature.trim_end_matches('\n').replace('\n', "\n ");
            let raw = format!("{head}gpgsig {header}\n\n{message}");
            let signed = Signed::commit(raw.as_bytes());
            prop_assert_eq!(text(&signed.payload), format!("{head}\n{message}"));
            prop_assert_eq!(text(&signed.signature).trim_end(), signature.trim_end());
        }
    }
}
