//! Numbers.

use gotmpl::Value;

use super::args::TextBuilder;
use super::{Args, Fault, Table};
use crate::template::value::display;

/// Functions by name.
pub(super) const TABLE: Table = &[
    ("atoi", |args| {
        args.exactly(1)?;
        Ok(Value::Int(args.text(0)?.parse().unwrap_or(0)))
    }),
    ("int", int),
    ("int64", int),
    ("float64", |args| {
        args.exactly(1)?;
        Ok(Value::Float(to_float(args.value(0)?)))
    }),
    ("toDecimal", |args| {
        args.exactly(1)?;
        let number = i64::from_str_radix(&display(args.value(0)?), 8);
        Ok(Value::Int(number.unwrap_or(0)))
    }),
    ("add1", |args| {
        args.exactly(1)?;
        Ok(Value::Int(to_int(args.value(0)?).wrapping_add(1)))
    }),
    ("add", |args| {
        let sum = args.all().iter().map(to_int).fold(0, i64::wrapping_add);
        Ok(Value::Int(sum))
    }),
    ("sub", |args| {
        pair(args, |one, other| Some(one.wrapping_sub(other)))
    }),
    ("div", |args| {
        pair(args, |one, other| (other != 0).then(|| one.wrapping_div(other)))
    }),
    ("mod", |args| {
        pair(args, |one, other| (other != 0).then(|| one.wrapping_rem(other)))
    }),
    ("mul", |args| fold(args, i64::wrapping_mul)),
    ("max", |args| fold(args, Ord::max)),
    ("biggest", |args| fold(args, Ord::max)),
    ("min", |args| fold(args, Ord::min)),
    ("maxf", |args| fold_float(args, f64::max)),
    ("minf", |args| fold_float(args, f64::min)),
    ("add1f", |args| {
        args.exactly(1)?;
        Ok(Value::Float(decimal(to_float(args.value(0)?) + 1.0)))
    }),
    ("addf", |args| {
        let sum = args
            .all()
            .iter()
            .map(to_float)
            .fold(0.0, |one, other| decimal(one + other));
        Ok(Value::Float(sum))
    }),
    ("subf", |args| fold_float(args, |one, other| decimal(one - other))),
    ("mulf", |args| fold_float(args, |one, other| decimal(one * other))),
    ("divf", |args| {
        if args.all().iter().skip(1).any(|value| to_float(value) == 0.0) {
            return Err(Fault::new("division by zero"));
        }
        fold_float(args, |one, other| one / other)
    }),
    ("ceil", |args| one_float(args, f64::ceil)),
    ("floor", |args| one_float(args, f64::floor)),
    ("round", round),
    ("until", |args| {
        args.exactly(1)?;
        let count = args.int(0)?;
        list(0, count, if count < 0 { -1 } else { 1 })
    }),
    ("untilStep", |args| {
        args.exactly(3)?;
        list(args.int(0)?, args.int(1)?, args.int(2)?)
    }),
    ("seq", seq),
];

/// Limit of the numbers of `until`, `untilStep` and `seq`.
const COUNT_LIMIT: i64 = 100_000;

fn int(args: &Args<'_>) -> Result<Value, Fault> {
    args.exactly(1)?;
    Ok(Value::Int(to_int(args.value(0)?)))
}

/// `cast.ToInt64`: other values yield 0.
pub(super) fn to_int(value: &Value) -> i64 {
    match value {
        Value::Int(number) => *number,
        Value::Uint(number) => i64::try_from(*number).unwrap_or(i64::MAX),
        Value::Bool(truth) => i64::from(*truth),
        #[expect(clippy::cast_possible_truncation, reason = "the fraction goes, as in Go")]
        Value::Float(number) => *number as i64,
        Value::String(text) => text_to_int(text),
        _ => 0,
    }
}

/// Parses an integer of Go source, with prefix and underscores. Zeros after a decimal point are ignored.
fn text_to_int(text: &str) -> i64 {
    let whole = match text.rsplit_once('.') {
        Some((whole, zeros)) if !zeros.is_empty() && zeros.bytes().all(|byte| byte == b'0') => whole,
        _ => text,
    };
    let (sign, unsigned) = match whole.as_bytes().first() {
        Some(b'-') => ("-", &whole[1..]),
        Some(b'+') => ("", &whole[1..]),
        _ => ("", whole),
    };
    let lower = unsigned.to_ascii_lowercase();
    let prefixes = [("0x", 16), ("0b", 2), ("0o", 8), ("0", 8)];
    let found = prefixes
        .into_iter()
        .find_map(|(prefix, base)| Some((lower.strip_prefix(prefix)?, base)));
    // A single zero is not a prefix.
    let (digits, base) = found
        .filter(|(digits, _)| !digits.is_empty())
        .unwrap_or((&lower, 10));
    match without_underscores(digits, base != 10) {
        Some(digits) if !digits.starts_with(['+', '-']) => {
            i64::from_str_radix(&format!("{sign}{digits}"), base).unwrap_or(0)
        }
        _ => 0,
    }
}

/// Removes underscores between digits or after a prefix.
fn without_underscores(digits: &str, prefixed: bool) -> Option<String> {
    let outside = digits.starts_with('_') && !prefixed || digits.ends_with('_') || digits.contains("__");
    (!outside).then(|| digits.replace('_', ""))
}

/// Parses a float of Go source.
fn text_to_float(text: &str) -> f64 {
    if let Some(number) = hexadecimal(text) {
        return number;
    }
    let plain = without_underscores(text, false).unwrap_or_default();
    let number: f64 = plain.parse().unwrap_or(0.0);
    // Overflowing digits yield 0; a literal `inf` is kept.
    let beyond = number.is_infinite() && plain.contains(|c: char| c.is_ascii_digit());
    if beyond { 0.0 } else { number }
}

/// Parses `0x1.8p3` with at most 13 digits; more are not exact.
fn hexadecimal(text: &str) -> Option<f64> {
    let lower = text.to_ascii_lowercase();
    let (sign, unsigned) = match lower.strip_prefix('-') {
        Some(unsigned) => (-1.0, unsigned),
        None => (1.0, lower.strip_prefix('+').unwrap_or(&lower)),
    };
    let (mantissa, exponent) = unsigned.strip_prefix("0x")?.split_once('p')?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let value = u32::try_from(digits.len())
        .ok()
        .filter(|count| (1..=13).contains(count));
    value.filter(|_| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    #[expect(clippy::cast_precision_loss, reason = "13 digits are 52 bits")]
    let value = u64::from_str_radix(&digits, 16).ok()? as f64;
    let shift = exponent
        .parse::<i32>()
        .ok()?
        .checked_sub(i32::try_from(4 * fraction.len()).ok()?)?;
    Some(sign * value * 2_f64.powi(shift))
}

/// `cast.ToFloat64`: other values yield 0.
#[expect(clippy::cast_precision_loss, reason = "as in Go")]
fn to_float(value: &Value) -> f64 {
    match value {
        Value::Int(number) => *number as f64,
        Value::Uint(number) => *number as f64,
        Value::Float(number) => *number,
        Value::Bool(truth) => f64::from(u8::from(*truth)),
        Value::String(text) => text_to_float(text),
        _ => 0.0,
    }
}

fn pair(args: &Args<'_>, with: fn(i64, i64) -> Option<i64>) -> Result<Value, Fault> {
    args.exactly(2)?;
    let result = with(to_int(args.value(0)?), to_int(args.value(1)?));
    Ok(Value::Int(result.ok_or_else(|| Fault::new("division by zero"))?))
}

fn fold(args: &Args<'_>, with: fn(i64, i64) -> i64) -> Result<Value, Fault> {
    let first = to_int(args.value(0)?);
    Ok(Value::Int(
        args.all().iter().skip(1).map(to_int).fold(first, with),
    ))
}

fn fold_float(args: &Args<'_>, with: fn(f64, f64) -> f64) -> Result<Value, Fault> {
    let first = to_float(args.value(0)?);
    Ok(Value::Float(
        args.all().iter().skip(1).map(to_float).fold(first, with),
    ))
}

fn one_float(args: &Args<'_>, with: fn(f64) -> f64) -> Result<Value, Fault> {
    args.exactly(1)?;
    Ok(Value::Float(with(to_float(args.value(0)?))))
}

/// Sprig uses decimal numbers: rounds to 15 digits.
fn decimal(number: f64) -> f64 {
    format!("{number:.14e}").parse().unwrap_or(number)
}

fn round(args: &Args<'_>) -> Result<Value, Fault> {
    args.at_least(2)?;
    let places = i32::try_from(args.int(1)?).map_err(|_| Fault::new("too many places"))?;
    let on = args.all().get(2).map_or(0.5, to_float);
    let power = 10_f64.powi(places);
    let digit = power * to_float(args.value(0)?);
    let rounded = if digit.fract() >= on {
        digit.ceil()
    } else {
        digit.floor()
    };
    Ok(Value::Float(rounded / power))
}

fn count(start: i64, end: i64, step: i64) -> Result<Vec<i64>, Fault> {
    let distance = i128::from(end) - i128::from(start);
    if step == 0 || distance == 0 || (distance < 0) != (step < 0) {
        return Ok(Vec::new());
    }
    let count = (distance.abs() + i128::from(step).abs() - 1) / i128::from(step).abs();
    if count > i128::from(COUNT_LIMIT) {
        return Err(Fault::new(format!("more than {COUNT_LIMIT} numbers")));
    }
    let mut numbers = Vec::new();
    let mut next = Some(start);
    while let Some(number) = next.filter(|n| if step > 0 { *n < end } else { *n > end }) {
        numbers.push(number);
        next = number.checked_add(step);
    }
    Ok(numbers)
}

fn list(start: i64, end: i64, step: i64) -> Result<Value, Fault> {
    Ok(Value::List(
        count(start, end, step)?.into_iter().map(Value::Int).collect(),
    ))
}

fn seq(args: &Args<'_>) -> Result<Value, Fault> {
    let (start, step, end) = match args.all().len() {
        1 => (1, None, args.int(0)?),
        2 => (args.int(0)?, None, args.int(1)?),
        3 => (args.int(0)?, Some(args.int(1)?), args.int(2)?),
        _ => return Ok(Value::String("".into())),
    };
    let direction = if end < start { -1 } else { 1 };
    let step = step.unwrap_or(direction);
    if end < start && step > 0 {
        return Ok(Value::String("".into()));
    }
    let mut out = TextBuilder::default();
    for (index, number) in count(start, end.saturating_add(direction), step)?
        .iter()
        .enumerate()
    {
        out.push(if index > 0 { " " } else { "" })?;
        out.push(&number.to_string())?;
    }
    Ok(out.finish())
}
