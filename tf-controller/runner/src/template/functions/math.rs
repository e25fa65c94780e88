//! Numbers.

use super::args::Grown;
use super::{Args, Fault, Table};
use crate::template::value::display;
use gotmpl::Value;

/// Names and functions.
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

/// Most numbers that `until`, `untilStep` and `seq` count.
const MOST: i64 = 100_000;

fn int(args: &Args<'_>) -> Result<Value, Fault> {
    args.exactly(1)?;
    Ok(Value::Int(to_int(args.value(0)?)))
}

/// `cast.ToInt64`: what is no number is 0.
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

/// Whole numbers with Go's prefixes; zeros behind a point are cut.
fn text_to_int(text: &str) -> i64 {
    let whole = match text.split_once('.') {
        Some((whole, zeros)) if !zeros.is_empty() && zeros.bytes().all(|byte| byte == b'0') => whole,
        _ => text,
    };
    let (sign, digits) = match whole.as_bytes().first() {
        Some(b'-') => (-1, &whole[1..]),
        Some(b'+') => (1, &whole[1..]),
        _ => (1, whole),
    };
    let digits = digits.trim_start_matches('0');
    digits.parse::<i64>().map_or(0, |number| sign * number)
}

/// `cast.ToFloat64`: what is no number is 0.
#[expect(clippy::cast_precision_loss, reason = "as in Go")]
fn to_float(value: &Value) -> f64 {
    match value {
        Value::Int(number) => *number as f64,
        Value::Uint(number) => *number as f64,
        Value::Float(number) => *number,
        Value::Bool(truth) => f64::from(u8::from(*truth)),
        Value::String(text) => text.parse().unwrap_or(0.0),
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

/// Sprig adds and multiplies decimal numbers: noise behind the 15th digit goes.
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

fn counted(start: i64, end: i64, step: i64) -> Result<Vec<i64>, Fault> {
    let distance = i128::from(end) - i128::from(start);
    if step == 0 || distance == 0 || (distance < 0) != (step < 0) {
        return Ok(Vec::new());
    }
    let count = (distance.abs() + i128::from(step).abs() - 1) / i128::from(step).abs();
    if count > i128::from(MOST) {
        return Err(Fault::new(format!("more than {MOST} numbers")));
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
        counted(start, end, step)?.into_iter().map(Value::Int).collect(),
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
    let mut out = Grown::default();
    for (index, number) in counted(start, end.saturating_add(direction), step)?
        .iter()
        .enumerate()
    {
        out.push(if index > 0 { " " } else { "" })?;
        out.push(&number.to_string())?;
    }
    Ok(out.done())
}
