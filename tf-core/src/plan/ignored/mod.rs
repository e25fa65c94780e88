//! Which effects of a drift check `ignoreDrift` tells to ignore (pure).
//!
//! An entry may only take away what it names: an attribute takes a change in place of which every changed path is named, and
//! nothing else that happens to the resource; an address without attributes takes all that happens to it, as far as this
//! version knows what that is. What is not understood is never ignored.

use std::collections::BTreeSet;

use serde_json::Value;
use sluice_api::terraform::IgnoredDrift;
use sluice_api::terraform::pattern::matches;

use super::document::{Change, PlanDocument, ResourceChange};

/// How many effects of the plan there are, and how many of them are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ignored {
    /// All effects.
    pub all: usize,
    /// Those that are ignored.
    pub ignored: usize,
}

impl Ignored {
    /// Whether the plan does something and nothing of it counts.
    #[must_use]
    pub const fn is_everything(self) -> bool {
        self.all != 0 && self.all == self.ignored
    }
}

/// Holds the effects of a plan against the entries.
#[must_use]
pub fn ignored(plan: &PlanDocument, entries: &[IgnoredDrift]) -> Ignored {
    let resources = plan.resource_changes.iter().filter(|change| change.is_effect());
    let outputs = plan
        .output_changes
        .iter()
        .filter(|(_, change)| !change.is_no_op());
    // Members of a format to come count as effects of which nothing is known.
    let mut found = Ignored {
        all: plan.other.len(),
        ignored: 0,
    };
    for change in resources {
        found.all += 1;
        found.ignored += usize::from(resource(change, entries));
    }
    for (name, _) in outputs {
        found.all += 1;
        found.ignored += usize::from(whole(&format!("output.{name}"), entries));
    }
    found
}

/// Whether all that happens at this address is ignored: by an entry that names addresses and no attribute.
fn whole(address: &str, entries: &[IgnoredDrift]) -> bool {
    entries
        .iter()
        .any(|entry| entry.attributes.is_empty() && !entry.addresses.is_empty() && names(entry, address))
}

/// Whether the entry is about this address.
fn names(entry: &IgnoredDrift, address: &str) -> bool {
    entry.addresses.is_empty() || entry.addresses.iter().any(|pattern| matches(pattern, address))
}

fn resource(found: &ResourceChange, entries: &[IgnoredDrift]) -> bool {
    let change = &found.change;
    // A move or an import is somebody's wish, and a deposed object is left over from an apply: no drift.
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
    if whole(&found.address, entries) {
        return true;
    }
    if change.actions != ["update"] {
        return false;
    }
    let patterns: Vec<&str> = entries
        .iter()
        .filter(|entry| names(entry, &found.address))
        .flat_map(|entry| entry.attributes.iter().map(String::as_str))
        .collect();
    let mut changed = Changed {
        patterns: &patterns,
        any: false,
        all_ignored: true,
    };
    changed.walk(&mut Vec::new(), &Sides::of(change));
    // An update without a changed path is one whose reason is not seen here.
    changed.any && changed.all_ignored
}

/// The changed paths of an update, held against the patterns as they are met.
struct Changed<'a> {
    patterns: &'a [&'a str],
    any: bool,
    all_ignored: bool,
}

impl Changed<'_> {
    fn walk(&mut self, path: &mut Vec<String>, sides: &Sides<'_>) {
        if !sides.differ() || !self.all_ignored {
            return;
        }
        if !path.is_empty() && self.names(path) {
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

    /// Whether a pattern names just this path. Its parents were looked at on the way: a pattern stands for all below it, but
    /// never for a name that only begins alike.
    fn names(&self, path: &[String]) -> bool {
        let path = path.join(".");
        self.patterns.iter().any(|pattern| matches(pattern, &path))
    }
}

/// The parallel trees of a change at one path.
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

    /// Whether value, or what is unknown or sensitive of it, changes here or below. To be absent is another thing than to be
    /// null: a list may have got an element.
    fn differ(&self) -> bool {
        self.before != self.after
            || is_marked(self.unknown)
            || marks_differ(self.before_sensitive, self.after_sensitive)
    }

    /// The steps down from here: members where both sides are objects, elements where both are lists. None where a value as
    /// a whole is replaced, unknown or sensitive, or where a mark has another shape than the values.
    fn steps(&self) -> BTreeSet<String> {
        let marks = [self.unknown, self.before_sensitive, self.after_sensitive];
        let marks: Vec<&Value> = marks
            .into_iter()
            .filter(|marks| is_marked(*marks))
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

/// Whether anything is marked here or below.
fn is_marked(marks: Option<&Value>) -> bool {
    match marks {
        Some(Value::Bool(mark)) => *mark,
        Some(Value::Array(elements)) => elements.iter().any(|element| is_marked(Some(element))),
        Some(Value::Object(members)) => members.values().any(|member| is_marked(Some(member))),
        _ => false,
    }
}

/// Whether two trees of marks mean something else; the CLI writes `false`, `{}` or nothing for the same.
fn marks_differ(one: Option<&Value>, other: Option<&Value>) -> bool {
    match (one, other) {
        _ if !is_marked(one) && !is_marked(other) => false,
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
