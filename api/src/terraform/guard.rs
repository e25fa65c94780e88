//! The guard rails of `autoApply`: which plans wait for a person although the spec applies plans by itself. Pure; the
//! runner asks before it applies what it planned, the controller before it has a stored plan applied.

use std::fmt;

use super::pattern::matches;
use super::{AutoApply, ChangeKind};
use crate::run::{Change, PlanEffects};

/// Addresses or types that one reason names.
const NAMED: usize = 5;

/// Why a plan is held: at least one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held(Vec<HoldReason>);

impl Held {
    /// The reasons.
    #[must_use]
    pub fn reasons(&self) -> &[HoldReason] {
        &self.0
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, reason) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{reason}")?;
        }
        Ok(())
    }
}

/// One reason to hold a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HoldReason {
    /// It makes changes of a kind that waits.
    #[error("{count} {what} ({rule}){named}")]
    Kind {
        /// How many.
        count: i64,
        /// The kind in words.
        what: &'static str,
        /// The field that holds it.
        rule: &'static str,
        /// Their addresses, as far as they are recorded.
        named: Names,
    },
    /// It touches resources of types that wait.
    #[error("changes of a held type (autoApply.holdResourceTypes){named}")]
    Type {
        /// The types.
        named: Names,
    },
    /// It touches more types than are recorded, and some types are held.
    #[error("more types of resources than are recorded (autoApply.holdResourceTypes)")]
    TypesUnknown,
    /// It touches too many resources.
    #[error("changes of {changes} resources, more than {most} (autoApply.maxChanges)")]
    TooMany {
        /// How many.
        changes: i64,
        /// How many there may be.
        most: i64,
    },
    /// It does something that this version does not know.
    #[error("{count} of an unknown kind{named}")]
    Unknown {
        /// How many.
        count: i64,
        /// Their addresses, as far as they are recorded.
        named: Names,
    },
    /// What it does was not recorded when it was made.
    #[error("what the plan does is not on record")]
    NotRecorded,
}

/// The first few of a number of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    first: Vec<String>,
    more: usize,
}

impl Names {
    fn of<'a>(names: impl Iterator<Item = &'a str>, all: i64) -> Self {
        let first: Vec<_> = names.take(NAMED).map(str::to_owned).collect();
        let more = usize::try_from(all).unwrap_or(0).saturating_sub(first.len());
        Self { first, more }
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first.is_empty() {
            return Ok(());
        }
        write!(f, ": {}", self.first.join(", "))?;
        if self.more != 0 {
            write!(f, " and {} more", self.more)?;
        }
        Ok(())
    }
}

/// Why a plan with these effects waits, or nothing. The entries only lend names to the reasons: the counts decide, because
/// the list of entries may have been cut.
#[must_use]
pub fn held(policy: &AutoApply, effects: Option<&PlanEffects>, entries: &[Change]) -> Option<Held> {
    let Some(effects) = effects else {
        return Some(Held(vec![HoldReason::NotRecorded]));
    };
    let mut reasons = kinds(policy, effects, entries);
    if effects.others != 0 {
        let strange = entries.iter().filter(|entry| !is_known(&entry.action));
        let named = Names::of(strange.map(|entry| entry.address.as_str()), effects.others);
        let count = effects.others;
        reasons.push(HoldReason::Unknown { count, named });
    }
    reasons.extend(types(policy, effects));
    if let Some(most) = policy.max_changes.map(|most| i64::from(most.max(0)))
        && effects.touched() > most
    {
        let changes = effects.touched();
        reasons.push(HoldReason::TooMany { changes, most });
    }
    (!reasons.is_empty()).then_some(Held(reasons))
}

/// The kinds of change that are there and wait. A replacement destroys too, and what leaves the state is lost to the stack:
/// both are held with deletes.
fn kinds(policy: &AutoApply, effects: &PlanEffects, entries: &[Change]) -> Vec<HoldReason> {
    let rows = [
        (effects.creates, "create", "create", ChangeKind::Create, false),
        (effects.updates, "update", "update", ChangeKind::Update, false),
        (effects.replaces, "replace", "replace", ChangeKind::Replace, true),
        (effects.deletes, "delete", "delete", ChangeKind::Delete, true),
        (
            effects.forgets,
            "forget",
            "forget, which counts as delete",
            ChangeKind::Delete,
            true,
        ),
    ];
    let mut reasons = Vec::new();
    for (count, action, what, kind, loses) in rows {
        let holds = policy.hold.contains(&kind) || loses && policy.hold.contains(&ChangeKind::Delete);
        let allows = policy.allow.is_empty() || policy.allow.contains(&kind);
        let rule = match (holds, allows) {
            (true, _) => "autoApply.hold",
            (false, false) => "not in autoApply.allow",
            (false, true) => continue,
        };
        if count != 0 {
            let of_kind = entries.iter().filter(|entry| entry.action == action);
            let named = Names::of(of_kind.map(|entry| entry.address.as_str()), count);
            reasons.push(HoldReason::Kind {
                count,
                what,
                rule,
                named,
            });
        }
    }
    reasons
}

/// The held types among those that the plan touches.
fn types(policy: &AutoApply, effects: &PlanEffects) -> Option<HoldReason> {
    let is_held = |type_: &&String| {
        policy
            .hold_resource_types
            .iter()
            .any(|pattern| matches(pattern, type_))
    };
    let found: Vec<_> = effects.types.iter().filter(is_held).map(String::as_str).collect();
    if !found.is_empty() {
        let all = i64::try_from(found.len()).unwrap_or(i64::MAX);
        let named = Names::of(found.into_iter(), all);
        return Some(HoldReason::Type { named });
    }
    let unseen = effects.types_omitted != 0 && !policy.hold_resource_types.is_empty();
    unseen.then_some(HoldReason::TypesUnknown)
}

/// The words of the actions that have a class of their own.
fn is_known(action: &str) -> bool {
    [
        "create", "update", "replace", "delete", "forget", "import", "move",
    ]
    .contains(&action)
}

#[cfg(test)]
mod tests;
