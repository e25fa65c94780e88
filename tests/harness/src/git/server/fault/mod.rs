//! Injected faults of a server, of a proxy in between, or of the network.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use http::{HeaderValue, StatusCode, header};
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use tokio::sync::Semaphore;

use super::log::{Request, Step};
use super::{Body, Response, plain};

mod endless;
mod rewrite;

/// The requests that a fault affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every request.
    Any,
    /// Requests of one step.
    Only(Step),
}

impl Scope {
    /// `GET …/info/refs`.
    pub const INFO_REFS: Self = Self::Only(Step::InfoRefs);
    /// `command=ls-refs`.
    pub const LS_REFS: Self = Self::Only(Step::LsRefs);
    /// The request that returns the pack.
    pub const FETCH: Self = Self::Only(Step::Fetch);
}

/// A fault.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Responds with this status; 401 includes a challenge.
    Status(u16),
    /// Responds with this status and `Retry-After`, in whole seconds.
    RetryAfter(u16, u32),
    /// Responds with another document and status 200, such as a login page of a proxy. Content type and text.
    Page(&'static str, String),
    /// Sends the body in pieces with a pause after each.
    Slow {
        /// Bytes of a piece.
        bytes: usize,
        /// Pause after it.
        pause: Duration,
    },
    /// Reads the request and never responds.
    Hung,
    /// Reads the request and responds after [`Gate::open`].
    Wait(Gate),
    /// Sends status, headers and this many bytes of the body, then stalls; the connection stays open.
    Stalled(u64),
    /// Closes the connection after this many bytes of the body.
    Truncated(u64),
    /// Flips one bit of the pack at this offset, modulo the pack's length.
    Corrupted(u64),
    /// Removes these capabilities from the advertisement of protocol version 0, so that clients do not use them.
    Without(&'static [&'static str]),
    /// Responds with these bytes.
    Reply(Bytes),
    /// Never ends: a well-formed pack with one enormous object if a pack is requested, else an endless list of references
    /// or capabilities.
    Oversized,
}

/// What requests wait for.
#[derive(Clone, Debug)]
pub struct Gate(Arc<GateState>);

#[derive(Debug)]
struct GateState {
    /// The requests that have come to it so far.
    count: AtomicUsize,
    /// It never has a permit; closed when the gate opens.
    permits: Semaphore,
}

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(GateState {
            count: AtomicUsize::new(0),
            permits: Semaphore::new(0),
        }))
    }
}

impl Gate {
    /// Returns how many requests have come to it so far.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.count.load(Ordering::SeqCst)
    }

    /// Lets these requests and all later ones pass.
    pub fn open(&self) {
        self.0.permits.close();
    }

    /// Returns whether it is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.permits.is_closed()
    }

    /// Comes to the gate, and returns when it is open.
    pub async fn pass(&self) {
        self.0.count.fetch_add(1, Ordering::SeqCst);
        // It fails when the gate is open.
        drop(self.0.permits.acquire().await);
    }
}

/// A fault with the requests that it affects.
#[derive(Clone, Debug)]
pub struct Injection {
    pub(super) fault: Fault,
    scope: Scope,
    repository: Option<String>,
    excluded_text: Option<&'static str>,
    required_text: Option<&'static str>,
    remaining: Option<u32>,
}

impl Injection {
    /// Affects every repository and any number of requests.
    #[must_use]
    pub const fn new(scope: Scope, fault: Fault) -> Self {
        Self {
            fault,
            scope,
            repository: None,
            excluded_text: None,
            required_text: None,
            remaining: None,
        }
    }

    /// Restricts it to the repository with this name.
    #[must_use]
    pub fn repository(self, name: &str) -> Self {
        Self {
            repository: Some(name.to_owned()),
            ..self
        }
    }

    /// Restricts it to requests whose body does not contain this text.
    #[must_use]
    pub fn when_body_lacks(self, text: &'static str) -> Self {
        Self {
            excluded_text: Some(text),
            ..self
        }
    }

    /// Restricts it to requests whose body contains this text.
    #[must_use]
    pub fn when_body_contains(self, text: &'static str) -> Self {
        Self {
            required_text: Some(text),
            ..self
        }
    }

    /// Restricts it to the next `count` matching requests.
    #[must_use]
    pub fn times(self, count: u32) -> Self {
        Self {
            remaining: Some(count),
            ..self
        }
    }

    pub(super) fn matches(&self, request: &Request) -> bool {
        let step = match self.scope {
            Scope::Any => true,
            Scope::Only(step) => step == request.step,
        };
        step && self.remaining != Some(0)
            && self
                .repository
                .as_ref()
                .is_none_or(|name| *name == request.repository)
            && self
                .excluded_text
                .is_none_or(|text| !request.body_text().contains(text))
            && self
                .required_text
                .is_none_or(|text| request.body_text().contains(text))
    }

    /// Counts one use; returns whether it was the last.
    pub(super) const fn consume(&mut self) -> bool {
        match &mut self.remaining {
            None => false,
            Some(remaining) => {
                *remaining = remaining.saturating_sub(1);
                *remaining == 0
            }
        }
    }
}

impl Fault {
    /// Returns the response of a fault that does not involve git.
    pub(super) fn replacement(&self, request: &Request) -> Option<Response> {
        match self {
            Self::Status(code) => Some(status(StatusCode::from_u16(*code).ok()?, None)),
            Self::RetryAfter(code, seconds) => {
                Some(status(StatusCode::from_u16(*code).ok()?, Some(*seconds)))
            }
            Self::Page(kind, text) => {
                let mut page = plain(StatusCode::OK, text);
                page.headers_mut()
                    .insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
                Some(page)
            }
            Self::Oversized => Some(endless::response(request.step)),
            Self::Reply(bytes) => Some(endless::typed(request.step, whole(bytes.clone()))),
            Self::Slow { .. }
            | Self::Hung
            | Self::Wait(_)
            | Self::Stalled(_)
            | Self::Truncated(_)
            | Self::Corrupted(_)
            | Self::Without(_) => None,
        }
    }

    /// Applies the fault to git's response.
    pub(super) async fn apply_to(&self, response: Response) -> Response {
        let (head, body) = response.into_parts();
        let body = match self {
            Self::Slow { bytes, pause } => slow(body, *bytes, *pause),
            Self::Stalled(after) => first(body, *after, stream::pending().boxed()),
            Self::Truncated(after) => {
                let end = stream::once(async { Err(io::Error::other("injected fault: truncated")) });
                first(body, *after, end.boxed())
            }
            Self::Corrupted(offset) => rewrite::corrupt_pack(body, *offset).await,
            Self::Without(names) => rewrite::remove_capabilities(body, names).await,
            _ => body,
        };
        http::Response::from_parts(head, body)
    }
}

type Frames = stream::BoxStream<'static, io::Result<Frame<Bytes>>>;

/// Returns the first `count` bytes of a body, followed by `rest`.
fn first(body: Body, count: u64, rest: Frames) -> Body {
    let frames = BodyStream::new(body).map_ok(|frame| frame.into_data().unwrap_or_default());
    let cut = stream::try_unfold((Box::pin(frames), count), |(mut frames, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let Some(mut data) = frames.try_next().await? else {
            return Ok(None);
        };
        data.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        let left = left - data.len() as u64;
        Ok::<_, io::Error>(Some((Frame::data(data), (frames, left))))
    });
    StreamBody::new(cut.chain(rest)).boxed_unsync()
}

fn slow(body: Body, bytes: usize, pause: Duration) -> Body {
    let frames = BodyStream::new(body).map_ok(move |frame| {
        let data = frame.into_data().unwrap_or_default();
        let pieces: Vec<_> = data
            .chunks(bytes.max(1))
            .map(|piece| Ok(data.slice_ref(piece)))
            .collect();
        stream::iter(pieces)
    });
    let paced = frames.try_flatten().and_then(move |piece| async move {
        tokio::time::sleep(pause).await;
        Ok(Frame::data(piece))
    });
    StreamBody::new(paced).boxed_unsync()
}

/// Returns a response with this status and the header that belongs to it.
pub(super) fn status(code: StatusCode, retry_after: Option<u32>) -> Response {
    let mut response = plain(code, code.canonical_reason().unwrap_or("injected fault"));
    if code == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(
            header::WWW_AUTHENTICATE,
            HeaderValue::from_static("Basic realm=\"git\""),
        );
    }
    if let Some(seconds) = retry_after {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Returns a body with these bytes.
fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}
