//! Opens connections, directly or through a proxy.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ::http::header::{HOST, PROXY_AUTHORIZATION, USER_AGENT};
use ::http::{HeaderValue, Request, StatusCode, Uri};
use bytes::Bytes;
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower::Service;

use super::proxy::{Proxy, ProxyKind};
use super::socks::{self, SocksError};
use super::{Route, Settings};
use crate::failure::chain;

/// A connection could not be opened. Messages contain the proxy without its password.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The server cannot be reached.
    #[error("{0}")]
    Server(String),
    /// The proxy cannot be reached.
    #[error("cannot reach the proxy {proxy}: {why}")]
    Proxy {
        /// The proxy.
        proxy: String,
        /// Chain of causes.
        why: String,
    },
    /// The proxy did not respond in time.
    #[error("the proxy {proxy} opened no connection to {target} within {limit:?}")]
    TimedOut {
        /// The proxy.
        proxy: String,
        /// The target.
        target: String,
        /// The timeout.
        limit: Duration,
    },
    /// The proxy requires authentication.
    #[error(
        "the proxy {proxy} requires a username and a password, or rejects the given ones (HTTP status 407)"
    )]
    User {
        /// The proxy.
        proxy: String,
    },
    /// The proxy refuses the connection.
    #[error("the proxy {proxy} refuses a connection to {target}: {why}")]
    Refused {
        /// The proxy.
        proxy: String,
        /// The target.
        target: String,
        /// Reason given by the proxy.
        why: String,
    },
    /// The proxy supports HTTP only.
    #[error("the proxy {proxy} cannot carry this connection: only a socks5 proxy can")]
    Unsuitable {
        /// The proxy.
        proxy: String,
    },
}

impl DialError {
    fn unreachable(proxy: &Proxy, why: String) -> Self {
        let proxy = proxy.to_string();
        Self::Proxy { proxy, why }
    }

    fn refused(proxy: &Proxy, target: &Target, why: String) -> Self {
        let (proxy, target) = (proxy.to_string(), target.to_string());
        Self::Refused { proxy, target, why }
    }
}

/// Opens a connection through a SOCKS proxy, which resolves the name. Reads nothing that the server sends.
///
/// # Errors
/// The proxy is not a SOCKS proxy, cannot be reached, does not respond within `limit`, or refuses the connection.
pub async fn connect(proxy: &Proxy, host: &str, port: u16, limit: Duration) -> Result<TcpStream, DialError> {
    if proxy.kind() != ProxyKind::Socks5 {
        return Err(DialError::Unsuitable {
            proxy: proxy.to_string(),
        });
    }
    let target = Target {
        host: host.to_owned(),
        port,
    };
    let opening = async {
        let mut stream = reach(proxy, &mut tcp(limit)).await?;
        greet_socks(&mut stream, proxy, &target).await?;
        Ok(stream)
    };
    within(limit, proxy, &target, opening).await
}

/// Host and port of a server; an IPv6 address is in brackets.
struct Target {
    host: String,
    port: u16,
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Opens connections for a client.
#[derive(Clone)]
pub struct Dialer {
    tcp: HttpConnector,
    route: Route,
    limit: Duration,
    /// For TLS to a proxy: the client's authorities, without its certificate, which is for servers only.
    to_proxy: Arc<ClientConfig>,
}

impl Dialer {
    /// Creates a dialer from the settings; `to_proxy` is for TLS to a proxy.
    pub(super) fn new(settings: &Settings, to_proxy: Arc<ClientConfig>) -> Self {
        Self {
            tcp: tcp(settings.connect_timeout),
            route: settings.route.clone(),
            limit: settings.connect_timeout,
            to_proxy,
        }
    }

    async fn dial(mut self, uri: Uri) -> Result<Dialed, DialError> {
        let Some(proxy) = self.route.proxy(&uri) else {
            let stream = self.tcp.call(uri).await;
            let stream = stream.map_err(|error| DialError::Server(chain(&error)))?;
            return Ok(Dialed::new(stream.into_inner(), false));
        };
        let is_tls = uri.scheme_str() == Some("https");
        let target = Target {
            host: uri.host().unwrap_or_default().to_owned(),
            port: uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 }),
        };
        within(self.limit, &proxy, &target, async {
            let mut stream = reach(&proxy, &mut self.tcp).await?;
            match (proxy.kind(), is_tls) {
                (ProxyKind::Socks5, _) => {
                    greet_socks(&mut stream, &proxy, &target).await?;
                    Ok(Dialed::new(stream, false))
                }
                (ProxyKind::Http, true) => Ok(Dialed::new(tunnel(stream, &proxy, &target).await?, false)),
                (ProxyKind::Http, false) => Ok(Dialed::new(stream, true)),
                (ProxyKind::Https, true) => {
                    let stream = self.protect(stream, &proxy).await?;
                    Ok(Dialed::new(tunnel(stream, &proxy, &target).await?, false))
                }
                (ProxyKind::Https, false) => Ok(Dialed::new(self.protect(stream, &proxy).await?, true)),
            }
        })
        .await
    }

    async fn protect(
        &self,
        stream: TcpStream,
        proxy: &Proxy,
    ) -> Result<tokio_rustls::client::TlsStream<TcpStream>, DialError> {
        let failed = |why: String| DialError::unreachable(proxy, why);
        let name = proxy.host().trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(name.to_owned()).map_err(|error| failed(error.to_string()))?;
        let connected = TlsConnector::from(Arc::clone(&self.to_proxy))
            .connect(name, stream)
            .await;
        connected.map_err(|error| failed(chain(&error)))
    }
}

fn tcp(limit: Duration) -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(limit));
    tcp.set_keepalive(Some(Duration::from_secs(30)));
    tcp
}

async fn within<T>(
    limit: Duration,
    proxy: &Proxy,
    target: &Target,
    opening: impl Future<Output = Result<T, DialError>>,
) -> Result<T, DialError> {
    tokio::time::timeout(limit, opening).await.unwrap_or_else(|_| {
        Err(DialError::TimedOut {
            proxy: proxy.to_string(),
            target: target.to_string(),
            limit,
        })
    })
}

async fn reach(proxy: &Proxy, tcp: &mut HttpConnector) -> Result<TcpStream, DialError> {
    let failed = |why: String| DialError::unreachable(proxy, why);
    let address = Uri::try_from(format!("http://{}:{}", proxy.host(), proxy.port()));
    let address = address.map_err(|error| failed(error.to_string()))?;
    let stream = tcp.call(address).await;
    stream
        .map(TokioIo::into_inner)
        .map_err(|error| failed(chain(&error)))
}

async fn greet_socks(stream: &mut TcpStream, proxy: &Proxy, target: &Target) -> Result<(), DialError> {
    let greeted = socks::handshake(stream, proxy.user(), &target.host, target.port).await;
    greeted.map_err(|error: SocksError| DialError::refused(proxy, target, error.to_string()))
}

/// Opens a tunnel with `CONNECT` (RFC 9110 §9.3.6) on `stream`.
async fn tunnel<T>(stream: T, proxy: &Proxy, target: &Target) -> Result<T, DialError>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let refused = |why: String| DialError::refused(proxy, target, why);
    let broken = |error: hyper::Error| refused(chain(&error));
    let request = connect_request(proxy, target).map_err(|error| refused(error.to_string()))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    // Runs until the upgrade, or until this function returns.
    let mut driver = tokio::task::JoinSet::new();
    driver.spawn(connection.with_upgrades());
    let answer = sender.send_request(request).await.map_err(broken)?;
    if answer.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
        return Err(DialError::User {
            proxy: proxy.to_string(),
        });
    }
    if !answer.status().is_success() {
        return Err(refused(format!("HTTP status {}", answer.status().as_u16())));
    }
    let upgraded = hyper::upgrade::on(answer).await.map_err(broken)?;
    let parts = upgraded.downcast::<TokioIo<T>>();
    match parts {
        // In TLS the client speaks first.
        Ok(parts) if parts.read_buf.is_empty() => Ok(parts.io.into_inner()),
        _ => Err(refused(
            "it sent data before the connection to the server was requested".into(),
        )),
    }
}

fn connect_request(proxy: &Proxy, target: &Target) -> Result<Request<Empty<Bytes>>, ::http::Error> {
    let authority = target.to_string();
    let mut request = Request::connect(&authority)
        .header(HOST, &authority)
        .header(USER_AGENT, "sluice");
    if let Some(value) = proxy.authorization() {
        request = request.header(PROXY_AUTHORIZATION, value);
    }
    request.body(Empty::new())
}

/// Returns the `Proxy-Authorization` header of a request itself, which a proxy reads only when it forwards http.
pub(super) fn forwarding(route: &Route, uri: &Uri) -> Option<HeaderValue> {
    if uri.scheme_str() != Some("http") {
        return None;
    }
    route.proxy_ref(uri)?.authorization()
}

impl Service<Uri> for Dialer {
    type Response = Dialed;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<Dialed, DialError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        self.tcp
            .poll_ready(context)
            .map_err(|error| DialError::Server(chain(&error)))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        // The clone is ready as well: name resolution has no readiness of its own.
        Box::pin(self.clone().dial(uri))
    }
}

trait Stream: Read + Write + Unpin + Send {}
impl<T: Read + Write + Unpin + Send> Stream for T {}

/// A connection to a server, or to a proxy that forwards.
pub struct Dialed {
    stream: Box<dyn Stream>,
    is_forwarded: bool,
}

impl Dialed {
    fn new(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, is_forwarded: bool) -> Self {
        Self {
            stream: Box::new(TokioIo::new(stream)),
            is_forwarded,
        }
    }
}

impl std::fmt::Debug for Dialed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dialed")
            .field("is_forwarded", &self.is_forwarded)
            .finish_non_exhaustive()
    }
}

impl Connection for Dialed {
    fn connected(&self) -> Connected {
        // A forwarded request contains the complete URL.
        Connected::new().proxy(self.is_forwarded)
    }
}

impl Read for Dialed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl Write for Dialed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }
}
