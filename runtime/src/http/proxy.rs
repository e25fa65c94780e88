//! A proxy: its address and credentials. `dial.rs` uses it.

use std::fmt;
use std::hash::Hash;

use ::http::HeaderValue;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use url::Url;

use crate::redact::MaskedUrl;

/// Maximum length of a proxy address in bytes.
const MAX_LENGTH: usize = 2048;

/// Protocol of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProxyKind {
    /// HTTP: `CONNECT` for https, forwarding for http.
    Http,
    /// HTTP over TLS to the proxy.
    Https,
    /// SOCKS version 5; the proxy resolves names.
    Socks5,
}

/// A proxy. It prints without credentials.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Proxy {
    kind: ProxyKind,
    host: String,
    port: u16,
    /// Username and password.
    user: Option<(String, String)>,
}

/// A text is not a proxy address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    /// The text is empty.
    #[error("it is missing or empty")]
    Empty,
    /// The text is too long.
    #[error("the address has {0} bytes, more than the {MAX_LENGTH} that it may have")]
    TooLong(usize),
    /// The text is not a URL.
    #[error("the address '{address}' is not a URL: {why}")]
    Invalid {
        /// The text with masked secrets.
        address: MaskedUrl,
        /// The error.
        why: String,
    },
    /// The URL has another scheme.
    #[error("the address '{address}' has the scheme '{scheme}': it must be http, https or socks5")]
    Scheme {
        /// The text with masked secrets.
        address: MaskedUrl,
        /// Its scheme.
        scheme: String,
    },
    /// The protocol does not support usernames and passwords of this length.
    #[error("the username or the password for the proxy is longer than the 255 bytes that SOCKS5 allows")]
    LongUser,
}

impl Proxy {
    /// Parses the address of a proxy: `http://`, `https://` or `socks5://`, host and port. `username` replaces the credentials
    /// in the address; a password without a username is ignored.
    ///
    /// # Errors
    /// The address is invalid.
    pub fn new(address: &str, username: Option<&str>, password: Option<&str>) -> Result<Self, ProxyError> {
        if address.is_empty() {
            return Err(ProxyError::Empty);
        }
        if address.len() > MAX_LENGTH {
            return Err(ProxyError::TooLong(address.len()));
        }
        let invalid = |why: String| ProxyError::Invalid {
            address: MaskedUrl::new(address),
            why,
        };
        let url = Url::parse(address).map_err(|error| invalid(error.to_string()))?;
        let (kind, usual_port) = match url.scheme() {
            "http" => (ProxyKind::Http, 80),
            "https" => (ProxyKind::Https, 443),
            "socks5" | "socks5h" => (ProxyKind::Socks5, 1080),
            other => {
                return Err(ProxyError::Scheme {
                    address: MaskedUrl::new(address),
                    scheme: other.to_owned(),
                });
            }
        };
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| invalid("no host".into()))?.to_owned();
        let user = user(&url, username, password);
        let too_long = |(name, password): &(String, String)| name.len() > 255 || password.len() > 255;
        if kind == ProxyKind::Socks5 && user.as_ref().is_some_and(too_long) {
            return Err(ProxyError::LongUser);
        }
        Ok(Self {
            kind,
            host,
            port: url.port().unwrap_or(usual_port),
            user,
        })
    }

    /// Returns the protocol.
    #[must_use]
    pub const fn kind(&self) -> ProxyKind {
        self.kind
    }

    /// Returns the host as in a URL: an IPv6 address is in brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Returns username and password.
    #[must_use]
    pub fn user(&self) -> Option<(&str, &str)> {
        let (name, password) = self.user.as_ref()?;
        Some((name, password))
    }

    /// Returns the `Proxy-Authorization` header, marked as sensitive; `None` for SOCKS.
    #[must_use]
    pub fn authorization(&self) -> Option<HeaderValue> {
        if self.kind == ProxyKind::Socks5 {
            return None;
        }
        let (name, password) = self.user()?;
        let text = format!("Basic {}", STANDARD.encode(format!("{name}:{password}")));
        let mut value = HeaderValue::try_from(text).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

fn user(url: &Url, username: Option<&str>, password: Option<&str>) -> Option<(String, String)> {
    if let Some(name) = username.filter(|name| !name.is_empty()) {
        return Some((name.to_owned(), password.unwrap_or_default().to_owned()));
    }
    let decode = |part: &str| percent_decode_str(part).decode_utf8_lossy().into_owned();
    let (name, password) = (url.username(), url.password().unwrap_or_default());
    (!name.is_empty() || !password.is_empty()).then(|| (decode(name), decode(password)))
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.kind {
            ProxyKind::Http => "http",
            ProxyKind::Https => "https",
            ProxyKind::Socks5 => "socks5",
        };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = if self.user.is_some() { " (user ***)" } else { "" };
        write!(f, "{self}{user}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_print_without_secrets() {
        for (address, shown) in [
            ("http://proxy:3128", "http://proxy:3128"),
            ("http://u:secret@proxy", "http://proxy:80 (user ***)"),
            ("https://proxy/", "https://proxy:443"),
            ("socks5://proxy", "socks5://proxy:1080"),
            ("socks5://u:secret@[::1]:9", "socks5://[::1]:9 (user ***)"),
        ] {
            let proxy = Proxy::new(address, None, None).unwrap();
            assert_eq!(format!("{proxy:?}"), shown);
        }
    }

    #[test]
    fn an_explicit_user_replaces_the_one_in_the_address() {
        let user = |address: &str, name: Option<&str>, password: Option<&str>| {
            let proxy = Proxy::new(address, name, password).unwrap();
            proxy.user().map(|(name, password)| format!("{name}|{password}"))
        };
        let plain = "http://p:1";
        assert_eq!(user(plain, None, None), None);
        assert_eq!(user(plain, None, Some("alone")), None);
        assert_eq!(user(plain, Some(""), Some("alone")), None);
        assert_eq!(user(plain, Some("u"), None).unwrap(), "u|");
        assert_eq!(user("http://a%40:b%3A@p:1", None, None).unwrap(), "a@|b:");
        assert_eq!(user("http://a:b@p:1", None, Some("c")).unwrap(), "a|b");
        assert_eq!(user("http://a:b@p:1", Some("u"), Some("c")).unwrap(), "u|c");
        assert_eq!(user("http://a:b@p:1", Some("u"), None).unwrap(), "u|");
    }

    #[test]
    fn an_invalid_proxy_is_rejected_without_its_secrets() {
        let refusal = |address: &str| Proxy::new(address, None, None).unwrap_err().to_string();
        assert_eq!(refusal(""), "it is missing or empty");
        assert_eq!(
            refusal(&format!("http://{}", "a".repeat(2042))),
            "the address has 2049 bytes, more than the 2048 that it may have"
        );
        assert_eq!(
            refusal("ftp://u:secret@p"),
            "the address 'ftp://u:***@p/' has the scheme 'ftp': it must be http, https or socks5"
        );
        for nonsense in ["proxy", "http://", "http://u:secret@:x", "socks5://"] {
            let text = refusal(nonsense);
            assert!(text.contains("is not a URL"), "{text}");
            assert!(!text.contains("secret"), "{text}");
        }
        let long = "x".repeat(256);
        assert_eq!(
            Proxy::new("socks5://p", Some(&long), None),
            Err(ProxyError::LongUser)
        );
        assert!(Proxy::new("http://p", Some(&long), None).is_ok());
    }

    #[test]
    fn the_header_is_for_http_only_and_is_not_logged() {
        let header = |address: &str| Proxy::new(address, Some("u"), Some("p")).unwrap().authorization();
        let shown = header("http://p").unwrap();
        assert_eq!(shown.to_str().unwrap(), "Basic dTpw");
        assert_eq!(format!("{shown:?}"), "Sensitive");
        assert_eq!(header("socks5://p"), None);
    }

    proptest! {
        #[test]
        fn any_address_is_parsed(address in "\\PC{0,60}", name in "\\PC{0,300}") {
            if let Ok(proxy) = Proxy::new(&address, Some(&name), Some(&name)) {
                let _ = (format!("{proxy:?}"), proxy.authorization());
            }
        }
    }
}
