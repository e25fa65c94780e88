//! One comparison of a constraint: an operator and a version, whose parts may be wildcards.

use super::version::{Version, compare_identifiers};

/// The operator of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    NotEqual,
    Greater,
    Less,
    GreaterOrEqual,
    LessOrEqual,
    Tilde,
    Caret,
}

impl Operator {
    /// Parses an operator.
    pub(super) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "" | "=" => Self::Equal,
            "!=" => Self::NotEqual,
            ">" => Self::Greater,
            "<" => Self::Less,
            ">=" | "=>" => Self::GreaterOrEqual,
            "<=" | "=<" => Self::LessOrEqual,
            "~" | "~>" => Self::Tilde,
            "^" => Self::Caret,
            _ => return None,
        })
    }
}

/// The first part of the version that is a wildcard or missing; all later parts count as wildcards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Open {
    Nothing,
    Patch,
    Minor,
    Major,
}

/// An operator with its version; wildcard parts are 0.
#[derive(Clone, Debug)]
pub(super) struct Comparator {
    pub(super) operator: Operator,
    pub(super) version: Version,
    pub(super) open: Open,
}

impl Comparator {
    /// Returns whether `version` matches; the caller has filtered pre-releases. Unusual rules (`<=` with a wildcard ignores
    /// the major part, `~0.0.0` matches everything) are those of Masterminds' library, which users' constraints rely on.
    pub(super) fn admits(&self, version: &Version) -> bool {
        match self.operator {
            Operator::Equal if self.open == Open::Nothing => *version == self.version,
            Operator::Equal | Operator::Tilde => self.admits_near(version),
            Operator::NotEqual => self.admits_other(version),
            Operator::Greater => self.admits_greater(version),
            Operator::Less => *version < self.version,
            Operator::GreaterOrEqual => *version >= self.version,
            Operator::LessOrEqual => self.admits_up_to(version),
            Operator::Caret => self.admits_compatible(version),
        }
    }

    fn admits_near(&self, version: &Version) -> bool {
        let own = &self.version;
        if version < own {
            return false;
        }
        let zero = (own.major, own.minor, own.patch) == (0, 0, 0);
        if zero && matches!(self.open, Open::Nothing | Open::Major) {
            return true;
        }
        version.major == own.major && (version.minor == own.minor || self.open == Open::Minor)
    }

    fn admits_other(&self, version: &Version) -> bool {
        let own = &self.version;
        match self.open {
            Open::Nothing => version != own,
            _ if version.major != own.major => true,
            Open::Minor => false,
            _ if version.minor != own.minor => true,
            Open::Patch if version.is_pre_release() || own.is_pre_release() => {
                compare_identifiers(&version.pre, &own.pre).is_ne()
            }
            Open::Patch => false,
            Open::Major => version != own,
        }
    }

    fn admits_greater(&self, version: &Version) -> bool {
        let own = &self.version;
        match self.open {
            Open::Nothing => version > own,
            _ if version.major != own.major => version.major > own.major,
            Open::Minor => false,
            Open::Patch => version.minor > own.minor,
            Open::Major => version > own,
        }
    }

    fn admits_up_to(&self, version: &Version) -> bool {
        let own = &self.version;
        match self.open {
            Open::Nothing => version <= own,
            _ if version.major > own.major => false,
            Open::Minor => true,
            _ => version.major < own.major || version.minor <= own.minor,
        }
    }

    fn admits_compatible(&self, version: &Version) -> bool {
        let own = &self.version;
        if version < own {
            return false;
        }
        if own.major > 0 || self.open == Open::Minor {
            return version.major == own.major;
        }
        if version.major > 0 {
            return false;
        }
        if own.minor > 0 || self.open == Open::Patch {
            return version.minor == own.minor;
        }
        version.minor == 0 && version.patch == own.patch
    }
}
