//! Detects the format of a signature by its first line.

use std::fmt;

/// The format of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SignatureFormat {
    /// A detached OpenPGP signature.
    OpenPgp,
    /// An SSHSIG.
    Ssh,
    /// S/MIME, as made by `gpgsm`. Recognised, but not supported.
    X509,
    /// An empty signature.
    Empty,
    /// Any other text, including whole OpenPGP messages: Git stores detached signatures only.
    Unknown,
}

/// The first line of each format.
const FIRST_LINES: [(&[u8], SignatureFormat); 3] = [
    (b"-----BEGIN PGP SIGNATURE-----", SignatureFormat::OpenPgp),
    (b"-----BEGIN SSH SIGNATURE-----", SignatureFormat::Ssh),
    (b"-----BEGIN SIGNED MESSAGE-----", SignatureFormat::X509),
];

impl SignatureFormat {
    /// Detects the format. Surrounding white space is ignored, but white space alone is not an empty signature.
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
                |(_, format)| *format,
            )
    }

    /// Returns whether a signature starts at this line of a tag: the formats above, and OpenPGP messages, which Git
    /// also accepts here.
    pub(super) fn starts_at(line: &[u8]) -> bool {
        line.starts_with(b"-----BEGIN PGP MESSAGE-----")
            || FIRST_LINES.iter().any(|(first, _)| line.starts_with(first))
    }
}

impl fmt::Display for SignatureFormat {
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
    use super::SignatureFormat;

    #[test]
    fn the_format_is_detected_by_the_first_line() {
        for (text, format) in [
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
            assert_eq!(
                SignatureFormat::of(text.as_bytes()).to_string(),
                format,
                "{text:?}"
            );
        }
    }
}
