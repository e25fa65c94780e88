//! Version constraints with the grammar and the rules of Masterminds/semver v3.5, as in Flux. Pure.
//!
//! The rules differ from Cargo's and npm's: a comma or a space means *and*, `||` means *or*, `1.2.3` alone means exactly this
//! version, and a group admits pre-releases if any of its comparators has one. `tests/semver/` of this crate contains the
//! results of the original, and the Go program that generates them.

mod comparator;
mod version;

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use comparator::{Comparator, Open, Operator};
use regex::Regex;
use version::IDENTIFIERS;
pub use version::Version;

/// Maximum length of a constraint in bytes.
const MAX_LENGTH: usize = 512;
/// Maximum number of groups separated by `||`.
const MAX_GROUPS: usize = 32;

/// White space of the original, which is less than Unicode's.
const SPACE: &str = r"[\t\n\f\r ]";
/// Operators. The order of the alternatives matters.
const OPERATOR: &str = r"=||!=|>|<|>=|=>|<=|=<|~|~>|\^";

/// A constraint: a version must satisfy all comparators of at least one group.
#[derive(Clone, Debug)]
pub struct Constraint {
    groups: Vec<Group>,
    text: String,
}

#[derive(Clone, Debug)]
struct Group {
    comparators: Vec<Comparator>,
    pre_releases: bool,
}

/// A text is not a constraint; the messages are those of the original.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConstraintError {
    /// More than 512 bytes.
    #[error("constraint string is too long (max {MAX_LENGTH} bytes)")]
    TooLong,
    /// More than 32 groups.
    #[error("too many constraint groups (max {MAX_GROUPS})")]
    TooManyGroups,
    /// A part is not a comparison.
    #[error("improper constraint: {0:?}")]
    Improper(String),
    /// A part is a comparison without a valid version: a number beyond 64 bits, `1x`, `1.0.0-01`.
    #[error("constraint parser error")]
    Unusable,
}

/// The regular expressions of the original, which define the grammar.
struct Grammar {
    range: Regex,
    valid: Regex,
    part: Regex,
}

static GRAMMAR: LazyLock<Option<Grammar>> = LazyLock::new(|| {
    let number = r"[0-9xX|*]+";
    let version = format!(r"v?{number}(?:\.{number})?(?:\.{number})?(?:-{IDENTIFIERS})?(?:\+{IDENTIFIERS})?");
    let parts =
        format!(r"v?({number})(?:\.({number}))?(?:\.({number}))?(-{IDENTIFIERS})?(?:\+{IDENTIFIERS})?");
    let comparator = format!("(?:{OPERATOR}){SPACE}*(?:{version})");
    let more = format!("(?:{SPACE}+|,{SPACE}*){comparator}{SPACE}*");
    Some(Grammar {
        range: Regex::new(&format!(
            "{SPACE}*({version}){SPACE}+-{SPACE}+({version}){SPACE}*"
        ))
        .ok()?,
        valid: Regex::new(&format!("^{SPACE}*{comparator}{SPACE}*(?:{more})*$")).ok()?,
        part: Regex::new(&format!("({OPERATOR}){SPACE}*(?:{parts})")).ok()?,
    })
});

impl Constraint {
    /// Returns whether the version satisfies the constraint.
    #[must_use]
    pub fn admits(&self, version: &Version) -> bool {
        self.groups.iter().any(|group| {
            (group.pre_releases || !version.is_pre_release())
                && group
                    .comparators
                    .iter()
                    .all(|comparator| comparator.admits(version))
        })
    }
}

impl FromStr for Constraint {
    type Err = ConstraintError;

    fn from_str(text: &str) -> Result<Self, ConstraintError> {
        if text.len() > MAX_LENGTH {
            return Err(ConstraintError::TooLong);
        }
        let grammar = GRAMMAR.as_ref().ok_or(ConstraintError::Unusable)?;
        let rewritten = grammar.without_ranges(text);
        let groups: Vec<_> = rewritten.split("||").collect();
        if groups.len() > MAX_GROUPS {
            return Err(ConstraintError::TooManyGroups);
        }
        let groups = groups
            .into_iter()
            .map(|group| grammar.group(group))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            groups,
            text: text.to_owned(),
        })
    }
}

impl fmt::Display for Constraint {
    /// Writes the original text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Grammar {
    /// Replaces ranges such as `1.2 - 3` by two comparisons, each at the first occurrence of its text, as the original does.
    fn without_ranges(&self, text: &str) -> String {
        self.range
            .captures_iter(text)
            .fold(text.to_owned(), |rewritten, found| {
                rewritten.replacen(&found[0], &format!(">= {}, <= {} ", &found[1], &found[2]), 1)
            })
    }

    fn group(&self, text: &str) -> Result<Group, ConstraintError> {
        if !self.valid.is_match(text) {
            return Err(ConstraintError::Improper(text.to_owned()));
        }
        let comparators = self.part.captures_iter(text).map(|parts| comparator(&parts));
        let comparators = comparators.collect::<Result<Vec<_>, _>>()?;
        Ok(Group {
            pre_releases: comparators
                .iter()
                .any(|comparator| comparator.version.is_pre_release()),
            comparators,
        })
    }
}

/// Builds a comparator from an operator and up to three numbers with their suffixes.
fn comparator(parts: &regex::Captures<'_>) -> Result<Comparator, ConstraintError> {
    let operator =
        Operator::parse(&parts[1]).ok_or_else(|| ConstraintError::Improper(parts[0].to_owned()))?;
    let number = |index: usize| {
        parts
            .get(index)
            .map(|number| number.as_str())
            .filter(|number| !is_wildcard(number))
    };
    let pre = parts.get(5).map_or("", |pre| pre.as_str());
    let (open, text) = match (number(2), number(3), number(4)) {
        (None, ..) => (Open::Major, format!("0.0.0{pre}")),
        (Some(major), None, _) => (Open::Minor, format!("{major}.0.0{pre}")),
        (Some(major), Some(minor), None) => (Open::Patch, format!("{major}.{minor}.0{pre}")),
        (Some(major), Some(minor), Some(patch)) => (Open::Nothing, format!("{major}.{minor}.{patch}{pre}")),
    };
    let version = Version::parse(&text).ok_or(ConstraintError::Unusable)?;
    Ok(Comparator {
        operator,
        version,
        open,
    })
}

fn is_wildcard(number: &str) -> bool {
    matches!(number, "x" | "X" | "*")
}

/// The tags with the highest version that the constraint admits. There are several if they differ in build metadata or in the
/// spelling of the same numbers.
#[derive(Debug)]
pub struct Selection<'a, T> {
    constraint: &'a Constraint,
    best: Option<(Version, Vec<T>)>,
}

impl<'a, T> Selection<'a, T> {
    /// Creates an empty selection.
    #[must_use]
    pub const fn new(constraint: &'a Constraint) -> Self {
        Self {
            constraint,
            best: None,
        }
    }

    /// Considers a tag with this short name.
    pub fn consider(&mut self, name: &str, tag: T) {
        let Some(version) = Version::from_tag(name).filter(|version| self.constraint.admits(version)) else {
            return;
        };
        match &mut self.best {
            Some((best, tied)) => match version.cmp(best) {
                Ordering::Less => {}
                Ordering::Equal => tied.push(tag),
                Ordering::Greater => self.best = Some((version, vec![tag])),
            },
            None => self.best = Some((version, vec![tag])),
        }
    }

    /// Returns the best tags in the order in which they were considered; empty if no tag satisfies the constraint.
    #[must_use]
    pub fn best(self) -> Vec<T> {
        self.best.map(|(_, tied)| tied).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
