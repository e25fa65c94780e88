//! The address of a remote, with the userinfo separated so that it can be logged.

mod go_url;

use std::fmt;
use std::net::Ipv4Addr;

use percent_encoding::percent_decode_str;
use sluice_runtime::redact::MaskedUrl;
use url::Url;

/// The supported schemes, each with the port that the parser omits.
const SCHEMES: [(&str, &str); 3] = [("https://", "443"), ("http://", "80"), ("ssh://", "")];

/// An http, https or ssh address. `Display` and `Debug` omit the userinfo.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    url: Url,
    username: String,
    password: String,
}

/// An invalid address of a remote.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Not a valid URL.
    #[error("failed to parse url '{url}': {why}")]
    Invalid {
        /// The text with its secrets masked.
        url: MaskedUrl,
        /// The reason.
        why: String,
    },
}

impl Address {
    /// Parses `spec.url`.
    ///
    /// # Errors
    /// The text is not a URL, Go's parser refuses it, it has no host, or its scheme is not http, https or ssh.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let invalid = |why: String| AddressError::Invalid {
            url: MaskedUrl::new(text),
            why,
        };
        if plain_host(text).is_none() {
            // A plain address has nothing that Go refuses.
            go_url::check(text).map_err(|error| invalid(error.to_string()))?;
        }
        let mut url = Url::parse(text).map_err(|error| invalid(error.to_string()))?;
        match url.scheme() {
            "http" | "https" | "ssh" => {}
            other => return Err(invalid(format!("unknown scheme '{other}'"))),
        }
        if url.host_str().unwrap_or_default().is_empty() {
            return Err(invalid("empty host".into()));
        }
        let decode = |part: &str| percent_decode_str(part).decode_utf8_lossy().into_owned();
        let (username, password) = (decode(url.username()), decode(url.password().unwrap_or_default()));
        let result = url.set_username("").and_then(|()| url.set_password(None));
        result.map_err(|()| invalid("no host".into()))?;
        if url.scheme() == "ssh" {
            ssh_path(&url).map_err(invalid)?;
        } else {
            url.set_fragment(None);
        }
        Ok(Self {
            url,
            username,
            password,
        })
    }

    /// Returns what [`Address::host`] returns for this text, and an empty text for an invalid address. Each attempt of a
    /// reconciliation asks for it, also one that only queues.
    #[must_use]
    pub(crate) fn host_of(text: &str) -> String {
        plain_host(text).map_or_else(
            || Self::parse(text).map_or_else(|_| String::new(), |address| address.host()),
            str::to_owned,
        )
    }

    /// Whether the address uses ssh.
    #[must_use]
    pub(crate) fn is_ssh(&self) -> bool {
        self.url.scheme() == "ssh"
    }

    /// Returns the host name or IP address for a socket: IPv6 addresses without brackets.
    #[must_use]
    pub fn hostname(&self) -> &str {
        let host = self.url.host_str().unwrap_or_default();
        host.strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host)
    }

    /// Returns the repository's path for the ssh command.
    #[must_use]
    pub(crate) fn ssh_path(&self) -> String {
        ssh_path(&self.url).unwrap_or_default()
    }

    /// Returns the address without userinfo.
    #[must_use]
    pub const fn url(&self) -> &Url {
        &self.url
    }

    /// Returns the host, and the port if the address has one.
    #[must_use]
    pub fn host(&self) -> String {
        host(&self.url)
    }

    pub(crate) fn username(&self) -> &str {
        &self.username
    }

    pub(crate) fn password(&self) -> &str {
        &self.password
    }
}

/// Returns everything after the host, decoded as Git does: `?` and `#` have no special meaning.
fn ssh_path(url: &Url) -> Result<String, String> {
    let path = percent_decode_str(&url[url::Position::BeforePath..]).decode_utf8();
    let path = path.map_err(|_| "the path is not UTF-8".to_owned())?;
    if path.is_empty() || path.contains(char::is_control) {
        return Err("the path is empty, or has control characters".to_owned());
    }
    Ok(path.into_owned())
}

/// Returns host and port of a valid address in which the parser would change neither of them; `None` if only the parser can tell.
fn plain_host(text: &str) -> Option<&str> {
    let (rest, default_port) = SCHEMES
        .into_iter()
        .find_map(|(scheme, port)| Some((text.strip_prefix(scheme)?, port)))?;
    let (authority, path) = rest.split_at(rest.find('/')?);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    // Dots at the beginning of a part may shorten the path.
    if !path.bytes().all(is_plain) || path.contains("/.") {
        return None;
    }
    let host = authority.strip_prefix("git@").unwrap_or(authority);
    let (name, port) = host
        .split_once(':')
        .map_or((host, None), |(name, port)| (name, Some(port)));
    let is_plain_port =
        |port: &str| port != default_port && !port.starts_with(['0', '+']) && port.parse::<u16>().is_ok();
    let is_plain_host =
        port.is_none_or(is_plain_port) && (is_plain_name(name) || name.parse::<Ipv4Addr>().is_ok());
    is_plain_host.then_some(host)
}

/// Whether this is a host name in lower case that is neither a form of an IPv4 address nor internationalized.
fn is_plain_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_label = |label: &str| !label.is_empty() && label.bytes().all(is_plain);
    let last = name.rsplit('.').next().unwrap_or_default();
    last.starts_with(|first: char| first.is_ascii_lowercase())
        && name.split('.').all(is_label)
        && !name.contains("--")
}

/// Returns host and port as written in a URL.
pub(super) fn host(url: &Url) -> String {
    let name = url.host_str().unwrap_or_default();
    url.port()
        .map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"))
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.url, f)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.url, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sluice_runtime::failure::Failure as _;

    use super::*;

    fn parsed_host(url: &str) -> String {
        Address::parse(url).map_or_else(|_| String::new(), |address| address.host())
    }

    #[test]
    fn the_host_of_a_usual_address_is_known_without_the_parser() {
        for (url, host) in [
            ("https://github.com/team/app", "github.com"),
            (
                "https://git.example.org:8443/team/app.git",
                "git.example.org:8443",
            ),
            ("http://127.0.0.1:35001/app", "127.0.0.1:35001"),
            ("http://git/lib.git", "git"),
            ("ssh://git@github.com/team/app.git", "github.com"),
            ("ssh://git@h:22/~ada/b", "h:22"),
            ("https://a-1.2b.c3/", "a-1.2b.c3"),
        ] {
            assert_eq!(plain_host(url), Some(host), "{url}");
            assert_eq!(parsed_host(url), host, "{url}");
            assert_eq!(go_url::check(url), Ok(()), "{url}");
        }
    }

    #[test]
    fn the_parser_decides_about_other_addresses() {
        for url in [
            "https://GitHub.com/a",
            "HTTPS://h/a",
            "https://h:443/a",
            "http://h:80/a",
            "http://h:/a",
            "http://h:+8/a",
            "http://h:08/a",
            "http://h:65536/a",
            "http://h:8:8/a",
            "https://u:p@h/a",
            "https://git@git@h/a",
            "https://h",
            "https:///a",
            "ssh://h",
            "ssh://h/..",
            "ssh://h/a%0Ab",
            "https://h/a b",
            "https://h/a?b",
            "https://h/a#b",
            "https://h\\x/a",
            "https://1.2/a",
            "https://01.2.3.4/a",
            "https://h.0x1/a",
            "https://h.1/a",
            "https://h./a",
            "https://a..b/a",
            "https://xn--a/a",
            "https://[::1]/a",
            "https://b\u{fc}cher/a",
            "ftp://h/a",
            "h/a",
            "",
        ] {
            assert_eq!(plain_host(url), None, "{url}");
            assert_eq!(Address::host_of(url), parsed_host(url), "{url}");
        }
    }

    proptest! {
        #[test]
        fn the_host_is_that_of_the_parser_and_a_plain_address_is_valid_in_go(
            url in "(https?|ssh|SSH)://(git@|u:p@)?[a-z0-9.-]{0,8}(\\.(0x)?[0-9a-z]{1,3}){0,4}(:[0-9+]{0,6})?(/[a-zA-Z0-9._~%?#-]{0,6}){0,3}"
        ) {
            prop_assert_eq!(Address::host_of(&url), parsed_host(&url), "{}", url);
            prop_assert!(plain_host(&url).is_none() || go_url::check(&url).is_ok(), "{}", url);
        }
    }

    #[test]
    fn userinfo_is_separated() {
        let address = Address::parse("https://u%40x:p@example.org:8443/a/b.git").unwrap();
        assert_eq!((address.username(), address.password()), ("u@x", "p"));
        assert_eq!(
            format!("{address} {address:?}"),
            "https://example.org:8443/a/b.git https://example.org:8443/a/b.git"
        );
        assert_eq!(address.host(), "example.org:8443");
    }

    #[test]
    fn ssh_addresses_keep_their_path() {
        for (url, user, host, path) in [
            ("ssh://git@example.org/a/b.git", "git", "example.org", "/a/b.git"),
            ("ssh://example.org:2222/~ada/b", "", "example.org", "/~ada/b"),
            ("ssh://me@[::1]:22/a%20b?c#d", "me", "::1", "/a b?c#d"),
        ] {
            let address = Address::parse(url).unwrap();
            assert!(address.is_ssh());
            assert_eq!((address.username(), address.hostname()), (user, host), "{url}");
            assert_eq!(address.ssh_path(), path);
        }
        assert!(!Address::parse("https://h/x").unwrap().is_ssh());
    }

    #[test]
    fn an_invalid_address_is_reported_without_its_secrets() {
        let text = |url: &str| Address::parse(url).unwrap_err().to_string();
        assert_eq!(
            text("https://user:pw@:x/"),
            "failed to parse url 'https://user:***@:x/': invalid port after host"
        );
        assert_eq!(
            text("https://user:p%zz@h/"),
            "failed to parse url 'https://user:***@h/': invalid URL escape"
        );
        assert!(text("http://").contains("empty host"));
        assert!(text("nonsense").contains("failed to parse url 'nonsense'"));
        assert!(text("ftp://h/x").contains("unknown scheme 'ftp'"));
        assert!(text("ssh:///x").contains("empty host"));
        assert!(text("ssh://h").contains("the path is empty"));
        assert!(text("ssh://h/a%0Ab").contains("control characters"));
        assert_eq!(Address::parse("http://").unwrap_err().reason(), "URLInvalid");
    }
}
