//! URLs, parsed and joined as in Go's `net/url`: only the case of the scheme is normalised.

use std::fmt::Write;
use std::net::Ipv6Addr;
use std::sync::Arc;

use gotmpl::Value;

use super::{Args, Fault, Table};
use crate::template::value::string;

/// Functions by name.
pub(super) const TABLE: Table = &[("urlParse", parse), ("urlJoin", join)];

/// Unescaped characters of a path, besides letters, digits and `-_.~`.
const PATH: &str = "$&+,/:;=@";
/// Unescaped characters of a user name or a password.
const USER: &str = "$&+,;=";
/// Unescaped characters of a host.
const HOST: &str = "!$&'()*+,;=:[]<>\"";
/// Unescaped characters of a fragment.
const FRAGMENT: &str = "$&+,/:;=?@!()*";

fn parse(args: &Args<'_>) -> Result<Value, Fault> {
    args.exactly(1)?;
    let parts = split(args.text(0)?).ok_or_else(|| Fault::new("the text is not a URL"))?;
    let named = parts.named().into_iter();
    Ok(Value::Map(Arc::new(
        named
            .map(|(name, part)| (Arc::from(name), string(part)))
            .collect(),
    )))
}

/// The parts of a URL, unescaped as in Go.
#[derive(Default)]
struct Parts {
    scheme: String,
    opaque: String,
    userinfo: String,
    host: String,
    path: String,
    query: String,
    fragment: String,
}

impl Parts {
    fn named(&self) -> [(&'static str, &str); 8] {
        [
            ("scheme", &self.scheme),
            ("opaque", &self.opaque),
            ("userinfo", &self.userinfo),
            ("host", &self.host),
            ("hostname", hostname(&self.host)),
            ("path", &self.path),
            ("query", &self.query),
            ("fragment", &self.fragment),
        ]
    }
}

fn split(text: &str) -> Option<Parts> {
    let (address, fragment) = text.split_once('#').unwrap_or((text, ""));
    if address.bytes().any(|byte| byte.is_ascii_control()) {
        return None;
    }
    let mut parts = Parts {
        fragment: unescape(fragment)?,
        ..Parts::default()
    };
    if address == "*" {
        "*".clone_into(&mut parts.path);
        return Some(parts);
    }
    let (scheme, rest) = scheme(address)?;
    parts.scheme = scheme.to_ascii_lowercase();
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    query.clone_into(&mut parts.query);
    if !rest.starts_with('/') {
        if !scheme.is_empty() {
            rest.clone_into(&mut parts.opaque);
            return Some(parts);
        }
        if rest
            .split('/')
            .next()
            .is_some_and(|segment| segment.contains(':'))
        {
            return None;
        }
    }
    let mut path = rest;
    if let Some(authority) = rest.strip_prefix("//")
        && (!scheme.is_empty() || !authority.starts_with('/'))
    {
        let end = authority.find('/').unwrap_or(authority.len());
        path = &authority[end..];
        (parts.userinfo, parts.host) = authority_of(&authority[..end])?;
    }
    parts.path = unescape(path)?;
    Some(parts)
}

/// Returns the scheme, which may be empty, and the rest.
fn scheme(text: &str) -> Option<(&str, &str)> {
    let inside = |(at, c): (usize, char)| {
        c.is_ascii_alphabetic() || at > 0 && (c.is_ascii_digit() || "+-.".contains(c))
    };
    match text.char_indices().find(|found| !inside(*found)) {
        Some((0, ':')) => None,
        Some((end, ':')) => Some((&text[..end], &text[end + 1..])),
        _ => Some(("", text)),
    }
}

fn authority_of(authority: &str) -> Option<(String, String)> {
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    let host = host_of(host)?;
    Some((user.map_or(Some(String::new()), userinfo)?, host))
}

/// Returns user name and password in the canonical form of Go.
fn userinfo(text: &str) -> Option<String> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    if !text.chars().all(fine) {
        return None;
    }
    let (name, password) = match text.split_once(':') {
        Some((name, password)) => (name, Some(password)),
        None => (text, None),
    };
    let mut written = escape(&unescape(name)?, USER);
    if let Some(password) = password {
        written.push(':');
        written.push_str(&escape(&unescape(password)?, USER));
    }
    Some(written)
}

fn host_of(host: &str) -> Option<String> {
    if let Some(open) = host.rfind('[') {
        let close = host.rfind(']').filter(|_| open == 0)?;
        let (address, port) = (&host[1..close], &host[close + 1..]);
        let (plain, zone) = address
            .split_once("%25")
            .map_or((address, None), |(a, z)| (a, Some(z)));
        plain.parse::<Ipv6Addr>().ok()?;
        let zone = match zone {
            Some("") => return None,
            Some(zone) => format!("%{}", unescape(zone)?),
            None => String::new(),
        };
        return is_port(port).then(|| format!("[{plain}{zone}]{port}"));
    }
    // The last of several colons begins the port: there may be a list of hosts.
    let colon = host.rfind(':');
    if colon.is_some_and(|colon| !is_port(&host[colon..])) {
        return None;
    }
    let stands = |byte: u8| !byte.is_ascii() || byte == b'%' || is_plain(byte, HOST);
    if !host.bytes().all(stands) {
        return None;
    }
    // Only non-ASCII characters may be escaped in a host.
    let mut hex = host.split('%').skip(1);
    if hex.any(|part| {
        !part.starts_with([
            '8', '9', 'a', 'b', 'c', 'd', 'e', 'f', 'A', 'B', 'C', 'D', 'E', 'F',
        ]) && !part.starts_with("25")
    }) {
        return None;
    }
    unescape(host)
}

/// Whether a text is empty, or a colon and digits.
fn is_port(text: &str) -> bool {
    text.is_empty()
        || text
            .strip_prefix(':')
            .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

fn hostname(host: &str) -> &str {
    let bare = match host.rfind(':') {
        Some(colon) if is_port(&host[colon..]) => &host[..colon],
        _ => host,
    };
    bare.strip_prefix('[')
        .and_then(|inner| inner.strip_suffix(']'))
        .unwrap_or(bare)
}

fn is_plain(byte: u8, more: &str) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) || more.as_bytes().contains(&byte)
}

fn escape(text: &str, more: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if is_plain(byte, more) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// Returns `None` for an incomplete escape or invalid UTF-8.
fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = behind.get(..2)?;
        bytes.extend(hex::decode(digits).ok()?);
        rest = behind.get(2..)?;
    }
    String::from_utf8(bytes).ok()
}

fn join(args: &Args<'_>) -> Result<Value, Fault> {
    args.exactly(1)?;
    let map = match args.value(0)? {
        Value::Nil => None,
        _ => Some(args.map(0)?),
    };
    let part = |name: &str| match map.and_then(|map| map.get(name)) {
        None => Ok(""),
        Some(Value::String(text)) => Ok(text.as_ref()),
        Some(other) => Err(Fault::new(format!(
            "{name} is a {}, not a string",
            other.type_name()
        ))),
    };
    join_parts(&part).map(string)
}

fn join_parts<'a>(part: &dyn Fn(&str) -> Result<&'a str, Fault>) -> Result<String, Fault> {
    let (scheme, host, path) = (part("scheme")?, part("host")?, part("path")?);
    let (query, opaque, fragment) = (part("query")?, part("opaque")?, part("fragment")?);
    let user = match part("userinfo")? {
        "" => None,
        user => Some(user)
            .filter(|user| !user.contains(['/', '?', '#']))
            .and_then(userinfo)
            .map(Some)
            .ok_or_else(|| Fault::new("userinfo is not a user name with a password"))?,
    };
    let mut out = String::new();
    if !scheme.is_empty() {
        out.push_str(scheme);
        out.push(':');
    }
    if opaque.is_empty() {
        hierarchical(&mut out, user.as_deref(), host, path);
    } else {
        out.push_str(opaque);
    }
    for (sign, text) in [('?', query.to_owned()), ('#', escape(fragment, FRAGMENT))] {
        if !text.is_empty() {
            out.push(sign);
            out.push_str(&text);
        }
    }
    Ok(out)
}

/// Writes host and path after the scheme.
fn hierarchical(out: &mut String, user: Option<&str>, host: &str, path: &str) {
    let has_scheme = !out.is_empty();
    if !host.is_empty() || user.is_some() || has_scheme && !path.is_empty() {
        out.push_str("//");
        if let Some(user) = user {
            out.push_str(user);
            out.push('@');
        }
        out.push_str(&escape(host, HOST));
    }
    let path = if path == "*" {
        path.to_owned()
    } else {
        escape(path, PATH)
    };
    if !path.is_empty() && !path.starts_with('/') && !host.is_empty() {
        out.push('/');
    }
    if out.is_empty()
        && path
            .split('/')
            .next()
            .is_some_and(|segment| segment.contains(':'))
    {
        out.push_str("./");
    }
    out.push_str(&path);
}
