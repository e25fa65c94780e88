//! A certificate authority for one test: its certificate, and certificates for loopback.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// Why no certificate could be made or used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// It could not be generated.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// It was not accepted.
    #[error("cannot serve with the certificate: {0}")]
    Use(#[from] rustls::Error),
    /// Its key could not be read back.
    #[error("cannot use the key: {0}")]
    Key(&'static str),
}

/// A certificate with its key, both as PEM.
#[derive(Debug)]
pub struct Identity {
    /// The certificate, PEM.
    pub certificate: String,
    /// Its private key, PKCS #8 as PEM.
    pub key: String,
    chain: CertificateDer<'static>,
    key_der: Vec<u8>,
}

/// An authority that was made for one server and is known to nobody else.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    /// A new authority with a key of its own.
    ///
    /// # Errors
    /// When no key or certificate can be generated.
    pub fn create() -> Result<Self, CertificateError> {
        let mut wanted = CertificateParams::default();
        wanted
            .distinguished_name
            .push(DnType::CommonName, "test authority");
        wanted.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        wanted.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let issuer = CertifiedIssuer::self_signed(wanted, KeyPair::generate()?)?;
        let pem = issuer.pem();
        Ok(Self { issuer, pem })
    }

    /// The authority's own certificate.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate for both sides of a connection: this common name and organisation, these names or addresses.
    ///
    /// # Errors
    /// When a host is no DNS name or address, or no key can be generated.
    pub fn issue(&self, name: &str, group: &str, hosts: &[&str]) -> Result<Identity, CertificateError> {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut wanted = CertificateParams::new(hosts)?;
        wanted.distinguished_name.push(DnType::CommonName, name);
        wanted.distinguished_name.push(DnType::OrganizationName, group);
        wanted.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        wanted.extended_key_usages = vec![
            rcgen::ExtendedKeyUsagePurpose::ServerAuth,
            rcgen::ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate()?;
        let certificate = wanted.signed_by(&key, &self.issuer)?;
        Ok(Identity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            chain: certificate.der().clone(),
            key_der: key.serialize_der(),
        })
    }

    /// Accepts TLS for loopback with a new certificate of this authority.
    ///
    /// # Errors
    /// When the certificate cannot be made or used.
    pub fn acceptor(&self) -> Result<TlsAcceptor, CertificateError> {
        let identity = self.issue("localhost", "tests", &["localhost", "127.0.0.1"])?;
        let key = PrivateKeyDer::try_from(identity.key_der).map_err(CertificateError::Key)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![identity.chain], key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}
