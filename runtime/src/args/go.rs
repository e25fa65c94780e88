//! Values in the syntax of Go's flags.

use std::time::Duration;

use sluice_api::interval::{MAX_NANOSECONDS, parse_go_duration};

/// Parses a boolean as Go's `strconv.ParseBool` does.
///
/// # Errors
/// The text is not a boolean.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}

/// Parses a duration in the grammar of Go's `time.ParseDuration`, e.g. `750ms`, `1h30m`, `1.5s`, `0`.
///
/// # Errors
/// The text is invalid, negative, or longer than Go's maximum of about 292 years.
pub fn duration(text: &str) -> Result<Duration, String> {
    match parse_go_duration(text) {
        Ok((false, nanoseconds @ ..=MAX_NANOSECONDS)) => Ok(Duration::from_nanos(nanoseconds)),
        _ => Err(format!("{text:?} is not a duration such as 30s, 1h30m or 750ms")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
