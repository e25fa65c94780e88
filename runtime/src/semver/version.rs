//! Versions of tags, with an optional leading `v`, missing parts and leading zeros.

use std::cmp::Ordering;
use std::sync::LazyLock;

use regex::Regex;

/// Maximum length of a version in bytes.
const MAX_LENGTH: usize = 256;

/// Identifiers after a `-` or a `+`, as a regular expression.
pub(super) const IDENTIFIERS: &str = r"[0-9A-Za-z\-]+(?:\.[0-9A-Za-z\-]+)*";

static FORM: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let parts = r"v?([0-9]+)(?:\.([0-9]+))?(?:\.([0-9]+))?";
    Regex::new(&format!(r"^{parts}(?:-({IDENTIFIERS}))?(?:\+({IDENTIFIERS}))?$")).ok()
});

/// A version. Equality and order follow precedence and ignore build metadata.
#[derive(Clone, Debug)]
pub struct Version {
    /// The major number.
    pub major: u64,
    /// The minor number; 0 if missing.
    pub minor: u64,
    /// The patch number; 0 if missing.
    pub patch: u64,
    /// The identifiers after the `-`; empty for a release.
    pub pre: String,
}

impl Version {
    /// Parses a version: `1.2.3`, `v1.2`, `01.2.3-rc.1+build`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_LENGTH {
            return None;
        }
        let parts = FORM.as_ref()?.captures(text)?;
        let number = |index: usize| {
            parts
                .get(index)
                .map_or(Some(0), |digits| digits.as_str().parse().ok())
        };
        let pre = parts.get(4).map_or("", |pre| pre.as_str());
        // Numeric identifiers have no leading zeros, unlike the version numbers.
        let padded = |part: &str| part.len() > 1 && part.starts_with('0') && is_number(part);
        if pre.split('.').any(padded) {
            return None;
        }
        Some(Self {
            major: number(1)?,
            minor: number(2)?,
            patch: number(3)?,
            pre: pre.to_owned(),
        })
    }

    /// Parses the short name of a tag. Unlike [`Version::parse`], requires three parts: `v1` and `1.2` are not releases.
    #[must_use]
    pub fn from_tag(name: &str) -> Option<Self> {
        let bare = name.strip_prefix('v').unwrap_or(name);
        (bare.split('.').count() >= 3).then(|| Self::parse(name))?
    }

    /// Returns whether this is a pre-release.
    #[must_use]
    pub(crate) fn is_pre_release(&self) -> bool {
        !self.pre.is_empty()
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        let numbers = |version: &Self| (version.major, version.minor, version.patch);
        let by_number = numbers(self).cmp(&numbers(other));
        by_number.then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => compare_identifiers(&self.pre, &other.pre),
        })
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Version {}

/// Compares identifier by identifier; numbers come before words, and fewer identifiers before more.
pub(super) fn compare_identifiers(one: &str, other: &str) -> Ordering {
    let (mut ones, mut others) = (one.split('.'), other.split('.'));
    loop {
        let order = match (ones.next(), others.next()) {
            (None, None) => return Ordering::Equal,
            (one, other) => compare_identifier(one.unwrap_or_default(), other.unwrap_or_default()),
        };
        if order.is_ne() {
            return order;
        }
    }
}

fn compare_identifier(one: &str, other: &str) -> Ordering {
    if one == other {
        return Ordering::Equal;
    }
    // A missing identifier comes before any other.
    if one.is_empty() || other.is_empty() {
        return one.len().cmp(&other.len());
    }
    // A number beyond 64 bits counts as a word.
    let number = |text: &str| is_number(text).then(|| text.parse::<u64>().ok()).flatten();
    match (number(one), number(other)) {
        (Some(one), Some(other)) => one.cmp(&other),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => one.cmp(other),
    }
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tags_need_three_parts() {
        for (name, good) in [
            ("v1.2.3", true),
            ("1.2.3", true),
            ("v2025.02.03-rc.1", true),
            ("1.2.3+build.5", true),
            // The dots of identifiers count, because only dots are counted.
            ("1.2-a.b", true),
            ("v1", false),
            ("1.2", false),
            ("vv1.2.3", false),
            ("foo/v1.2.3", false),
            ("1.2.3.4", false),
            ("1.2.3-01", false),
            ("1.2.99999999999999999999", false),
            ("", false),
        ] {
            assert_eq!(Version::from_tag(name).is_some(), good, "{name}");
        }
    }

    #[test]
    fn versions_are_ordered() {
        let rising = [
            "0.0.1-1",
            "0.0.1-2",
            "0.0.1-10",
            "0.0.1-a",
            "0.0.1-a.0",
            "0.0.1-a.b",
            "0.0.1-b",
            "0.0.1",
            "0.1",
            "v1",
            "1.0.1-rc.1",
            "1.0.1",
            "v1.10.0",
            "2.0.0",
        ];
        let versions: Vec<_> = rising.iter().map(|text| Version::parse(text).unwrap()).collect();
        for (index, one) in versions.iter().enumerate() {
            for (other_index, other) in versions.iter().enumerate() {
                assert_eq!(one.cmp(other), index.cmp(&other_index), "{one:?} {other:?}");
            }
        }
        for (one, other) in [("1.0.0+a", "v1.0.0+b"), ("01.0.0", "1"), ("1.0.0-a+b", "1.0.0-a")] {
            assert_eq!(Version::parse(one), Version::parse(other));
        }
    }

    proptest! {
        #[test]
        fn any_name_is_a_version_or_not(name in "\\PC{0,60}") {
            let _ = Version::from_tag(&name);
        }

        #[test]
        fn a_leading_v_changes_nothing(name in "[0-9]{1,3}(\\.[0-9]{1,3}){2}(-[a-z1-9.]{0,5})?(\\+[a-z]{1,3})?") {
            prop_assert_eq!(Version::from_tag(&name), Version::from_tag(&format!("v{name}")));
        }
    }
}
