//! Durations in Go's notation (`1h30m`, `90s`, `1.5h`): parsing is bounded and never panics, and printing returns the
//! original text, so that writing an object never changes what the user wrote.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::serialization::text_conversions;

/// Maximum length of a text; Go's longest canonical form has 25 characters.
const MAX_LENGTH: usize = 256;

/// Maximum of Go's `time.Duration` in nanoseconds (292 years): longer durations are read as this.
pub const MAX_NANOSECONDS: u64 = i64::MAX.unsigned_abs();

/// Bound of intermediate results, above [`MAX_NANOSECONDS`].
const LIMIT: u128 = u64::MAX as u128;

/// A duration in Go's notation, e.g. `1h30m`. Grammar: Go `time.ParseDuration`.
///
/// Equality compares the texts; compare [`Interval::to_duration`] for equal durations.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Interval {
    text: String,
    length: Duration,
}

/// A text is not a valid duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IntervalError {
    /// The text has more than 256 bytes.
    #[error("a duration has at most {MAX_LENGTH} characters")]
    TooLong,
    /// A number is missing.
    #[error("invalid duration {0:?}: a number is missing")]
    MissingNumber(String),
    /// A number has no unit or an unknown one.
    #[error("invalid duration {0:?}: each number needs a unit out of ns, us, ms, s, m, h")]
    InvalidUnit(String),
}

impl Interval {
    /// Parses a text in Go's notation. Durations beyond 292 years are read as 292 years.
    ///
    /// # Errors
    /// The text does not match the grammar of Go's `time.ParseDuration`, or has more than 256 bytes.
    pub fn parse(text: &str) -> Result<Self, IntervalError> {
        if text.len() > MAX_LENGTH {
            return Err(IntervalError::TooLong);
        }
        let (negative, nanos) = parse_go_duration(text)?;
        let nanos = if negative { 0 } else { nanos.min(MAX_NANOSECONDS) };
        Ok(Self {
            text: text.to_owned(),
            length: Duration::from_nanos(nanos),
        })
    }

    /// Returns the duration; zero for a negative one, which Go allows.
    #[must_use]
    pub const fn to_duration(&self) -> Duration {
        self.length
    }

    /// Returns the original text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Creates an interval of whole seconds, e.g. for defaults.
    #[must_use]
    pub fn from_secs(seconds: u32) -> Self {
        Self {
            text: format!("{seconds}s"),
            length: Duration::from_secs(seconds.into()),
        }
    }
}

/// Parses a text in the grammar of Go's `time.ParseDuration`: the sign and the nanoseconds, which saturate at `u64::MAX`.
///
/// # Errors
/// The text does not match the grammar.
pub fn parse_go_duration(text: &str) -> Result<(bool, u64), IntervalError> {
    let negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Ok((negative, 0));
    }
    if rest.is_empty() {
        return Err(IntervalError::MissingNumber(text.to_owned()));
    }
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let (term, after) = term(rest).map_err(|error| error(text.to_owned()))?;
        nanos = nanos.saturating_add(term).min(LIMIT);
        rest = after;
    }
    Ok((negative, u64::try_from(nanos).unwrap_or(u64::MAX)))
}

/// Builds the error from the whole text, which [`term`] does not have.
type ErrorFn = fn(String) -> IntervalError;

/// Parses one number with its unit; returns the nanoseconds and the rest.
fn term(text: &str) -> Result<(u128, &str), ErrorFn> {
    let (whole, rest) = digits(text);
    let (fraction, rest) = rest.strip_prefix('.').map_or(("", rest), digits);
    if whole.is_empty() && fraction.is_empty() {
        return Err(IntervalError::MissingNumber);
    }
    let end = rest
        .find(|c: char| c == '.' || c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(end);
    let unit = nanoseconds(unit).ok_or(IntervalError::InvalidUnit as ErrorFn)?;
    Ok((
        value(whole)
            .saturating_mul(unit)
            .saturating_add(fraction_nanoseconds(fraction, unit)),
        rest,
    ))
}

/// Splits off leading ASCII digits.
fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// Returns the value of the digits, bounded by `LIMIT`.
fn value(digits: &str) -> u128 {
    digits.bytes().fold(0, |sum: u128, digit| {
        (sum * 10 + u128::from(digit - b'0')).min(LIMIT)
    })
}

/// Returns the nanoseconds of the digits after the point; digits after the 18th are below a nanosecond.
fn fraction_nanoseconds(digits: &str, unit: u128) -> u128 {
    let significant = &digits[..digits.len().min(18)];
    let scale = significant.bytes().fold(1u128, |scale, _| scale * 10);
    value(significant) * unit / scale
}

/// Returns the nanoseconds of a unit.
fn nanoseconds(unit: &str) -> Option<u128> {
    Some(match unit {
        "ns" => 1,
        // Go accepts both micro signs: U+00B5 and the Greek letter U+03BC.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Interval {
    type Err = IntervalError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

text_conversions!(Interval, IntervalError);

impl JsonSchema for Interval {
    fn schema_name() -> Cow<'static, str> {
        "Interval".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn go_durations_are_read_and_printed_back_as_written() {
        for (text, nanos) in [
            ("0", 0),
            ("0s", 0),
            ("5m0s", 300_000_000_000),
            ("1h", 3_600_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("100ms", 100_000_000),
            ("1\u{b5}s", 1_000),
            ("1\u{3bc}s", 1_000),
            ("3us2ns", 3_002),
            ("+1s", 1_000_000_000),
            ("-1s", 0),
            ("0.000000000000000000001h", 0),
        ] {
            let interval = Interval::parse(text).unwrap();
            assert_eq!(interval.to_duration(), Duration::from_nanos(nanos), "{text}");
            assert_eq!(interval.to_string(), text);
            assert_eq!(serde_json::to_value(&interval).unwrap(), serde_json::json!(text));
        }
    }

    #[test]
    fn texts_that_go_rejects_are_rejected() {
        for text in [
            "", "1", "s", ".s", "1x", "1d", "1 s", "--1s", "-", "+", "1s1", "5m 3s", "\u{b5}s", "1h-5m",
        ] {
            assert!(Interval::parse(text).is_err(), "{text:?}");
        }
        assert_eq!(Interval::parse(&"1s".repeat(200)), Err(IntervalError::TooLong));
    }

    #[test]
    fn large_numbers_are_bounded_at_292_years() {
        let limit = Duration::from_nanos(u64::try_from(i64::MAX).unwrap());
        for text in [
            "9999999999999999h",
            "99999999999999999999999999999999999999999999h",
            "1h9999999999999999999m",
        ] {
            assert_eq!(Interval::parse(text).unwrap().to_duration(), limit, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,64}") {
            let _ = Interval::parse(&text);
        }

        #[test]
        fn almost_valid_texts_do_not_panic(text in "[-+]?([0-9]{0,40}(\\.[0-9]{0,40})?(ns|us|ms|s|m|h|d)?){0,3}") {
            if let Ok(interval) = Interval::parse(&text) {
                prop_assert_eq!(interval.as_str(), text.as_str());
                prop_assert!(interval.to_duration() <= Duration::from_nanos(i64::MAX as u64));
            }
        }

        #[test]
        fn whole_seconds_keep_their_value(seconds in 0u32..) {
            let text = format!("{}h{}m{}s", seconds / 3600, seconds / 60 % 60, seconds % 60);
            prop_assert_eq!(Interval::parse(&text).unwrap().to_duration(), Duration::from_secs(seconds.into()));
        }
    }
}
