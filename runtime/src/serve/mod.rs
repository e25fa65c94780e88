//! A small HTTP server for probes and metrics.

mod connections;

use std::convert::Infallible;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
pub use connections::{ConnectionLimit, ConnectionSlot, ResponseGuard};
use http::{Method, Request, Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::shutdown::Token;

/// A listen address in Go's syntax: `:8080` means all interfaces; `0` or an empty text disables the listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// Do not listen.
    Disabled,
    /// This port on all addresses.
    AllInterfaces(u16),
    /// `host:port`; the host may be a name.
    HostPort(String),
}

impl std::str::FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if matches!(text, "" | "0") {
            return Ok(Self::Disabled);
        }
        let port = |text: &str| text.parse::<u16>().map_err(|_| format!("{text:?} is not a port"));
        match text.rsplit_once(':') {
            None => Err("expected host:port or :port".to_owned()),
            Some(("", digits)) => port(digits).map(Self::AllInterfaces),
            Some((_, digits)) => port(digits).map(|_| Self::HostPort(text.to_owned())),
        }
    }
}

/// Opens the listener; `None` for [`ListenAddress::Disabled`].
///
/// # Errors
/// The address is in use, not local, or its name cannot be resolved.
pub async fn listen(address: &ListenAddress) -> std::io::Result<Option<TcpListener>> {
    match address {
        ListenAddress::Disabled => Ok(None),
        ListenAddress::HostPort(text) => TcpListener::bind(text).await.map(Some),
        // Both address families where the machine supports them.
        ListenAddress::AllInterfaces(port) => {
            match TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, *port))).await {
                Ok(listener) => Ok(Some(listener)),
                Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => Err(error),
                Err(_) => TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, *port)))
                    .await
                    .map(Some),
            }
        }
    }
}

/// A response page.
#[derive(Clone, Debug)]
pub struct Page {
    /// Its status.
    pub status: StatusCode,
    /// Its content type.
    pub content_type: &'static str,
    /// Its content, in parts that are sent one after the other.
    pub body: Vec<String>,
}

impl Page {
    /// Creates a plain text page.
    pub fn text(status: StatusCode, body: impl Into<String>) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            body: vec![body.into()],
        }
    }
}

/// Maximum number of connections; these endpoints have few clients. A probe evicts the connection that has been idle
/// longest.
const CONNECTIONS: usize = 64;

/// Serves the page of `page(path)` for `GET` and `HEAD`, or 404 without a page, until `stop`.
pub async fn serve<F>(listener: TcpListener, page: impl Fn(&str) -> F + Send + Sync + 'static, stop: Token)
where
    F: Future<Output = Option<Page>> + Send + 'static,
{
    let page = Arc::new(page);
    let limit = ConnectionLimit::new(CONNECTIONS);
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let stream = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        let (page, slot) = (Arc::clone(&page), limit.admit());
        let used = slot.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let answering = used.begin_response();
            let (method, page) = (request.method().clone(), page(request.uri().path()));
            async move {
                let response = answer(&method, page).await;
                drop(answering);
                Ok::<_, Infallible>(response)
            }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(Duration::from_secs(10))
            .serve_connection(TokioIo::new(stream), service);
        connections.spawn(async move {
            tokio::select! {
                // Errors of the client's connection are ignored.
                ended = tokio::time::timeout(Duration::from_mins(5), connection) => drop(ended),
                () = slot.evicted() => {}
            }
        });
    }
}

async fn answer(method: &Method, page: impl Future<Output = Option<Page>> + Send) -> Response<PageBody> {
    let page = if matches!(*method, Method::GET | Method::HEAD) {
        let found = page.await;
        found.unwrap_or_else(|| Page::text(StatusCode::NOT_FOUND, "not found\n"))
    } else {
        Page::text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n")
    };
    let mut response = Response::new(PageBody(page.body.into_iter()));
    *response.status_mut() = page.status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static(page.content_type),
    );
    response
}

/// The rest of a page.
struct PageBody(std::vec::IntoIter<String>);

impl Body for PageBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.next().map(|part| Ok(Frame::data(Bytes::from(part)))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_slice().is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_slice().iter().map(|part| part.len() as u64).sum())
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use http_body_util::{BodyExt as _, Empty};

    use super::*;

    #[test]
    fn addresses_have_gos_syntax() {
        assert_eq!(":8080".parse(), Ok(ListenAddress::AllInterfaces(8080)));
        assert_eq!(
            "127.0.0.1:80".parse(),
            Ok(ListenAddress::HostPort("127.0.0.1:80".into()))
        );
        assert_eq!("[::1]:80".parse(), Ok(ListenAddress::HostPort("[::1]:80".into())));
        assert_eq!("0".parse(), Ok(ListenAddress::Disabled));
        for bad in ["8080", ":x", ":99999", "host:"] {
            assert!(bad.parse::<ListenAddress>().is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn pages_are_served_until_the_stop() {
        let listener = listen(&ListenAddress::HostPort("127.0.0.1:0".into()))
            .await
            .unwrap()
            .unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let stop = Token::new();
        let page = |path: &str| {
            ready(match path {
                "/a" => Some(Page::text(StatusCode::OK, "ok")),
                "/parts" => Some(Page {
                    body: vec!["one ".to_owned(), "two".to_owned()],
                    ..Page::text(StatusCode::OK, "")
                }),
                _ => None,
            })
        };
        let server = tokio::spawn(serve(listener, page, stop.clone()));
        let client = crate::http::client::<Empty<Bytes>>(&crate::http::Settings {
            system_roots: false,
            ..Default::default()
        })
        .unwrap();
        let get = async |method: &str, path: &str| {
            let request = Request::builder()
                .method(method)
                .uri(format!("{base}{path}"))
                .body(Empty::new())
                .unwrap();
            let response = client.request(request).await.unwrap();
            let status = response.status().as_u16();
            (status, response.into_body().collect().await.unwrap().to_bytes())
        };
        assert_eq!(get("GET", "/a").await, (200, Bytes::from("ok")));
        assert_eq!(get("GET", "/parts").await, (200, Bytes::from("one two")));
        assert_eq!(get("HEAD", "/a").await, (200, Bytes::new()));
        assert_eq!(get("GET", "/b").await.0, 404);
        assert_eq!(get("POST", "/a").await.0, 405);
        stop.cancel();
        tokio::time::timeout(Duration::from_secs(10), server)
            .await
            .unwrap()
            .unwrap();
    }

    /// Opens three times as many connections as allowed: silent ones, ones with an incomplete head, and ones that do not
    /// read the response.
    #[tokio::test]
    async fn a_probe_succeeds_despite_open_connections() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = listen(&ListenAddress::HostPort("127.0.0.1:0".into()))
            .await
            .unwrap()
            .unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Token::new();
        let page =
            |path: &str| ready((path == "/healthz").then(|| Page::text(StatusCode::OK, "x".repeat(1 << 20))));
        let server = tokio::spawn(serve(listener, page, stop.clone()));
        let mut open = Vec::new();
        for sent in [
            "",
            "GET /healthz HTTP/1.1\r\nhost",
            "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n",
        ] {
            for _ in 0..CONNECTIONS {
                let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
                // An evicted connection may be closed already.
                drop(stream.write_all(sent.as_bytes()).await);
                open.push(stream);
            }
            let mut probe = tokio::net::TcpStream::connect(address).await.unwrap();
            let head = async {
                probe
                    .write_all(b"HEAD /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
                    .await
                    .unwrap();
                let mut status = [0; 12];
                probe.read_exact(&mut status).await.unwrap();
                status
            };
            // The kubelet's probe timeout is 1 s, with three attempts; a connection without a complete head is closed after 10 s.
            let status = tokio::time::timeout(Duration::from_secs(5), head).await;
            assert_eq!(&status.expect("answered in time"), b"HTTP/1.1 200", "{sent:?}");
        }
        stop.cancel();
        tokio::time::timeout(Duration::from_secs(10), server)
            .await
            .unwrap()
            .unwrap();
    }
}
