//! Version constraints of `spec.tool`: a version, the start of one, or a constraint as in `required_version`. Its `~>` differs from that
//! of `sluice_runtime::semver`.

use std::fmt;

use semver::{BuildMetadata, Prerelease, Version};

/// Length limit of a constraint.
pub(super) const LENGTH_LIMIT: usize = 64;
/// Limit of the digits of a number.
const DIGIT_LIMIT: usize = 9;
/// The operators, longer ones before their prefixes.
const OPERATORS: [(&str, Operator); 7] = [
    ("~>", Operator::Pessimistic),
    (">=", Operator::AtLeast),
    ("<=", Operator::AtMost),
    ("!=", Operator::Not),
    (">", Operator::Above),
    ("<", Operator::Below),
    ("=", Operator::Is),
];

/// A constraint: a version matches if all terms do. The empty text, the default, matches any version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionConstraint {
    text: String,
    terms: Vec<Term>,
}

/// One comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    operator: Operator,
    /// Absent numbers are 0.
    version: Version,
    /// Count of present numbers: 1, 2 or 3.
    precision: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Is,
    Not,
    Above,
    AtLeast,
    Below,
    AtMost,
    /// The last present number may increase.
    Pessimistic,
}

/// A text is not a constraint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a version: use one (1.8.3), the start of one (1.8, 1.8.x), or a constraint of at most {LENGTH_LIMIT} bytes \
     (~> 1.8, >= 1.8, < 1.11)"
)]
pub struct InvalidConstraint {
    /// The text, truncated.
    text: String,
}

impl std::str::FromStr for VersionConstraint {
    type Err = InvalidConstraint;

    fn from_str(text: &str) -> Result<Self, InvalidConstraint> {
        let invalid = || InvalidConstraint {
            text: text.chars().take(LENGTH_LIMIT).collect(),
        };
        if text.len() > LENGTH_LIMIT {
            return Err(invalid());
        }
        let text = text.trim_matches(' ');
        let terms = if matches!(text, "" | "*") {
            Some(Vec::new())
        } else {
            text.split(',').map(term).collect()
        };
        Ok(Self {
            text: text.to_owned(),
            terms: terms.ok_or_else(invalid)?,
        })
    }
}

impl fmt::Display for VersionConstraint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl VersionConstraint {
    /// Whether a version matches. A pre-release matches only if a term names a pre-release of the same version.
    #[must_use]
    pub fn matches(&self, version: &Version) -> bool {
        let is_named =
            |term: &Term| !term.version.pre.is_empty() && numbers(&term.version) == numbers(version);
        (version.pre.is_empty() || self.terms.iter().any(is_named))
            && self.terms.iter().all(|term| term.matches(version))
    }

    /// Returns the newest version that matches.
    #[must_use]
    pub fn newest<'a>(&self, versions: impl IntoIterator<Item = &'a Version>) -> Option<&'a Version> {
        versions.into_iter().filter(|version| self.matches(version)).max()
    }

    /// Whether every version matches, except for pre-releases.
    #[must_use]
    pub const fn is_any(&self) -> bool {
        self.terms.is_empty()
    }
}

impl Term {
    fn matches(&self, version: &Version) -> bool {
        let order = version.cmp_precedence(&self.version);
        match self.operator {
            Operator::Is => self.equals(version),
            Operator::Not => !self.equals(version),
            Operator::Above => order.is_gt(),
            Operator::AtLeast => order.is_ge(),
            Operator::Below => order.is_lt(),
            Operator::AtMost => order.is_le(),
            Operator::Pessimistic => {
                let fixed = self.precision - 1;
                order.is_ge() && numbers(version)[..fixed] == numbers(&self.version)[..fixed]
            }
        }
    }

    /// Whether all present numbers are equal.
    fn equals(&self, version: &Version) -> bool {
        if self.precision == 3 {
            return *version == self.version;
        }
        numbers(version)[..self.precision] == numbers(&self.version)[..self.precision]
    }
}

fn numbers(version: &Version) -> [u64; 3] {
    [version.major, version.minor, version.patch]
}

fn term(text: &str) -> Option<Term> {
    let text = text.trim_matches(' ');
    let found = OPERATORS
        .iter()
        .find_map(|(sign, operator)| Some((text.strip_prefix(sign)?, *operator)));
    let (text, operator) = found.unwrap_or((text, Operator::Is));
    let text = text.trim_start_matches(' ');
    let text = text.strip_prefix('v').unwrap_or(text);
    if text.ends_with(['-', '+']) || text.contains("-+") {
        return None;
    }
    let (text, build) = text.split_once('+').unwrap_or((text, ""));
    let (text, pre) = text.split_once('-').unwrap_or((text, ""));
    let mut parts: Vec<&str> = text.split('.').collect();
    if operator == Operator::Is && parts.len() > 1 {
        while parts.last().is_some_and(|part| matches!(*part, "x" | "X" | "*")) {
            parts.pop();
        }
    }
    let mut parsed = [0; 3];
    if parts.is_empty() || parts.len() > 3 {
        return None;
    }
    for (slot, part) in parsed.iter_mut().zip(&parts) {
        *slot = number(part)?;
    }
    let is_complete = parts.len() == 3;
    if !(is_complete || pre.is_empty() && build.is_empty()) {
        return None;
    }
    Some(Term {
        operator,
        version: Version {
            major: parsed[0],
            minor: parsed[1],
            patch: parsed[2],
            pre: Prerelease::new(pre).ok()?,
            build: BuildMetadata::new(build).ok()?,
        },
        precision: parts.len(),
    })
}

fn number(text: &str) -> Option<u64> {
    let is_number = (1..=DIGIT_LIMIT).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(text: &str, version: &str) -> bool {
        let constraint: VersionConstraint = text.parse().unwrap();
        constraint.matches(&version.parse().unwrap())
    }

    #[test]
    fn a_constraint_admits_exactly_its_versions() {
        let table: &[(&str, &[&str], &[&str])] = &[
            ("", &["0.1.0", "1.12.6"], &["1.12.0-rc1"]),
            ("*", &["1.12.6"], &["1.12.0-rc1"]),
            (
                "1.8.3",
                &["1.8.3"],
                &["1.8.3+ent", "1.8.4", "1.8.3-rc1", "1.18.3"],
            ),
            ("v1.8.3", &["1.8.3"], &["1.8.2"]),
            ("= 1.8.3+ent", &["1.8.3+ent"], &["1.8.3"]),
            ("1.8.3-rc1", &["1.8.3-rc1"], &["1.8.3", "1.8.3-rc2"]),
            ("1.8", &["1.8.0", "1.8.9"], &["1.9.0", "1.80.0", "1.8.0-rc1"]),
            ("1.8.x", &["1.8.0", "1.8.9"], &["1.9.0", "2.8.0"]),
            ("1.*.*", &["1.0.0", "1.9.0"], &["2.0.0"]),
            ("1", &["1.0.0", "1.12.6"], &["0.1.0", "2.0.0"]),
            ("~> 1.8", &["1.8.0", "1.12.6"], &["1.7.9", "2.0.0"]),
            ("~> 1.8.3", &["1.8.3", "1.8.9"], &["1.8.2", "1.9.0"]),
            ("~>1", &["1.0.0", "2.0.0"], &["0.9.0"]),
            (">= 1.8, < 1.11", &["1.8.0", "1.10.9"], &["1.7.0", "1.11.0"]),
            ("> 1.8.3,<= 1.9.0", &["1.8.4", "1.9.0"], &["1.8.3", "1.9.1"]),
            (">= 1.8, != 1.9.1", &["1.9.0", "1.9.2"], &["1.9.1"]),
            ("!= 1.9", &["1.8.0"], &["1.9.0", "1.9.5"]),
            (
                ">= 1.9.0-beta2",
                &["1.9.0-beta2", "1.9.0-rc1", "1.9.0", "2.0.0"],
                &["1.9.0-beta1", "1.10.0-beta3"],
            ),
        ];
        for (text, matching, other) in table {
            for version in *matching {
                assert!(matches(text, version), "{text:?} matches {version}");
            }
            for version in *other {
                assert!(!matches(text, version), "{text:?} does not match {version}");
            }
        }
    }

    #[test]
    fn invalid_versions_are_rejected() {
        let long = ">= 1.0.0, ".repeat(10);
        for text in [
            "latest",
            "1.8.3.4",
            "1.x.3",
            "x",
            "~> 1.x",
            ">= *",
            "1.8-rc1",
            "1.8.3-",
            "1,",
            ",",
            "~>",
            "1..3",
            "../../bin",
            "1.8.3 1.8.4",
            "-1",
            "1.9999999999",
            "1.8.3-rc_1",
            "≥ 1",
            "1.8.3\n",
            long.as_str(),
        ] {
            let refused = text.parse::<VersionConstraint>();
            assert!(refused.is_err(), "{text:?}: {refused:?}");
            assert!(refused.unwrap_err().to_string().len() < 300);
        }
    }

    #[test]
    fn versions_are_compared_numerically() {
        let versions: Vec<Version> = ["1.9.0", "1.10.2", "1.10.10", "1.8.99", "2.0.0-rc1"]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        let newest = |text: &str| {
            let constraint: VersionConstraint = text.parse().unwrap();
            constraint.newest(&versions).map(ToString::to_string)
        };
        assert_eq!(newest("").as_deref(), Some("1.10.10"));
        assert_eq!(newest("~> 1.8.0").as_deref(), Some("1.8.99"));
        assert_eq!(newest("< 1.10.10").as_deref(), Some("1.10.2"));
        assert_eq!(newest("2.0.0-rc1").as_deref(), Some("2.0.0-rc1"));
        assert_eq!(newest("2"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,80}") {
            if let Ok(constraint) = text.parse::<VersionConstraint>() {
                let again: VersionConstraint = constraint.to_string().parse().unwrap();
                prop_assert_eq!(constraint, again);
            }
        }

        #[test]
        fn any_text_of_its_letters_is_read_or_refused(text in "[0-9.x*v ,<>=!~+a-z-]{0,70}", version in (0_u64..3, 0_u64..3, 0_u64..3)) {
            let version = Version::new(version.0, version.1, version.2);
            if let Ok(constraint) = text.parse::<VersionConstraint>() {
                prop_assert_eq!(constraint.newest([&version]).is_some(), constraint.matches(&version));
            }
        }

        #[test]
        fn comparisons_agree_with_each_other(a in (0_u64..4, 0_u64..4, 0_u64..4), b in (0_u64..4, 0_u64..4, 0_u64..4)) {
            let version = Version::new(b.0, b.1, b.2);
            let of = |sign: &str| matches(&format!("{sign} {}.{}.{}", a.0, a.1, a.2), &version.to_string());
            prop_assert_eq!(of(">="), a <= b);
            prop_assert_eq!(of(">"), !of("<="));
            prop_assert_eq!(of("<"), !of(">="));
            prop_assert_eq!(of("="), a == b);
            prop_assert_eq!(of("!="), a != b);
            prop_assert_eq!(of("~>"), a <= b && (a.0, a.1) == (b.0, b.1));
            prop_assert_eq!(matches(&format!("{}.{}", a.0, a.1), &version.to_string()), (a.0, a.1) == (b.0, b.1));
            prop_assert_eq!(matches(&format!("~> {}.{}", a.0, a.1), &version.to_string()), (a.0, a.1) <= (b.0, b.1) && a.0 == b.0);
        }
    }
}
