//! Parsing of times by layout, as `time.Parse` with the local zone UTC.

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

use super::Time;
use super::layout::{DAYS, Fill, MONTHS, Offset, Part, next};

/// The parsed fields.
#[derive(Default)]
struct Read {
    year: i16,
    month: Option<i8>,
    day: Option<i8>,
    year_day: Option<i16>,
    hour: i8,
    minute: i8,
    second: i8,
    nanosecond: i32,
    afternoon: Option<bool>,
    utc: bool,
    offset: Option<i32>,
    zone: String,
}

/// Parses a time. Returns `None` if the text does not match the layout or is not a date.
pub(super) fn time(layout: &str, text: &str) -> Option<Time> {
    let (mut layout, mut text) = (layout, text);
    let mut read = Read::default();
    loop {
        let (before, part, behind) = next(layout);
        text = skip(text, before)?;
        let Some((part, _)) = part else {
            return if text.is_empty() { read.time() } else { None };
        };
        text = read.part(part, text, behind)?;
        layout = behind;
    }
}

/// Skips the text between parts; all runs of spaces are equal.
fn skip<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let (mut text, mut prefix) = (text, prefix);
    while let Some(expected) = prefix.chars().next() {
        if expected == ' ' {
            if !text.is_empty() && !text.starts_with(' ') {
                return None;
            }
            prefix = prefix.trim_start_matches(' ');
            text = text.trim_start_matches(' ');
        } else {
            prefix = &prefix[expected.len_utf8()..];
            text = text.strip_prefix(expected)?;
        }
    }
    Some(text)
}

/// Parses at most `most` digits, or exactly as many if `all`.
fn digits(text: &str, most: usize, all: bool) -> Option<(i32, &str)> {
    let count = text.bytes().take(most).take_while(u8::is_ascii_digit).count();
    if count == 0 || all && count < most {
        return None;
    }
    let (number, rest) = text.split_at(count);
    Some((number.parse().ok()?, rest))
}

/// Parses a number of at most two digits and at most `most`.
fn number(text: &str, fill: Fill, most: i8) -> Option<(i8, &str)> {
    let text = if fill == Fill::Space {
        text.strip_prefix(' ').unwrap_or(text)
    } else {
        text
    };
    let (number, rest) = digits(text, 2, fill == Fill::Zero)?;
    Some((i8::try_from(number).ok().filter(|number| *number <= most)?, rest))
}

/// Parses a name in any case and returns its index.
fn name<'a>(names: &[&str], text: &'a str, long: bool) -> Option<(i8, &'a str)> {
    for (index, name) in names.iter().enumerate() {
        let name = if long { name } else { &name[..3] };
        if text
            .get(..name.len())
            .is_some_and(|found| found.eq_ignore_ascii_case(name))
        {
            return Some((i8::try_from(index).ok()?, &text[name.len()..]));
        }
    }
    None
}

impl Read {
    fn part<'a>(&mut self, part: Part, text: &'a str, behind: &str) -> Option<&'a str> {
        let rest;
        match part {
            Part::Year { long } => rest = self.year(text, long)?,
            Part::MonthName { long } => {
                let (index, after) = name(&MONTHS, text, long)?;
                (self.month, rest) = (Some(index + 1), after);
            }
            Part::Month(fill) => {
                let (month, after) = number(text, fill, 12)?;
                (self.month, rest) = (Some(month).filter(|month| *month > 0), after);
                self.month?;
            }
            Part::WeekDay { long } => (_, rest) = name(&DAYS, text, long)?,
            Part::Day(fill) => {
                let (day, after) = number(text, fill, 99)?;
                (self.day, rest) = (Some(day), after);
            }
            Part::YearDay(fill) => {
                let spaces = text.len() - text.trim_start_matches(' ').len();
                let text = if fill == Fill::Space {
                    &text[spaces.min(2)..]
                } else {
                    text
                };
                let (day, after) = digits(text, 3, fill == Fill::Zero)?;
                (self.year_day, rest) = (Some(i16::try_from(day).ok()?), after);
            }
            Part::Hour => (self.hour, rest) = number(text, Fill::Nothing, 23)?,
            Part::Hour12(fill) => (self.hour, rest) = number(text, fill, 12)?,
            Part::Minute(fill) => (self.minute, rest) = number(text, fill, 59)?,
            Part::Second(fill) => {
                let (second, after) = number(text, fill, 59)?;
                self.second = second;
                let named = matches!(next(behind), (_, Some((Part::Fraction { .. }, _)), _));
                rest = if named { after } else { self.fraction(after) };
            }
            Part::Half { upper } => {
                let after = text.get(2..)?;
                self.afternoon = Some(match (&text[..2], upper) {
                    ("PM", true) | ("pm", false) => true,
                    ("AM", true) | ("am", false) => false,
                    _ => return None,
                });
                rest = after;
            }
            Part::Zone => rest = self.zone(text)?,
            Part::Offset(form) => rest = self.offset(text, form)?,
            Part::Fraction { trimmed: true, .. } => rest = self.fraction(text),
            Part::Fraction { digits, .. } => {
                let (part, after) = (text.get(..=digits)?, text.get(digits + 1..)?);
                rest = Some(after).filter(|_| self.fraction(part).is_empty())?;
            }
        }
        Some(rest)
    }

    fn year<'a>(&mut self, text: &'a str, long: bool) -> Option<&'a str> {
        let (year, rest) = digits(text, if long { 4 } else { 2 }, true)?;
        let century = match (long, year) {
            (true, _) => 0,
            (false, 69..) => 1900,
            (false, _) => 2000,
        };
        self.year = i16::try_from(year + century).ok()?;
        Some(rest)
    }

    /// Parses optional fractional seconds. Digits after the ninth are below a nanosecond.
    fn fraction<'a>(&mut self, text: &'a str) -> &'a str {
        let Some(found) = text.strip_prefix(['.', ',']) else {
            return text;
        };
        let count = found.bytes().take_while(u8::is_ascii_digit).count();
        if count == 0 {
            return text;
        }
        let nanoseconds = format!("{:0<9}", &found[..count.min(9)]);
        self.nanosecond = nanoseconds.parse().unwrap_or_default();
        &found[count..]
    }

    fn offset<'a>(&mut self, text: &'a str, form: Offset) -> Option<&'a str> {
        if let Some(rest) = text.strip_prefix('Z').filter(|_| form.z) {
            self.utc = true;
            return Some(rest);
        }
        let sign = match text.as_bytes().first()? {
            b'+' => 1,
            b'-' => -1,
            _ => return None,
        };
        let (mut rest, mut seconds) = (&text[1..], 0);
        for (index, unit) in [3600, 60, 1].into_iter().enumerate().take(form.parts) {
            if index > 0 && form.colon {
                rest = rest.strip_prefix(':')?;
            }
            let (part, after) = digits(rest, 2, true)?;
            let most = if index == 0 { 24 } else { 60 };
            seconds += Some(part).filter(|part| *part <= most)? * unit;
            rest = after;
        }
        self.offset = Some(sign * seconds);
        Some(rest)
    }

    /// Parses `UTC`, `GMT+3`, `+03`, or an abbreviation of three or four capitals.
    fn zone<'a>(&mut self, text: &'a str) -> Option<&'a str> {
        if let Some(rest) = text.strip_prefix("UTC") {
            self.utc = true;
            return Some(rest);
        }
        let signed = |text: &str| {
            let digits = text.strip_prefix(['+', '-'])?;
            let count = digits.bytes().take_while(u8::is_ascii_digit).count();
            let fits = digits[..count].parse::<u8>().is_ok_and(|hours| hours < 24);
            fits.then_some(count + 1)
        };
        let length = if text.starts_with("ChST") || text.starts_with("MeST") {
            4
        } else if let Some(rest) = text.strip_prefix("GMT") {
            3 + signed(rest).unwrap_or(0)
        } else if text.starts_with(['+', '-']) {
            signed(text)?
        } else {
            match text.bytes().take(6).take_while(u8::is_ascii_uppercase).count() {
                3 => 3,
                4 if text.as_bytes()[3] == b'T' || text.starts_with("WITA") => 4,
                5 if text.as_bytes()[4] == b'T' => 5,
                _ => return None,
            }
        };
        let (zone, rest) = text.split_at(length);
        zone.clone_into(&mut self.zone);
        Some(rest)
    }

    fn time(self) -> Option<Time> {
        let hour = match (self.afternoon, self.hour) {
            (Some(true), hour @ ..12) => hour + 12,
            (Some(false), 12) => 0,
            (_, hour) => hour,
        };
        let date = self.date()?;
        let clock = jiff::civil::Time::new(hour, self.minute, self.second, self.nanosecond).ok()?;
        let local = DateTime::from_parts(date, clock);
        let (offset, zone) = match (self.utc, self.offset, self.zone.as_str()) {
            (true, ..) | (_, None, "") | (_, Some(0), "" | "UTC") => (0, "UTC"),
            (_, Some(offset), zone) => (offset, zone),
            (_, None, zone) => (
                zone.strip_prefix("GMT")
                    .and_then(|hours| hours.parse::<i32>().ok())
                    .unwrap_or(0)
                    * 3600,
                zone,
            ),
        };
        let instant = TimeZone::UTC.to_timestamp(local).ok()?;
        let at = instant
            .checked_sub(jiff::SignedDuration::from_secs(i64::from(offset)))
            .ok()?;
        Some(Time {
            at,
            offset,
            zone: zone.to_owned(),
        })
    }

    fn date(&self) -> Option<Date> {
        let Some(year_day) = self.year_day else {
            return Date::new(self.year, self.month.unwrap_or(1), self.day.unwrap_or(1)).ok();
        };
        let first = Date::new(self.year, 1, 1).ok()?;
        let date = first.with().day_of_year(year_day).build().ok()?;
        let agrees = |named: Option<i8>, found: i8| named.is_none_or(|named| named == found);
        Some(date).filter(|date| agrees(self.month, date.month()) && agrees(self.day, date.day()))
    }
}
