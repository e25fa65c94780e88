//! The effect for people (pure): one line for each thing that the digest covers, sensitive values masked.
//!
//! Lines that begin with `#` tell of the resource, the others of its places: `path: before -> after`. Texts are written as
//! JSON strings, so that no value can pass for a line of its own.

use std::fmt::Write as _;

use serde_json::Value;

/// Heads the text.
pub(super) const TITLE: &str = "What this plan's id covers";

/// The text, ended by a line feed.
pub(super) fn text(document: &Value) -> String {
    let mut out = format!("{TITLE} ({}):\n", word(&document["form"]));
    for name in ["inputs", "modules", "lock", "last_apply"] {
        let held = document[name].as_str().unwrap_or_default();
        let held = if held.is_empty() { "none" } else { held };
        line(&mut out, format_args!("  {name}: {held}"));
    }
    if let Some(state) = document.get("state").and_then(Value::as_str) {
        line(&mut out, format_args!("  state: {state}"));
    }
    for resource in list(&document["resources"]) {
        head(&mut out, "", &resource["address"], resource);
        tell_resource(&mut out, resource);
        changes(&mut out, resource);
    }
    for output in list(&document["outputs"]) {
        head(&mut out, "output ", &output["name"], output);
        changes(&mut out, output);
    }
    for (name, value) in document["other"].as_object().into_iter().flatten() {
        line(
            &mut out,
            format_args!("other {}: {}", quoted(name), leaf(Some(value))),
        );
    }
    out
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{text}");
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// `~ address: update`
fn head(out: &mut String, kind: &str, name: &Value, entry: &Value) {
    let actions: Vec<_> = list(&entry["actions"]).iter().map(word).collect();
    let sign = match actions.as_slice() {
        ["create"] => "+",
        ["delete"] => "-",
        ["update"] => "~",
        ["delete", "create"] => "-/+",
        ["create", "delete"] => "+/-",
        _ => "*",
    };
    line(
        out,
        format_args!("{sign} {kind}{}: {}", shown(word(name)), actions.join(", ")),
    );
}

fn tell_resource(out: &mut String, resource: &Value) {
    for name in [
        "mode",
        "type",
        "provider",
        "deposed",
        "previous_address",
        "reason",
    ] {
        if let Some(text) = resource.get(name).and_then(Value::as_str) {
            line(out, format_args!("    # {name}: {}", quoted(text)));
        }
    }
    for name in ["id", "importing", "replace_paths"] {
        match resource.get(name) {
            Some(Value::Array(leaves)) => {
                for held in leaves {
                    let path = path(name, list(&held["path"]));
                    line(out, format_args!("    # {path}: {}", leaf(held.get("at"))));
                }
            }
            Some(hidden) => line(out, format_args!("    # {name}: {}", leaf(Some(hidden)))),
            None => {}
        }
    }
    if resource.get("changes").is_none() {
        line(out, format_args!("    # what it holds is not compared"));
    }
}

fn changes(out: &mut String, entry: &Value) {
    for change in list(&entry["changes"]) {
        let path = path("", list(&change["path"]));
        let (before, after) = (leaf(change.get("before")), leaf(change.get("after")));
        line(out, format_args!("    {path}: {before} -> {after}"));
    }
}

/// `tags["a b"].list[0]`, behind a name; a whole value without one is `(value)`.
fn path(name: &str, steps: &[Value]) -> String {
    let mut text = name.to_owned();
    for step in steps {
        let _ = match step {
            Value::String(member) if is_plain(member) => {
                let dot = if text.is_empty() { "" } else { "." };
                write!(text, "{dot}{member}")
            }
            Value::String(member) => write!(text, "[{}]", quoted(member)),
            index => write!(text, "[{index}]"),
        };
    }
    if text.is_empty() {
        "(value)".to_owned()
    } else {
        text
    }
}

fn is_plain(member: &str) -> bool {
    let mut letters = member.chars();
    letters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-'))
}

fn leaf(leaf: Option<&Value>) -> String {
    let Some(leaf) = leaf else {
        return "(absent)".to_owned();
    };
    if leaf.get("unknown").is_some() {
        "(known after apply)".to_owned()
    } else if leaf.get("sensitive").is_some() {
        "(sensitive value)".to_owned()
    } else if leaf.get("hidden").is_some() {
        "(sensitive value on the other side)".to_owned()
    } else if let Some(number) = leaf.get("number") {
        word(number).to_owned()
    } else {
        match &leaf["value"] {
            Value::String(text) => quoted(text),
            other => other.to_string(),
        }
    }
}

/// An address as it is, or quoted where it holds what is no part of a line.
fn shown(text: &str) -> String {
    let odd = |letter: char| letter.is_control() || is_turning(letter);
    if text.starts_with('"') || text.chars().any(odd) {
        quoted(text)
    } else {
        text.to_owned()
    }
}

/// A JSON string, in which letters that turn the direction of writing are escaped too: nothing looks like what it is not.
fn quoted(text: &str) -> String {
    let plain = Value::from(text).to_string();
    let mut out = String::with_capacity(plain.len());
    for letter in plain.chars() {
        if letter.is_control() || is_turning(letter) {
            let mut units = [0; 2];
            for unit in letter.encode_utf16(&mut units) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(letter);
        }
    }
    out
}

/// Letters that change how others are shown (Unicode: bidirectional controls and line separators).
const fn is_turning(letter: char) -> bool {
    matches!(letter, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
