//! The guard rails: which plans need an approval although the spec applies plans automatically, by `autoApply` and by the state
//! that they are made from. Pure. The runner checks them before it applies its own plan, the controller before it starts the apply
//! of a stored plan.

use std::fmt;

use super::pattern::matches;
use super::{AutoApply, ChangeKind};
use crate::run::{Change, PlanEffects};

/// Maximum number of addresses or types in one reason.
const MAX_NAMES: usize = 5;

/// The reasons why a plan is held; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutoApplyHold(Vec<HoldReason>);

impl AutoApplyHold {
    /// Returns the reasons.
    #[must_use]
    pub fn reasons(&self) -> &[HoldReason] {
        &self.0
    }

    /// Adds a state mismatch, if there is one, as the first reason.
    #[must_use]
    pub fn with_state_mismatch(hold: Option<Self>, mismatch: &str) -> Option<Self> {
        if mismatch.is_empty() {
            return hold;
        }
        let others = hold.map(|hold| hold.0).unwrap_or_default();
        let first = HoldReason::OtherState(mismatch.to_owned());
        Some(Self([first].into_iter().chain(others).collect()))
    }
}

impl fmt::Display for AutoApplyHold {
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
    /// The plan contains changes of a held kind.
    #[error("{count} {what} ({rule}){names}")]
    Kind {
        /// Number of changes.
        count: i64,
        /// Description of the kind.
        what: &'static str,
        /// The field of `autoApply` that holds the kind.
        rule: &'static str,
        /// Recorded addresses.
        names: NameList,
    },
    /// The plan affects resources of held types.
    #[error("changes of a type in autoApply.holdResourceTypes{names}")]
    Type {
        /// The types.
        names: NameList,
    },
    /// The list of affected types is truncated, and some types are held.
    #[error("more resource types than the run records (autoApply.holdResourceTypes)")]
    TypesUnknown,
    /// The plan affects too many resources.
    #[error("changes of {changes} resources, more than {most} (autoApply.maxChanges)")]
    TooMany {
        /// Number of changes.
        changes: i64,
        /// Maximum number.
        most: i64,
    },
    /// The plan contains actions that this version does not know.
    #[error("{count} of an unknown kind{names}")]
    Unknown {
        /// Number of changes.
        count: i64,
        /// Recorded addresses.
        names: NameList,
    },
    /// The plan is made from another state than the one that the last apply left.
    #[error("{0}")]
    OtherState(String),
    /// The effects of the plan were not recorded.
    #[error("the effects of the plan are not recorded")]
    NotRecorded,
}

/// The first few names of a list, and the number of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameList {
    first: Vec<String>,
    more: usize,
}

impl NameList {
    fn new<'a>(names: impl Iterator<Item = &'a str>, all: i64) -> Self {
        let first: Vec<_> = names.take(MAX_NAMES).map(str::to_owned).collect();
        let more = usize::try_from(all).unwrap_or(0).saturating_sub(first.len());
        Self { first, more }
    }
}

impl fmt::Display for NameList {
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

/// Returns why a plan with these effects is held, or `None`. The counts decide; the entries only provide names for the
/// reasons, because the list may be truncated.
#[must_use]
pub fn evaluate(
    policy: &AutoApply,
    effects: Option<&PlanEffects>,
    entries: &[Change],
) -> Option<AutoApplyHold> {
    let Some(effects) = effects else {
        return Some(AutoApplyHold(vec![HoldReason::NotRecorded]));
    };
    let mut reasons = kinds(policy, effects, entries);
    if effects.others != 0 {
        let unknown = entries.iter().filter(|entry| !is_known(&entry.action));
        let names = NameList::new(unknown.map(|entry| entry.address.as_str()), effects.others);
        let count = effects.others;
        reasons.push(HoldReason::Unknown { count, names });
    }
    reasons.extend(types(policy, effects));
    if let Some(most) = policy.max_changes.map(|most| i64::from(most.max(0)))
        && effects.affected_resources() > most
    {
        let changes = effects.affected_resources();
        reasons.push(HoldReason::TooMany { changes, most });
    }
    (!reasons.is_empty()).then_some(AutoApplyHold(reasons))
}

/// Returns the held kinds of change in the plan. `hold: [delete]` also holds replacements, which destroy, and forgets, which
/// remove resources from the state.
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
    for (count, action, what, kind, removes) in rows {
        let holds = policy.hold.contains(&kind) || removes && policy.hold.contains(&ChangeKind::Delete);
        let allows = policy.allow.is_empty() || policy.allow.contains(&kind);
        let rule = match (holds, allows) {
            (true, _) => "autoApply.hold",
            (false, false) => "not in autoApply.allow",
            (false, true) => continue,
        };
        if count != 0 {
            let of_kind = entries.iter().filter(|entry| entry.action == action);
            let names = NameList::new(of_kind.map(|entry| entry.address.as_str()), count);
            reasons.push(HoldReason::Kind {
                count,
                what,
                rule,
                names,
            });
        }
    }
    reasons
}

/// Returns the held types that the plan affects.
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
        let names = NameList::new(found.into_iter(), all);
        return Some(HoldReason::Type { names });
    }
    let is_truncated = effects.types_omitted != 0 && !policy.hold_resource_types.is_empty();
    is_truncated.then_some(HoldReason::TypesUnknown)
}

/// Returns whether the effects count the action in a class of its own.
fn is_known(action: &str) -> bool {
    [
        "create", "update", "replace", "delete", "forget", "import", "move",
    ]
    .contains(&action)
}

#[cfg(test)]
mod tests;
