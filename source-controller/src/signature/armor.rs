//! What kind of signature a text is, told by its first line.

use std::fmt;

/// The kind of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// A detached OpenPGP signature.
    OpenPgp,
    /// An SSHSIG.
    Ssh,
    /// S/MIME, as `gpgsm` makes it. Known, not verified.
    X509,
    /// No signature at all.
    Empty,
    /// Anything else, a whole OpenPGP message included: Git's field holds detached signatures only.
    Unknown,
}

/// First lines, and what they announce.
const FIRST_LINES: [(&[u8], Form); 3] = [
    (b"-----BEGIN PGP SIGNATURE-----", Form::OpenPgp),
    (b"-----BEGIN SSH SIGNATURE-----", Form::Ssh),
    (b"-----BEGIN SIGNED MESSAGE-----", Form::X509),
];

impl Form {
    /// The kind of a signature. White space around it does not count, but white space alone is no empty signature.
    #[must_use]
    pub fn of(signature: &[u8]) -> Self {
        let trimmed = signature.trim_ascii();
        FIRST_LINES
            .iter()
            .find(|(line, _)| trimmed.starts_with(line))
            .map_or(
                if signature.is_empty() {
                    Self::Empty
                } else {
                    Self::Unknown
                },
                |(_, form)| *form,
            )
    }

    /// Whether a signature begins with this line of a tag: the kinds above, and the OpenPGP message that Git also takes
    /// for one.
    pub(super) fn begins_at(line: &[u8]) -> bool {
        line.starts_with(b"-----BEGIN PGP MESSAGE-----")
            || FIRST_LINES.iter().any(|(first, _)| line.starts_with(first))
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OpenPgp => "openpgp",
            Self::Ssh => "ssh",
            Self::X509 => "x509",
            Self::Empty => "empty",
            Self::Unknown => "unknown",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Form;

    #[test]
    fn the_first_line_tells_the_kind() {
        for (text, form) in [
            ("-----BEGIN PGP SIGNATURE-----\n", "openpgp"),
            ("\n \t-----BEGIN PGP SIGNATURE-----", "openpgp"),
            ("-----BEGIN SSH SIGNATURE-----\n", "ssh"),
            ("\r\n-----BEGIN SSH SIGNATURE-----\n", "ssh"),
            ("-----BEGIN SIGNED MESSAGE-----\n", "x509"),
            ("-----BEGIN PGP MESSAGE-----\n", "unknown"),
            ("-----BEGIN PGP PUBLIC KEY BLOCK-----\n", "unknown"),
            ("garbage -----BEGIN PGP SIGNATURE-----", "unknown"),
            ("-----begin pgp signature-----", "unknown"),
            (" ", "unknown"),
            ("\n", "unknown"),
            ("", "empty"),
        ] {
            assert_eq!(Form::of(text.as_bytes()).to_string(), form, "{text:?}");
        }
    }
}
