//! Conditions and ranges of requests (RFC 9110 sections 13 and 14): pure.

use std::ops::Range;

use http::{HeaderMap, header};
use jiff::Timestamp;
use jiff::fmt::rfc2822::{DateTimeParser, DateTimePrinter};

/// What is known about the file.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// Its size in bytes.
    pub(super) size: u64,
    /// When it was last modified, whole seconds.
    pub(super) modified: Timestamp,
    /// Its entity tag, quotes included.
    pub(super) tag: Option<String>,
}

/// What of the file is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Nothing: the client has it.
    NotModified,
    /// All of it.
    Whole,
    /// These bytes.
    Range(Range<u64>),
    /// Nothing: the range lies outside.
    Unsatisfiable,
}

/// Decides by the request's header.
pub(super) fn part(request: &HeaderMap, facts: &Facts) -> Part {
    if fresh(request, facts) {
        return Part::NotModified;
    }
    match text(request, header::RANGE) {
        Some(range) if range_applies(request, facts) => by_range(range, facts.size),
        _ => Part::Whole,
    }
}

/// The date form of HTTP.
pub(super) fn date(time: Timestamp) -> Option<String> {
    DateTimePrinter::new().timestamp_to_rfc9110_string(&time).ok()
}

/// `If-None-Match` counts before `If-Modified-Since`.
fn fresh(request: &HeaderMap, facts: &Facts) -> bool {
    if let Some(tags) = text(request, header::IF_NONE_MATCH) {
        let mut tags = tags.split(',').map(|tag| tag.trim().trim_start_matches("W/"));
        return tags.any(|tag| tag == "*" || facts.tag.as_deref() == Some(tag));
    }
    text(request, header::IF_MODIFIED_SINCE)
        .and_then(parsed)
        .is_some_and(|since| facts.modified <= since)
}

/// `If-Range` lets a range count only while the file is the one that the client knows.
fn range_applies(request: &HeaderMap, facts: &Facts) -> bool {
    text(request, header::IF_RANGE).is_none_or(|known| {
        if known.starts_with('"') {
            facts.tag.as_deref() == Some(known)
        } else {
            parsed(known) == Some(facts.modified)
        }
    })
}

/// One range. Several, or another unit, are answered with the whole, which is always allowed.
fn by_range(range: &str, size: u64) -> Part {
    let Some((first, last)) = range
        .strip_prefix("bytes=")
        .and_then(|range| range.split_once('-'))
    else {
        return Part::Whole;
    };
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let asked = match (first.trim(), last.trim()) {
        ("", suffix) => number(suffix).map(|length| size.saturating_sub(length)..size),
        (first, "") => number(first).map(|first| first..size),
        (first, last) => match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => Some(first..size.min(last.saturating_add(1))),
            _ => None,
        },
    };
    match asked {
        None => Part::Whole,
        Some(asked) if asked.start < asked.end => Part::Range(asked),
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
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn facts() -> Facts {
        let modified = "2026-01-02T03:04:05Z".parse().unwrap();
        Facts {
            size: 100,
            modified,
            tag: Some("\"sha256:ab\"".into()),
        }
    }

    fn asked(headers: &[(&'static str, &'static str)]) -> Part {
        let map = headers
            .iter()
            .map(|(name, value)| {
                (
                    header::HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            })
            .collect();
        part(&map, &facts())
    }

    #[test]
    fn ranges_are_cut_to_the_file() {
        for (range, wanted) in [
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
            assert_eq!(asked(&[("range", range)]), wanted, "{range}");
        }
    }

    #[test]
    fn conditions_name_the_file_by_tag_or_time() {
        let date = "Fri, 02 Jan 2026 03:04:05 GMT";
        let later = "Fri, 02 Jan 2026 03:04:06 GMT";
        let earlier = "Fri, 02 Jan 2026 03:04:04 GMT";
        let tag = "\"sha256:ab\"";
        for (headers, wanted) in [
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
            assert_eq!(asked(headers), wanted, "{headers:?}");
        }
        assert_eq!(super::date(facts().modified).as_deref(), Some(date));
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
            if let Part::Range(range) = part(&map, &Facts { size, ..facts() }) {
                prop_assert!(range.start < range.end && range.end <= size);
            }
        }
    }
}
