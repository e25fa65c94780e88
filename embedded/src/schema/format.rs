//! `format`: the formats that apiextensions validates, with its rules. Others, `int32` and `int64` among them, are ignored.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use regex::Regex;

use super::duration::parse_go_duration;

/// A validated format.
#[derive(Debug)]
pub(super) struct Format {
    /// Name in the schema.
    pub(super) name: String,
    check: fn(&str) -> bool,
}

impl Format {
    /// Returns the validated format of this name. Dashes are ignored: `date-time` is `datetime`.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        let check: fn(&str) -> bool = match name.replace('-', "").as_str() {
            "bsonobjectid" => |text| text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "uri" => is_uri,
            "email" => is_email,
            "hostname" => is_hostname,
            "ipv4" => is_ipv4,
            "ipv6" => |text| text.contains(':') && text.parse::<Ipv6Addr>().is_ok(),
            "cidr" => is_cidr,
            "mac" => is_mac,
            "uuid" => |text| is_uuid(text, None),
            "uuid3" => |text| is_uuid(text, Some('3')),
            "uuid4" => |text| is_uuid(text, Some('4')),
            "uuid5" => |text| is_uuid(text, Some('5')),
            "isbn" => |text| is_isbn10(text) || is_isbn13(text),
            "isbn10" => is_isbn10,
            "isbn13" => is_isbn13,
            "creditcard" => is_credit_card,
            "ssn" => |text| SSN.is_match(text),
            "hexcolor" => |text| HEX_COLOR.is_match(text),
            "rgbcolor" => |text| RGB_COLOR.is_match(text),
            "byte" => |text| BASE64_STANDARD.decode(text).is_ok() && !text.is_empty(),
            "password" => |_| true,
            "date" => is_date,
            "duration" => is_duration,
            "datetime" => is_date_time,
            _ => return None,
        };
        Some(Self {
            name: name.to_owned(),
            check,
        })
    }

    pub(super) fn is_valid(&self, text: &str) -> bool {
        (self.check)(text)
    }
}

/// Compiles a constant pattern. An invalid one would match nothing and fail the tests.
fn constant_regex(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap_or_else(|_| {
        #[expect(clippy::unwrap_used, reason = "a class without members always compiles")]
        Regex::new(r"[^\s\S]").unwrap()
    })
}

static SSN: LazyLock<Regex> = LazyLock::new(|| constant_regex(r"^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$"));
static HEX_COLOR: LazyLock<Regex> = LazyLock::new(|| constant_regex(r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"));
static RGB_COLOR: LazyLock<Regex> = LazyLock::new(|| {
    let part = r"[\t\n\f\r ]*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])[\t\n\f\r ]*";
    constant_regex(&format!(r"^rgb\({part},{part},{part}\)$"))
});
static DATE_TIME: LazyLock<Regex> = LazyLock::new(|| {
    constant_regex(r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$")
});
static HOSTNAME: LazyLock<Regex> = LazyLock::new(|| {
    constant_regex(concat!(
        r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}]",
        r"(([a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$"
    ))
});
static CREDIT_CARD: LazyLock<Regex> = LazyLock::new(|| {
    constant_regex(concat!(
        r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|",
        r"3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$"
    ))
});
static SCALA_DURATION: LazyLock<Regex> =
    LazyLock::new(|| constant_regex("([0-9]+)[\\t\\n\\f\\r ]*([A-Za-z\u{b5}]+)"));

fn is_uri(text: &str) -> bool {
    // Like Go's ParseRequestURI: an absolute URI or an absolute path.
    if text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    let Some((scheme, rest)) = text.split_once(':') else {
        return false;
    };
    let mut letters = scheme.bytes();
    letters.next().is_some_and(|byte| byte.is_ascii_alphabetic())
        && letters.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
        && (!rest.starts_with("//")
            || !rest[2..]
                .split('/')
                .next()
                .unwrap_or_default()
                .contains([' ', '<', '>', '"']))
}

fn is_email(text: &str) -> bool {
    let address = match (text.rfind('<'), text.ends_with('>')) {
        (Some(open), true) => &text[open + 1..text.len() - 1],
        _ => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else {
        return false;
    };
    let is_atom = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && !part.ends_with('.')
            && !part.contains("..")
            && part
                .chars()
                .all(|c| c.is_alphanumeric() || "!#$%&'*+-/=?^_`{|}~.".contains(c))
    };
    let is_quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    (is_atom(local) || is_quoted) && is_atom(domain)
}

fn is_hostname(text: &str) -> bool {
    HOSTNAME.is_match(text) && text.len() <= 255 && text.split('.').all(|label| label.len() <= 63)
}

/// Accepts leading zeros, like kube-apiserver.
fn is_ipv4(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    let is_byte = |part: &&str| {
        !part.is_empty()
            && part.len() <= 9
            && part.bytes().all(|b| b.is_ascii_digit())
            && part.parse::<u32>().is_ok_and(|n| n < 256)
    };
    (parts.len() == 4 && parts.iter().all(is_byte))
        || (text.contains(':') && text.contains('.') && text.parse::<Ipv6Addr>().is_ok())
        || text.parse::<Ipv4Addr>().is_ok()
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    if bits.is_empty() || !bits.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let Ok(bits) = bits.parse::<u8>() else {
        return false;
    };
    if address.contains(':') {
        bits <= 128 && address.parse::<Ipv6Addr>().is_ok()
    } else {
        bits <= 32 && is_ipv4(address)
    }
}

/// 6, 8 or 20 bytes, in pairs with `:` or `-`, or in fours with `.`.
fn is_mac(text: &str) -> bool {
    let groups = |separator: char, width: usize| {
        let parts: Vec<&str> = text.split(separator).collect();
        let is_group = |part: &&str| part.len() == width && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        parts.iter().all(is_group).then(|| parts.len() * width / 2)
    };
    [groups(':', 2), groups('-', 2), groups('.', 4)]
        .into_iter()
        .flatten()
        .any(|bytes| matches!(bytes, 6 | 8 | 20))
}

/// Hex digits in groups of 8-4-4-4-12, each dash optional.
fn is_uuid(text: &str, version: Option<char>) -> bool {
    let mut rest = text;
    let mut groups = Vec::with_capacity(5);
    for (i, len) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if i > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some((group, remainder)) = rest.split_at_checked(len) else {
            return false;
        };
        if !group.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return false;
        }
        groups.push(group);
        rest = remainder;
    }
    let fits_version = version.is_none_or(|version| groups[2].starts_with(version));
    let has_variant =
        version.is_none_or(|version| version == '3') || groups[3].starts_with(['8', '9', 'a', 'b', 'A', 'B']);
    rest.is_empty() && fits_version && has_variant
}

fn digits_of(text: &str) -> String {
    text.chars()
        .filter(|c| !matches!(c, ' ' | '-' | '\t' | '\n' | '\r'))
        .collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = digits_of(text);
    if digits.len() != 10 {
        return false;
    }
    let mut sum = 0;
    for (i, c) in digits.chars().enumerate() {
        let value = match c {
            'X' if i == 9 => 10,
            c => match c.to_digit(10) {
                Some(value) => value,
                None => return false,
            },
        };
        sum += (u32::try_from(i).unwrap_or_default() + 1) * value;
    }
    sum.is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let digits: Option<Vec<u32>> = digits_of(text).chars().map(|c| c.to_digit(10)).collect();
    let Some(digits) = digits.filter(|digits| digits.len() == 13) else {
        return false;
    };
    digits
        .iter()
        .enumerate()
        .map(|(i, digit)| if i % 2 == 0 { *digit } else { digit * 3 })
        .sum::<u32>()
        % 10
        == 0
}

/// Checks the known number ranges and the Luhn checksum.
fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    if !CREDIT_CARD.is_match(&digits) {
        return false;
    }
    let sum: u32 = digits
        .chars()
        .rev()
        .filter_map(|c| c.to_digit(10))
        .enumerate()
        .map(|(i, digit)| match (i % 2, digit * 2) {
            (0, _) => digit,
            (_, doubled) if doubled > 9 => doubled - 9,
            (_, doubled) => doubled,
        })
        .sum();
    sum.is_multiple_of(10)
}

fn is_date(text: &str) -> bool {
    let shaped = text.len() == 10 && text.as_bytes()[4] == b'-' && text.as_bytes()[7] == b'-';
    shaped && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    let Some(fields) = DATE_TIME.captures(time).filter(|_| is_date(date)) else {
        return false;
    };
    &fields[1] <= "23" && &fields[2] <= "59" && &fields[3] <= "59"
}

/// Accepts Go durations, and the other forms that kube-apiserver accepts: `2 days`, `22 ns`.
fn is_duration(text: &str) -> bool {
    if parse_go_duration(text).is_some() {
        return true;
    }
    let units = [
        ("ns", "nano"),
        ("us", "micro"),
        ("ms", "milli"),
        ("s", "sec"),
        ("m", "min"),
        ("h", "hour"),
        ("d", "day"),
        ("w", "week"),
    ];
    SCALA_DURATION.captures_iter(text).any(|found| {
        let unit = found[2].to_lowercase();
        found[1].parse::<i64>().is_ok()
            && (units
                .iter()
                .any(|(short, long)| unit == *short || unit.starts_with(long))
                || ["\u{b5}s", "hr", "wk"].contains(&unit.as_str()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_match_kube_apiserver() {
        let table = [
            ("date-time", "2024-01-02T03:04:05Z", true),
            ("date-time", "2024-01-02T03:04:05.123+01:00", true),
            ("date-time", "2024-01-02 03:04:05Z", false),
            ("date-time", "2024-13-02T03:04:05Z", false),
            ("date", "2024-02-30", false),
            ("duration", "1h30m", true),
            ("duration", "2 days", true),
            ("duration", "soon", false),
            ("byte", "aGk=", true),
            ("byte", "aGk", false),
            ("uri", "https://x/y", true),
            ("uri", "x", false),
            ("email", "a@b.c", true),
            ("email", "a", false),
            ("hostname", "a-b.example", true),
            ("hostname", "a..b", false),
            ("ipv4", "1.2.3.4", true),
            ("ipv4", "1.2.3.256", false),
            ("ipv6", "::1", true),
            ("cidr", "10.0.0.0/8", true),
            ("cidr", "10.0.0.0/33", false),
            ("mac", "00:11:22:33:44:55", true),
            ("uuid", "6BA7B810-9dad-11d1-80b4-00c04fd430c8", true),
            ("uuid4", "6BA7B810-9dad-11d1-80b4-00c04fd430c8", false),
            ("isbn", "978-0321751041", true),
            ("isbn10", "0321751043", true),
            ("creditcard", "4111 1111 1111 1111", true),
            ("creditcard", "4111 1111 1111 1112", false),
            ("ssn", "111-22-3333", true),
            ("hexcolor", "#FFF", true),
            ("rgbcolor", "rgb(0,31,255)", true),
            ("bsonobjectid", "507f1f77bcf86cd799439011", true),
        ];
        for (name, text, expected) in table {
            let format = Format::from_name(name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(format.is_valid(text), expected, "{name} {text}");
        }
        assert!(Format::from_name("int32").is_none());
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in ".{0,60}") {
            for name in ["uri", "email", "hostname", "ipv4", "cidr", "mac", "uuid5", "isbn", "creditcard", "date", "duration", "date-time"] {
                if let Some(format) = Format::from_name(name) {
                    let _ = format.is_valid(&text);
                }
            }
        }
    }
}
