//! The log of requests: step of the protocol, headers, and bytes in both directions.

use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine;
use http::header;
use http::request::Parts;
use http_body_util::BodyExt;
use hyper::body::Bytes;

use super::{Response, lock};

/// Limit of a logged, decoded request body in bytes.
const MAX_BODY: u64 = 1 << 20;

/// A step of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// `GET …/info/refs`: capabilities in version 2, references in versions 0 and 1.
    InfoRefs,
    /// `POST …/git-upload-pack` with `command=ls-refs`.
    LsRefs,
    /// `POST …/git-upload-pack` that requests objects, in any version.
    Fetch,
    /// Anything else: a push, a file of the dumb protocol, an unrelated request.
    Other,
}

/// One request and its response.
#[derive(Clone, Debug)]
pub struct Request {
    /// The step of the protocol.
    pub step: Step,
    /// The repository's name: the first segment of the path without `.git`.
    pub repository: String,
    /// `GET`, `POST`, …
    pub method: String,
    /// Path and query as sent.
    pub target: String,
    /// The value of `Git-Protocol`.
    pub protocol: Option<String>,
    /// The user name of basic credentials.
    pub username: Option<String>,
    /// The value of `Authorization`.
    pub authorization: Option<String>,
    /// Whether the client presented a certificate.
    pub has_client_certificate: bool,
    /// Whether it has credentials for a proxy, which must not reach a server.
    pub has_proxy_credentials: bool,
    /// The value of `User-Agent`.
    pub user_agent: Option<String>,
    /// The decoded body, at most 1 MiB.
    pub body: Bytes,
    /// Size of the body as sent, in bytes.
    pub request_bytes: u64,
    /// Status of the response.
    pub status: u16,
    /// Bytes of the response body sent so far.
    pub response_bytes: u64,
    pub(super) inner_path: String,
}

impl Request {
    /// Creates the log entry of a request; status and response size follow later.
    pub(super) fn of(head: &Parts, body: &Bytes, has_client_certificate: bool) -> Self {
        let path = head.uri.path().trim_start_matches('/');
        let (repository, inner) = path.split_once(".git").unwrap_or((path, ""));
        let decoded = decode(head, body);
        let text = |name| {
            head.headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned)
        };
        let target = head
            .uri
            .path_and_query()
            .map_or_else(String::new, ToString::to_string);
        Self {
            step: step(head, inner, &decoded),
            repository: repository.to_owned(),
            method: head.method.to_string(),
            target,
            protocol: text("git-protocol"),
            username: text(header::AUTHORIZATION.as_str()).as_deref().and_then(username),
            authorization: text(header::AUTHORIZATION.as_str()),
            has_client_certificate,
            has_proxy_credentials: head.headers.contains_key(header::PROXY_AUTHORIZATION),
            user_agent: text(header::USER_AGENT.as_str()),
            body: decoded,
            request_bytes: body.len() as u64,
            status: 0,
            response_bytes: 0,
            inner_path: inner.to_owned(),
        }
    }

    /// Returns the body as text, to search for lines such as `want …` or `filter …`.
    #[must_use]
    pub fn body_text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

fn step(head: &Parts, inner: &str, body: &[u8]) -> Step {
    let upload_pack = head
        .uri
        .query()
        .is_some_and(|query| query.contains("service=git-upload-pack"));
    match inner {
        "/info/refs" if upload_pack => Step::InfoRefs,
        "/git-upload-pack" if body.windows(15).any(|window| window == b"command=ls-refs") => Step::LsRefs,
        "/git-upload-pack" => Step::Fetch,
        _ => Step::Other,
    }
}

/// Decodes `Content-Encoding: gzip`; returns the body unchanged if it cannot be decoded.
fn decode(head: &Parts, body: &Bytes) -> Bytes {
    if head
        .headers
        .get(header::CONTENT_ENCODING)
        .is_none_or(|value| value != "gzip")
    {
        return body.slice(..body.len().min(usize::try_from(MAX_BODY).unwrap_or(usize::MAX)));
    }
    let mut decoded = Vec::new();
    match flate2::read::GzDecoder::new(&body[..])
        .take(MAX_BODY)
        .read_to_end(&mut decoded)
    {
        Ok(_) => decoded.into(),
        Err(_) => body.clone(),
    }
}

fn username(authorization: &str) -> Option<String> {
    let encoded = authorization.strip_prefix("Basic ")?;
    let pair = base64::engine::general_purpose::STANDARD.decode(encoded).ok()?;
    let pair = String::from_utf8(pair).ok()?;
    pair.split_once(':').map(|(username, _)| username.to_owned())
}

/// The requests so far, each with the byte counter of its response.
#[derive(Debug, Default)]
pub(super) struct Log(Mutex<Vec<(Request, Arc<AtomicU64>)>>);

impl Log {
    pub(super) fn requests(&self) -> Vec<Request> {
        let count = |(request, sent): &(Request, Arc<AtomicU64>)| Request {
            response_bytes: sent.load(Ordering::Relaxed),
            ..request.clone()
        };
        lock(&self.0).iter().map(count).collect()
    }

    pub(super) fn clear(&self) {
        lock(&self.0).clear();
    }

    /// Records the request and counts the bytes of the response.
    pub(super) fn record(&self, mut request: Request, response: Response) -> Response {
        let sent = Arc::new(AtomicU64::new(0));
        request.status = response.status().as_u16();
        lock(&self.0).push((request, Arc::clone(&sent)));
        response.map(|body| {
            let counted = body.map_frame(move |frame| {
                sent.fetch_add(frame.data_ref().map_or(0, Bytes::len) as u64, Ordering::Relaxed);
                frame
            });
            counted.boxed_unsync()
        })
    }
}
