//! Values as Go programs write them.

use std::time::Duration;

/// A boolean of Go's `strconv.ParseBool`.
///
/// # Errors
/// The text is none.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}

/// A duration of Go's `time.ParseDuration` that is not negative: `750ms`, `1h30m`, `1.5s`, `0`.
///
/// # Errors
/// The text is none, is negative, or is longer than Go can say (about 292 years).
pub fn duration(text: &str) -> Result<Duration, String> {
    let invalid = || format!("{text:?} is no duration such as 30s, 1h30m or 750ms");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut nanoseconds: u128 = 0;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(invalid)?;
        let (number, tail) = rest.split_at(digits);
        let length = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(length);
        rest = tail;
        let part = nanoseconds_of(number, scale(unit).ok_or_else(invalid)?).ok_or_else(invalid)?;
        nanoseconds = nanoseconds.checked_add(part).ok_or_else(invalid)?;
    }
    let nanoseconds = i64::try_from(nanoseconds).map_err(|_| invalid())?;
    Ok(Duration::from_nanos(nanoseconds.unsigned_abs()))
}

/// Nanoseconds of a unit.
fn scale(unit: &str) -> Option<u128> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// `1.5` of a unit, cut to whole nanoseconds.
fn nanoseconds_of(number: &str, scale: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // More digits than a nanosecond of an hour can show do not count.
    let fraction = &fraction[..fraction.len().min(15)];
    let part = if fraction.is_empty() {
        0
    } else {
        fraction.parse::<u128>().ok()? * scale / 10_u128.pow(u32::try_from(fraction.len()).ok()?)
    };
    whole.checked_mul(scale)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_of_go() {
        for (text, milliseconds) in [
            ("0", 0),
            ("0s", 0),
            ("750ms", 750),
            ("1.5s", 1500),
            (".5s", 500),
            ("1.s", 1000),
            ("1h30m", 5_400_000),
            ("+2m", 120_000),
            ("1000us", 1),
            ("1000µs", 1),
            ("2540400h", 9_145_440_000_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in [
            "",
            "1",
            "s",
            ".s",
            "-1s",
            "1d",
            "1.2.3s",
            "9999999999999999h",
            " 1s",
            "1s ",
            "1 s",
            "+",
            "99999999999999999999999999999999999999999h",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,12}|[0-9.]{0,40}[hms]{0,2}[0-9.]{0,20}[a-z]{0,2}") {
            let _ = duration(&text);
        }
    }
}
