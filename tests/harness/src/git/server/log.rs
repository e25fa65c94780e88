//! What the server was asked, as tests want to count it: by step of the protocol, with bytes in both directions.

use std::io::Read;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine;
use http::{header, request::Parts};
use http_body_util::BodyExt;
use hyper::body::Bytes;

use super::{Response, lock};

/// More of a request's decoded body is not kept.
const KEPT: u64 = 1 << 20;

/// Which part of a conversation a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// `GET …/info/refs`: capabilities in version 2, the references before that.
    InfoRefs,
    /// `POST …/git-upload-pack` with `command=ls-refs`.
    LsRefs,
    /// `POST …/git-upload-pack` that asks for objects, in any version.
    Fetch,
    /// Anything else: a push, a file of the dumb protocol, a request that is not git's.
    Other,
}

/// One request, with what became of it.
#[derive(Clone, Debug)]
pub struct Request {
    /// Which part of a conversation it is.
    pub step: Step,
    /// The repository's name: the path's first part without `.git`.
    pub repository: String,
    /// `GET`, `POST`, …
    pub method: String,
    /// Path and query as they were sent.
    pub target: String,
    /// The value of `Git-Protocol`.
    pub protocol: Option<String>,
    /// The user name of basic credentials.
    pub username: Option<String>,
    /// The value of `Authorization`.
    pub authorization: Option<String>,
    /// Whether the client showed a certificate.
    pub certified: bool,
    /// Whether it came with credentials for a proxy, which are none of a server's business.
    pub told_of_proxy: bool,
    /// The value of `User-Agent`.
    pub user_agent: Option<String>,
    /// The body without its content encoding, at most 1 MiB of it.
    pub body: Bytes,
    /// Size of the body as it was sent.
    pub request_bytes: u64,
    /// Status of the answer.
    pub status: u16,
    /// Bytes of the answer's body that were handed to the connection so far.
    pub response_bytes: u64,
    pub(super) inner_path: String,
}

impl Request {
    /// Reads off a request what the log keeps; status and response size come later.
    pub(super) fn of(head: &Parts, body: &Bytes, certified: bool) -> Self {
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
            certified,
            told_of_proxy: head.headers.contains_key(header::PROXY_AUTHORIZATION),
            user_agent: text(header::USER_AGENT.as_str()),
            body: decoded,
            request_bytes: body.len() as u64,
            status: 0,
            response_bytes: 0,
            inner_path: inner.to_owned(),
        }
    }

    /// The body as text, to look for a line like `want …` or `filter …`.
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

/// The body as it was before `Content-Encoding: gzip`; as it stands when it does not decode.
fn decode(head: &Parts, body: &Bytes) -> Bytes {
    if head
        .headers
        .get(header::CONTENT_ENCODING)
        .is_none_or(|value| value != "gzip")
    {
        return body.slice(..body.len().min(usize::try_from(KEPT).unwrap_or(usize::MAX)));
    }
    let mut decoded = Vec::new();
    match flate2::read::GzDecoder::new(&body[..])
        .take(KEPT)
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

/// The requests so far, each with a counter that its response drives.
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

    /// Notes the request and lets the response count its own bytes.
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
