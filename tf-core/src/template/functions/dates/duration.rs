//! Durations in the format of Go.

use gotmpl::Value;
use sluice_runtime::args;

use super::{Args, Fault};
use crate::template::value::string;

const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// `time.ParseDuration`, in nanoseconds: `-1.5h`, `1h2m3s`.
pub(super) fn parse(text: &str) -> Option<i64> {
    let (sign, span) = match text.strip_prefix('-') {
        Some(span) if !span.starts_with('+') => (-1, span),
        _ => (1, text),
    };
    let span = args::duration(span).ok()?;
    i64::try_from(span.as_nanos()).ok().map(|span| sign * span)
}

/// `duration`: formats seconds as hours, minutes and seconds.
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

/// `durationRound`: formats the largest unit only. A number is in nanoseconds.
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
