//! The effects of drift detection that `ignoreDrift` ignores.
//!
//! An entry with attributes ignores an in-place update if attributes cover all changed paths. An entry without attributes ignores all
//! known actions on its addresses. Unknown actions are never ignored.

use std::collections::BTreeSet;

use serde_json::Value;
use sluice_api::terraform::{IgnoredDrift, pattern};

use super::document::{Change, PlanDocument, ResourceChange};
use super::effect::has_true;

/// The number of effects, and how many of them are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriftCounts {
    /// All effects.
    pub all: usize,
    /// Ignored effects.
    pub ignored: usize,
}

impl DriftCounts {
    /// Whether there are effects and all are ignored.
    #[must_use]
    pub const fn all_ignored(self) -> bool {
        self.all != 0 && self.all == self.ignored
    }
}

/// Counts the effects of a plan that the entries ignore.
#[must_use]
pub fn count(plan: &PlanDocument, entries: &[IgnoredDrift]) -> DriftCounts {
    let resources = plan.resource_changes.iter().filter(|change| change.is_effect());
    let outputs = plan
        .output_changes
        .iter()
        .filter(|(_, change)| !change.is_no_op());
    // Unknown members count as effects that are not ignored.
    let mut found = DriftCounts {
        all: plan.other.len(),
        ignored: 0,
    };
    for change in resources {
        found.all += 1;
        found.ignored += usize::from(resource(change, entries));
    }
    for (name, _) in outputs {
        found.all += 1;
        found.ignored += usize::from(ignores_address(&format!("output.{name}"), entries));
    }
    found
}

/// Whether an entry without attributes has this address.
fn ignores_address(address: &str, entries: &[IgnoredDrift]) -> bool {
    entries
        .iter()
        .any(|entry| entry.attributes.is_empty() && !entry.addresses.is_empty() && applies_to(entry, address))
}

/// Whether the entry applies to this address.
fn applies_to(entry: &IgnoredDrift, address: &str) -> bool {
    entry.addresses.is_empty()
        || entry
            .addresses
            .iter()
            .any(|pattern| pattern::matches(pattern, address))
}

fn resource(found: &ResourceChange, entries: &[IgnoredDrift]) -> bool {
    let change = &found.change;
    // Moves and imports are requested, and deposed objects are left from an apply: they are not drift.
    if found.previous_address.is_some() || change.importing.is_some() || found.deposed.is_some() {
        return false;
    }
    let known = ["create", "update", "delete", "forget"];
    if change
        .actions
        .iter()
        .any(|action| !known.contains(&action.as_str()))
    {
        return false;
    }
    if ignores_address(&found.address, entries) {
        return true;
    }
    if change.actions != ["update"] {
        return false;
    }
    let patterns: Vec<&str> = entries
        .iter()
        .filter(|entry| applies_to(entry, &found.address))
        .flat_map(|entry| entry.attributes.iter().map(String::as_str))
        .collect();
    let mut changed = ChangedPaths {
        patterns: &patterns,
        any: false,
        all_ignored: true,
    };
    changed.walk(&mut Vec::new(), &Sides::of(change));
    // An update without changed paths has an unknown reason.
    changed.any && changed.all_ignored
}

/// Compares the changed paths of an update with the patterns.
struct ChangedPaths<'a> {
    patterns: &'a [&'a str],
    any: bool,
    all_ignored: bool,
}

impl ChangedPaths<'_> {
    fn walk(&mut self, path: &mut Vec<String>, sides: &Sides<'_>) {
        if !sides.differ() || !self.all_ignored {
            return;
        }
        if !path.is_empty() && self.matches(path) {
            self.any = true;
            return;
        }
        let steps = sides.steps();
        if steps.is_empty() {
            self.any = true;
            self.all_ignored = false;
            return;
        }
        for step in steps {
            let inner = sides.at(&step);
            path.push(step);
            self.walk(path, &inner);
            path.pop();
        }
    }

    /// Whether a pattern matches this path. A pattern covers all paths below it: `walk` checks the parents first.
    fn matches(&self, path: &[String]) -> bool {
        let path = path.join(".");
        self.patterns
            .iter()
            .any(|pattern| pattern::matches(pattern, &path))
    }
}

/// The values and marks of a change at one path.
struct Sides<'v> {
    before: Option<&'v Value>,
    after: Option<&'v Value>,
    unknown: Option<&'v Value>,
    before_sensitive: Option<&'v Value>,
    after_sensitive: Option<&'v Value>,
}

impl<'v> Sides<'v> {
    const fn of(change: &'v Change) -> Self {
        Self {
            before: Some(&change.before),
            after: Some(&change.after),
            unknown: Some(&change.after_unknown),
            before_sensitive: Some(&change.before_sensitive),
            after_sensitive: Some(&change.after_sensitive),
        }
    }

    /// Whether the value or its marks differ here or below. An absent value differs from `null`: a list may have a new element.
    fn differ(&self) -> bool {
        self.before != self.after
            || has_true(self.unknown)
            || marks_differ(self.before_sensitive, self.after_sensitive)
    }

    /// Returns the names of members if both sides are objects, or the indexes of elements if both are lists. Returns nothing if the
    /// whole value is replaced, unknown or sensitive, or if a mark has another structure than the values.
    fn steps(&self) -> BTreeSet<String> {
        let marks = [self.unknown, self.before_sensitive, self.after_sensitive];
        let marks: Vec<&Value> = marks
            .into_iter()
            .filter(|marks| has_true(*marks))
            .flatten()
            .collect();
        match (self.before, self.after) {
            (Some(Value::Object(before)), Some(Value::Object(after)))
                if marks.iter().all(|mark| mark.is_object()) =>
            {
                let marked = marks
                    .iter()
                    .filter_map(|mark| mark.as_object())
                    .flat_map(|mark| mark.keys());
                before.keys().chain(after.keys()).chain(marked).cloned().collect()
            }
            (Some(Value::Array(before)), Some(Value::Array(after)))
                if marks.iter().all(|mark| mark.is_array()) =>
            {
                let marked = marks
                    .iter()
                    .filter_map(|mark| mark.as_array())
                    .map(Vec::len)
                    .max();
                let longest = before.len().max(after.len()).max(marked.unwrap_or(0));
                (0..longest).map(|index| index.to_string()).collect()
            }
            _ => BTreeSet::new(),
        }
    }

    fn at(&self, step: &str) -> Self {
        let into = |value: Option<&'v Value>| match value? {
            Value::Object(members) => members.get(step),
            Value::Array(elements) => elements.get(step.parse::<usize>().ok()?),
            _ => None,
        };
        Self {
            before: into(self.before),
            after: into(self.after),
            unknown: into(self.unknown),
            before_sensitive: into(self.before_sensitive),
            after_sensitive: into(self.after_sensitive),
        }
    }
}

/// Whether two trees of marks differ in meaning: `false`, `{}` and no mark are equal.
fn marks_differ(one: Option<&Value>, other: Option<&Value>) -> bool {
    match (one, other) {
        _ if !has_true(one) && !has_true(other) => false,
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let names: BTreeSet<_> = a.keys().chain(b.keys()).collect();
            names
                .into_iter()
                .any(|name| marks_differ(a.get(name), b.get(name)))
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            (0..a.len().max(b.len())).any(|index| marks_differ(a.get(index), b.get(index)))
        }
        (one, other) => one != other,
    }
}

#[cfg(test)]
mod tests;
