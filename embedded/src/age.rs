//! Ages in the format of `kubectl get`: apimachinery's `duration.HumanDuration`.

use jiff::Timestamp;

/// Formats the time from `since` to `now` as a table cell; `<invalid>` if `since` does not parse.
pub(crate) fn format_age(since: &str, now: Timestamp) -> String {
    since.parse::<Timestamp>().map_or_else(
        |_| "<invalid>".into(),
        |since_time| human_duration(now.as_second() - since_time.as_second()),
    )
}

/// Formats seconds with at most two units; the precision decreases with the length.
fn human_duration(seconds: i64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    match () {
        () if seconds < -1 => "<invalid>".into(),
        () if seconds < 0 => "0s".into(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two_units(minutes, 'm', seconds % 60, 's'),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two_units(hours, 'h', minutes % 60, 'm'),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 192 => two_units(days, 'd', hours % 24, 'h'),
        () if days < 365 * 2 => format!("{days}d"),
        () if days < 365 * 8 => two_units(days / 365, 'y', days % 365, 'd'),
        () => format!("{}y", days / 365),
    }
}

fn two_units(large: i64, large_unit: char, small: i64, small_unit: char) -> String {
    if small == 0 {
        format!("{large}{large_unit}")
    } else {
        format!("{large}{large_unit}{small}{small_unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_the_format_of_kubectl() {
        for (seconds, text) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (599, "9m59s"),
            (600, "10m"),
            (3 * 3600 - 1, "179m"),
            (3 * 3600, "3h"),
            (7 * 3600 + 60, "7h1m"),
            (47 * 3600, "47h"),
            (48 * 3600, "2d"),
            (49 * 3600, "2d1h"),
            (8 * 86400, "8d"),
            (729 * 86400, "729d"),
            (730 * 86400, "2y"),
            (731 * 86400, "2y1d"),
            (8 * 365 * 86400, "8y"),
        ] {
            assert_eq!(human_duration(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn an_invalid_time_is_marked() {
        assert_eq!(format_age("yesterday", Timestamp::UNIX_EPOCH), "<invalid>");
    }
}
