//! The HTTP proxy: `CONNECT` and forwarding.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{HeaderName, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{ProxyFault, ProxyMode, State, lock};

type Answer = Response<UnsyncBoxBody<Bytes, hyper::Error>>;

pub(super) async fn serve<S>(mut socket: S, state: Arc<State>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    if state.fault() == Some(ProxyFault::Garbage) {
        drop(socket.write_all(b"\x00\x01\x02 no protocol at all\r\n\r\n").await);
        return;
    }
    let service = service_fn(move |request| {
        let state = Arc::clone(&state);
        async move { Ok::<_, Infallible>(answer(request, &state).await) }
    });
    let conversation = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(socket), service)
        .with_upgrades();
    drop(conversation.await);
}

async fn answer(request: Request<Incoming>, state: &Arc<State>) -> Answer {
    let mode = if request.method() == Method::CONNECT {
        ProxyMode::Tunnel
    } else {
        ProxyMode::Forward
    };
    let target = request.uri().authority().map(|authority| {
        let port = authority.port_u16().unwrap_or(80);
        format!("{}:{port}", authority.host())
    });
    let Some(target) = target else {
        return status(StatusCode::BAD_REQUEST);
    };
    let provided = request.headers().get(PROXY_AUTHORIZATION).and_then(user);
    let username = provided.as_ref().map(|(name, _)| name.clone());
    state.record(mode, target.clone(), username);
    let required = lock(&state.user).clone();
    if required.is_some() && required != provided {
        let mut answer = status(StatusCode::PROXY_AUTHENTICATION_REQUIRED);
        answer
            .headers_mut()
            .insert(PROXY_AUTHENTICATE, HeaderValue::from_static("Basic"));
        return answer;
    }
    match state.fault() {
        Some(ProxyFault::Refuse) => return status(StatusCode::FORBIDDEN),
        Some(ProxyFault::Hang) => std::future::pending().await,
        _ => {}
    }
    let Ok(stream) = state.connect(&target).await else {
        return status(StatusCode::BAD_GATEWAY);
    };
    if mode == ProxyMode::Forward {
        return forward(request, stream)
            .await
            .unwrap_or_else(|_| status(StatusCode::BAD_GATEWAY));
    }
    let impersonate = state.fault() == Some(ProxyFault::Impersonate);
    tokio::spawn(tunnel(request, stream, impersonate));
    status(StatusCode::OK)
}

async fn tunnel(request: Request<Incoming>, mut server: TcpStream, impersonate: bool) -> io::Result<()> {
    let upgraded = hyper::upgrade::on(request).await.map_err(io::Error::other)?;
    let mut client = TokioIo::new(upgraded);
    if impersonate {
        return client.write_all(b"HTTP/1.1 200 OK\r\n\r\nlies").await;
    }
    tokio::io::copy_bidirectional(&mut client, &mut server)
        .await
        .map(drop)
}

async fn forward(mut request: Request<Incoming>, stream: TcpStream) -> Result<Answer, hyper::Error> {
    let own: [HeaderName; 1] = [PROXY_AUTHORIZATION];
    for name in own {
        request.headers_mut().remove(name);
    }
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() = path.map_or_else(Uri::default, Uri::from);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let answer = sender.send_request(request).await?;
    Ok(answer.map(http_body_util::BodyExt::boxed_unsync))
}

fn status(status: StatusCode) -> Answer {
    let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer
}

fn user(value: &HeaderValue) -> Option<(String, String)> {
    let encoded = value.to_str().ok()?.strip_prefix("Basic ")?;
    let pair = String::from_utf8(STANDARD.decode(encoded).ok()?).ok()?;
    let (name, password) = pair.split_once(':')?;
    Some((name.to_owned(), password.to_owned()))
}
