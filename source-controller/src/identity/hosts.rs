//! Which hosts may be sent what the controller's own identities are lent. Pure.
//!
//! The author of a GitRepository chooses the URL, and with a Secret the authorities that are trusted there. Without this
//! list that person reads the controller's token at a server of their own.

use std::str::FromStr;

use url::Url;

/// A host, all hosts below a domain, or all hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// `*`: every host, over http too, with whatever authorities the object names.
    Any,
    /// `*.example.org`: the hosts below `example.org`.
    Below(String),
    /// `git.example.org`: this host.
    Exactly(String),
}

/// A text that is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a host name, '*.' and a domain, or '*'")]
pub struct BadPattern;

impl FromStr for HostPattern {
    type Err = BadPattern;

    fn from_str(text: &str) -> Result<Self, BadPattern> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let (below, name) = match text.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, text),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if name.is_empty() || !name.chars().all(plain) || name.starts_with('.') {
            return Err(BadPattern);
        }
        let name = name.to_ascii_lowercase();
        Ok(if below {
            Self::Below(name)
        } else {
            Self::Exactly(name)
        })
    }
}

/// The hosts for the controller's own identities: `--controller-identity-hosts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedHosts(Vec<HostPattern>);

impl Default for TrustedHosts {
    /// Those of Azure DevOps. AWS needs none: only hosts of CodeCommit are ever sent a signature.
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
    /// As the flag's default is written: the hosts that Microsoft serves Azure DevOps at.
    pub const DEFAULT: &str = "dev.azure.com,*.visualstudio.com";

    /// Whether there is no restriction at all.
    #[must_use]
    pub fn are_all(&self) -> bool {
        self.0.contains(&HostPattern::Any)
    }

    /// Whether the host of an address may be sent a token: over https, or without any restriction.
    #[must_use]
    pub fn admit(&self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default();
        let matches = |pattern: &HostPattern| match pattern {
            HostPattern::Any => true,
            HostPattern::Below(domain) => host
                .strip_suffix(domain.as_str())
                .is_some_and(|rest| rest.ends_with('.')),
            HostPattern::Exactly(name) => host == name,
        };
        self.are_all() || url.scheme() == "https" && self.0.iter().any(matches)
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
    fn only_listed_hosts_are_admitted_and_only_over_https() {
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
            assert_eq!(hosts.admit(&url.parse().unwrap()), admitted, "{hosts:?} {url}");
        }
        for bad in ["", "*.", "**", "*.*", "https://h", "h/p", "h:80", ".h", "a b"] {
            assert_eq!(bad.parse::<HostPattern>(), Err(BadPattern), "{bad:?}");
        }
    }
}
