//! The address at which consumers reach the file server.

use sluice_runtime::redact::Secret;

use super::ArtifactPath;
use super::path::KIND;

/// The bind address has no port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("storage address {0:?} has no port: it must have the form host:port")]
pub struct AddressError(pub String);

/// Returns the advertised address: `adv_addr`, or one derived from the bind address, with `localhost` for an empty host
/// and `hostname` for `0.0.0.0`.
///
/// # Errors
/// The bind address has no port.
pub fn advertised_address(adv_addr: &str, bind: &str, hostname: &str) -> Result<String, AddressError> {
    if !adv_addr.is_empty() {
        return Ok(adv_addr.to_owned());
    }
    let (host, port) = bind
        .rsplit_once(':')
        .ok_or_else(|| AddressError(bind.to_owned()))?;
    if port.parse::<u16>().is_err() {
        return Err(AddressError(bind.to_owned()));
    }
    Ok(match host {
        "" => format!("localhost:{port}"),
        "0.0.0.0" => format!("{hostname}:{port}"),
        host => format!("{host}:{port}"),
    })
}

/// Query parameter with the token in artifact URLs. Messages mask its value.
pub(crate) const TOKEN_PARAMETER: &str = "token";

/// The advertised address and the optional token in artifact URLs.
#[derive(Clone, Debug)]
pub struct AdvertisedAddress {
    address: String,
    token: Option<Secret<String>>,
}

impl AdvertisedAddress {
    /// Creates the address, `host[:port]` or with a scheme, and the optional token.
    #[must_use]
    pub const fn new(address: String, token: Option<Secret<String>>) -> Self {
        Self { address, token }
    }

    /// Returns the URL of an artifact, with the token if there is one. Adds `http://` to an address without a scheme.
    pub(super) fn url(&self, path: &ArtifactPath) -> String {
        let address = self.address.trim_end_matches('/');
        let has_scheme = address.starts_with("http://") || address.starts_with("https://");
        let scheme = if has_scheme { "" } else { "http://" };
        let (base, directory) = ([scheme, address].concat(), path.directory());
        let mut url = [
            base.as_str(),
            KIND,
            directory.namespace(),
            directory.name(),
            path.file(),
        ]
        .join("/");
        if let Some(token) = &self.token {
            url.extend(["?", TOKEN_PARAMETER, "=", token.expose().as_str()]);
        }
        url
    }
}

impl From<String> for AdvertisedAddress {
    fn from(address: String) -> Self {
        Self::new(address, None)
    }
}

impl From<&str> for AdvertisedAddress {
    fn from(address: &str) -> Self {
        Self::new(address.to_owned(), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::ObjectDirectory;

    #[test]
    fn the_advertised_address_follows_from_the_bound_one() {
        for (adv, bind, expected) in [
            (
                "sc.ns.svc.cluster.local.",
                ":9090",
                Ok("sc.ns.svc.cluster.local."),
            ),
            ("", ":9090", Ok("localhost:9090")),
            ("", "0.0.0.0:9090", Ok("pod-1:9090")),
            ("", "127.0.0.1:80", Ok("127.0.0.1:80")),
            ("", "[::1]:80", Ok("[::1]:80")),
            ("", "nonsense", Err(AddressError("nonsense".into()))),
            ("", "host:port", Err(AddressError("host:port".into()))),
        ] {
            assert_eq!(
                advertised_address(adv, bind, "pod-1"),
                expected.map(str::to_owned),
                "{adv} {bind}"
            );
        }
    }

    #[test]
    fn a_url_has_one_scheme_and_one_slash() {
        let path = ObjectDirectory::git_repository("ns", "n")
            .unwrap()
            .artifact("ab")
            .unwrap();
        for (address, expected) in [
            ("host.", "http://host./gitrepository/ns/n/ab.tar.gz"),
            ("https://host/", "https://host/gitrepository/ns/n/ab.tar.gz"),
            ("http://host:1", "http://host:1/gitrepository/ns/n/ab.tar.gz"),
        ] {
            assert_eq!(AdvertisedAddress::from(address).url(&path), expected);
        }
        let expected = "http://host:1/gitrepository/ns/n/ab.tar.gz?token=0a";
        let with_token = AdvertisedAddress::new("host:1".into(), Some("0a".to_owned().into()));
        assert_eq!(with_token.url(&path), expected);
    }
}
