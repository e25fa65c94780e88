//! Which addresses Go's `url.Parse` refuses. Flux refuses these before anything is asked, and so do we. Pure.
//!
//! Golden vectors are Go's own answers (`tests/urls` of this crate). A refusal never quotes the address: a password may
//! stand anywhere in one that is malformed.

use std::net::Ipv6Addr;

/// Why Go refuses an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// A control character before the fragment.
    #[error("invalid control character in URL")]
    Control,
    /// A `%` that two hex digits do not follow, or one that is not allowed in a host.
    #[error("invalid URL escape")]
    Escape,
    /// A character that no host name has.
    #[error("invalid character in host name")]
    HostCharacter,
    /// Something else than digits behind the host.
    #[error("invalid port after host")]
    Port,
    /// A `[` without its `]`.
    #[error("missing ']' in host")]
    Bracket,
    /// Brackets behind a name, or around an IPv4 address.
    #[error("invalid IP-literal")]
    Literal,
    /// Brackets around something else than an IPv6 address.
    #[error("invalid host")]
    Host,
    /// A character that neither names nor passwords have unescaped.
    #[error("invalid userinfo")]
    Userinfo,
}

/// What a percent sign may stand for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Host,
    Zone,
    Other,
}

/// Fails as `url.Parse` does for an address with a scheme. Other forms are left to the caller.
pub(super) fn judge(address: &str) -> Result<(), Refusal> {
    let (address, fragment) = address.split_once('#').unwrap_or((address, ""));
    if address.bytes().any(|byte| byte.is_ascii_control()) {
        return Err(Refusal::Control);
    }
    let Some((_, rest)) = address.split_once("://") else {
        return Ok(());
    };
    let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let is_http = |scheme: &str| {
        address
            .get(..scheme.len() + 1)
            .is_some_and(|start| start.eq_ignore_ascii_case(&format!("{scheme}:")))
    };
    judge_authority(authority, is_http("http") || is_http("https"))?;
    unescape(path, Part::Other)?;
    unescape(fragment, Part::Other)?;
    Ok(())
}

fn judge_authority(authority: &str, is_http: bool) -> Result<(), Refusal> {
    let (userinfo, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    judge_host(host, is_http)?;
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    if !userinfo.chars().all(allowed) {
        return Err(Refusal::Userinfo);
    }
    unescape(userinfo, Part::Other).map(drop)
}

fn judge_host(host: &str, is_http: bool) -> Result<(), Refusal> {
    match host.rfind('[') {
        Some(0) => {}
        Some(_) => return Err(Refusal::Literal),
        None => {
            // Since Go 1.26 several colons are allowed only where the scheme is neither http nor https; the last one
            // begins the port.
            let colon = if is_http { host.find(':') } else { host.rfind(':') };
            judge_port(colon.map_or("", |at| &host[at..]))?;
            return unescape(host, Part::Host).map(drop);
        }
    }
    let end = host.rfind(']').ok_or(Refusal::Bracket)?;
    let (literal, port) = (&host[1..end], &host[end + 1..]);
    judge_port(port)?;
    let (name, zone) = literal.split_at(literal.find("%25").unwrap_or(literal.len()));
    let name = unescape(name, Part::Host)? + &unescape(zone, Part::Zone)?;
    let (name, zone) = name
        .split_once('%')
        .map_or((&*name, None), |(name, zone)| (name, Some(zone)));
    match (name.parse::<Ipv6Addr>(), zone) {
        (Ok(_), None) => Ok(()),
        (Ok(_), Some(zone)) if !zone.is_empty() => Ok(()),
        (Err(_), None) if name.parse::<std::net::Ipv4Addr>().is_ok() => Err(Refusal::Literal),
        _ => Err(Refusal::Host),
    }
}

fn judge_port(port: &str) -> Result<(), Refusal> {
    let digits = port
        .strip_prefix(':')
        .map(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    match digits {
        Some(true) => Ok(()),
        None if port.is_empty() => Ok(()),
        _ => Err(Refusal::Port),
    }
}

/// The text without escapes, by the rules of this part of an address.
fn unescape(text: &str, part: Part) -> Result<String, Refusal> {
    let mut bytes = text.bytes();
    let mut plain = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            if part != Part::Other && byte.is_ascii() && !is_of_host(byte) {
                return Err(Refusal::HostCharacter);
            }
            plain.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err(Refusal::Escape);
        };
        let value = u8::try_from(high << 4 | low).map_err(|_| Refusal::Escape)?;
        let allowed = match part {
            Part::Other => true,
            Part::Host => !value.is_ascii() || value == b'%',
            Part::Zone => value == b'%' || value == b' ' || is_of_host(value),
        };
        if !allowed {
            return Err(Refusal::Escape);
        }
        plain.push(value);
    }
    Ok(String::from_utf8_lossy(&plain).into_owned())
}

/// Whether Go takes this byte in a host as it stands.
fn is_of_host(byte: u8) -> bool {
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

    /// Go's reason without what it quotes.
    fn kind(why: &str) -> &str {
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
            // The quoted part stands behind a word: `invalid port ":x" after host`.
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
    fn what_go_refuses_is_refused_for_the_same_reason() {
        let mut differ = Vec::new();
        for (address, why) in vectors() {
            let found = judge(&address)
                .err()
                .map_or_else(String::new, |refusal| refusal.to_string());
            if found != kind(&why) {
                differ.push(format!("{address:?}: Go says {why:?}, we {found:?}"));
            }
        }
        assert!(differ.is_empty(), "{differ:#?}");
        assert!(vectors().count() > 700);
    }

    /// What Go takes, we take too, but for addresses that lead to no host: `docs/differences.md` says so.
    #[test]
    fn what_go_takes_is_taken_where_it_leads_to_a_host() {
        const NO_HOST: [&str; 7] = [
            "empty host",
            "invalid port number",
            "invalid IPv4 address",
            "invalid IPv6 address",
            "invalid international domain name",
            "invalid domain character",
            "the path is empty, or has control characters",
        ];
        let mut taken = 0;
        for (address, why) in vectors() {
            match Address::parse(&address) {
                Ok(_) => {
                    assert_eq!(why, "", "{address:?}");
                    taken += 1;
                }
                Err(error) if why.is_empty() => {
                    let text = error.to_string();
                    assert!(NO_HOST.iter().any(|known| text.ends_with(known)), "{text}");
                }
                Err(_) => {}
            }
        }
        assert!(taken > 100, "{taken}");
    }
}
