//! The effect as text for users: one line for each part that the digest covers, without sensitive values.
//!
//! Lines that begin with `#` describe the resource, the others its changes: `path: before -> after`. Texts are JSON strings, so that
//! no value can imitate a line.

use std::fmt::Write as _;

use serde_json::Value;

/// Title of the text.
pub(super) const TITLE: &str = "What this plan's id covers";

/// Returns the text with a final line feed.
pub(super) fn text(document: &Value) -> String {
    let mut out = format!("{TITLE} ({}):\n", word(&document["form"]));
    for name in ["inputs", "modules", "lock", "last_apply"] {
        let value = document[name].as_str().unwrap_or_default();
        let value = if value.is_empty() { "none" } else { value };
        line(&mut out, format_args!("  {name}: {value}"));
    }
    if let Some(state) = document.get("state").and_then(Value::as_str) {
        line(&mut out, format_args!("  state: {state}"));
    }
    for resource in list(&document["resources"]) {
        head(&mut out, "", &resource["address"], resource);
        resource_details(&mut out, resource);
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

/// Writes `~ address: update`.
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
        format_args!(
            "{sign} {kind}{}: {}",
            address_text(word(name)),
            actions.join(", ")
        ),
    );
}

fn resource_details(out: &mut String, resource: &Value) {
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
                for part in leaves {
                    let path = path(name, list(&part["path"]));
                    line(out, format_args!("    # {path}: {}", leaf(part.get("at"))));
                }
            }
            Some(sensitive) => line(out, format_args!("    # {name}: {}", leaf(Some(sensitive)))),
            None => {}
        }
    }
    if resource.get("changes").is_none() {
        line(out, format_args!("    # its content is not compared"));
    }
}

fn changes(out: &mut String, entry: &Value) {
    for change in list(&entry["changes"]) {
        let path = path("", list(&change["path"]));
        let (before, after) = (leaf(change.get("before")), leaf(change.get("after")));
        line(out, format_args!("    {path}: {before} -> {after}"));
    }
}

/// Returns `tags["a b"].list[0]` after a name, or `(value)` for an empty path.
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

/// Returns an address, quoted if it has control characters.
fn address_text(text: &str) -> String {
    let is_control = |letter: char| letter.is_control() || is_direction_control(letter);
    if text.starts_with('"') || text.chars().any(is_control) {
        quoted(text)
    } else {
        text.to_owned()
    }
}

/// Returns a JSON string that also escapes characters that change the direction of text.
fn quoted(text: &str) -> String {
    let plain = Value::from(text).to_string();
    let mut out = String::with_capacity(plain.len());
    for letter in plain.chars() {
        if letter.is_control() || is_direction_control(letter) {
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

/// Whether a character is a bidirectional control or a line separator of Unicode.
const fn is_direction_control(letter: char) -> bool {
    matches!(letter, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
