//! Revisions of artifacts: `main@sha1:<commit>`, and the legacy forms that existing statuses still contain.

use std::fmt;

/// A parsed revision. Parsing never fails: text without a recognizable hash becomes a reference.
///
/// | text | parsed as |
/// |---|---|
/// | `main@sha1:<hash>` | reference `main`, algorithm `sha1`, hash |
/// | `sha1:<hash>` | no reference |
/// | `main/<hash>`, `feature/x/<hash>` (legacy) | as `main@sha1:<hash>` |
/// | `HEAD/<hash>`, `<hash>` (legacy) | as `sha1:<hash>` |
/// | anything else | a reference without hash |
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Revision {
    reference: Option<String>,
    checksum: Option<Checksum>,
}

/// The part after the `@`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Checksum {
    algorithm: String,
    hash: String,
}

impl Revision {
    /// Parses a revision; never fails.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        if text.contains(':') {
            Self::parse_current(text)
        } else {
            Self::parse_legacy(text)
        }
    }

    /// Returns the reference, e.g. `main`, `v1.0.0` or `refs/pull/1/head`.
    #[must_use]
    pub fn reference(&self) -> Option<&str> {
        self.reference.as_deref()
    }

    /// Returns the algorithm of the hash, e.g. `sha1`.
    #[must_use]
    pub fn algorithm(&self) -> Option<&str> {
        self.checksum.as_ref().map(|sum| sum.algorithm.as_str())
    }

    /// Returns the hash: the commit of a Git repository or the digest of an OCI artifact.
    #[must_use]
    pub fn hash(&self) -> Option<&str> {
        self.checksum.as_ref().map(|sum| sum.hash.as_str())
    }

    /// Parses `[<reference>@]<algorithm>:<hash>`. The last `@` is the separator, because a reference may contain one.
    fn parse_current(text: &str) -> Self {
        let (reference, sum) = match text.rsplit_once('@') {
            Some((reference, sum)) if sum.contains(':') => (Some(reference), sum),
            _ => (None, text),
        };
        let checksum = sum.split_once(':').map(|(algorithm, hash)| Checksum {
            algorithm: algorithm.to_owned(),
            hash: hash.to_owned(),
        });
        Self {
            reference: reference.map(str::to_owned),
            checksum,
        }
    }

    /// Parses the legacy forms `<reference>/<hash>` and `<hash>`.
    fn parse_legacy(text: &str) -> Self {
        let (reference, last) = text
            .rsplit_once('/')
            .map_or((None, text), |(name, hash)| (Some(name), hash));
        match algorithm_by_length(last) {
            Some(algorithm) => Self {
                reference: reference.filter(|name| *name != "HEAD").map(str::to_owned),
                checksum: Some(Checksum {
                    algorithm: algorithm.to_owned(),
                    hash: last.to_owned(),
                }),
            },
            None => Self {
                reference: Some(text.to_owned()),
                checksum: None,
            },
        }
    }
}

/// Infers the algorithm of a legacy revision from the number of digits.
fn algorithm_by_length(hash: &str) -> Option<&'static str> {
    let hex = hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    match hash.len() {
        40 if hex => Some("sha1"),
        64 if hex => Some("sha256"),
        96 if hex => Some("sha384"),
        128 if hex => Some("sha512"),
        _ => None,
    }
}

impl fmt::Display for Revision {
    /// Writes the current form, whatever form was parsed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.reference, &self.checksum) {
            (Some(reference), Some(sum)) => write!(f, "{reference}@{}:{}", sum.algorithm, sum.hash),
            (None, Some(sum)) => write!(f, "{}:{}", sum.algorithm, sum.hash),
            (Some(reference), None) => f.write_str(reference),
            (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HASH: &str = "b8e362c206e3d0cbb7ed22ced771a0056455a2fb";

    #[test]
    fn every_form_is_parsed() {
        for (text, reference, algorithm, hash) in [
            (
                format!("main@sha1:{HASH}"),
                Some("main"),
                Some("sha1"),
                Some(HASH),
            ),
            (
                format!("feature/x@sha1:{HASH}"),
                Some("feature/x"),
                Some("sha1"),
                Some(HASH),
            ),
            (format!("a@b@sha1:{HASH}"), Some("a@b"), Some("sha1"), Some(HASH)),
            (
                format!("refs/tags/v1^{{}}@sha1:{HASH}"),
                Some("refs/tags/v1^{}"),
                Some("sha1"),
                Some(HASH),
            ),
            (
                "v2.6@sha256:c7fd".into(),
                Some("v2.6"),
                Some("sha256"),
                Some("c7fd"),
            ),
            (format!("sha1:{HASH}"), None, Some("sha1"), Some(HASH)),
            ("sha256:d02f".into(), None, Some("sha256"), Some("d02f")),
            (format!("main/{HASH}"), Some("main"), Some("sha1"), Some(HASH)),
            (
                format!("feature/x/{HASH}"),
                Some("feature/x"),
                Some("sha1"),
                Some(HASH),
            ),
            (format!("HEAD/{HASH}"), None, Some("sha1"), Some(HASH)),
            (HASH.into(), None, Some("sha1"), Some(HASH)),
            ("main/abc".into(), Some("main/abc"), None, None),
            ("1.2.3".into(), Some("1.2.3"), None, None),
        ] {
            let revision = Revision::parse(&text);
            assert_eq!(
                (revision.reference(), revision.algorithm(), revision.hash()),
                (reference, algorithm, hash),
                "{text}"
            );
        }
    }

    #[test]
    fn legacy_forms_are_converted_and_current_ones_unchanged() {
        for (text, new) in [
            (format!("main/{HASH}"), format!("main@sha1:{HASH}")),
            (format!("HEAD/{HASH}"), format!("sha1:{HASH}")),
            (HASH.into(), format!("sha1:{HASH}")),
            (format!("main@sha1:{HASH}"), format!("main@sha1:{HASH}")),
            ("main".into(), "main".into()),
        ] {
            assert_eq!(Revision::parse(&text).to_string(), new);
        }
    }

    proptest! {
        #[test]
        fn printing_and_reading_again_changes_nothing(text in "\\PC{0,80}") {
            let once = Revision::parse(&text).to_string();
            prop_assert_eq!(Revision::parse(&once).to_string(), once.clone());
            if text.contains(':') { prop_assert_eq!(once, text); }
        }
    }
}
