//! Conditional requests and ranges (RFC 9110 sections 13 and 14). Pure.

use std::ops::Range;

use http::{HeaderMap, header};
use jiff::Timestamp;
use jiff::fmt::rfc2822::{DateTimeParser, DateTimePrinter};

/// The attributes of a file.
#[derive(Clone, Debug)]
pub(super) struct FileInfo {
    /// The size in bytes.
    pub(super) size: u64,
    /// The modification time in whole seconds.
    pub(super) modified: Timestamp,
    /// The entity tag, with quotes.
    pub(super) tag: Option<String>,
}

/// The part of a file to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Nothing: the client's copy is current.
    NotModified,
    /// The whole file.
    Whole,
    /// A range of bytes.
    Range(Range<u64>),
    /// Nothing: the range is out of bounds.
    Unsatisfiable,
}

/// Selects the part from the headers of a request.
pub(super) fn part(request: &HeaderMap, info: &FileInfo) -> Part {
    if is_not_modified(request, info) {
        return Part::NotModified;
    }
    match text(request, header::RANGE) {
        Some(range) if range_applies(request, info) => parse_range(range, info.size),
        _ => Part::Whole,
    }
}

/// Formats an HTTP date.
pub(super) fn date(time: Timestamp) -> Option<String> {
    DateTimePrinter::new().timestamp_to_rfc9110_string(&time).ok()
}

/// Returns whether the client's copy is current. `If-None-Match` takes precedence over `If-Modified-Since`.
fn is_not_modified(request: &HeaderMap, info: &FileInfo) -> bool {
    if let Some(tags) = text(request, header::IF_NONE_MATCH) {
        let mut tags = tags.split(',').map(|tag| tag.trim().trim_start_matches("W/"));
        return tags.any(|tag| tag == "*" || info.tag.as_deref() == Some(tag));
    }
    text(request, header::IF_MODIFIED_SINCE)
        .and_then(parsed)
        .is_some_and(|since| info.modified <= since)
}

/// Returns whether a range applies: `If-Range` requires that the file is unchanged.
fn range_applies(request: &HeaderMap, info: &FileInfo) -> bool {
    text(request, header::IF_RANGE).is_none_or(|validator| {
        if validator.starts_with('"') {
            info.tag.as_deref() == Some(validator)
        } else {
            parsed(validator) == Some(info.modified)
        }
    })
}

/// Parses a single range. Multiple ranges and other units select the whole file, as the RFC permits.
fn parse_range(range: &str, size: u64) -> Part {
    let Some((first, last)) = range
        .strip_prefix("bytes=")
        .and_then(|range| range.split_once('-'))
    else {
        return Part::Whole;
    };
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let requested = match (first.trim(), last.trim()) {
        ("", suffix) => number(suffix).map(|length| size.saturating_sub(length)..size),
        (first, "") => number(first).map(|first| first..size),
        (first, last) => match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => Some(first..size.min(last.saturating_add(1))),
            _ => None,
        },
    };
    match requested {
        None => Part::Whole,
        Some(requested) if requested.start < requested.end => Part::Range(requested),
        Some(_) => Part::Unsatisfiable,
    }
}

fn text(request: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    request.get(name)?.to_str().ok()
}

fn parsed(date: &str) -> Option<Timestamp> {
    DateTimeParser::new().parse_timestamp(date).ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn info() -> FileInfo {
        let modified = "2026-01-02T03:04:05Z".parse().unwrap();
        FileInfo {
            size: 100,
            modified,
            tag: Some("\"sha256:ab\"".into()),
        }
    }

    fn requested(headers: &[(&'static str, &'static str)]) -> Part {
        let map = headers
            .iter()
            .map(|(name, value)| {
                (
                    header::HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            })
            .collect();
        part(&map, &info())
    }

    #[test]
    fn ranges_are_clamped_to_the_file() {
        for (range, expected) in [
            ("bytes=0-9", Part::Range(0..10)),
            ("bytes=90-", Part::Range(90..100)),
            ("bytes=90-1000", Part::Range(90..100)),
            ("bytes=-5", Part::Range(95..100)),
            ("bytes=-500", Part::Range(0..100)),
            ("bytes=-0", Part::Unsatisfiable),
            ("bytes=100-", Part::Unsatisfiable),
            ("bytes=9-0", Part::Whole),
            ("bytes=0-1,5-6", Part::Whole),
            ("bytes=x-", Part::Whole),
            ("lines=0-1", Part::Whole),
            ("bytes=0-18446744073709551615", Part::Range(0..100)),
        ] {
            assert_eq!(requested(&[("range", range)]), expected, "{range}");
        }
    }

    #[test]
    fn conditional_requests_compare_tag_or_time() {
        let date = "Fri, 02 Jan 2026 03:04:05 GMT";
        let later = "Fri, 02 Jan 2026 03:04:06 GMT";
        let earlier = "Fri, 02 Jan 2026 03:04:04 GMT";
        let tag = "\"sha256:ab\"";
        for (headers, expected) in [
            (&[("if-none-match", tag)][..], Part::NotModified),
            (&[("if-none-match", "\"x\", W/\"sha256:ab\"")], Part::NotModified),
            (&[("if-none-match", "*")], Part::NotModified),
            (
                &[("if-none-match", "\"x\""), ("if-modified-since", later)],
                Part::Whole,
            ),
            (&[("if-modified-since", date)], Part::NotModified),
            (&[("if-modified-since", later)], Part::NotModified),
            (&[("if-modified-since", earlier)], Part::Whole),
            (&[("if-modified-since", "yesterday")], Part::Whole),
            (&[("range", "bytes=0-0"), ("if-range", tag)], Part::Range(0..1)),
            (&[("range", "bytes=0-0"), ("if-range", "\"x\"")], Part::Whole),
            (&[("range", "bytes=0-0"), ("if-range", date)], Part::Range(0..1)),
            (&[("range", "bytes=0-0"), ("if-range", later)], Part::Whole),
        ] {
            assert_eq!(requested(headers), expected, "{headers:?}");
        }
        assert_eq!(super::date(info().modified).as_deref(), Some(date));
    }

    proptest! {
        #[test]
        fn any_header_is_answered(range in "\\PC{0,40}", since in "\\PC{0,40}", size: u64) {
            let mut map = HeaderMap::new();
            for (name, value) in [(header::RANGE, range), (header::IF_MODIFIED_SINCE, since)] {
                if let Ok(value) = HeaderValue::from_str(&value) {
                    map.insert(name, value);
                }
            }
            if let Part::Range(range) = part(&map, &FileInfo { size, ..info() }) {
                prop_assert!(range.start < range.end && range.end <= size);
            }
        }
    }
}
