//! TLS settings of a client: trusted authorities and the client certificate.

use std::fmt;
use std::sync::{Arc, LazyLock};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::Settings;

/// A client cannot be created from the settings.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Setup(#[from] rustls::Error),
    /// The client certificate is invalid.
    #[error("the client certificate cannot be used: {0}")]
    Identity(String),
}

/// A client certificate with its key, as PEM. `Debug` shows neither.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The certificate and its chain.
    pub certificate: Vec<u8>,
    /// Its private key: PKCS #8, PKCS #1 or SEC1.
    pub key: Vec<u8>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity(***)")
    }
}

/// Installs `ring` as the process's default TLS provider. Further calls have no effect.
pub fn install_crypto() {
    // An error means that a provider is already installed.
    let _installed_before = rustls::crypto::ring::default_provider().install_default();
}

/// Returns the certificates in a PEM bundle; ignores other content, as Go does.
#[must_use]
pub fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem)
        .filter_map(Result::ok)
        .collect()
}

/// Creates the TLS configuration of a client with roots and client certificate. The connector negotiates HTTP/1.1 or HTTP/2.
/// Ignores invalid extra roots.
///
/// # Errors
/// The client certificate is invalid, or TLS cannot be set up.
pub fn tls(settings: &Settings) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots(settings));
    let Some(identity) = &settings.identity else {
        return Ok(config.with_no_client_auth());
    };
    let unusable = |what: &str| TlsError::Identity(what.to_owned());
    let chain = certificates(&identity.certificate);
    if chain.is_empty() {
        return Err(unusable("no certificate in PEM form"));
    }
    // The parser's error could contain the key.
    let key = PrivateKeyDer::from_pem_slice(&identity.key)
        .map_err(|_| unusable("no private key in PEM form without encryption"))?;
    config
        .with_client_auth_cert(chain, key)
        .map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => unusable("the private key does not match the certificate"),
            other => unusable(&other.to_string()),
        })
}

/// Returns the trusted authorities. Clients without their own share those of the system, which take about 100 KiB.
fn roots(settings: &Settings) -> Arc<RootCertStore> {
    if settings.system_roots && settings.extra_roots.is_empty() {
        return SYSTEM.clone();
    }
    let mut roots = if settings.system_roots {
        RootCertStore::clone(&SYSTEM)
    } else {
        RootCertStore::empty()
    };
    let (_, unusable) = roots.add_parsable_certificates(settings.extra_roots.iter().cloned());
    if unusable > 0 {
        tracing::debug!(unusable, "invalid certificates of authorities are ignored");
    }
    Arc::new(roots)
}

/// The operating system's authorities, read once.
static SYSTEM: LazyLock<Arc<RootCertStore>> = LazyLock::new(|| {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::debug!(
            error = error as &dyn std::error::Error,
            "system certificates not readable"
        );
    }
    let mut roots = RootCertStore::empty();
    // Single invalid certificates are common in system stores.
    roots.add_parsable_certificates(found.certs);
    Arc::new(roots)
});

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(vec!["me".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    fn with(certificate: &str, key: &str) -> Result<(), String> {
        let settings = Settings {
            system_roots: false,
            identity: Some(Identity {
                certificate: certificate.into(),
                key: key.into(),
            }),
            ..Settings::default()
        };
        tls(&settings).map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn clients_share_the_authorities_of_the_system() {
        let (first, second) = (roots(&Settings::default()), roots(&Settings::default()));
        assert!(Arc::ptr_eq(&first, &second));
        let own = Settings {
            extra_roots: certificates(made().0.as_bytes()),
            ..Settings::default()
        };
        assert_eq!(roots(&own).len(), first.len() + 1);
    }

    #[test]
    fn a_client_certificate_needs_its_own_key() {
        let ((certificate, key), (_, other)) = (made(), made());
        assert_eq!(with(&certificate, &key), Ok(()));
        for (certificate, key, why) in [
            (
                &*certificate,
                &*other,
                "the private key does not match the certificate",
            ),
            (
                &certificate,
                "nonsense",
                "no private key in PEM form without encryption",
            ),
            ("nonsense", &key, "no certificate in PEM form"),
            ("", "", "no certificate in PEM form"),
        ] {
            let text = with(certificate, key).unwrap_err();
            assert_eq!(text, format!("the client certificate cannot be used: {why}"));
        }
    }

    #[test]
    fn a_bundle_yields_only_its_certificates() {
        let (one, key) = made();
        let (two, _) = made();
        let broken = "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n";
        let bundle = format!("a comment\n{one}{key}\n{two}");
        assert_eq!(certificates(bundle.as_bytes()).len(), 2);
        assert!(certificates(broken.as_bytes()).is_empty());
        assert!(certificates(b"\xff\x00nonsense").is_empty());
        let settings = Settings {
            extra_roots: vec![CertificateDer::from(vec![1, 2, 3])],
            system_roots: false,
            ..Settings::default()
        };
        assert!(roots(&settings).is_empty());
    }

    #[test]
    fn an_identity_prints_nothing() {
        let (certificate, key) = made();
        let identity = Identity {
            certificate: certificate.into(),
            key: key.into(),
        };
        assert_eq!(format!("{identity:?}"), "Identity(***)");
    }
}
