//! Time layouts of Go: the reference time `Mon Jan 2 15:04:05 MST 2006` in the intended format.

use jiff::civil::DateTime;

use super::Time;

pub(super) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
pub(super) const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// The padding of a number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fill {
    Nothing,
    Space,
    Zero,
}

/// The format of an offset.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Offset {
    /// Zero is written as `Z`.
    pub(super) z: bool,
    /// A colon separates hours and minutes.
    pub(super) colon: bool,
    /// Count of hours, minutes and seconds.
    pub(super) parts: usize,
}

/// A part of a layout.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Year { long: bool },
    MonthName { long: bool },
    Month(Fill),
    WeekDay { long: bool },
    Day(Fill),
    YearDay(Fill),
    Hour,
    Hour12(Fill),
    Minute(Fill),
    Second(Fill),
    Half { upper: bool },
    Zone,
    Offset(Offset),
    Fraction { digits: usize, trimmed: bool },
}

/// Parts by text, longer ones before their prefixes.
const PARTS: [(&str, Part); 37] = [
    ("January", Part::MonthName { long: true }),
    ("Monday", Part::WeekDay { long: true }),
    ("MST", Part::Zone),
    ("002", Part::YearDay(Fill::Zero)),
    ("01", Part::Month(Fill::Zero)),
    ("02", Part::Day(Fill::Zero)),
    ("03", Part::Hour12(Fill::Zero)),
    ("04", Part::Minute(Fill::Zero)),
    ("05", Part::Second(Fill::Zero)),
    ("06", Part::Year { long: false }),
    ("15", Part::Hour),
    ("1", Part::Month(Fill::Nothing)),
    ("2006", Part::Year { long: true }),
    ("2", Part::Day(Fill::Nothing)),
    ("__2", Part::YearDay(Fill::Space)),
    ("_2", Part::Day(Fill::Space)),
    ("3", Part::Hour12(Fill::Nothing)),
    ("4", Part::Minute(Fill::Nothing)),
    ("5", Part::Second(Fill::Nothing)),
    ("PM", Part::Half { upper: true }),
    ("pm", Part::Half { upper: false }),
    ("-070000", offset(false, false, 3)),
    ("-07:00:00", offset(false, true, 3)),
    ("-0700", offset(false, false, 2)),
    ("-07:00", offset(false, true, 2)),
    ("-07", offset(false, false, 1)),
    ("Z070000", offset(true, false, 3)),
    ("Z07:00:00", offset(true, true, 3)),
    ("Z0700", offset(true, false, 2)),
    ("Z07:00", offset(true, true, 2)),
    ("Z07", offset(true, false, 1)),
    // Not before a lower-case letter: `Month` is a word.
    ("Jan", Part::MonthName { long: false }),
    ("Mon", Part::WeekDay { long: false }),
    (
        ".0",
        Part::Fraction {
            digits: 0,
            trimmed: false,
        },
    ),
    (
        ",0",
        Part::Fraction {
            digits: 0,
            trimmed: false,
        },
    ),
    (
        ".9",
        Part::Fraction {
            digits: 0,
            trimmed: true,
        },
    ),
    (
        ",9",
        Part::Fraction {
            digits: 0,
            trimmed: true,
        },
    ),
];

const fn offset(z: bool, colon: bool, parts: usize) -> Part {
    Part::Offset(Offset { z, colon, parts })
}

/// Returns the text before the next part, the part, and the rest.
pub(super) fn next(layout: &str) -> (&str, Option<(Part, &str)>, &str) {
    for (at, _) in layout.char_indices() {
        let here = &layout[at..];
        // The underscore before a year is text.
        if let Some(behind) = here.strip_prefix("_2006") {
            return (&layout[..=at], Some((Part::Year { long: true }, "2006")), behind);
        }
        if let Some((part, length)) = part_at(here) {
            let (text, behind) = here.split_at(length);
            return (&layout[..at], Some((part, text)), behind);
        }
    }
    (layout, None, "")
}

fn part_at(here: &str) -> Option<(Part, usize)> {
    let (text, part) = PARTS.into_iter().find(|(text, _)| here.starts_with(text))?;
    let behind = &here[text.len()..];
    match part {
        Part::MonthName { long: false } | Part::WeekDay { long: false }
            if behind.starts_with(|c: char| c.is_ascii_lowercase()) =>
        {
            None
        }
        Part::Fraction { trimmed, .. } => {
            let digit = here.chars().nth(1)?;
            let digits = here[1..].chars().take_while(|c| *c == digit).count();
            let ends = !here[1 + digits..].starts_with(|c: char| c.is_ascii_digit());
            ends.then_some((Part::Fraction { digits, trimmed }, 1 + digits))
        }
        part => Some((part, text.len())),
    }
}

/// Formats a time. A time beyond the calendar yields an empty text.
pub(super) fn format(time: &Time, layout: &str) -> String {
    let mut out = String::new();
    let Some(local) = time.local() else {
        return out;
    };
    let mut rest = layout;
    while !rest.is_empty() {
        let (before, part, behind) = next(rest);
        out.push_str(before);
        if let Some((part, text)) = part {
            out.push_str(&format_part(time, local, part, text));
        }
        rest = behind;
    }
    out
}

fn number(value: impl Into<i64>, width: usize, fill: Fill) -> String {
    let value = value.into();
    match fill {
        Fill::Nothing => value.to_string(),
        Fill::Space => format!("{value:width$}"),
        Fill::Zero => format!("{value:0width$}"),
    }
}

fn name(names: &[&str], index: i8, long: bool) -> String {
    let name = usize::try_from(index)
        .ok()
        .and_then(|index| names.get(index))
        .copied()
        .unwrap_or_default();
    if long { name } else { name.get(..3).unwrap_or(name) }.to_owned()
}

fn format_part(time: &Time, local: DateTime, part: Part, text: &str) -> String {
    match part {
        Part::Year { long: true } => number(local.year(), 4, Fill::Zero),
        Part::Year { long: false } => number(local.year().rem_euclid(100), 2, Fill::Zero),
        Part::MonthName { long } => name(&MONTHS, local.month() - 1, long),
        Part::Month(fill) => number(local.month(), 2, fill),
        Part::WeekDay { long } => name(&DAYS, local.weekday().to_sunday_zero_offset(), long),
        Part::Day(fill) => number(local.day(), 2, fill),
        Part::YearDay(fill) => number(local.day_of_year(), 3, fill),
        Part::Hour => number(local.hour(), 2, Fill::Zero),
        Part::Hour12(fill) => number((local.hour() + 11) % 12 + 1, 2, fill),
        Part::Minute(fill) => number(local.minute(), 2, fill),
        Part::Second(fill) => number(local.second(), 2, fill),
        Part::Half { upper } => match (local.hour() >= 12, upper) {
            (true, true) => "PM",
            (true, false) => "pm",
            (false, true) => "AM",
            (false, false) => "am",
        }
        .to_owned(),
        Part::Zone if time.zone.is_empty() => {
            let parts = if time.offset % 3600 == 0 { 1 } else { 2 };
            shift(
                time.offset,
                Offset {
                    z: false,
                    colon: false,
                    parts,
                },
            )
        }
        Part::Zone => time.zone.clone(),
        Part::Offset(form) if form.z && time.offset == 0 => "Z".to_owned(),
        Part::Offset(form) => shift(time.offset, form),
        Part::Fraction { digits, trimmed } => fraction(local.subsec_nanosecond(), digits, trimmed, text),
    }
}

fn shift(offset: i32, form: Offset) -> String {
    let (sign, seconds) = (if offset < 0 { '-' } else { '+' }, offset.abs());
    let parts = [seconds / 3600, seconds / 60 % 60, seconds % 60].map(|part| format!("{part:02}"));
    let selected = parts.get(..form.parts).unwrap_or(&parts);
    format!("{sign}{}", selected.join(if form.colon { ":" } else { "" }))
}

fn fraction(nanoseconds: i32, digits: usize, trimmed: bool, text: &str) -> String {
    let all = format!("{nanoseconds:09}");
    let fraction = all.get(..digits.min(9)).unwrap_or(&all);
    let fraction = if trimmed {
        fraction.trim_end_matches('0')
    } else {
        fraction
    };
    if fraction.is_empty() {
        return String::new();
    }
    format!("{}{fraction}", text.get(..1).unwrap_or("."))
}
