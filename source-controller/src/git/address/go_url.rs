//! Refuses the addresses that Go's `url.Parse` refuses. Flux refuses these before any request, and so do we. Pure.
//!
//! The golden vectors are Go's own results (`tests/urls` of this crate). An error never quotes the address, because a
//! malformed one may contain a password anywhere.

use std::net::Ipv6Addr;

/// Why Go refuses an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum GoUrlError {
    /// A control character before the fragment.
    #[error("invalid control character in URL")]
    Control,
    /// A `%` without two hex digits, or an escape that is not allowed in a host.
    #[error("invalid URL escape")]
    Escape,
    /// A character that is not allowed in host names.
    #[error("invalid character in host name")]
    HostCharacter,
    /// Non-digits after the colon of the host.
    #[error("invalid port after host")]
    Port,
    /// A `[` without its `]`.
    #[error("missing ']' in host")]
    Bracket,
    /// Brackets after a name, or around an IPv4 address.
    #[error("invalid IP-literal")]
    Literal,
    /// Brackets around something that is not an IPv6 address.
    #[error("invalid host")]
    Host,
    /// A character that must be escaped in userinfo.
    #[error("invalid userinfo")]
    Userinfo,
}

/// Part of an address, which decides the allowed escapes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Host,
    Zone,
    Other,
}

/// Fails as `url.Parse` does for an address with a scheme. The caller handles other forms.
pub(super) fn check(address: &str) -> Result<(), GoUrlError> {
    let (address, fragment) = address.split_once('#').unwrap_or((address, ""));
    if address.bytes().any(|byte| byte.is_ascii_control()) {
        return Err(GoUrlError::Control);
    }
    let Some((_, rest)) = address.split_once("://") else {
        return Ok(());
    };
    let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let is_http = ["http:", "https:"].iter().any(|scheme| {
        let start = address.get(..scheme.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    });
    check_authority(authority, is_http)?;
    check_escapes(path, Part::Other)?;
    check_escapes(fragment, Part::Other)
}

fn check_authority(authority: &str, is_http: bool) -> Result<(), GoUrlError> {
    let (userinfo, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    check_host(host, is_http)?;
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    if !userinfo.chars().all(allowed) {
        return Err(GoUrlError::Userinfo);
    }
    check_escapes(userinfo, Part::Other)
}

fn check_host(host: &str, is_http: bool) -> Result<(), GoUrlError> {
    match host.rfind('[') {
        Some(0) => {}
        Some(_) => return Err(GoUrlError::Literal),
        None => {
            // Since Go 1.26, several colons are allowed only if the scheme is neither http nor https; the last one
            // begins the port.
            let colon = if is_http { host.find(':') } else { host.rfind(':') };
            check_port(colon.map_or("", |at| &host[at..]))?;
            return check_escapes(host, Part::Host);
        }
    }
    let end = host.rfind(']').ok_or(GoUrlError::Bracket)?;
    let (literal, port) = (&host[1..end], &host[end + 1..]);
    check_port(port)?;
    let (name, zone) = literal.split_at(literal.find("%25").unwrap_or(literal.len()));
    let name = unescape(name, Part::Host)? + &unescape(zone, Part::Zone)?;
    let (name, zone) = name
        .split_once('%')
        .map_or((&*name, None), |(name, zone)| (name, Some(zone)));
    match (name.parse::<Ipv6Addr>(), zone) {
        (Ok(_), None) => Ok(()),
        (Ok(_), Some(zone)) if !zone.is_empty() => Ok(()),
        (Err(_), None) if name.parse::<std::net::Ipv4Addr>().is_ok() => Err(GoUrlError::Literal),
        _ => Err(GoUrlError::Host),
    }
}

fn check_port(port: &str) -> Result<(), GoUrlError> {
    let digits = port
        .strip_prefix(':')
        .map(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    match digits {
        Some(true) => Ok(()),
        None if port.is_empty() => Ok(()),
        _ => Err(GoUrlError::Port),
    }
}

/// Decodes the escapes by the rules of this part of an address.
fn unescape(text: &str, part: Part) -> Result<String, GoUrlError> {
    let mut decoded = Vec::with_capacity(text.len());
    decode(text, part, |byte| decoded.push(byte))?;
    Ok(String::from_utf8_lossy(&decoded).into_owned())
}

/// Checks the escapes by the rules of this part of an address. Most parts are only checked, which needs no memory.
fn check_escapes(text: &str, part: Part) -> Result<(), GoUrlError> {
    decode(text, part, |_| ())
}

/// Passes each decoded byte on.
fn decode(text: &str, part: Part, mut push: impl FnMut(u8)) -> Result<(), GoUrlError> {
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            if part != Part::Other && byte.is_ascii() && !is_host_byte(byte) {
                return Err(GoUrlError::HostCharacter);
            }
            push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err(GoUrlError::Escape);
        };
        let value = u8::try_from(high << 4 | low).map_err(|_| GoUrlError::Escape)?;
        let allowed = match part {
            Part::Other => true,
            Part::Host => !value.is_ascii() || value == b'%',
            Part::Zone => value == b'%' || value == b' ' || is_host_byte(value),
        };
        if !allowed {
            return Err(GoUrlError::Escape);
        }
        push(value);
    }
    Ok(())
}

/// Whether Go allows this byte unescaped in a host.
fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::Address;

    const VECTORS: &str = include_str!("../../../tests/urls/vectors.jsonl");

    fn vectors() -> impl Iterator<Item = (String, String)> {
        VECTORS.lines().map(|line| serde_json::from_str(line).unwrap())
    }

    /// Go's reason without the part that it quotes.
    fn error_kind(why: &str) -> &str {
        [
            ("net/url: ", "invalid control character in URL"),
            ("net/url: ", "invalid userinfo"),
            ("", "invalid URL escape"),
            ("", "invalid character in host name"),
            ("", "invalid port after host"),
            ("", "missing ']' in host"),
            ("", "invalid IP-literal"),
            ("", "invalid host"),
        ]
        .into_iter()
        .find(|(prefix, text)| {
            let rest = why.strip_prefix(prefix).unwrap_or_default();
            // The quoted part follows a word: `invalid port ":x" after host`.
            let unquoted = match (rest.find('"'), rest.rfind('"')) {
                (Some(start), Some(end)) if start < end => {
                    format!("{}{}", &rest[..start], rest[end + 1..].trim_start())
                }
                _ => rest.to_owned(),
            };
            unquoted.trim_end() == *text || *text == "invalid host" && rest.starts_with("invalid host: ")
        })
        .map_or(why, |(_, text)| text)
    }

    #[test]
    fn addresses_refused_by_go_are_refused_for_the_same_reason() {
        let mut differences = Vec::new();
        for (address, why) in vectors() {
            let found = check(&address)
                .err()
                .map_or_else(String::new, |error| error.to_string());
            if found != error_kind(&why) {
                differences.push(format!("{address:?}: Go says {why:?}, we {found:?}"));
            }
        }
        assert!(differences.is_empty(), "{differences:#?}");
        assert!(vectors().count() > 700);
    }

    #[test]
    fn the_host_of_a_vector_is_that_of_the_parser() {
        for (address, _) in vectors() {
            let parsed = Address::parse(&address).map_or_else(|_| String::new(), |parsed| parsed.host());
            assert_eq!(Address::host_of(&address), parsed, "{address:?}");
        }
    }

    /// We accept what Go accepts, except for addresses without a reachable host; see `docs/differences.md`.
    #[test]
    fn addresses_accepted_by_go_are_accepted_if_they_have_a_host() {
        const NO_HOST: [&str; 7] = [
            "empty host",
            "invalid port number",
            "invalid IPv4 address",
            "invalid IPv6 address",
            "invalid international domain name",
            "invalid domain character",
            "the path is empty, or has control characters",
        ];
        let mut accepted = 0;
        for (address, why) in vectors() {
            match Address::parse(&address) {
                Ok(_) => {
                    assert_eq!(why, "", "{address:?}");
                    accepted += 1;
                }
                Err(error) if why.is_empty() => {
                    let text = error.to_string();
                    assert!(NO_HOST.iter().any(|known| text.ends_with(known)), "{text}");
                }
                Err(_) => {}
            }
        }
        assert!(accepted > 100, "{accepted}");
    }
}
