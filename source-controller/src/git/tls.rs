//! TLS settings of an object: additional authorities and a client certificate.

use std::collections::BTreeMap;
use std::fmt;

use sha2::{Digest as _, Sha256};
use sluice_runtime::http::Identity;

use super::credentials::hash_parts;

/// TLS settings of one remote. `Debug` shows no certificate and no key.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Tls {
    /// Authorities trusted in addition to the system's: a PEM bundle, as the user provided it.
    pub authorities: Vec<u8>,
    /// Client certificate for servers that request one.
    pub identity: Option<Identity>,
}

impl Tls {
    /// Reads a Secret's data: `ca.crt`, else `caFile`; `tls.crt` and `tls.key` if both exist. An empty value counts as
    /// absent.
    #[must_use]
    pub(crate) fn from_secret(secret: &BTreeMap<String, Vec<u8>>) -> Self {
        let value = |key: &str| secret.get(key).filter(|value| !value.is_empty()).cloned();
        let identity = value("tls.crt").zip(value("tls.key"));
        Self {
            authorities: value("ca.crt").or_else(|| value("caFile")).unwrap_or_default(),
            identity: identity.map(|(certificate, key)| Identity { certificate, key }),
        }
    }

    /// Returns the same settings without the client certificate, for another server.
    #[must_use]
    pub fn without_identity(&self) -> Self {
        Self {
            authorities: self.authorities.clone(),
            identity: None,
        }
    }

    /// Adds the client certificate and its key to a digest. The authorities are not part of it: they identify the
    /// server, not the client.
    pub(super) fn hash_identity(&self, hash: &mut Sha256) {
        let Some(Identity { certificate, key }) = &self.identity else {
            return;
        };
        hash.update(b"certificate");
        hash_parts(hash, [certificate, key]);
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("authorities", &format_args!("{} bytes", self.authorities.len()))
            .field("identity", &self.identity)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_pairs(pairs: &[(&str, &str)]) -> Tls {
        let data = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()));
        Tls::from_secret(&data.collect())
    }

    #[test]
    fn ca_crt_takes_precedence_over_ca_file_unless_it_is_empty() {
        for (pairs, expected) in [
            (&[][..], ""),
            (&[("ca.crt", "new")], "new"),
            (&[("caFile", "old")], "old"),
            (&[("ca.crt", "new"), ("caFile", "old")], "new"),
            (&[("ca.crt", ""), ("caFile", "old")], "old"),
        ] {
            assert_eq!(from_pairs(pairs).authorities, expected.as_bytes(), "{pairs:?}");
        }
    }

    #[test]
    fn a_client_certificate_needs_certificate_and_key() {
        let both = [("tls.crt", "certificate"), ("tls.key", "key")];
        assert!(from_pairs(&both).identity.is_some());
        for pairs in [
            &both[..1],
            &both[1..],
            &[("tls.crt", "certificate"), ("tls.key", "")],
            &[("certFile", "certificate"), ("keyFile", "key")],
        ] {
            assert_eq!(from_pairs(pairs), Tls::default(), "{pairs:?}");
        }
        assert!(from_pairs(&both).without_identity().identity.is_none());
    }

    #[test]
    fn secrets_are_not_printed() {
        let tls = from_pairs(&[
            ("ca.crt", "bundle"),
            ("tls.crt", "certificate"),
            ("tls.key", "key"),
        ]);
        assert_eq!(
            format!("{tls:?}"),
            "Tls { authorities: 6 bytes, identity: Some(Identity(***)) }"
        );
    }
}
