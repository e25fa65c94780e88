//! Spans of time, as Go writes them.

use super::{Args, Fault};
use crate::template::value::string;
use gotmpl::Value;

const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Units of `time.ParseDuration`, in nanoseconds. What begins as another does stands behind it.
const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", SECOND),
    ("m", MINUTE),
    ("h", HOUR),
];

/// `time.ParseDuration`, in nanoseconds: `-1.5h`, `1h2m3s`.
pub(super) fn parse(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut sum = 0_i128;
    while {
        let (part, behind) = one_part(rest)?;
        sum += part;
        rest = behind;
        !rest.is_empty()
    } {
        i64::try_from(sum).ok()?;
    }
    i64::try_from(if negative { -sum } else { sum }).ok()
}

/// A number with its unit.
fn one_part(text: &str) -> Option<(i128, &str)> {
    let number = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, rest) = text.split_at(number);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let name = rest
        .find(|c: char| c == '.' || c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (name, rest) = rest.split_at(name);
    let (_, unit) = UNITS.into_iter().find(|(known, _)| *known == name)?;
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // What is behind the 18th digit is less than a nanosecond of an hour.
    let digits = fraction.get(..18).unwrap_or(fraction);
    let scale = 10_i128.pow(u32::try_from(digits.len()).ok()?);
    let fraction: i128 = if digits.is_empty() {
        0
    } else {
        digits.parse().ok()?
    };
    Some((
        i128::from(whole) * i128::from(unit) + fraction * i128::from(unit) / scale,
        rest,
    ))
}

/// `duration`: seconds as hours, minutes and seconds.
pub(super) fn of_seconds(args: &Args<'_>) -> Result<Value, Fault> {
    args.exactly(1)?;
    let seconds = match args.value(0)? {
        Value::Int(seconds) => *seconds,
        Value::String(text) => text.parse().unwrap_or(0),
        _ => 0,
    };
    seconds
        .checked_mul(SECOND)
        .ok_or_else(|| Fault::new("the duration is too long"))?;
    let (sign, seconds) = (if seconds < 0 { "-" } else { "" }, seconds.abs());
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    Ok(string(match (hours, minutes) {
        (0, 0) => format!("{sign}{rest}s"),
        (0, _) => format!("{sign}{minutes}m{rest}s"),
        _ => format!("{sign}{hours}h{minutes}m{rest}s"),
    }))
}

/// `durationRound`: the largest unit alone. A number counts nanoseconds.
pub(super) fn rounded(args: &Args<'_>) -> Result<Value, Fault> {
    args.exactly(1)?;
    let span = match args.value(0)? {
        Value::Int(nanoseconds) => *nanoseconds,
        Value::String(text) if super::Time::from_text(text).is_some() => return Err(super::no_time()),
        Value::String(text) => parse(text).unwrap_or(0),
        _ => 0,
    };
    let span = span.unsigned_abs();
    let units = [
        (365 * DAY, "y"),
        (30 * DAY, "mo"),
        (DAY, "d"),
        (HOUR, "h"),
        (MINUTE, "m"),
        (SECOND, "s"),
    ];
    let fitting = units
        .into_iter()
        .map(|(unit, name)| (unit.unsigned_abs(), name))
        .find(|(unit, _)| span > *unit);
    Ok(string(fitting.map_or_else(
        || "0s".to_owned(),
        |(unit, name)| format!("{}{name}", span / unit),
    )))
}
