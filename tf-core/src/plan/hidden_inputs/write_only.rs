//! Write-only arguments. A provider does not store them, so they are `null` before and after. The plan does not distinguish them
//! from arguments that are not set, so every `null` of an expression may be one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Scope;
use crate::plan::document::{Change, ResourceChange};

/// Creates and updates by address without instance keys.
type ChangesByAddress<'p> = BTreeMap<String, Vec<&'p Change>>;

/// Whether a possibly write-only argument of a create or an update may depend on more than inputs.
pub(super) fn has_hidden_inputs(root: &Value, changes: &[ResourceChange]) -> bool {
    let mut changes_by_address = ChangesByAddress::new();
    for entry in changes {
        if entry.change.acts("create") || entry.change.acts("update") {
            let entries = changes_by_address
                .entry(without_keys(&entry.address))
                .or_default();
            entries.push(&entry.change);
        }
    }
    !changes_by_address.is_empty()
        && module_has_hidden_inputs(root, "", &BTreeSet::new(), &changes_by_address)
}

/// `derived` are the variables that may depend on more than inputs. In a module nearly every argument is a variable, and many are
/// `null`, so variables count only if the caller passes a derived value.
fn module_has_hidden_inputs(
    module: &Value,
    prefix: &str,
    derived: &BTreeSet<&str>,
    changes_by_address: &ChangesByAddress<'_>,
) -> bool {
    let scope = Scope {
        is_derived_variable: &|name| derived.contains(name),
        is_derived_each: false,
    };
    let mut resources = module["resources"].as_array().into_iter().flatten();
    let mut calls = module["module_calls"].as_object().into_iter().flatten();
    resources.any(|resource| {
        let address = resource["address"].as_str().unwrap_or_default();
        let changes = changes_by_address.get(&format!("{prefix}{address}"));
        let scope = scope.with_for_each(&resource["for_each_expression"]);
        changes.into_iter().flatten().any(|change| {
            let sides = (Some(&change.after), Some(&change.after_unknown));
            has_write_only(&resource["expressions"], sides, &scope)
        })
    }) || calls.any(|(name, call)| {
        let scope = scope.with_for_each(&call["for_each_expression"]);
        let arguments = call["expressions"].as_object().into_iter().flatten();
        let derived = arguments.filter(|(_, value)| scope.is_derived(value));
        let derived = derived.map(|(name, _)| name.as_str()).collect();
        module_has_hidden_inputs(
            &call["module"],
            &format!("{prefix}module.{name}."),
            &derived,
            changes_by_address,
        )
    })
}

/// A value after the change, and its marks of unknown values.
type Sides<'v> = (Option<&'v Value>, Option<&'v Value>);

fn step<'v>((after, unknown): Sides<'v>, into: impl Fn(&'v Value) -> Option<&'v Value>) -> Sides<'v> {
    (after.and_then(&into), unknown.and_then(&into))
}

/// Whether a derived argument may be write-only.
fn has_write_only(expressions: &Value, sides: Sides<'_>, scope: &Scope<'_>) -> bool {
    if sides.1 == Some(&Value::Bool(true)) {
        return false;
    }
    match expressions {
        Value::Object(members) if members.get("references").is_some_and(Value::is_array) => {
            scope.is_derived(expressions) && has_null(sides)
        }
        Value::Object(members) => members
            .iter()
            .any(|(name, inner)| has_write_only(inner, step(sides, |value| value.get(name)), scope)),
        Value::Array(blocks) => blocks
            .iter()
            .enumerate()
            .any(|(index, inner)| has_write_only(inner, step(sides, |value| value.get(index)), scope)),
        _ => false,
    }
}

/// Whether a value contains a `null` that is not marked as unknown.
fn has_null(sides: Sides<'_>) -> bool {
    if sides.1 == Some(&Value::Bool(true)) {
        return false;
    }
    match sides.0 {
        None | Some(Value::Null) => true,
        Some(Value::Object(members)) => members
            .keys()
            .any(|name| has_null(step(sides, |value| value.get(name)))),
        Some(Value::Array(elements)) => {
            (0..elements.len()).any(|index| has_null(step(sides, |value| value.get(index))))
        }
        Some(_) => false,
    }
}

/// Removes instance keys and indexes from an address: `module.m["a.b"].t.n[0]` is `module.m.t.n`.
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
    fn instance_keys_are_not_part_of_a_configuration_address() {
        for (address, expected) in [
            ("t.n", "t.n"),
            ("t.n[0]", "t.n"),
            (
                r#"module.m["a.b"].module.o[1].t.n["c]\"d[\\"]"#,
                "module.m.module.o.t.n",
            ),
            ("t.n[\"", "t.n"),
        ] {
            assert_eq!(without_keys(address), expected, "{address}");
        }
    }
}
