//! Go's text formats: kube-apiserver builds its messages with `%q`, `%v` and `json.Marshal`.

use std::fmt::Write as _;

use serde_json::{Number, Value};

/// Formats a string like Go's `%q`.
pub(crate) fn quote(string: &str) -> String {
    let mut out = String::with_capacity(string.len() + 2);
    out.push('"');
    for c in string.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if is_printable(c) => out.push(c),
            c => push_escaped(&mut out, c),
        }
    }
    out.push('"');
    out
}

fn push_escaped(out: &mut String, c: char) {
    let code = u32::from(c);
    // Writing to a String cannot fail.
    let _ = match code {
        0..0x80 => write!(out, "\\x{code:02x}"),
        0x80..0x1_0000 => write!(out, "\\u{code:04x}"),
        _ => write!(out, "\\U{code:08x}"),
    };
}

/// Approximates Go's `strconv.IsPrint`; beyond ASCII with the table of the standard library.
fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return matches!(c, ' '..='~');
    }
    // After a letter, a combining mark is not escaped merely for its position.
    let pair: String = ['a', c].into_iter().collect();
    pair.escape_debug().eq(pair.chars())
}

/// Formats a number like `%v`: integers plainly, others like [`float`].
pub(crate) fn number(number: &Number) -> String {
    if number.is_i64() {
        return number.to_string();
    }
    float(number.as_f64().unwrap_or_default())
}

/// Formats a float like `%v`: the shortest digits, in exponent form below 1e-4 and from 1e+06.
pub(crate) fn float(value: f64) -> String {
    if value == 0.0 {
        return if value.is_sign_negative() {
            "-0".to_owned()
        } else {
            "0".to_owned()
        };
    }
    // `{:e}` prints the shortest digits that parse to the same number.
    let scientific = format!("{value:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..6).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// Formats a value like `json.Marshal`: sorted keys, no spaces, `<`, `>` and `&` escaped.
pub(crate) fn json(value: &Value) -> String {
    let mut out = String::new();
    push_json(&mut out, value);
    out
}

fn push_json(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&json_number(number)),
        Value::String(string) => push_json_string(out, string),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                push_json(out, item);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            let mut keys: Vec<&String> = fields.keys().collect();
            keys.sort();
            out.push('{');
            for (i, key) in keys.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                push_json_string(out, key);
                out.push(':');
                push_json(out, &fields[key]);
            }
            out.push('}');
        }
    }
}

fn json_number(number: &Number) -> String {
    if number.is_i64() {
        return number.to_string();
    }
    let value = number.as_f64().unwrap_or_default();
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        let scientific = format!("{value:e}");
        // Exponents: `1e+21`, and `1e-7` without a leading zero.
        return match scientific.split_once('e') {
            Some((mantissa, exponent)) if !exponent.starts_with('-') => format!("{mantissa}e+{exponent}"),
            _ => scientific,
        };
    }
    format!("{value}")
}

fn push_json_string(out: &mut String, string: &str) {
    out.push('"');
    for c in string.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn floats_are_formatted_like_go() {
        let table = [
            (1.0, "1", "1"),
            (1.5, "1.5", "1.5"),
            (999_999.0, "999999", "999999"),
            (1_000_000.0, "1e+06", "1000000"),
            (123_456_789.0, "1.23456789e+08", "123456789"),
            (1e21, "1e+21", "1e+21"),
            (0.0001, "0.0001", "0.0001"),
            (0.00001, "1e-05", "0.00001"),
            (1e-7, "1e-07", "1e-7"),
            (1_234_567.5, "1.2345675e+06", "1234567.5"),
        ];
        for (value, plain, in_json) in table {
            assert_eq!(float(value), plain);
            assert_eq!(json(&json!(value)), in_json);
        }
    }

    #[test]
    fn strings_are_quoted_like_go() {
        assert_eq!(
            quote("a\"b\n\u{e9}\u{200b}\u{7f}"),
            "\"a\\\"b\\n\u{e9}\\u200b\\x7f\""
        );
        assert_eq!(quote("<>&"), "\"<>&\"");
        assert_eq!(quote("\0\u{1b}\u{1f600}"), "\"\\x00\\x1b\u{1f600}\"");
        assert_eq!(
            json(&json!({"b": "<", "a": [1, null]})),
            r#"{"a":[1,null],"b":"\u003c"}"#
        );
    }
}
