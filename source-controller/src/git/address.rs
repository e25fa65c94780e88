//! The address of a remote, with its userinfo taken out so that it can be shown.

use std::fmt;

use percent_encoding::percent_decode_str;
use sluice_runtime::redact::MaskedUrl;
use url::Url;

/// An http or https address. It prints without name and password.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    url: Url,
    username: String,
    password: String,
}

/// A text that is no address of a remote.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// No URL at all.
    #[error("failed to parse url '{url}': {why}")]
    Invalid {
        /// The text, its secrets masked.
        url: MaskedUrl,
        /// What is wrong with it.
        why: String,
    },
    /// A transport that is not built yet.
    #[error("url '{url}': the scheme '{scheme}' is not supported yet")]
    Unsupported {
        /// The text, its secrets masked.
        url: MaskedUrl,
        /// Its scheme.
        scheme: String,
    },
}

impl Address {
    /// Reads `spec.url`.
    ///
    /// # Errors
    /// The text is no URL, has no host, or has a scheme other than http and https.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let invalid = |why: String| AddressError::Invalid {
            url: MaskedUrl::new(text),
            why,
        };
        let mut url = Url::parse(text).map_err(|error| invalid(error.to_string()))?;
        match url.scheme() {
            "http" | "https" => {}
            "ssh" => {
                return Err(AddressError::Unsupported {
                    url: MaskedUrl::new(text),
                    scheme: "ssh".into(),
                });
            }
            other => return Err(invalid(format!("unknown scheme '{other}'"))),
        }
        let decode = |part: &str| percent_decode_str(part).decode_utf8_lossy().into_owned();
        let (username, password) = (decode(url.username()), decode(url.password().unwrap_or_default()));
        let cleared = url.set_username("").and_then(|()| url.set_password(None));
        cleared.map_err(|()| invalid("no host".into()))?;
        url.set_fragment(None);
        Ok(Self {
            url,
            username,
            password,
        })
    }

    /// The address without userinfo.
    #[must_use]
    pub const fn url(&self) -> &Url {
        &self.url
    }

    /// Host and, where the address names one, port.
    #[must_use]
    pub fn host(&self) -> String {
        host(&self.url)
    }

    pub(super) fn username(&self) -> &str {
        &self.username
    }

    pub(super) fn password(&self) -> &str {
        &self.password
    }
}

/// Host and port as written in a URL.
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
    fn userinfo_is_taken_out() {
        let address = Address::parse("https://u%40x:p@example.org:8443/a/b.git").unwrap();
        assert_eq!((address.username(), address.password()), ("u@x", "p"));
        assert_eq!(
            format!("{address} {address:?}"),
            "https://example.org:8443/a/b.git https://example.org:8443/a/b.git"
        );
        assert_eq!(address.host(), "example.org:8443");
    }

    #[test]
    fn what_is_no_address_is_named_without_its_secrets() {
        let text = |url: &str| Address::parse(url).unwrap_err().to_string();
        assert_eq!(
            text("https://user:pw@:x/"),
            "failed to parse url 'https://user:***@:x/': empty host"
        );
        assert!(text("http://").contains("empty host"));
        assert!(text("nonsense").contains("failed to parse url 'nonsense'"));
        assert!(text("ftp://h/x").contains("unknown scheme 'ftp'"));
        assert_eq!(
            Address::parse("ssh://git@h/x").unwrap_err().reason(),
            "UnsupportedField"
        );
        assert_eq!(Address::parse("http://").unwrap_err().reason(), "URLInvalid");
    }
}
