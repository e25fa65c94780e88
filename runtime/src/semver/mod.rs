//! Version constraints as Flux users write them: the grammar and the rules of Masterminds/semver v3.5. Pure.
//!
//! Cargo's rules, and npm's, are others: here a comma or a space means *and*, `||` means *or*, `1.2.3` alone means
//! exactly that, and a group admits pre-releases if any of its comparators names one. `tests/semver/` of this crate
//! holds what the original answers, and the small Go program that asked it.

mod comparator;
mod selection;
mod version;

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use regex::Regex;

use comparator::{Comparator, Open, Operator};
use version::IDENTIFIERS;

pub use selection::Selection;
pub use version::Version;

/// Longest constraint that is read, in bytes.
const LONGEST: usize = 512;
/// Most groups between `||`.
const MOST_GROUPS: usize = 32;

/// White space, of which the original knows less than Unicode does.
const SPACE: &str = r"[\t\n\f\r ]";
/// Operators. The order decides which of two is tried first.
const OPERATOR: &str = r"=||!=|>|<|>=|=>|<=|=<|~|~>|\^";

/// Which constraints a version must satisfy: one of the groups, in it all comparators.
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

/// A text that is no constraint; the messages are those of the original.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConstraintError {
    /// More than 512 bytes.
    #[error("constraint string is too long (max {LONGEST} bytes)")]
    TooLong,
    /// More than 32 groups.
    #[error("too many constraint groups (max {MOST_GROUPS})")]
    TooManyGroups,
    /// A part does not have the form of a comparison.
    #[error("improper constraint: {0:?}")]
    Improper(String),
    /// A part has the form, but no version can be made of it: a number beyond 64 bits, `1x`, `1.0.0-01`.
    #[error("constraint parser error")]
    Unusable,
}

/// The grammar's regular expressions, as the original has them: what they let through is the grammar.
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
    /// Whether the version satisfies the constraint.
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
        if text.len() > LONGEST {
            return Err(ConstraintError::TooLong);
        }
        let grammar = GRAMMAR.as_ref().ok_or(ConstraintError::Unusable)?;
        let rewritten = grammar.without_ranges(text);
        let groups: Vec<_> = rewritten.split("||").collect();
        if groups.len() > MOST_GROUPS {
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
    /// As it was written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Grammar {
    /// `1.2 - 3` becomes two comparisons. Each range replaces the first place where its text stands, as the original
    /// does it.
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

/// From an operator and up to three numbers with what follows them.
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

#[cfg(test)]
mod tests;
