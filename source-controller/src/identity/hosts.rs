//! The hosts that may receive tokens of the controller's own identities. Pure.
//!
//! The author of a GitRepository chooses the URL and, with a Secret, the trusted CA. Without this list, an author could
//! receive the controller's token at their own server.

use std::str::FromStr;

use url::Url;

/// A host, the subdomains of a domain, or all hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// `*`: every host, also over http and with a custom CA.
    Any,
    /// `*.example.org`: the subdomains of `example.org`.
    Subdomains(String),
    /// `git.example.org`: this host.
    Exact(String),
}

/// An invalid host pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a host name, '*.' and a domain, or '*'")]
pub struct InvalidHostPattern;

impl FromStr for HostPattern {
    type Err = InvalidHostPattern;

    fn from_str(text: &str) -> Result<Self, InvalidHostPattern> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let domain = text.strip_prefix("*.");
        let name = domain.unwrap_or(text);
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if name.is_empty() || !name.chars().all(plain) || name.starts_with('.') {
            return Err(InvalidHostPattern);
        }
        let name = name.to_ascii_lowercase();
        Ok(match domain {
            Some(_) => Self::Subdomains(name),
            None => Self::Exact(name),
        })
    }
}

/// The hosts allowed for the controller's own identities: `--controller-identity-hosts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedHosts(Vec<HostPattern>);

impl Default for TrustedHosts {
    /// Returns the hosts of Azure DevOps. AWS needs none, since signatures are only sent to CodeCommit.
    fn default() -> Self {
        let patterns = Self::DEFAULT.split(',');
        Self(patterns.filter_map(|text| text.parse().ok()).collect())
    }
}

impl From<Vec<HostPattern>> for TrustedHosts {
    fn from(patterns: Vec<HostPattern>) -> Self {
        Self(patterns)
    }
}

impl TrustedHosts {
    /// Default of the flag: the hosts of Azure DevOps.
    pub const DEFAULT: &str = "dev.azure.com,*.visualstudio.com";

    /// Returns whether all hosts are allowed.
    #[must_use]
    pub fn allow_all(&self) -> bool {
        self.0.contains(&HostPattern::Any)
    }

    /// Returns whether a token may be sent to a URL: its host is listed and uses https, or all hosts are allowed.
    #[must_use]
    pub fn allows(&self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default();
        let matches = |pattern: &HostPattern| match pattern {
            HostPattern::Any => true,
            HostPattern::Subdomains(domain) => host
                .strip_suffix(domain.as_str())
                .is_some_and(|rest| rest.ends_with('.')),
            HostPattern::Exact(name) => host == name,
        };
        self.allow_all() || url.scheme() == "https" && self.0.iter().any(matches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(patterns: &[&str]) -> TrustedHosts {
        patterns
            .iter()
            .map(|text| text.parse().unwrap())
            .collect::<Vec<_>>()
            .into()
    }

    #[test]
    fn only_listed_hosts_are_allowed_and_only_over_https() {
        let default = TrustedHosts::default();
        assert_eq!(
            default,
            hosts(&TrustedHosts::DEFAULT.split(',').collect::<Vec<_>>())
        );
        for (hosts, url, admitted) in [
            (&default, "https://dev.azure.com/org/p/_git/r", true),
            (&default, "https://DEV.azure.com:443/org", true),
            (&default, "https://org.visualstudio.com/p/_git/r", true),
            (&default, "https://a.org.visualstudio.com/p", true),
            (&default, "https://visualstudio.com/p", false),
            (&default, "https://evilvisualstudio.com/p", false),
            (&default, "https://dev.azure.com.evil.example/r", false),
            (&default, "https://evil.example/dev.azure.com", false),
            (&default, "http://dev.azure.com/org", false),
            (&default, "https://127.0.0.1/r", false),
            (&hosts(&["Git.Example.org"]), "https://git.example.org/r", true),
            (&hosts(&["git.example.org"]), "https://dev.azure.com/r", false),
            (&hosts(&[]), "https://dev.azure.com/r", false),
            (&hosts(&["*"]), "http://127.0.0.1:1/r", true),
        ] {
            assert_eq!(hosts.allows(&url.parse().unwrap()), admitted, "{hosts:?} {url}");
        }
        for bad in ["", "*.", "**", "*.*", "https://h", "h/p", "h:80", ".h", "a b"] {
            assert_eq!(bad.parse::<HostPattern>(), Err(InvalidHostPattern), "{bad:?}");
        }
    }
}
