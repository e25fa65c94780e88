//! Names of states: `main@sha1:<commit>` and every older form that still stands in statuses.

use std::fmt;

/// A revision, taken apart. Any text can be read: what has no recognisable hash is kept whole.
///
/// | written | read as |
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

/// The part behind the `@`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Checksum {
    algorithm: String,
    hash: String,
}

impl Revision {
    /// Reads a revision; never fails.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        if text.contains(':') {
            Self::parse_new(text)
        } else {
            Self::parse_legacy(text)
        }
    }

    /// The revision of a Git commit under a reference, by Flux's rule: the full reference when the user named it
    /// (`spec.ref.name`); otherwise without its first two components (`refs/heads/`), and none when nothing is left.
    #[must_use]
    pub fn of_commit(reference: &str, named: bool, hash: &str) -> Self {
        let shown = if named {
            Some(reference)
        } else {
            reference.splitn(3, '/').nth(2)
        };
        let algorithm = if hash.len() == 40 { "sha1" } else { "<unknown>" };
        Self {
            reference: shown.filter(|name| !name.is_empty()).map(str::to_owned),
            checksum: Some(Checksum {
                algorithm: algorithm.to_owned(),
                hash: hash.to_owned(),
            }),
        }
    }

    /// The reference, e.g. `main`, `v1.0.0` or `refs/pull/1/head`.
    #[must_use]
    pub fn reference(&self) -> Option<&str> {
        self.reference.as_deref()
    }

    /// The algorithm of the hash, e.g. `sha1`.
    #[must_use]
    pub fn algorithm(&self) -> Option<&str> {
        self.checksum.as_ref().map(|sum| sum.algorithm.as_str())
    }

    /// The hash: the commit of a Git repository, the digest of an OCI artifact.
    #[must_use]
    pub fn hash(&self) -> Option<&str> {
        self.checksum.as_ref().map(|sum| sum.hash.as_str())
    }

    /// At most the first `length` characters of the hash.
    #[must_use]
    pub fn short_hash(&self, length: usize) -> Option<&str> {
        self.hash().map(|hash| {
            hash.char_indices()
                .nth(length)
                .map_or(hash, |(end, _)| &hash[..end])
        })
    }

    /// The form with an algorithm: `[<reference>@]<algorithm>:<hash>`. The last `@` divides, for a reference may hold one.
    fn parse_new(text: &str) -> Self {
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

    /// The forms without one: `<reference>/<hash>` and `<hash>`.
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

/// Legacy revisions do not say their algorithm: the number of digits does.
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
    /// The new form, whatever form was read.
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
    use super::*;
    use proptest::prelude::*;

    const HASH: &str = "b8e362c206e3d0cbb7ed22ced771a0056455a2fb";

    #[test]
    fn every_form_is_read() {
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
    fn legacy_forms_are_rewritten_and_new_ones_kept() {
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

    #[test]
    fn a_commit_is_named_as_flux_names_it() {
        for (reference, named, revision) in [
            ("refs/heads/master", false, format!("master@sha1:{HASH}")),
            ("refs/heads/feature/x", false, format!("feature/x@sha1:{HASH}")),
            ("refs/tags/v1.0.0", false, format!("v1.0.0@sha1:{HASH}")),
            ("HEAD", false, format!("sha1:{HASH}")),
            ("refs/heads/main", true, format!("refs/heads/main@sha1:{HASH}")),
            ("refs/tags/v1^{}", true, format!("refs/tags/v1^{{}}@sha1:{HASH}")),
            (
                "refs/pull/420/head",
                true,
                format!("refs/pull/420/head@sha1:{HASH}"),
            ),
        ] {
            assert_eq!(Revision::of_commit(reference, named, HASH).to_string(), revision);
        }
    }

    #[test]
    fn a_short_hash_never_cuts_inside_a_character() {
        assert_eq!(
            Revision::parse(&format!("main@sha1:{HASH}")).short_hash(10),
            Some("b8e362c206")
        );
        assert_eq!(Revision::parse("main@sha1:abc").short_hash(10), Some("abc"));
        assert_eq!(Revision::parse("main@sha1:äöü").short_hash(2), Some("äö"));
        assert_eq!(Revision::parse("main").short_hash(10), None);
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
