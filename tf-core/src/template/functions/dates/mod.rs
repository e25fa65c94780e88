//! Dates. The current time is not an input of a template, so there are no functions for it.
//!
//! A time is a text in the format of Go: `2006-01-02 15:04:05.999999999 -0700 MST`.

mod duration;
mod layout;
mod parse;

use gotmpl::Value;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use layout::format;

use super::{Args, Fault, Table};
use crate::template::value::string;

/// Functions by name.
pub(super) const TABLE: Table = &[
    ("date", |args| {
        args.exactly(2)?;
        format_time(args.text(0)?, args.value(1)?, "UTC")
    }),
    ("dateInZone", in_zone),
    ("date_in_zone", in_zone),
    ("htmlDate", |args| {
        args.exactly(1)?;
        format_time("2006-01-02", args.value(0)?, "UTC")
    }),
    ("htmlDateInZone", |args| {
        args.exactly(2)?;
        format_time("2006-01-02", args.value(0)?, args.text(1)?)
    }),
    ("toDate", |args| {
        args.exactly(2)?;
        let read = parse::time(args.text(0)?, args.text(1)?);
        Ok(string(read.unwrap_or_else(Time::zero).to_text()))
    }),
    ("mustToDate", |args| {
        args.exactly(2)?;
        let read = parse::time(args.text(0)?, args.text(1)?);
        let read = read.ok_or_else(|| Fault::new("the text is not a time in this layout"))?;
        Ok(string(read.to_text()))
    }),
    ("dateModify", |args| modified(args, false)),
    ("date_modify", |args| modified(args, false)),
    ("mustDateModify", |args| modified(args, true)),
    ("must_date_modify", |args| modified(args, true)),
    ("unixEpoch", |args| {
        args.exactly(1)?;
        let time = Time::from_text(args.text(0)?).ok_or_else(no_time)?;
        Ok(string(time.at.as_second().to_string()))
    }),
    ("duration", duration::of_seconds),
    ("durationRound", duration::rounded),
];

/// An instant and its time zone.
#[derive(Clone)]
struct Time {
    at: Timestamp,
    /// Seconds east of Greenwich.
    offset: i32,
    /// Name of the zone.
    zone: String,
}

impl Time {
    /// The zero time of Go.
    fn zero() -> Self {
        Self::utc(Timestamp::new(-62_135_596_800, 0).unwrap_or(Timestamp::UNIX_EPOCH))
    }

    fn utc(at: Timestamp) -> Self {
        Self {
            at,
            offset: 0,
            zone: "UTC".to_owned(),
        }
    }

    /// Returns the local time.
    fn local(&self) -> Option<DateTime> {
        let shifted = self.at.as_second().checked_add(i64::from(self.offset))?;
        let shifted = Timestamp::new(shifted, self.at.subsec_nanosecond()).ok()?;
        Some(TimeZone::UTC.to_datetime(shifted))
    }

    fn to_text(&self) -> String {
        format(self, "2006-01-02 15:04:05.999999999 -0700 MST")
    }

    fn from_text(text: &str) -> Option<Self> {
        let (time, zone) = text.rsplit_once(' ')?;
        let read = parse::time("2006-01-02 15:04:05 -0700", time)?;
        Some(Self {
            zone: zone.to_owned(),
            ..read
        })
    }
}

fn no_time() -> Fault {
    Fault::new("an argument is not a time; use toDate (the current time is refused: every plan would differ)")
}

fn in_zone(args: &Args<'_>) -> Result<Value, Fault> {
    args.exactly(3)?;
    format_time(args.text(0)?, args.value(1)?, args.text(2)?)
}

/// Formats a time, or seconds since 1970.
fn format_time(layout: &str, time: &Value, zone: &str) -> Result<Value, Fault> {
    if !matches!(zone, "" | "UTC" | "Local") {
        return Err(Fault::new("the only time zone here is UTC"));
    }
    let at = match time {
        Value::Int(seconds) => Timestamp::from_second(*seconds).ok(),
        Value::String(text) => Time::from_text(text).map(|time| time.at),
        _ => None,
    };
    let time = Time::utc(at.ok_or_else(no_time)?);
    Ok(string(format(&time, layout)))
}

fn modified(args: &Args<'_>, must: bool) -> Result<Value, Fault> {
    args.exactly(2)?;
    let time = Time::from_text(args.text(1)?).ok_or_else(no_time)?;
    let Some(by) = duration::parse(args.text(0)?) else {
        if must {
            return Err(Fault::new("the text is not a duration"));
        }
        return Ok(args.value(1)?.clone());
    };
    let nanoseconds = time.at.as_nanosecond() + i128::from(by);
    let at = Timestamp::from_nanosecond(nanoseconds).map_err(|_| Fault::new("no calendar has that time"))?;
    Ok(string(Time { at, ..time }.to_text()))
}
