//! Values as lists of leaves. Changes are compared and shown leaf by leaf.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::keyed_digest;
use crate::canonical;
use crate::plan::document::Change;
use crate::plan::exact_numbers::{Text, name, text};

/// A step of a path. Members sort before elements, and by the bytes of their names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Member(String),
    Element(usize),
}

type Path = Vec<Step>;
type Leaves = BTreeMap<Path, Value>;

/// One side of a change with its marks.
struct Side<'v> {
    value: Option<&'v Value>,
    /// `true` at values that are known only after the apply.
    unknown: Option<&'v Value>,
    /// `true` at values that are sensitive on this side.
    own: Option<&'v Value>,
    /// `true` at values that are sensitive on the other side. The values may be equal, so this side is sensitive as well.
    other: Option<&'v Value>,
}

impl<'v> Side<'v> {
    fn step(&self, into: impl Fn(&'v Value) -> Option<&'v Value>) -> Self {
        Self {
            value: self.value.and_then(&into),
            unknown: self.unknown.and_then(&into),
            own: self.own.and_then(&into),
            other: self.other.and_then(&into),
        }
    }
}

/// Returns the leaves that differ between before and after: `[{"path": [..], "before": leaf, "after": leaf}, ..]`.
pub(super) fn difference(change: &Change, key: &[u8]) -> Value {
    let non_null = |value| Some(value).filter(|value: &&Value| !value.is_null());
    let before = Side {
        value: non_null(&change.before),
        unknown: None,
        own: Some(&change.before_sensitive),
        other: Some(&change.after_sensitive),
    };
    let after = Side {
        value: non_null(&change.after),
        unknown: Some(&change.after_unknown),
        own: Some(&change.after_sensitive),
        other: Some(&change.before_sensitive),
    };
    let before = of_side(&before, key);
    let mut after = of_side(&after, key);
    let mut rows: BTreeMap<Path, Value> = BTreeMap::new();
    for (path, leaf) in before {
        let now = after.remove(&path);
        if now.as_ref() != Some(&leaf) {
            let row = rows.entry(path).or_insert_with(|| json!({}));
            row["before"] = leaf;
            if let Some(now) = now {
                row["after"] = now;
            }
        }
    }
    for (path, leaf) in after {
        rows.insert(path, json!({ "after": leaf }));
    }
    rows.into_iter()
        .map(|(path, mut row)| {
            row["path"] = words(&path);
            row
        })
        .collect()
}

/// Returns the leaves of a value or, if a part is sensitive, its keyed digest.
pub(super) fn single(value: &Value, marks: Option<&Value>, key: &[u8]) -> Value {
    if has_true(marks) {
        json!({ "sensitive": hashed(value, key) })
    } else {
        list(value, key)
    }
}

/// Returns the leaves of a value without marks.
pub(super) fn list(value: &Value, key: &[u8]) -> Value {
    let side = Side {
        value: Some(value),
        unknown: None,
        own: None,
        other: None,
    };
    of_side(&side, key)
        .into_iter()
        .map(|(path, leaf)| json!({ "path": words(&path), "at": leaf }))
        .collect()
}

/// Returns the keyed digest of the canonical leaves of a value.
pub(super) fn hashed(value: &Value, key: &[u8]) -> String {
    keyed_digest(key, &canonical::json(&list(value, key)))
}

fn words(path: &[Step]) -> Value {
    path.iter()
        .map(|step| match step {
            Step::Member(member) => json!(name(member)),
            Step::Element(index) => json!(index),
        })
        .collect()
}

fn of_side(side: &Side<'_>, key: &[u8]) -> Leaves {
    let mut leaves = Leaves::new();
    walk(&mut Vec::new(), side, key, &mut leaves);
    leaves
}

fn walk(path: &mut Path, side: &Side<'_>, key: &[u8], leaves: &mut Leaves) {
    if side.unknown == Some(&Value::Bool(true)) {
        leaves.insert(path.clone(), json!({ "unknown": true }));
        return;
    }
    if let Some(value) = side.value {
        for (marks, word) in [(side.own, "sensitive"), (side.other, "hidden")] {
            if marks == Some(&Value::Bool(true)) {
                leaves.insert(path.clone(), json!({ word: hashed(value, key) }));
                return;
            }
        }
    }
    let below = below(side);
    if below.is_empty() {
        if let Some(value) = side.value {
            leaves.insert(path.clone(), leaf(value));
        }
        return;
    }
    for step in below {
        let inner = match &step {
            Step::Member(name) => side.step(|value| value.get(name)),
            Step::Element(index) => side.step(|value| value.get(index)),
        };
        path.push(step);
        walk(path, &inner, key, leaves);
        path.pop();
    }
}

/// Returns the steps to the parts of a value, including unknown parts.
fn below(side: &Side<'_>) -> BTreeSet<Step> {
    let mut steps = BTreeSet::new();
    for (value, all) in [(side.value, true), (side.unknown, false)] {
        let is_included = |inner: &Value| all || has_true(Some(inner));
        match value {
            Some(Value::Object(members)) => steps.extend(
                members
                    .iter()
                    .filter(|(_, inner)| is_included(inner))
                    .map(|(name, _)| Step::Member(name.clone())),
            ),
            Some(Value::Array(elements)) => steps.extend(
                elements
                    .iter()
                    .enumerate()
                    .filter(|(_, inner)| is_included(inner))
                    .map(|(index, _)| Step::Element(index)),
            ),
            _ => {}
        }
    }
    steps
}

/// Returns the leaf of a value without parts.
fn leaf(value: &Value) -> Value {
    match value {
        Value::String(marked) => match text(marked) {
            Text::Number(number) => json!({ "number": number }),
            Text::String(text) => json!({ "value": text }),
        },
        other => json!({ "value": other }),
    }
}

/// Whether a mark is set.
pub(in crate::plan) fn has_true(marks: Option<&Value>) -> bool {
    match marks {
        Some(Value::Bool(truth)) => *truth,
        Some(Value::Array(elements)) => elements.iter().any(|element| has_true(Some(element))),
        Some(Value::Object(members)) => members.values().any(|member| has_true(Some(member))),
        _ => false,
    }
}
