//! The state of a stack as its runs find it, and whether the CLI finds the same state as before. Pure.
//!
//! A state keeps its lineage wherever it is moved, and each write increments its serial. With another lineage, with an older serial, or
//! without a state, a plan creates what exists already, or changes what belongs to another stack: such a plan needs an approval by its
//! id.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::serialization::is_zero;

/// Length limit of one value in a message, in characters.
const VALUE_LIMIT: usize = 80;
/// Prefix of values that are digests, because they may be sensitive or long.
pub const DIGEST_PREFIX: &str = "digest:";

/// A state, and where the CLI finds it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StateIdentity {
    /// Identifies the state from its first write on. Empty: there is no state.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub lineage: String,
    /// Fields of the spec that determine where the state is, with their values or a digest of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub location: BTreeMap<String, String>,
    /// Number of managed resources.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub resources: i64,
    /// Its serial, or a lower one if the state was not read again after the apply. 0: not recorded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub serial: i64,
}

/// The state that a run of the stack left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KnownState {
    /// The run.
    pub run: String,
    /// The state after it.
    pub state: StateIdentity,
}

impl KnownState {
    /// Compares the state that the CLI finds now. `None`: it is the same one or a later version of it; or the known one has no resources
    /// that could be forgotten, and the found one none of another stack.
    #[must_use]
    pub fn mismatch(&self, found: &StateIdentity) -> Option<StateMismatch> {
        let Self { state, .. } = self;
        let is_same = state.lineage == found.lineage && state.serial <= found.serial;
        let is_here = state.location == found.location;
        // A state in the same place, for example a committed or a restored one, is the stack's own.
        let has_nothing = state.resources == 0 && (found.resources == 0 || is_here);
        if is_same || has_nothing || (state.lineage.is_empty() && is_here) {
            return None;
        }
        let fields: BTreeSet<&String> = state.location.keys().chain(found.location.keys()).collect();
        let changes = fields.into_iter().filter_map(|field| {
            let (old, new) = (state.location.get(field), found.location.get(field));
            (old != new).then(|| FieldChange::new(field, old, new))
        });
        Some(StateMismatch {
            known: Some(self.clone()),
            found: found.clone(),
            changes: changes.collect(),
        })
    }
}

/// A changed field of the spec.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldChange(String);

impl FieldChange {
    fn new(field: &str, old: Option<&String>, new: Option<&String>) -> Self {
        let is_digest = |value: Option<&String>| value.is_some_and(|value| value.starts_with(DIGEST_PREFIX));
        if is_digest(old) || is_digest(new) {
            let what = match (old, new) {
                (None, _) => "is set",
                (_, None) => "is removed",
                _ => "is changed",
            };
            return Self(format!("{field} {what}"));
        }
        let text = |value: Option<&String>| -> String {
            let value = value.map_or("", String::as_str);
            let value: String = value.chars().take(VALUE_LIMIT).collect();
            if value.is_empty() {
                "(none)".to_owned()
            } else {
                value
            }
        };
        Self(format!("{field}: {} -> {}", text(old), text(new)))
    }
}

/// What the approval of a plan from another state does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalEffect {
    /// It continues with that state.
    Continue,
    /// It destroys what that state contains.
    Destroy,
    /// It destroys what that state contains, because the object is deleted.
    DestroyOnDeletion,
}

/// The CLI finds another state than the one that the last apply left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateMismatch {
    /// `None`: no run of the stack has applied anything.
    known: Option<KnownState>,
    found: StateIdentity,
    changes: Vec<FieldChange>,
}

impl StateMismatch {
    /// Compares the state that the destroy of a stack finds that has never applied. `None`: it has no resources.
    #[must_use]
    pub fn of_unapplied_stack(found: &StateIdentity) -> Option<Self> {
        (found.resources > 0).then(|| Self {
            known: None,
            found: found.clone(),
            changes: Vec::new(),
        })
    }

    /// Returns what differs, without advice.
    #[must_use]
    pub fn difference(&self) -> String {
        let found = &self.found;
        let Some(KnownState { run, state: known }) = &self.known else {
            return format!(
                "the CLI finds a state (lineage {}, {}), and no run of this object has applied anything",
                found.lineage,
                counted(found.resources)
            );
        };
        let is_older = known.lineage == found.lineage;
        // The kubernetes backend creates an empty state where it finds none.
        let finds = if is_older {
            format!(
                "the CLI finds an older state (serial {}, {})",
                found.serial,
                counted(found.resources)
            )
        } else if found.resources == 0 {
            "the CLI finds no state with resources".to_owned()
        } else {
            let (lineage, resources) = (&found.lineage, counted(found.resources));
            format!("the CLI finds another state (lineage {lineage}, {resources})")
        };
        let left = if known.lineage.is_empty() {
            format!("{finds}, and run {run} found none")
        } else {
            let serial = if is_older {
                format!(" and at least the serial {}", known.serial)
            } else {
                String::new()
            };
            let (lineage, resources) = (&known.lineage, counted(known.resources));
            format!("{finds}, and run {run} left {resources} in the state with the lineage {lineage}{serial}")
        };
        if self.changes.is_empty() {
            return format!(
                "{left}; no field changed that determines where the state is: it was deleted or replaced, or the module names \
                 another backend"
            );
        }
        let changes: Vec<_> = self.changes.iter().map(|change| change.0.as_str()).collect();
        format!("{left}; since then: {}", changes.join(", "))
    }

    /// Returns what differs and what a user can do.
    #[must_use]
    pub fn advice(&self, approval: ApprovalEffect) -> String {
        let remedy = match (&self.known, self.changes.is_empty()) {
            (None, _) => "Check where the state of this object is",
            (Some(_), true) => "Restore it",
            (Some(_), false) => "Move the state, or undo the change",
        };
        let difference = self.difference();
        let destroys = format!(
            "An approval destroys the {} of the state that is found",
            counted(self.found.resources)
        );
        match approval {
            ApprovalEffect::Continue => {
                format!("{difference}. {remedy}, or approve this plan to continue without it")
            }
            ApprovalEffect::Destroy => format!("{difference}. {remedy}. {destroys}"),
            ApprovalEffect::DestroyOnDeletion => {
                format!(
                    "{difference}. {remedy}, or set deletionPolicy: Retain to delete the object and nothing else. {destroys}"
                )
            }
        }
    }
}

/// Returns a number of resources with the word.
fn counted(resources: i64) -> String {
    let ending = if resources == 1 { "" } else { "s" };
    format!("{resources} resource{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(lineage: &str, resources: i64, location: &[(&str, &str)]) -> StateIdentity {
        StateIdentity {
            lineage: lineage.into(),
            resources,
            serial: 0,
            location: location
                .iter()
                .map(|(field, value)| ((*field).to_owned(), (*value).to_owned()))
                .collect(),
        }
    }

    fn text(known: StateIdentity, found: &StateIdentity) -> Option<String> {
        let known = KnownState {
            run: "net-u-7".into(),
            state: known,
        };
        let mismatch = known.mismatch(found);
        mismatch.map(|mismatch| mismatch.advice(ApprovalEffect::Continue))
    }

    #[test]
    fn another_lineage_is_another_state_wherever_it_is() {
        let (here, there) = ([("workspace", "default")], [("workspace", "blue")]);
        for (known, found, differs) in [
            (state("l", 2, &here), state("l", 2, &here), false),
            // A state that was moved, shrunk, or destroyed by other means is the same one.
            (state("l", 2, &here), state("l", 2, &there), false),
            (state("l", 2, &here), state("l", 0, &here), false),
            (state("l", 2, &here), state("m", 2, &there), true),
            (state("l", 2, &here), state("", 0, &there), true),
            (state("l", 2, &here), state("m", 0, &here), true),
            (state("l", 2, &here), state("", 0, &here), true),
            // Nothing is forgotten with a state without resources, but the resources of another state may be destroyed.
            (state("l", 0, &here), state("", 0, &there), false),
            (state("l", 0, &here), state("m", 0, &there), false),
            (state("l", 0, &here), state("m", 5, &there), true),
            (state("", 0, &here), state("m", 5, &there), true),
            // Restored, or committed beside the module.
            (state("l", 0, &here), state("m", 5, &here), false),
            (state("", 0, &here), state("m", 5, &here), false),
        ] {
            assert_eq!(
                text(known.clone(), &found).is_some(),
                differs,
                "{known:?} {found:?}"
            );
        }
    }

    #[test]
    fn an_older_state_of_the_lineage_is_another_state() {
        let (here, there) = ([("workspace", "default")], [("workspace", "blue")]);
        let of = |serial, resources, location: &[(&str, &str)]| StateIdentity {
            serial,
            ..state("l", resources, location)
        };
        for (known, found, differs) in [
            (of(7, 2, &here), of(7, 2, &here), false),
            (of(7, 2, &here), of(9, 1, &there), false),
            (of(7, 2, &here), of(6, 2, &there), true),
            (of(7, 2, &here), of(6, 0, &here), true),
            (of(7, 0, &here), of(6, 2, &there), true),
            (of(7, 0, &here), of(6, 2, &here), false),
            // An earlier version of this program recorded no serial.
            (of(0, 2, &here), of(6, 2, &there), false),
        ] {
            assert_eq!(
                text(known.clone(), &found).is_some(),
                differs,
                "{known:?} {found:?}"
            );
        }
        assert_eq!(
            text(of(27, 31, &there), &of(6, 11, &here)).unwrap(),
            "the CLI finds an older state (serial 6, 11 resources), and run net-u-7 left 31 resources in the state with the lineage l \
             and at least the serial 27; since then: workspace: blue -> default. Move the state, or undo the change, or approve this \
             plan to continue without it"
        );
    }

    #[test]
    fn a_mismatch_names_what_changed() {
        let known = state(
            "l-1",
            12,
            &[
                ("workspace", "default"),
                ("backendConfig.secretSuffix", "app"),
                ("backendConfigsFrom", "digest:aa"),
                ("path", "same"),
            ],
        );
        let found = state(
            "",
            0,
            &[
                ("workspace", "blue"),
                ("backendConfigsFrom", "digest:bb"),
                ("path", "same"),
            ],
        );
        assert_eq!(
            text(known.clone(), &found).unwrap(),
            "the CLI finds no state with resources, and run net-u-7 left 12 resources in the state with the lineage l-1; since then: \
             backendConfig.secretSuffix: app -> (none), backendConfigsFrom is changed, workspace: default -> blue. Move the \
             state, or undo the change, or approve this plan to continue without it"
        );
        let replaced = StateIdentity {
            location: known.location.clone(),
            ..state("m-1", 3, &[])
        };
        assert_eq!(
            text(known, &replaced).unwrap(),
            "the CLI finds another state (lineage m-1, 3 resources), and run net-u-7 left 12 resources in the state with the \
             lineage l-1; no field changed that determines where the state is: it was deleted or replaced, or the module names \
             another backend. Restore it, or approve this plan to continue without it"
        );
    }

    #[test]
    fn an_approval_of_a_destroy_says_what_it_destroys() {
        let (here, there) = ([("workspace", "default")], [("workspace", "blue")]);
        let known = |lineage: &str| KnownState {
            run: "net-u-7".into(),
            state: state(lineage, 0, &here),
        };
        let found = state("m-1", 5, &there);
        let destroy = known("l-1").mismatch(&found).unwrap();
        assert_eq!(
            destroy.advice(ApprovalEffect::Destroy),
            "the CLI finds another state (lineage m-1, 5 resources), and run net-u-7 left 0 resources in the state with the lineage \
             l-1; since then: workspace: default -> blue. Move the state, or undo the change. An approval destroys the 5 resources of \
             the state that is found"
        );
        let never_had_one = known("").mismatch(&found).unwrap().difference();
        assert!(
            never_had_one.contains(", and run net-u-7 found none; since"),
            "{never_had_one}"
        );
        let unapplied = StateMismatch::of_unapplied_stack(&found).unwrap();
        assert_eq!(
            unapplied.advice(ApprovalEffect::DestroyOnDeletion),
            "the CLI finds a state (lineage m-1, 5 resources), and no run of this object has applied anything. Check where the \
             state of this object is, or set deletionPolicy: Retain to delete the object and nothing else. An approval destroys the 5 \
             resources of the state that is found"
        );
        assert_eq!(StateMismatch::of_unapplied_stack(&state("m", 0, &here)), None);
        let one = StateMismatch::of_unapplied_stack(&state("m", 1, &here)).unwrap();
        assert!(one.difference().contains("(lineage m, 1 resource),"), "{one:?}");
    }
}
