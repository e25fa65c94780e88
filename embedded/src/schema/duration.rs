//! Durations in Go's format: `1h30m`, `-1.5s`.

/// Parses a Go duration to nanoseconds; `None` if it is invalid or overflows.
pub(super) fn parse_go_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let number_len = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, remainder) = rest.split_at(number_len);
        let unit_len = remainder
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(remainder.len());
        let (unit, remainder) = remainder.split_at(unit_len);
        total = total.checked_add(nanoseconds(number, unit)?)?;
        rest = remainder;
    }
    let limit = i64::MAX.unsigned_abs();
    let total = u64::try_from(total).ok().filter(|total| *total <= limit)?;
    let total = i64::try_from(total).ok()?;
    Some(if negative { -total } else { total })
}

fn nanoseconds(number: &str, unit: &str) -> Option<u128> {
    let scale: u128 = match unit {
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || whole.len() > 19 || fraction.contains('.') {
        return None;
    }
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let fraction = &fraction[..fraction.len().min(18)];
    let part = if fraction.is_empty() {
        0
    } else {
        let digits = u32::try_from(fraction.len()).ok()?;
        fraction.parse::<u128>().ok()? * scale / 10_u128.pow(digits)
    };
    Some(whole * scale + part)
}

#[cfg(test)]
mod tests {
    use super::parse_go_duration;

    #[test]
    fn durations_are_parsed_like_go() {
        let table = [
            ("1h30m", Some(5_400_000_000_000)),
            ("-1.5s", Some(-1_500_000_000)),
            (".5s", Some(500_000_000)),
            ("0", Some(0)),
            ("1", None),
            ("s", None),
            (".s", None),
            ("", None),
            ("9999999999999999h", None),
            ("5m 1s", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse_go_duration(text), expected, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn durations_never_overflow(text in r"-?([0-9.]{1,30}(ns|us|ms|s|m|h)){1,4}") {
            let _ = parse_go_duration(&text);
        }
    }
}
