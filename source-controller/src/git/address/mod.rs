//! The address of a remote, with the userinfo separated so that it can be logged.

mod go_url;

use std::fmt;

use percent_encoding::percent_decode_str;
use sluice_runtime::redact::MaskedUrl;
use url::Url;

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
        go_url::check(text).map_err(|error| invalid(error.to_string()))?;
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
    use sluice_runtime::failure::Failure as _;

    use super::*;

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
