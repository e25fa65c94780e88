//! Conversion of values from JSON, and their text formats in Go.

use std::fmt::Write;
use std::sync::Arc;

use gotmpl::Value;

/// Converts JSON. As in Go, every number is a `float64`.
pub(super) fn from_json(value: &serde_json::Value) -> Value {
    match value {
        serde_json::Value::Null => Value::Nil,
        serde_json::Value::Bool(truth) => Value::Bool(*truth),
        serde_json::Value::Number(number) => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        serde_json::Value::String(text) => string(text),
        serde_json::Value::Array(items) => Value::List(items.iter().map(from_json).collect()),
        serde_json::Value::Object(map) => Value::Map(Arc::new(
            map.iter()
                .map(|(key, value)| (Arc::from(key.as_str()), from_json(value)))
                .collect(),
        )),
    }
}

/// Converts a text.
pub(super) fn string(text: impl AsRef<str>) -> Value {
    Value::String(Arc::from(text.as_ref()))
}

/// Go's `%v`.
pub(super) fn display(value: &Value) -> String {
    let mut text = String::new();
    write_value(&mut text, value);
    text
}

fn write_value(text: &mut String, value: &Value) {
    match value {
        Value::Nil => text.push_str("<nil>"),
        Value::Float(number) => text.push_str(&float(*number)),
        Value::String(inner) => text.push_str(inner),
        Value::List(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(' ');
                }
                write_value(text, item);
            }
            text.push(']');
        }
        Value::Map(map) => {
            text.push_str("map[");
            for (index, (key, item)) in map.iter().enumerate() {
                if index > 0 {
                    text.push(' ');
                }
                text.push_str(key);
                text.push(':');
                write_value(text, item);
            }
            text.push(']');
        }
        other => {
            let _ = write!(text, "{other}");
        }
    }
}

/// Returns the shortest digits and the decimal exponent of a finite number: `d.ddd * 10^exponent`.
fn digits(number: f64) -> (String, i32) {
    let text = format!("{:e}", number.abs());
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    (mantissa.replace('.', ""), exponent.parse().unwrap_or(0))
}

/// Go's `%v` of a `float64`: exponents below -4 and from 6 use the exponent notation.
pub(super) fn float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let (digits, exponent) = digits(number);
    let sign = if number.is_sign_negative() { "-" } else { "" };
    if number == 0.0 || (-4..6).contains(&exponent) {
        return format!("{number}");
    }
    let (first, rest) = digits.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    let direction = if exponent < 0 { '-' } else { '+' };
    format!("{sign}{first}{point}{rest}e{direction}{:02}", exponent.abs())
}

/// Go's `%q`.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            plain if is_printable(plain) => out.push(plain),
            small if u32::from(small) < 0x20 || small == '\u{7f}' => {
                let _ = write!(out, "\\x{:02x}", u32::from(small));
            }
            wide if u32::from(wide) > 0xffff => {
                let _ = write!(out, "\\U{:08x}", u32::from(wide));
            }
            other => {
                let _ = write!(out, "\\u{:04x}", u32::from(other));
            }
        }
    }
    out.push('"');
    out
}

/// Whether Go does not escape a character. The only such white space is U+0020.
fn is_printable(character: char) -> bool {
    if character.is_ascii() {
        return (' '..='~').contains(&character);
    }
    // Rust escapes combining marks at the start of a text, Go does not.
    let text: String = ['a', character].iter().collect();
    !text.escape_debug().skip(1).any(|c| c == '\\')
}

/// The format of JSON.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Json {
    /// `<`, `>` and `&` are escaped.
    Safe,
    /// `<`, `>` and `&` are not escaped.
    Raw,
    /// As `Safe`, with two spaces of indentation.
    Pretty,
}

/// Encodes JSON as Go's `encoding/json`. Returns `None` for values without a JSON form.
pub(super) fn to_json(value: &Value, form: Json) -> Option<String> {
    let mut out = String::new();
    write_json(&mut out, value, form, 0)?;
    Some(out)
}

fn write_json(out: &mut String, value: &Value, form: Json, depth: usize) -> Option<()> {
    match value {
        Value::Nil => out.push_str("null"),
        Value::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
        Value::Float(number) if number.is_finite() => out.push_str(&json_float(*number)),
        Value::Float(_) | Value::Function(_) => return None,
        Value::Int(number) => out.push_str(&number.to_string()),
        Value::Uint(number) => out.push_str(&number.to_string()),
        Value::String(text) => json_text(out, text, form),
        Value::List(items) if items.is_empty() => out.push_str("[]"),
        Value::Map(map) if map.is_empty() => out.push_str("{}"),
        Value::List(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                separate(out, index, form, depth + 1);
                write_json(out, item, form, depth + 1)?;
            }
            close(out, ']', form, depth);
        }
        Value::Map(map) => {
            out.push('{');
            for (index, (key, item)) in map.iter().enumerate() {
                separate(out, index, form, depth + 1);
                json_text(out, key, form);
                out.push_str(if form == Json::Pretty { ": " } else { ":" });
                write_json(out, item, form, depth + 1)?;
            }
            close(out, '}', form, depth);
        }
    }
    Some(())
}

fn separate(out: &mut String, index: usize, form: Json, depth: usize) {
    if index > 0 {
        out.push(',');
    }
    line(out, form, depth);
}

fn close(out: &mut String, bracket: char, form: Json, depth: usize) {
    line(out, form, depth);
    out.push(bracket);
}

fn line(out: &mut String, form: Json, depth: usize) {
    if form == Json::Pretty {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    }
}

fn json_float(number: f64) -> String {
    let magnitude = number.abs();
    if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        let (digits, exponent) = digits(number);
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        let sign = if number < 0.0 { "-" } else { "" };
        let plus = if exponent > 0 { "+" } else { "" };
        return format!("{sign}{first}{point}{rest}e{plus}{exponent}");
    }
    format!("{number}")
}

fn json_text(out: &mut String, text: &str, form: Json) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '<' | '>' | '&' if form != Json::Raw => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            small if u32::from(small) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", u32::from(small));
            }
            plain => out.push(plain),
        }
    }
    out.push('"');
}
