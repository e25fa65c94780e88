//! A version as tags write it: lenient about a leading `v`, missing parts and leading zeros.

use std::cmp::Ordering;
use std::sync::LazyLock;

use regex::Regex;

/// Longest version that is read, in bytes.
const LONGEST: usize = 256;

/// Identifiers behind a `-` or a `+`, as a regular expression.
pub(super) const IDENTIFIERS: &str = r"[0-9A-Za-z\-]+(?:\.[0-9A-Za-z\-]+)*";

static FORM: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let parts = r"v?([0-9]+)(?:\.([0-9]+))?(?:\.([0-9]+))?";
    Regex::new(&format!(r"^{parts}(?:-({IDENTIFIERS}))?(?:\+({IDENTIFIERS}))?$")).ok()
});

/// A version. Equality and order are those of precedence: build metadata has no part in them.
#[derive(Clone, Debug)]
pub struct Version {
    /// The first number.
    pub major: u64,
    /// The second number; 0 if it is not written.
    pub minor: u64,
    /// The third number; 0 if it is not written.
    pub patch: u64,
    /// The identifiers behind the `-`, empty for a release.
    pub pre: String,
}

impl Version {
    /// Reads a version: `1.2.3`, `v1.2`, `01.2.3-rc.1+build`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > LONGEST {
            return None;
        }
        let parts = FORM.as_ref()?.captures(text)?;
        let number = |index: usize| {
            parts
                .get(index)
                .map_or(Some(0), |digits| digits.as_str().parse().ok())
        };
        let pre = parts.get(4).map_or("", |pre| pre.as_str());
        // Numbers among the identifiers have no leading zeros, unlike those in front.
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

    /// Reads the short name of a tag. Unlike elsewhere, three parts between dots have to be there: `v1` and `1.2` name
    /// no release.
    #[must_use]
    pub fn of_tag(name: &str) -> Option<Self> {
        let bare = name.strip_prefix('v').unwrap_or(name);
        (bare.split('.').count() >= 3).then(|| Self::parse(name))?
    }

    /// Whether it is a pre-release.
    #[must_use]
    pub fn is_pre_release(&self) -> bool {
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

/// Identifier by identifier; numbers stand before words, and fewer identifiers before more.
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
    // What is not there stands before everything that is.
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
            assert_eq!(Version::of_tag(name).is_some(), good, "{name}");
        }
    }

    #[test]
    fn versions_stand_in_their_order() {
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
            let _ = Version::of_tag(&name);
        }

        #[test]
        fn whatever_looks_like_one_is_read_the_same_with_a_v(name in "[0-9]{1,3}(\\.[0-9]{1,3}){2}(-[a-z1-9.]{0,5})?(\\+[a-z]{1,3})?") {
            prop_assert_eq!(Version::of_tag(&name), Version::of_tag(&format!("v{name}")));
        }
    }
}
