//! What a server, a proxy in between or the network can do to a conversation, made on purpose.

use std::io;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use http::{HeaderValue, StatusCode, header};
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};
use hyper::body::{Bytes, Frame};

use super::log::{Request, Step};
use super::{Body, Response, plain};

mod endless;
mod offer;
mod pack;

/// Which requests a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every request.
    Any,
    /// Only those of one step.
    Only(Step),
}

impl Scope {
    /// `GET …/info/refs`.
    pub const INFO_REFS: Self = Self::Only(Step::InfoRefs);
    /// `command=ls-refs`.
    pub const LS_REFS: Self = Self::Only(Step::LsRefs);
    /// The request that brings the pack.
    pub const FETCH: Self = Self::Only(Step::Fetch);
}

/// What goes wrong.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Another status instead of an answer; 401 comes with a challenge.
    Status(u16),
    /// A status with `Retry-After`, in whole seconds.
    RetryAfter(u16, u32),
    /// Another document, with status 200: a login page of a proxy, say. Content type and text.
    Page(&'static str, String),
    /// The body comes in pieces of so many bytes with a pause after each.
    Slow {
        /// Bytes of a piece.
        bytes: usize,
        /// Pause after it.
        pause: Duration,
    },
    /// The connection is accepted and the request read; nothing ever comes back.
    Hung,
    /// Status and headers come, then so many bytes of the body, then nothing more; the connection stays open.
    Stalled(u64),
    /// So many bytes of the body come, then the connection is closed.
    Truncated(u64),
    /// One bit of the pack is another: at this offset, counted round the pack's length when it is shorter.
    Corrupted(u64),
    /// These capabilities are not offered by a server of protocol version 0, and so not used by its client.
    Without(&'static [&'static str]),
    /// These bytes are the whole answer.
    Reply(Bytes),
    /// Never ends: a well-formed pack with one enormous object when a pack was asked for, else a list of references
    /// (or capabilities) without end.
    Oversized,
}

/// A fault, with the requests that it strikes.
#[derive(Clone, Debug)]
pub struct Injection {
    pub(super) fault: Fault,
    scope: Scope,
    repository: Option<String>,
    spared: Option<&'static str>,
    struck: Option<&'static str>,
    left: Option<u32>,
}

impl Injection {
    /// A fault for every repository and any number of requests.
    #[must_use]
    pub const fn new(scope: Scope, fault: Fault) -> Self {
        Self {
            fault,
            scope,
            repository: None,
            spared: None,
            struck: None,
            left: None,
        }
    }

    /// Only for the repository of this name.
    #[must_use]
    pub fn repository(self, name: &str) -> Self {
        Self {
            repository: Some(name.to_owned()),
            ..self
        }
    }

    /// Only for requests whose body does not hold this text.
    #[must_use]
    pub fn sparing(self, text: &'static str) -> Self {
        Self {
            spared: Some(text),
            ..self
        }
    }

    /// Only for requests whose body holds this text.
    #[must_use]
    pub fn holding(self, text: &'static str) -> Self {
        Self {
            struck: Some(text),
            ..self
        }
    }

    /// Only for the next so many requests that it fits.
    #[must_use]
    pub fn times(self, count: u32) -> Self {
        Self {
            left: Some(count),
            ..self
        }
    }

    pub(super) fn fits(&self, request: &Request) -> bool {
        let step = match self.scope {
            Scope::Any => true,
            Scope::Only(step) => step == request.step,
        };
        step && self.left != Some(0)
            && self
                .repository
                .as_ref()
                .is_none_or(|name| *name == request.repository)
            && self.spared.is_none_or(|text| !request.body_text().contains(text))
            && self.struck.is_none_or(|text| request.body_text().contains(text))
    }

    /// Counts one use; true when it was the last.
    pub(super) const fn used_up(&mut self) -> bool {
        match &mut self.left {
            None => false,
            Some(left) => {
                *left = left.saturating_sub(1);
                *left == 0
            }
        }
    }
}

impl Fault {
    /// The answer that this fault gives without asking git, if it does.
    pub(super) fn instead(&self, request: &Request) -> Option<Response> {
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
            | Self::Stalled(_)
            | Self::Truncated(_)
            | Self::Corrupted(_)
            | Self::Without(_) => None,
        }
    }

    /// The answer of git with this fault in it.
    pub(super) async fn upon(&self, response: Response) -> Response {
        let (head, body) = response.into_parts();
        let body = match self {
            Self::Slow { bytes, pause } => slow(body, *bytes, *pause),
            Self::Stalled(after) => first(body, *after, stream::pending().boxed()),
            Self::Truncated(after) => {
                let end = stream::once(async { Err(io::Error::other("broken off on purpose")) });
                first(body, *after, end.boxed())
            }
            Self::Corrupted(offset) => pack::corrupt(body, *offset).await,
            Self::Without(words) => offer::leave_out(body, words).await,
            _ => body,
        };
        http::Response::from_parts(head, body)
    }
}

type Frames = stream::BoxStream<'static, io::Result<Frame<Bytes>>>;

/// The first `count` bytes of a body and then `rest`, which is also what follows a shorter body.
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

/// A bare status, with the header that belongs to it.
pub(super) fn status(code: StatusCode, retry_after: Option<u32>) -> Response {
    let mut response = plain(code, code.canonical_reason().unwrap_or("refused on purpose"));
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

/// A whole body from bytes at hand.
fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}
