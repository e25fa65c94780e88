//! A length of time as Go writes it (`1h30m`, `90s`, `1.5h`): read without ever panicking, bounded, and printed
//! back exactly as its author wrote it, so that writing an object never edits the user's text.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The longest text that is looked at; Go's own longest canonical form has 25 characters.
const LONGEST: usize = 256;

/// The largest number of nanoseconds that Go's `time.Duration` holds (292 years): longer texts are read as this.
const LIMIT: u128 = i64::MAX as u128;

/// A length of time in Go's notation, e.g. `1h30m`. Grammar: Go `time.ParseDuration`.
///
/// Two intervals are equal when their texts are; compare [`Interval::to_duration`] for equal lengths.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Interval {
    text: String,
    length: Duration,
}

/// Why a text is no [`Interval`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IntervalError {
    /// The text has more than 256 bytes.
    #[error("a duration has at most {LONGEST} characters")]
    TooLong,
    /// A number is missing where one must stand.
    #[error("invalid duration {0:?}: a number is missing")]
    NoNumber(String),
    /// A number without unit, or with an unknown one.
    #[error("invalid duration {0:?}: each number needs a unit out of ns, us, ms, s, m, h")]
    NoUnit(String),
}

impl Interval {
    /// Reads a text in Go's notation. Lengths beyond 292 years are read as 292 years.
    ///
    /// # Errors
    /// When the text does not follow the grammar of Go's `time.ParseDuration`.
    pub fn parse(text: &str) -> Result<Self, IntervalError> {
        if text.len() > LONGEST {
            return Err(IntervalError::TooLong);
        }
        let length = length(text)?;
        Ok(Self {
            text: text.to_owned(),
            length,
        })
    }

    /// The length; a negative one (Go allows the sign) counts as zero.
    #[must_use]
    pub const fn to_duration(&self) -> Duration {
        self.length
    }

    /// The text as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// An interval of whole seconds, e.g. for defaults.
    #[must_use]
    pub fn from_secs(seconds: u32) -> Self {
        Self {
            text: format!("{seconds}s"),
            length: Duration::from_secs(seconds.into()),
        }
    }
}

/// Adds up the terms of a duration text.
fn length(text: &str) -> Result<Duration, IntervalError> {
    let negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(IntervalError::NoNumber(text.to_owned()));
    }
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let (term, after) = term(rest).map_err(|why| why(text.to_owned()))?;
        nanos = nanos.saturating_add(term).min(LIMIT);
        rest = after;
    }
    let nanos = if negative { 0 } else { nanos };
    Ok(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
}

/// Makes an error of the whole text, which a term does not know.
type Why = fn(String) -> IntervalError;

/// Reads one number with its unit: nanoseconds, and what follows.
fn term(text: &str) -> Result<(u128, &str), Why> {
    let (whole, rest) = digits(text);
    let (fraction, rest) = rest.strip_prefix('.').map_or(("", rest), digits);
    if whole.is_empty() && fraction.is_empty() {
        return Err(IntervalError::NoNumber);
    }
    let end = rest
        .find(|c: char| c == '.' || c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(end);
    let unit = nanoseconds(unit).ok_or(IntervalError::NoUnit as Why)?;
    Ok((
        value(whole)
            .saturating_mul(unit)
            .saturating_add(part(fraction, unit)),
        rest,
    ))
}

/// Splits leading ASCII digits off.
fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// The value of digits; more than fit are cut at the limit.
fn value(digits: &str) -> u128 {
    digits.bytes().fold(0, |sum: u128, digit| {
        (sum * 10 + u128::from(digit - b'0')).min(LIMIT)
    })
}

/// Nanoseconds of the digits behind the point; the ones after the 18th are below a nanosecond and ignored.
fn part(digits: &str, unit: u128) -> u128 {
    let kept = &digits[..digits.len().min(18)];
    let scale = kept.bytes().fold(1u128, |scale, _| scale * 10);
    value(kept) * unit / scale
}

/// Nanoseconds in a unit.
fn nanoseconds(unit: &str) -> Option<u128> {
    Some(match unit {
        "ns" => 1,
        // Go takes both micro signs: U+00B5 and the Greek letter U+03BC.
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

impl TryFrom<String> for Interval {
    type Error = IntervalError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<Interval> for String {
    fn from(interval: Interval) -> Self {
        interval.text
    }
}

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
    use super::*;
    use proptest::prelude::*;

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
    fn what_go_refuses_is_refused() {
        for text in [
            "", "1", "s", ".s", "1x", "1d", "1 s", "--1s", "-", "+", "1s1", "5m 3s", "\u{b5}s", "1h-5m",
        ] {
            assert!(Interval::parse(text).is_err(), "{text:?}");
        }
        assert_eq!(Interval::parse(&"1s".repeat(200)), Err(IntervalError::TooLong));
    }

    #[test]
    fn endless_digits_are_bounded_at_292_years() {
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
        fn no_text_makes_it_panic(text in "\\PC{0,64}") {
            let _ = Interval::parse(&text);
        }

        #[test]
        fn near_misses_do_not_panic_either(text in "[-+]?([0-9]{0,40}(\\.[0-9]{0,40})?(ns|us|ms|s|m|h|d)?){0,3}") {
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
