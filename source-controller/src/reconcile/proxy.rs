//! Parses the Secret of `spec.proxySecretRef`.

use std::collections::BTreeMap;

use crate::git::{Proxy, ProxyError};

/// An error in a proxy Secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxySecretError {
    /// The value is not UTF-8.
    #[error("the value of '{0}' is not UTF-8 text")]
    NotText(&'static str),
    /// The address is invalid.
    #[error("key 'address': {0}")]
    Address(#[from] ProxyError),
}

/// Parses a proxy from the keys `address`, `username` and `password`. The latter two override the userinfo of the
/// address.
pub(super) fn proxy(data: &BTreeMap<String, Vec<u8>>) -> Result<Proxy, ProxySecretError> {
    let value = |key: &'static str| match data.get(key) {
        Some(value) => std::str::from_utf8(value).map_err(|_| ProxySecretError::NotText(key)),
        None => Ok(""),
    };
    let (address, username, password) = (value("address")?, value("username")?, value("password")?);
    Ok(Proxy::new(address, Some(username), Some(password))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &[u8])]) -> Result<String, String> {
        let data = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.to_vec()));
        let found = proxy(&data.collect()).map_err(|error| error.to_string())?;
        Ok(format!("{found} {:?}", found.user()))
    }

    #[test]
    fn a_proxy_secret_is_parsed() {
        assert_eq!(of(&[("address", b"http://p:1")]).unwrap(), "http://p:1 None");
        assert_eq!(
            of(&[
                ("address", b"socks5://a:b@p"),
                ("username", b"u"),
                ("password", b"w")
            ])
            .unwrap(),
            r#"socks5://p:1080 Some(("u", "w"))"#
        );
        assert_eq!(
            of(&[("address", b"http://a:b@p:1"), ("password", b"w")]).unwrap(),
            r#"http://p:1 Some(("a", "b"))"#
        );
    }

    #[test]
    fn errors_of_a_proxy_secret_name_the_key() {
        assert_eq!(of(&[]).unwrap_err(), "key 'address': it is missing or empty");
        assert_eq!(
            of(&[("address", b"\xff")]).unwrap_err(),
            "the value of 'address' is not UTF-8 text"
        );
        let scheme = of(&[("address", b"ftp://u:secret@p")]).unwrap_err();
        assert!(scheme.contains("it must be http, https or socks5"), "{scheme}");
        assert!(!scheme.contains("secret"), "{scheme}");
    }
}
