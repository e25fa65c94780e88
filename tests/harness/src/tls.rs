//! A certificate authority for one test, with certificates for loopback.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::TlsAcceptor;

/// Why a certificate could not be created or used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// It could not be generated.
    #[error("cannot create a certificate: {0}")]
    Generate(#[from] rcgen::Error),
    /// It was not accepted.
    #[error("cannot serve with the certificate: {0}")]
    Use(#[from] rustls::Error),
    /// It cannot verify clients.
    #[error("cannot verify clients: {0}")]
    Verifier(VerifierBuilderError),
    /// Its key could not be read.
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

/// A certificate authority for one server.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    /// Creates an authority with its own key.
    ///
    /// # Errors
    /// When no key or certificate can be generated.
    pub fn create() -> Result<Self, CertificateError> {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let pem = issuer.pem();
        Ok(Self { issuer, pem })
    }

    /// Returns the authority's own certificate.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Issues a certificate for clients and servers with this common name, organisation, and host names or addresses.
    ///
    /// # Errors
    /// When a host is not a DNS name or address, or no key can be generated.
    pub fn issue(&self, name: &str, group: &str, hosts: &[&str]) -> Result<Identity, CertificateError> {
        self.issue_until(name, group, hosts, None)
    }

    /// As [`Authority::issue`]; with a year, the certificate expired on January 1 of it.
    fn issue_until(
        &self,
        name: &str,
        group: &str,
        hosts: &[&str],
        year: Option<i32>,
    ) -> Result<Identity, CertificateError> {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts)?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, group);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            rcgen::ExtendedKeyUsagePurpose::ServerAuth,
            rcgen::ExtendedKeyUsagePurpose::ClientAuth,
        ];
        if let Some(year) = year {
            params.not_before = rcgen::date_time_ymd(year - 1, 1, 1);
            params.not_after = rcgen::date_time_ymd(year, 1, 1);
        }
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Identity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            chain: certificate.der().clone(),
            key_der: key.serialize_der(),
        })
    }

    /// Accepts TLS connections with a new certificate of this authority.
    ///
    /// # Errors
    /// When the certificate cannot be created or used.
    pub fn acceptor(&self, options: &TlsOptions<'_>) -> Result<TlsAcceptor, CertificateError> {
        let year = options.expired.then_some(2020);
        let identity = self.issue_until("localhost", "tests", options.hosts, year)?;
        let key = PrivateKeyDer::try_from(identity.key_der).map_err(CertificateError::Key)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let config = match self.client_verifier(options.clients, provider)? {
            Some(verifier) => config.with_client_cert_verifier(verifier),
            None => config.with_no_client_auth(),
        };
        let mut config = config.with_single_cert(vec![identity.chain], key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        if options.http2 {
            config.alpn_protocols.insert(0, b"h2".to_vec());
        }
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    fn client_verifier(
        &self,
        clients: ClientCertificates,
        provider: Arc<CryptoProvider>,
    ) -> Result<Option<Arc<dyn ClientCertVerifier>>, CertificateError> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone())?;
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = match clients {
            ClientCertificates::Ignored => return Ok(None),
            ClientCertificates::Optional => builder.allow_unauthenticated().build(),
            ClientCertificates::Required => builder.build(),
        };
        verifier.map(Some).map_err(CertificateError::Verifier)
    }
}

/// TLS settings of a server.
#[derive(Clone, Copy, Debug)]
pub struct TlsOptions<'a> {
    /// Names and addresses in its certificate.
    pub hosts: &'a [&'a str],
    /// Whether its certificate has expired.
    pub expired: bool,
    /// Whether it requests client certificates.
    pub clients: ClientCertificates,
    /// Whether it offers HTTP/2 in addition to HTTP/1.1.
    pub http2: bool,
}

impl Default for TlsOptions<'_> {
    fn default() -> Self {
        Self {
            hosts: &["localhost", "127.0.0.1"],
            expired: false,
            clients: ClientCertificates::Ignored,
            http2: true,
        }
    }
}

/// Whether a server requests client certificates, which its own authority must have issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Not requested.
    Ignored,
    /// Requested, but not required.
    Optional,
    /// Required for a connection.
    Required,
}
