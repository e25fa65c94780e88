//! Time spans as `kubectl` prints them.

use jiff::{SignedDuration, Timestamp};

/// Formats the time since `then`, as the column AGE of `kubectl`: `42s`, `5m`, `3h12m`, `4d`. A time in the future is `0s`.
#[must_use]
pub fn age(then: Timestamp, now: Timestamp) -> String {
    duration(now.duration_since(then))
}

/// Formats a time span by the rules of `k8s.io/apimachinery/pkg/util/duration.HumanDuration`.
#[must_use]
pub fn duration(span: SignedDuration) -> String {
    let seconds = span.as_secs().max(0);
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    if seconds < 120 {
        return format!("{seconds}s");
    }
    if minutes < 10 {
        return with_rest(minutes, "m", seconds % 60, "s");
    }
    if minutes < 180 {
        return format!("{minutes}m");
    }
    if hours < 8 {
        return with_rest(hours, "h", minutes % 60, "m");
    }
    if hours < 48 {
        return format!("{hours}h");
    }
    if days < 8 {
        return with_rest(days, "d", hours % 24, "h");
    }
    if days < 2 * 365 {
        return format!("{days}d");
    }
    if days < 8 * 365 {
        return with_rest(days / 365, "y", days % 365, "d");
    }
    format!("{}y", days / 365)
}

fn with_rest(whole: i64, unit: &str, rest: i64, rest_unit: &str) -> String {
    if rest == 0 {
        format!("{whole}{unit}")
    } else {
        format!("{whole}{unit}{rest}{rest_unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cases of `TestHumanDuration` in `k8s.io/apimachinery`.
    #[test]
    fn spans_are_those_of_kubectl() {
        const MINUTE: i64 = 60;
        const HOUR: i64 = 60 * MINUTE;
        const DAY: i64 = 24 * HOUR;
        const YEAR: i64 = 365 * DAY;
        for (seconds, text) in [
            (0, "0s"),
            (-5, "0s"),
            (1, "1s"),
            (70, "70s"),
            (190, "3m10s"),
            (70 * MINUTE, "70m"),
            (47 * HOUR, "47h"),
            (49 * HOUR, "2d1h"),
            (8 * DAY + 2 * HOUR, "8d"),
            (367 * DAY, "367d"),
            (4 * HOUR, "4h"),
            (5 * HOUR + 30 * MINUTE, "5h30m"),
            (9 * HOUR + 30 * MINUTE, "9h"),
            (2 * YEAR + 25 * DAY, "2y25d"),
            (8 * YEAR + 2 * DAY, "8y"),
        ] {
            assert_eq!(duration(SignedDuration::from_secs(seconds)), text);
        }
    }
}
