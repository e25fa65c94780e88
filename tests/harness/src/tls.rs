//! A certificate authority for one test: its certificate, and certificates for loopback.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
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
    /// No clients can be verified with it.
    #[error("cannot verify clients: {0}")]
    Verifier(VerifierBuilderError),
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
        self.issue_until(name, group, hosts, None)
    }

    /// The same; with a year, one that ended with the first day of it.
    fn issue_until(
        &self,
        name: &str,
        group: &str,
        hosts: &[&str],
        year: Option<i32>,
    ) -> Result<Identity, CertificateError> {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut wanted = CertificateParams::new(hosts)?;
        wanted.distinguished_name.push(DnType::CommonName, name);
        wanted.distinguished_name.push(DnType::OrganizationName, group);
        wanted.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        wanted.extended_key_usages = vec![
            rcgen::ExtendedKeyUsagePurpose::ServerAuth,
            rcgen::ExtendedKeyUsagePurpose::ClientAuth,
        ];
        if let Some(year) = year {
            wanted.not_before = rcgen::date_time_ymd(year - 1, 1, 1);
            wanted.not_after = rcgen::date_time_ymd(year, 1, 1);
        }
        let key = KeyPair::generate()?;
        let certificate = wanted.signed_by(&key, &self.issuer)?;
        Ok(Identity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            chain: certificate.der().clone(),
            key_der: key.serialize_der(),
        })
    }

    /// Accepts TLS with a new certificate of this authority, on these terms.
    ///
    /// # Errors
    /// When the certificate cannot be made or used.
    pub fn acceptor(&self, terms: &Terms<'_>) -> Result<TlsAcceptor, CertificateError> {
        let year = terms.expired.then_some(2020);
        let identity = self.issue_until("localhost", "tests", terms.hosts, year)?;
        let key = PrivateKeyDer::try_from(identity.key_der).map_err(CertificateError::Key)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let config = match self.client_verifier(terms.clients, provider)? {
            Some(verifier) => config.with_client_cert_verifier(verifier),
            None => config.with_no_client_auth(),
        };
        let mut config = config.with_single_cert(vec![identity.chain], key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        if terms.http2 {
            config.alpn_protocols.insert(0, b"h2".to_vec());
        }
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    fn client_verifier(
        &self,
        clients: Clients,
        provider: Arc<CryptoProvider>,
    ) -> Result<Option<Arc<dyn ClientCertVerifier>>, CertificateError> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone())?;
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = match clients {
            Clients::Ignored => return Ok(None),
            Clients::Asked => builder.allow_unauthenticated().build(),
            Clients::Required => builder.build(),
        };
        verifier.map(Some).map_err(CertificateError::Verifier)
    }
}

/// On what terms a server speaks TLS.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// Names and addresses in its certificate.
    pub hosts: &'a [&'a str],
    /// Whether its certificate ended years ago.
    pub expired: bool,
    /// What it wants to see of clients.
    pub clients: Clients,
    /// Whether it offers HTTP/2 beside HTTP/1.1.
    pub http2: bool,
}

impl Default for Terms<'_> {
    fn default() -> Self {
        Self {
            hosts: &["localhost", "127.0.0.1"],
            expired: false,
            clients: Clients::Ignored,
            http2: true,
        }
    }
}

/// Whether a server wants certificates of clients, of its own authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// No.
    Ignored,
    /// It takes note of them.
    Asked,
    /// Without one there is no connection.
    Required,
}
