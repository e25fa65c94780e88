//! The effect digest (pure): what an approval is bound to.
//!
//! It covers what the plan was made from (inputs, downloaded modules, provider lock), what it will do (changed paths only,
//! sensitive values as keyed hashes), and the stack's last started apply, which makes each digest single-use. Every item is
//! written with its length, so that no two different plans write the same bytes.

use std::collections::BTreeSet;

use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use sluice_api::terraform::plan_id::EffectDigest;

use super::document::{Change, PlanDocument, ResourceChange};

/// What a plan was made from, beside its JSON.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// Digest of closure, variables, backend, workspace and targets.
    pub inputs: &'a str,
    /// Digest of the modules that `init` downloaded.
    pub modules: &'a str,
    /// Bytes of the provider lock file; empty when there is none.
    pub lock: &'a [u8],
    /// Name of the stack's last started apply run; empty before the first.
    pub last_apply: &'a str,
    /// Key of the object's sensitive values.
    pub key: &'a [u8],
}

/// The digest of one effect.
#[must_use]
pub fn digest(plan: &PlanDocument, origin: &Origin<'_>) -> EffectDigest {
    let mut writer = Writer {
        hash: Sha256::new(),
        key: origin.key,
    };
    writer.text("sluice effect 1");
    writer.text(origin.inputs);
    writer.text(origin.modules);
    writer.bytes(origin.lock);
    writer.text(origin.last_apply);
    let mut changes: Vec<_> = plan
        .resource_changes
        .iter()
        .filter(|change| change.is_effect())
        .collect();
    changes.sort_by(|a, b| (&a.address, &a.deposed).cmp(&(&b.address, &b.deposed)));
    writer.count(b'R', changes.len());
    for change in changes {
        writer.resource(change);
    }
    let outputs: Vec<_> = plan
        .output_changes
        .iter()
        .filter(|(_, change)| !change.is_no_op())
        .collect();
    writer.count(b'O', outputs.len());
    for (name, change) in outputs {
        writer.text(name);
        writer.actions(change);
        writer.difference(change);
    }
    writer.count(b'X', plan.other.len());
    for (name, value) in &plan.other {
        writer.text(name);
        writer.value(value, None);
    }
    let whole: [u8; 32] = writer.hash.finalize().into();
    let mut first = [0; 20];
    first.copy_from_slice(&whole[..20]);
    EffectDigest::of_bytes(first)
}

/// Writes items into the hash, each with a tag and its length.
struct Writer<'a> {
    hash: Sha256,
    key: &'a [u8],
}

/// One step into a value.
#[derive(Clone, Debug)]
enum Step {
    Member(String),
    Element(usize),
}

impl Writer<'_> {
    fn count(&mut self, tag: u8, count: usize) {
        self.hash.update([tag]);
        self.hash.update((count as u64).to_be_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.count(b's', bytes.len());
        self.hash.update(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn optional(&mut self, text: Option<&str>) {
        match text {
            None => self.hash.update(b"-"),
            Some(text) => self.text(text),
        }
    }

    fn resource(&mut self, entry: &ResourceChange) {
        self.text(&entry.address);
        self.optional(entry.deposed.as_deref());
        self.optional(entry.previous_address.as_deref());
        self.text(&entry.mode);
        self.text(&entry.type_);
        self.text(&entry.provider_name);
        self.optional(entry.action_reason.as_deref());
        let change = &entry.change;
        self.actions(change);
        self.value(
            change.before.get("id").unwrap_or(&Value::Null),
            change.before_sensitive.get("id"),
        );
        self.value(change.importing.as_ref().unwrap_or(&Value::Null), None);
        self.value(&change.replace_paths, None);
        let gone = change.actions == ["delete"] || change.actions == ["forget"];
        if !gone {
            self.difference(change);
        }
    }

    /// In their order: create-before-destroy is another effect than destroy-before-create.
    fn actions(&mut self, change: &Change) {
        self.count(b'A', change.actions.len());
        for action in &change.actions {
            self.text(action);
        }
    }

    /// The changed paths: old and new value of each, and where the new one is unknown.
    fn difference(&mut self, change: &Change) {
        let sides = Sides {
            before: Some(&change.before),
            after: Some(&change.after),
            unknown: Some(&change.after_unknown),
            before_sensitive: Some(&change.before_sensitive),
            after_sensitive: Some(&change.after_sensitive),
        };
        self.walk(&mut Vec::new(), &sides);
        self.count(b'.', 0);
    }

    fn walk(&mut self, path: &mut Vec<Step>, sides: &Sides<'_>) {
        let hidden = is_true(sides.before_sensitive) || is_true(sides.after_sensitive);
        let unknown = has_unknown(sides.unknown);
        if !unknown && sides.before == sides.after {
            return;
        }
        if !hidden && !is_true(sides.unknown) {
            let (before, after) = (
                sides.before.unwrap_or(&Value::Null),
                sides.after.unwrap_or(&Value::Null),
            );
            match (before, after) {
                (Value::Object(_), Value::Object(_)) => return self.walk_members(path, sides),
                (Value::Array(_), Value::Array(_)) => return self.walk_elements(path, sides),
                _ => {}
            }
        }
        self.count(b'C', path.len());
        for step in path.iter() {
            match step {
                Step::Member(name) => self.text(name),
                Step::Element(index) => self.count(b'i', *index),
            }
        }
        self.side(sides.before, sides.before_sensitive, hidden);
        self.side(sides.after, sides.after_sensitive, hidden);
        self.unknown(sides.unknown);
    }

    fn walk_members(&mut self, path: &mut Vec<Step>, sides: &Sides<'_>) {
        let mut names = BTreeSet::new();
        for side in [sides.before, sides.after, sides.unknown] {
            names.extend(
                side.and_then(Value::as_object)
                    .into_iter()
                    .flat_map(|members| members.keys().cloned()),
            );
        }
        for name in names {
            let inner = sides.step(|value| value.get(&name));
            path.push(Step::Member(name));
            self.walk(path, &inner);
            path.pop();
        }
    }

    fn walk_elements(&mut self, path: &mut Vec<Step>, sides: &Sides<'_>) {
        let length = |side: Option<&Value>| side.and_then(Value::as_array).map_or(0, Vec::len);
        let longest = length(sides.before)
            .max(length(sides.after))
            .max(length(sides.unknown));
        for index in 0..longest {
            let inner = sides.step(|value| value.get(index));
            path.push(Step::Element(index));
            self.walk(path, &inner);
            path.pop();
        }
    }

    fn side(&mut self, value: Option<&Value>, sensitive: Option<&Value>, hidden: bool) {
        match value {
            None => self.hash.update(b"-"),
            Some(value) if hidden => self.hashed(value),
            Some(value) => self.value(value, sensitive),
        }
    }

    /// A value in a form that depends on nothing but itself; parts marked sensitive as keyed hashes.
    fn value(&mut self, value: &Value, sensitive: Option<&Value>) {
        if is_true(sensitive) {
            return self.hashed(value);
        }
        match value {
            Value::Null => self.hash.update(b"n"),
            Value::Bool(truth) => self.hash.update(if *truth { b"t" } else { b"f" }),
            Value::Number(number) => {
                self.hash.update(b"#");
                self.text(&number.to_string());
            }
            Value::String(text) => self.text(text),
            Value::Array(elements) => {
                self.count(b'[', elements.len());
                for (index, element) in elements.iter().enumerate() {
                    self.value(element, sensitive.and_then(|marks| marks.get(index)));
                }
            }
            Value::Object(members) => {
                let mut sorted: Vec<_> = members.iter().collect();
                sorted.sort_by_key(|(name, _)| name.as_str());
                self.count(b'{', sorted.len());
                for (name, member) in sorted {
                    self.text(name);
                    self.value(member, sensitive.and_then(|marks| marks.get(name)));
                }
            }
        }
    }

    fn hashed(&mut self, value: &Value) {
        let mut plain = Writer {
            hash: Sha256::new(),
            key: self.key,
        };
        plain.value(value, None);
        self.hash.update(b"h");
        self.hash.update(keyed(self.key, &plain.hash.finalize()));
    }

    /// Only where something is unknown: the CLI fills the rest with `false` and empty shapes as it likes.
    fn unknown(&mut self, marks: Option<&Value>) {
        match marks {
            Some(Value::Bool(true)) => self.hash.update(b"u"),
            Some(Value::Array(elements)) if has_unknown(marks) => {
                for (index, element) in elements
                    .iter()
                    .enumerate()
                    .filter(|(_, mark)| has_unknown(Some(mark)))
                {
                    self.count(b'i', index);
                    self.unknown(Some(element));
                }
                self.hash.update(b"]");
            }
            Some(Value::Object(members)) if has_unknown(marks) => {
                let mut sorted: Vec<_> = members
                    .iter()
                    .filter(|(_, mark)| has_unknown(Some(mark)))
                    .collect();
                sorted.sort_by_key(|(name, _)| name.as_str());
                for (name, member) in sorted {
                    self.text(name);
                    self.unknown(Some(member));
                }
                self.hash.update(b"}");
            }
            _ => self.hash.update(b"k"),
        }
    }
}

/// The five parallel trees of a change at one path.
struct Sides<'v> {
    before: Option<&'v Value>,
    after: Option<&'v Value>,
    unknown: Option<&'v Value>,
    before_sensitive: Option<&'v Value>,
    after_sensitive: Option<&'v Value>,
}

impl<'v> Sides<'v> {
    fn step(&self, into: impl Fn(&'v Value) -> Option<&'v Value>) -> Self {
        Self {
            before: self.before.and_then(&into),
            after: self.after.and_then(&into),
            unknown: self.unknown.and_then(&into),
            before_sensitive: self.before_sensitive.and_then(&into),
            after_sensitive: self.after_sensitive.and_then(&into),
        }
    }
}

fn is_true(mark: Option<&Value>) -> bool {
    mark == Some(&Value::Bool(true))
}

fn has_unknown(mark: Option<&Value>) -> bool {
    match mark {
        Some(Value::Bool(truth)) => *truth,
        Some(Value::Array(elements)) => elements.iter().any(|element| has_unknown(Some(element))),
        Some(Value::Object(members)) => members.values().any(|member| has_unknown(Some(member))),
        _ => false,
    }
}

/// HMAC-SHA-256 of `bytes` under `key`. Any key length works.
#[must_use]
pub fn keyed(key: &[u8], bytes: &[u8]) -> [u8; 32] {
    // RFC 2104 takes keys of any length: the error of this constructor cannot happen, and an empty mark is still one value.
    Hmac::<Sha256>::new_from_slice(key).map_or([0; 32], |mut mac| {
        mac.update(bytes);
        mac.finalize().into_bytes().into()
    })
}

#[cfg(test)]
mod tests;
