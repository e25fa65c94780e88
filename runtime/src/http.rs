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

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http_body_util::{BodyExt as _, Empty, Full};
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use rustls::pki_types::PrivateKeyDer;
    use std::convert::Infallible;
    use std::sync::Arc;

    /// A TLS server whose certificate only its own authority knows; gives its URL and that authority.
    async fn serve() -> (String, CertificateDer<'static>) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (certificate, key) = (
            made.cert.der().clone(),
            PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into()),
        );
        let config =
            rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![certificate.clone()], key)
                .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(stream) = acceptor.accept(stream).await else {
                    continue;
                };
                let service = service_fn(|_| async {
                    Ok::<_, Infallible>(::http::Response::new(Full::new(Bytes::from("hello"))))
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        (format!("https://localhost:{port}/"), certificate)
    }

    async fn get(settings: &Settings, url: &str) -> Result<Bytes, String> {
        let request = client::<Empty<Bytes>>(settings)
            .unwrap()
            .get(url.parse().unwrap());
        let answer = tokio::time::timeout(Duration::from_secs(30), request)
            .await
            .unwrap();
        let answer = answer.map_err(|error| crate::failure::chain(&error))?;
        Ok(answer.into_body().collect().await.unwrap().to_bytes())
    }

    #[tokio::test]
    async fn only_known_authorities_are_trusted() {
        let (url, authority) = serve().await;
        let closed = Settings {
            system_roots: false,
            ..Settings::default()
        };
        let refused = get(&closed, &url).await.unwrap_err();
        assert!(refused.contains("certificate"), "{refused}");
        let open = Settings {
            extra_roots: vec![authority],
            ..closed
        };
        assert_eq!(get(&open, &url).await.unwrap(), "hello");
    }

    #[test]
    fn a_root_that_is_no_certificate_is_refused() {
        let settings = Settings {
            extra_roots: vec![CertificateDer::from(vec![1, 2, 3])],
            ..Settings::default()
        };
        assert!(tls(&settings).is_err());
    }
}
