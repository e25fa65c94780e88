//! The one HTTP client of a program: pooled connections, rustls with the system's roots, explicit timeouts.

use std::time::Duration;

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};

/// A pooled client for `http` and `https` with request bodies `B`.
pub type HttpClient<B> = Client<HttpsConnector<HttpConnector>, B>;

/// How connections are made and kept.
#[derive(Clone, Debug)]
pub struct Settings {
    /// To open a connection, name lookup included, TLS excluded.
    pub connect_timeout: Duration,
    /// How long an unused connection is kept.
    pub idle_timeout: Duration,
    /// Unused connections kept per host.
    pub idle_per_host: usize,
    /// Certificate authorities trusted in addition to the system's (DER).
    pub extra_roots: Vec<CertificateDer<'static>>,
    /// Whether the system's authorities are trusted; off when an object names its own (`ca.crt`).
    pub system_roots: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            idle_per_host: 8,
            extra_roots: Vec::new(),
            system_roots: true,
        }
    }
}

/// A client cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Setup(#[from] rustls::Error),
}

/// Makes `ring` the process's cryptography, so that crates which leave the choice open agree. Calling it again is
/// harmless.
pub fn install_crypto() {
    // An error says that a provider is installed already.
    let _installed_before = rustls::crypto::ring::default_provider().install_default();
}

/// The TLS side of a client: roots as the settings say, HTTP/1.1 and HTTP/2 negotiated by the connector.
///
/// # Errors
/// An extra root is no certificate, or TLS cannot be set up.
pub fn tls(settings: &Settings) -> Result<ClientConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    if settings.system_roots {
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::debug!(
                error = error as &dyn std::error::Error,
                "system certificates not readable"
            );
        }
        // Single unusable ones are common in system stores and no reason to fail.
        roots.add_parsable_certificates(found.certs);
    }
    for certificate in &settings.extra_roots {
        roots.add(certificate.clone())?;
    }
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

/// Builds a client. Requests have no time limit of their own here: each caller bounds its calls.
///
/// # Errors
/// As [`tls`].
pub fn client<B>(settings: &Settings) -> Result<HttpClient<B>, TlsError>
where
    B: http_body::Body + Send,
    B::Data: Send,
{
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(settings.connect_timeout));
    tcp.set_keepalive(Some(Duration::from_secs(30)));
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls(settings)?)
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(tcp);
    Ok(Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(settings.idle_timeout)
        .pool_max_idle_per_host(settings.idle_per_host)
        .build(connector))
}
