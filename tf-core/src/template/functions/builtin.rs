//! The built-in text functions of Go, within limits.

use std::sync::Arc;

use gotmpl::{Template, Value, html_escape, js_escape, url_encode};

use super::args::TextBuilder;
use super::{Args, Fault, NOTHING, PRINT, Table};
use crate::template::limits::VALUE_LIMIT;
use crate::template::value::{display, string};

/// Limit of the arguments of `printf`.
const PRINTF_ARGUMENTS: usize = 64;
/// Limit of width and precision. The library panics from 65,535 on.
const PADDING: usize = 65_000;

/// Functions by name.
pub(super) const TABLE: Table = &[
    (PRINT, show),
    (NOTHING, |_| Ok(Value::Nil)),
    ("print", print),
    ("println", println),
    ("printf", printf),
    ("html", |args| Ok(escape(args, html_escape))),
    ("js", |args| Ok(escape(args, js_escape))),
    ("urlquery", |args| Ok(escape(args, url_encode))),
];

/// Prints the value of an action.
fn show(args: &Args<'_>) -> Result<Value, Fault> {
    Ok(match args.value(0)? {
        Value::Nil => string("<no value>"),
        Value::String(text) => Value::String(Arc::clone(text)),
        other => string(display(other)),
    })
}

fn print(args: &Args<'_>) -> Result<Value, Fault> {
    let mut out = TextBuilder::default();
    let mut before: Option<&Value> = None;
    for value in args.all() {
        let texts = |value: &Value| matches!(value, Value::String(_));
        if before.is_some_and(|before| !texts(before) && !texts(value)) {
            out.push(" ")?;
        }
        out.push(&display(value))?;
        before = Some(value);
    }
    Ok(out.finish())
}

fn println(args: &Args<'_>) -> Result<Value, Fault> {
    let mut out = TextBuilder::default();
    for (index, value) in args.all().iter().enumerate() {
        out.push(if index > 0 { " " } else { "" })?;
        out.push(&display(value))?;
    }
    out.push("\n")?;
    Ok(out.finish())
}

fn escape(args: &Args<'_>, with: fn(&str) -> String) -> Value {
    let mut text = String::new();
    for value in args.all() {
        match value {
            Value::Nil => text.push_str("<no value>"),
            other => text.push_str(&display(other)),
        }
    }
    string(with(&text))
}

/// Formats with the library after a size check. `%v` of floats, lists and maps follows Go.
fn printf(args: &Args<'_>) -> Result<Value, Fault> {
    let format = args.text(0)?;
    let mut values = args.all().to_vec();
    if values.len() > PRINTF_ARGUMENTS {
        return Err(Fault::new(format!("more than {PRINTF_ARGUMENTS} arguments")));
    }
    if largest_number(format, &values) > PADDING {
        return Err(Fault::new(format!("a width or precision above {PADDING}")));
    }
    let largest = values.iter().skip(1).map(|v| display(v).len()).max().unwrap_or(0);
    let verbs = format.bytes().filter(|byte| *byte == b'%').count();
    let padded = format.bytes().any(|byte| byte.is_ascii_digit() || byte == b'*');
    let each = largest
        .saturating_mul(6)
        .saturating_add(if padded { PADDING } else { 64 });
    if verbs.saturating_mul(each).saturating_add(format.len()) > 4 * VALUE_LIMIT {
        return Err(Fault::too_large());
    }
    format_values(format, &mut values);
    let words: Vec<String> = (0..values.len())
        .map(|index| format!("(index . {index})"))
        .collect();
    let call = format!("{{{{printf {}}}}}", words.join(" "));
    let failed = |_| Fault::new("the arguments do not fit the format");
    let template = Template::new("").parse(&call).map_err(failed)?;
    let text = template
        .execute_to_string(&Value::List(values.into()))
        .map_err(failed)?;
    Ok(string(text))
}

/// Returns the largest width or precision in the format or its arguments (`*`).
fn largest_number(format: &str, values: &[Value]) -> usize {
    let (mut largest, mut next) = (0, 1);
    let mut rest = format.as_bytes();
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        rest = &rest[at + 1..];
        let flags = rest.iter().take_while(|byte| b"+-# 0".contains(byte)).count();
        rest = &rest[flags..];
        for part in 0..2 {
            match rest {
                [b'.', after @ ..] if part == 1 => rest = after,
                _ if part == 1 => break,
                _ => {}
            }
            if let [b'*', after @ ..] = rest {
                rest = after;
                if let Some(Value::Int(number)) = values.get(next) {
                    largest = largest.max(usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX));
                }
                next += 1;
            } else {
                let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
                let number = rest[..digits].iter().fold(0_usize, |number, digit| {
                    number
                        .saturating_mul(10)
                        .saturating_add(usize::from(*digit - b'0'))
                });
                largest = largest.max(number);
                rest = &rest[digits..];
            }
        }
        if let [verb, after @ ..] = rest {
            next += usize::from(*verb != b'%');
            rest = after;
        }
    }
    largest
}

/// Replaces arguments of `%v` by their texts. Formats with explicit argument indexes are left alone.
fn format_values(format: &str, values: &mut [Value]) {
    if format.contains(['*', '[']) {
        return;
    }
    let mut next = 1;
    let mut rest = format.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            continue;
        }
        let mut plain = true;
        let Some(verb) = rest.find(|byte| {
            plain &= *byte != b'+' && *byte != b'#';
            !b"+-# 0.123456789".contains(byte)
        }) else {
            return;
        };
        if verb == b'%' {
            continue;
        }
        if let Some(value) = values.get_mut(next).filter(|_| plain && verb == b'v')
            && matches!(value, Value::Float(_) | Value::List(_) | Value::Map(_))
        {
            *value = string(display(value));
        }
        next += 1;
    }
}
