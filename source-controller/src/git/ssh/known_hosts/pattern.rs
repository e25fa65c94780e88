//! Matches hosts against the first field of a line.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

use super::{LineError, Server};

/// Port of a pattern without one.
const DEFAULT_PORT: u16 = 22;
/// Length of a hashed name and of its salt in bytes: that of SHA-1.
const HASH_BYTES: usize = 20;

/// The first field of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hosts {
    /// `|1|salt|hash` of one name.
    Hashed { salt: Vec<u8>, hash: Vec<u8> },
    /// Comma-separated patterns.
    Listed(Vec<Pattern>),
}

/// A name with the wildcards `*` and `?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    negated: bool,
    /// In lower case.
    host: String,
    port: u16,
}

impl Hosts {
    pub(super) fn parse(text: &str) -> Result<Self, LineError> {
        if let Some(hashed) = text.strip_prefix('|') {
            return Self::hashed(hashed).map_err(LineError::Pattern);
        }
        let patterns = text
            .split(',')
            .filter(|part| !part.is_empty())
            .map(Pattern::parse);
        let patterns = patterns
            .collect::<Result<Vec<_>, _>>()
            .map_err(LineError::Pattern)?;
        if patterns.is_empty() {
            return Err(LineError::Missing("host"));
        }
        Ok(Self::Listed(patterns))
    }

    fn hashed(text: &str) -> Result<Self, &'static str> {
        let mut parts = text.split('|');
        if parts.next() != Some("1") {
            return Err("the hash is not of type 1");
        }
        let mut part = || {
            let bytes = parts.next().and_then(|part| STANDARD.decode(part).ok());
            bytes.ok_or("a hashed name is |1|salt|hash, both in base64")
        };
        let (salt, hash) = (part()?, part()?);
        match (parts.next(), hash.len()) {
            (None, HASH_BYTES) => Ok(Self::Hashed { salt, hash }),
            (Some(_), _) => Err("a hashed name is |1|salt|hash and nothing more"),
            (None, _) => Err("the hash of a name has 20 bytes"),
        }
    }

    /// Whether the line applies to this host. A matching negated pattern takes precedence.
    pub(super) fn matches(&self, server: Server<'_>) -> bool {
        match self {
            Self::Hashed { salt, hash } => {
                let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, salt);
                candidate_names(server)
                    .iter()
                    .any(|name| hmac::verify(&key, name.as_bytes(), hash).is_ok())
            }
            Self::Listed(patterns) => {
                let host = server.host.to_ascii_lowercase();
                let matching = |pattern: &&Pattern| {
                    pattern.port == server.port && matches_wildcard(&pattern.host, &host)
                };
                let mut matching = patterns.iter().filter(matching).peekable();
                matching.peek().is_some() && matching.all(|pattern| !pattern.negated)
            }
        }
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let (negated, text) = match text.strip_prefix('!') {
            Some("") => return Err("`!` without a name"),
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or("`[` without `]`")?;
                // ssh-keyscan sometimes writes IPv6 addresses without a port.
                let port = if rest.is_empty() {
                    None
                } else {
                    Some(rest.strip_prefix(':').ok_or("`]` without `:port`")?)
                };
                (host, port)
            }
            // More than one colon: an IPv6 address without brackets.
            None => match text.split_once(':') {
                Some((host, port)) if !port.contains(':') => (host, Some(port)),
                _ => (text, None),
            },
        };
        if host.is_empty() {
            return Err("no name");
        }
        let port = port.map_or(Ok(DEFAULT_PORT), |port| {
            port.parse().map_err(|_| "the port is not a number below 65536")
        })?;
        Ok(Self {
            negated,
            host: host.to_ascii_lowercase(),
            port,
        })
    }
}

/// Returns the texts from which a host's hash may have been computed.
fn candidate_names(server: Server<'_>) -> Vec<String> {
    let host = server.host.to_ascii_lowercase();
    if server.port != DEFAULT_PORT {
        return vec![format!("[{host}]:{}", server.port)];
    }
    // Some programs also put brackets around IPv6 addresses here.
    let bracketed = host.contains(':').then(|| format!("[{host}]"));
    [host].into_iter().chain(bracketed).collect()
}

/// Whether the text matches the pattern: `*` matches any number of letters, `?` one.
fn matches_wildcard(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut letter) = (0, 0);
    // The last star, and the position in the text where it matched nothing.
    let mut star: Option<(usize, usize)> = None;
    while letter < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, letter));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == text[letter] => {
                at += 1;
                letter += 1;
            }
            _ => {
                let Some((behind, from)) = star else { return false };
                star = Some((behind, from + 1));
                at = behind + 1;
                letter = from + 1;
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn includes(pattern: &str, host: &str, port: u16) -> bool {
        Hosts::parse(pattern).unwrap().matches(Server { host, port })
    }

    #[test]
    fn patterns_match_host_and_port() {
        for (pattern, host, port, expected) in [
            ("example.org", "example.org", 22, true),
            ("example.org", "EXAMPLE.org", 22, true),
            ("Example.org", "example.org", 22, true),
            ("example.org", "example.org", 2222, false),
            ("[example.org]:2222", "example.org", 2222, true),
            ("[example.org]:2222", "example.org", 22, false),
            ("example.org:2222", "example.org", 2222, true),
            ("[example.org]:22", "example.org", 22, true),
            ("*.example.org", "git.example.org", 22, true),
            ("*.example.org", "example.org", 22, false),
            ("git?.example.org", "git1.example.org", 22, true),
            ("git?.example.org", "git.example.org", 22, false),
            ("*", "anything", 22, true),
            ("*", "anything", 23, false),
            ("a*b*c", "axxbyyc", 22, true),
            ("a*b*c", "axxbyy", 22, false),
            ("a,b,c", "b", 22, true),
            ("a,,b", "b", 22, true),
            ("*.example.org,!bad.example.org", "good.example.org", 22, true),
            ("*.example.org,!bad.example.org", "bad.example.org", 22, false),
            ("!bad.example.org,*.example.org", "bad.example.org", 22, false),
            ("!bad.example.org", "good.example.org", 22, false),
            ("192.0.2.1", "192.0.2.1", 22, true),
            ("::1", "::1", 22, true),
            ("[::1]:22", "::1", 22, true),
            ("[::1]", "::1", 22, true),
            ("[2001:db8::1]:2222", "2001:db8::1", 2222, true),
            ("[2001:DB8::1]:2222", "2001:db8::1", 22, false),
        ] {
            assert_eq!(includes(pattern, host, port), expected, "{pattern} {host} {port}");
        }
    }

    #[test]
    fn hashed_names_of_ssh_keygen_match() {
        // `ssh-keygen -H` of example.org, [example.org]:2222 and ::1.
        for (hashed, host, port) in include_str!("hashed.txt").lines().map(|line| {
            let mut words = line.split(' ');
            let mut word = || words.next().unwrap();
            (word(), word(), word().parse::<u16>().unwrap())
        }) {
            assert!(includes(hashed, host, port), "{hashed} {host} {port}");
            assert!(!includes(hashed, host, port + 1), "{hashed}");
            assert!(!includes(hashed, "other.example.org", port), "{hashed}");
        }
    }

    #[test]
    fn invalid_patterns_are_refused() {
        for bad in [
            "!",
            "[",
            "[]:22",
            "[a",
            "[a]22",
            "[a]:x",
            "a:99999",
            ":22",
            ",",
            "|2|YQ==|YQ==",
            "|1|YQ==",
            "|1|?|?",
            "|1|YQ==|YQ==",
            "|1||",
        ] {
            assert!(Hosts::parse(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn wildcards_agree_with_the_reference_implementation(pattern in "[ab*?]{0,8}", text in "[ab]{0,8}") {
            fn plain(pattern: &[u8], text: &[u8]) -> bool {
                match (pattern.split_first(), text.split_first()) {
                    (None, None) => true,
                    (Some((b'*', rest)), _) => plain(rest, text) || text.split_first().is_some_and(|(_, text)| plain(pattern, text)),
                    (Some((p, rest)), Some((t, text))) => (*p == b'?' || p == t) && plain(rest, text),
                    _ => false,
                }
            }
            prop_assert_eq!(matches_wildcard(&pattern, &text), plain(pattern.as_bytes(), text.as_bytes()));
        }

        #[test]
        fn any_word_is_parsed_or_refused(word in "\\PC{0,60}", host in "\\PC{0,20}", port: u16) {
            if let Ok(hosts) = Hosts::parse(&word) {
                let _ = hosts.matches(Server { host: &host, port });
            }
        }
    }
}
