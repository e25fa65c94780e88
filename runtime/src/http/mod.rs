//! The HTTP client: pooled connections, rustls with the system's roots, proxies, explicit timeouts.
//!
//! [`Settings`] contain the trusted authorities, the client certificate and the route; `dial.rs` opens connections.

mod dial;
mod environment;
mod proxy;
mod socks;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use ::http::header::PROXY_AUTHORIZATION;
use ::http::{Request, Response, Uri};
pub use dial::{DialError, Dialed, Dialer, connect};
pub use environment::{Environment, EnvironmentError};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{Client, Error, ResponseFuture};
use hyper_util::rt::{TokioExecutor, TokioTimer};
pub use proxy::{Proxy, ProxyError, ProxyKind};
use rustls::pki_types::CertificateDer;
pub use socks::{SocksError, handshake as socks_handshake};
pub use tls::{Identity, TlsError, certificates, install_crypto, tls};

/// The route of requests.
#[derive(Clone, Debug, Default)]
pub enum Route {
    /// Directly to the server.
    #[default]
    Direct,
    /// Through this proxy for all servers.
    Through(Arc<Proxy>),
    /// Through the proxy of the environment for each server.
    Environment(Arc<Environment>),
}

impl Route {
    /// Returns the proxy for a request.
    #[must_use]
    pub fn proxy(&self, uri: &Uri) -> Option<Proxy> {
        self.proxy_ref(uri).cloned()
    }

    /// Returns the proxy for a request without a copy.
    fn proxy_ref(&self, uri: &Uri) -> Option<&Proxy> {
        match self {
            Self::Direct => None,
            Self::Through(proxy) => Some(proxy),
            Self::Environment(environment) => {
                environment.choose(uri.scheme_str()?, uri.host()?, uri.port_u16())
            }
        }
    }
}

/// Settings of connections.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Timeout to open a connection, including name resolution and the proxy, without TLS to the server.
    pub connect_timeout: Duration,
    /// How long an idle connection stays in the pool.
    pub idle_timeout: Duration,
    /// Maximum number of idle connections per host.
    pub idle_per_host: usize,
    /// Trusted certificate authorities (DER) in addition to the system's. Invalid certificates are ignored.
    pub extra_roots: Vec<CertificateDer<'static>>,
    /// Whether to trust the system's authorities.
    pub system_roots: bool,
    /// Client certificate for servers that request one.
    pub identity: Option<Identity>,
    /// The route of requests.
    pub route: Route,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_mins(1),
            idle_per_host: 8,
            extra_roots: Vec::new(),
            system_roots: true,
            identity: None,
            route: Route::Direct,
        }
    }
}

/// A pooled client for `http` and `https` with request bodies `B`. Cheap to clone.
#[derive(Clone, Debug)]
pub struct HttpClient<B> {
    pool: Client<HttpsConnector<Dialer>, B>,
    route: Route,
}

impl<B> HttpClient<B>
where
    B: http_body::Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// Sends a request and returns the response when its head arrives.
    ///
    /// # Errors
    /// The connection could not be opened, or it broke.
    pub fn request(&self, mut request: Request<B>) -> ResponseFuture {
        if let Some(value) = dial::forwarding(&self.route, request.uri()) {
            request.headers_mut().insert(PROXY_AUTHORIZATION, value);
        }
        self.pool.request(request)
    }

    /// Sends a `GET` without a body.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub async fn get(&self, uri: Uri) -> Result<Response<Incoming>, Error>
    where
        B: Default,
    {
        let mut request = Request::new(B::default());
        *request.uri_mut() = uri;
        self.request(request).await
    }
}

/// Creates a client. Requests have no timeout: callers limit their calls.
///
/// # Errors
/// As [`tls()`].
pub fn client<B>(settings: &Settings) -> Result<HttpClient<B>, TlsError>
where
    B: http_body::Body + Send,
    B::Data: Send,
{
    let to_server = tls(settings)?;
    // A proxy does not get the client certificate.
    let to_proxy = match settings.identity {
        None => to_server.clone(),
        Some(_) => tls(&Settings {
            identity: None,
            ..settings.clone()
        })?,
    };
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(to_server)
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(Dialer::new(settings, Arc::new(to_proxy)));
    let pool = Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(settings.idle_timeout)
        .pool_max_idle_per_host(settings.idle_per_host)
        .build(connector);
    Ok(HttpClient {
        pool,
        route: settings.route.clone(),
    })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use bytes::Bytes;
    use http_body_util::{BodyExt as _, Empty, Full};
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use rustls::pki_types::PrivateKeyDer;

    use super::*;

    /// Starts a TLS server with a private authority; returns its URL and the authority.
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
        let client = client::<Empty<Bytes>>(settings).unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(30), client.get(url.parse().unwrap()))
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
}
