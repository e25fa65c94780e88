//! What an object says about TLS: further authorities, and a client certificate.

use std::collections::BTreeMap;
use std::fmt;

use sha2::{Digest as _, Sha256};
use sluice_runtime::http::Identity;

/// TLS terms of one remote. `Debug` shows no certificate and no key.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Tls {
    /// Authorities that are trusted in addition to the system's: a PEM bundle, as the user gave it.
    pub authorities: Vec<u8>,
    /// What the server is shown if it asks for a client certificate.
    pub identity: Option<Identity>,
}

impl Tls {
    /// From a Secret's data: `ca.crt`, else `caFile`; `tls.crt` and `tls.key` if both are there. An empty value is
    /// none.
    #[must_use]
    pub fn of(secret: &BTreeMap<String, Vec<u8>>) -> Self {
        let value = |key: &str| secret.get(key).filter(|value| !value.is_empty()).cloned();
        let identity = value("tls.crt").zip(value("tls.key"));
        Self {
            authorities: value("ca.crt").or_else(|| value("caFile")).unwrap_or_default(),
            identity: identity.map(|(certificate, key)| Identity { certificate, key }),
        }
    }

    /// The same terms for a server that the client certificate is not for.
    #[must_use]
    pub fn without_identity(&self) -> Self {
        Self {
            authorities: self.authorities.clone(),
            identity: None,
        }
    }

    /// Takes what decides who is asking into a digest: the client certificate with its key, which the server checks,
    /// and not the authorities, by which the client checks the server.
    pub(super) fn identify(&self, hash: &mut Sha256) {
        let Some(Identity { certificate, key }) = &self.identity else {
            return;
        };
        hash.update(b"certificate");
        for part in [certificate, key] {
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        }
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

    fn of(pairs: &[(&str, &str)]) -> Tls {
        let data = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()));
        Tls::of(&data.collect())
    }

    #[test]
    fn ca_crt_wins_over_ca_file_unless_it_is_empty() {
        for (pairs, wanted) in [
            (&[][..], ""),
            (&[("ca.crt", "new")], "new"),
            (&[("caFile", "old")], "old"),
            (&[("ca.crt", "new"), ("caFile", "old")], "new"),
            (&[("ca.crt", ""), ("caFile", "old")], "old"),
        ] {
            assert_eq!(of(pairs).authorities, wanted.as_bytes(), "{pairs:?}");
        }
    }

    #[test]
    fn a_client_certificate_is_shown_only_if_both_parts_are_there() {
        let both = [("tls.crt", "certificate"), ("tls.key", "key")];
        assert!(of(&both).identity.is_some());
        for pairs in [
            &both[..1],
            &both[1..],
            &[("tls.crt", "certificate"), ("tls.key", "")],
            &[("certFile", "certificate"), ("keyFile", "key")],
        ] {
            assert_eq!(of(pairs), Tls::default(), "{pairs:?}");
        }
        assert!(of(&both).without_identity().identity.is_none());
    }

    #[test]
    fn nothing_secret_is_printed() {
        let tls = of(&[
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
