//! Arguments whose values a plan does not show (pure): a provider is given what is write-only and keeps nothing of it, so that
//! before and after are null. A plan does not tell such an argument from one that is not set: each null that an expression gives
//! may be one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::reference::Place;
use crate::plan::document::{Change, ResourceChange};

/// The changes that give arguments to a provider, by address without keys.
type Written<'p> = BTreeMap<String, Vec<&'p Change>>;

/// Whether an argument that a create or an update gives, and that the plan does not show, takes a value from outside.
pub(super) fn draws(root: &Value, changes: &[ResourceChange]) -> bool {
    let mut written = Written::new();
    for entry in changes {
        if entry.change.acts("create") || entry.change.acts("update") {
            let all = written.entry(without_keys(&entry.address)).or_default();
            all.push(&entry.change);
        }
    }
    !written.is_empty() && module_draws(root, "", &BTreeSet::new(), &written)
}

/// `passed` are the variables that are more than inputs. Unlike a command, nearly every argument in a module is a variable, and
/// many are null: here it counts what the caller passes.
fn module_draws(module: &Value, prefix: &str, passed: &BTreeSet<&str>, written: &Written<'_>) -> bool {
    let place = Place {
        variable: &|name| passed.contains(name),
        each: false,
    };
    let mut resources = module["resources"].as_array().into_iter().flatten();
    let mut calls = module["module_calls"].as_object().into_iter().flatten();
    resources.any(|resource| {
        let address = resource["address"].as_str().unwrap_or_default();
        let changes = written.get(&format!("{prefix}{address}"));
        let place = place.repeated(&resource["for_each_expression"]);
        changes.into_iter().flatten().any(|change| {
            let sides = (Some(&change.after), Some(&change.after_unknown));
            hides(&resource["expressions"], sides, &place)
        })
    }) || calls.any(|(name, call)| {
        let place = place.repeated(&call["for_each_expression"]);
        let given = call["expressions"].as_object().into_iter().flatten();
        let passed = given.filter(|(_, value)| place.leads_out(value));
        let passed = passed.map(|(name, _)| name.as_str()).collect();
        module_draws(
            &call["module"],
            &format!("{prefix}module.{name}."),
            &passed,
            written,
        )
    })
}

/// A value after the change, and what of it is known only then.
type Sides<'v> = (Option<&'v Value>, Option<&'v Value>);

fn step<'v>((after, unknown): Sides<'v>, into: impl Fn(&'v Value) -> Option<&'v Value>) -> Sides<'v> {
    (after.and_then(&into), unknown.and_then(&into))
}

/// Whether one of these arguments takes a value from outside that is not seen.
fn hides(expressions: &Value, sides: Sides<'_>, place: &Place<'_>) -> bool {
    if sides.1 == Some(&Value::Bool(true)) {
        return false;
    }
    match expressions {
        Value::Object(members) if members.get("references").is_some_and(Value::is_array) => {
            place.leads_out(expressions) && holds_null(sides)
        }
        Value::Object(members) => members
            .iter()
            .any(|(name, inner)| hides(inner, step(sides, |value| value.get(name)), place)),
        Value::Array(blocks) => blocks
            .iter()
            .enumerate()
            .any(|(index, inner)| hides(inner, step(sides, |value| value.get(index)), place)),
        _ => false,
    }
}

/// Whether there is a null in a value that is no place of what becomes known.
fn holds_null(sides: Sides<'_>) -> bool {
    if sides.1 == Some(&Value::Bool(true)) {
        return false;
    }
    match sides.0 {
        None | Some(Value::Null) => true,
        Some(Value::Object(members)) => members
            .keys()
            .any(|name| holds_null(step(sides, |value| value.get(name)))),
        Some(Value::Array(elements)) => {
            (0..elements.len()).any(|index| holds_null(step(sides, |value| value.get(index))))
        }
        Some(_) => false,
    }
}

/// An address less the keys and indexes of its instances: `module.m["a.b"].t.n[0]` is `module.m.t.n`.
fn without_keys(address: &str) -> String {
    let mut plain = String::new();
    let (mut depth, mut is_quoted, mut is_escaped) = (0_usize, false, false);
    for letter in address.chars() {
        if is_quoted {
            is_quoted = is_escaped || letter != '"';
            is_escaped = !is_escaped && letter == '\\';
            continue;
        }
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            '"' => is_quoted = true,
            _ if depth == 0 => plain.push(letter),
            _ => {}
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_no_part_of_where_a_resource_is_written() {
        for (address, wanted) in [
            ("t.n", "t.n"),
            ("t.n[0]", "t.n"),
            (
                r#"module.m["a.b"].module.o[1].t.n["c]\"d[\\"]"#,
                "module.m.module.o.t.n",
            ),
            ("t.n[\"", "t.n"),
        ] {
            assert_eq!(without_keys(address), wanted, "{address}");
        }
    }
}
