//! The layer of each API call: timeouts of head and body, and retries.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, header};
use http_body::Frame;
use kube::client::Body;
use tokio::time::{Instant, Sleep};
use tower::{BoxError, Layer, Service};

/// Timeout and retries of a call; a tower layer that creates a [`RetryService`].
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// Timeout of a call with its retries; for a watch, until the head of the response.
    pub total: Duration,
    /// Retries after the first attempt.
    pub retries: u32,
    /// Delay before the first retry; doubled each time. A longer `Retry-After` is respected if it fits into `total`.
    pub min_wait: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            total: Duration::from_secs(30),
            retries: 4,
            min_wait: Duration::from_millis(250),
        }
    }
}

impl<S> Layer<S> for RetryPolicy {
    type Service = RetryService<S>;

    fn layer(&self, inner: S) -> RetryService<S> {
        RetryService { inner, policy: *self }
    }
}

/// A service with a [`RetryPolicy`].
#[derive(Clone, Debug)]
pub struct RetryService<S> {
    inner: S,
    policy: RetryPolicy,
}

impl<S, B> Service<Request<Body>> for RetryService<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<TimeoutBody<B>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // Only the original is ready: it serves the call, and the clone replaces it.
        let spare = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, spare);
        let policy = self.policy;
        Box::pin(async move {
            let deadline = Instant::now() + policy.total;
            let watch = is_streaming(&request);
            let answer = tokio::time::timeout_at(deadline, attempts(inner, policy, request, deadline))
                .await
                .map_err(|_| BoxError::from(RequestTimedOut(policy.total)))??;
            Ok(answer.map(|body| TimeoutBody {
                inner: body,
                limit: policy.total,
                timer: (!watch).then(|| Box::pin(tokio::time::sleep_until(deadline))),
            }))
        })
    }
}

/// The API did not respond in time.
#[derive(Debug, thiserror::Error)]
#[error("no complete response from the API within {0:?}")]
pub struct RequestTimedOut(Duration);

/// Returns whether the response never ends: watches and followed logs.
fn is_streaming(request: &Request<Body>) -> bool {
    let mut parts = request.uri().query().unwrap_or_default().split('&');
    parts.any(|part| matches!(part, "watch=true" | "watch=1" | "follow=true"))
}

/// Returns whether to retry: 429 and 503 had no effect; after 504 only reads are safe to repeat.
fn is_retryable(status: StatusCode, method: &Method) -> bool {
    match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => true,
        StatusCode::GATEWAY_TIMEOUT => method == Method::GET,
        _ => false,
    }
}

async fn attempts<S, B>(
    mut inner: S,
    policy: RetryPolicy,
    request: Request<Body>,
    deadline: Instant,
) -> Result<Response<B>, BoxError>
where
    S: Service<Request<Body>, Response = Response<B>> + Send,
    S::Error: Into<BoxError>,
{
    let mut wait = policy.min_wait;
    let mut left = policy.retries;
    let mut next = Some(request);
    while let Some(request) = next.take() {
        let (method, copy) = (request.method().clone(), clone_request(&request));
        let answer = inner.call(request).await.map_err(Into::into)?;
        let Some(copy) = copy.filter(|_| left > 0 && is_retryable(answer.status(), &method)) else {
            return Ok(answer);
        };
        let asked = answer
            .headers()
            .get(header::RETRY_AFTER)
            .and_then(|value| value.to_str().ok());
        let asked = asked
            .and_then(|text| text.parse().ok())
            .map_or(Duration::ZERO, Duration::from_secs);
        let pause = wait.max(asked);
        // The response is more informative than a timeout.
        if deadline.saturating_duration_since(Instant::now()) <= pause {
            return Ok(answer);
        }
        drop(answer);
        tokio::time::sleep(pause).await;
        (left, wait, next) = (left - 1, wait.saturating_mul(2), Some(copy));
        std::future::poll_fn(|context| inner.poll_ready(context))
            .await
            .map_err(Into::into)?;
    }
    Err(BoxError::from(RequestTimedOut(policy.total)))
}

/// Clones a request, unless its body is a stream.
fn clone_request(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
}

/// A response body that fails after the timeout of the call.
#[derive(Debug)]
pub struct TimeoutBody<B> {
    inner: B,
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<B> http_body::Body for TimeoutBody<B>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let Some(timer) = &mut self.timer else {
            return Poll::Pending;
        };
        timer
            .as_mut()
            .poll(context)
            .map(|()| Some(Err(RequestTimedOut(self.limit).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures::StreamExt as _;
    use http_body_util::{BodyExt as _, StreamBody};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{Api, Client};
    use serde_json::json;

    use super::*;

    type Answer = Response<http_body_util::combinators::UnsyncBoxBody<Bytes, BoxError>>;

    fn answer(status: u16, content: &serde_json::Value) -> Answer {
        let body = http_body_util::Full::new(Bytes::from(content.to_string()));
        let mut response = Response::new(body.map_err(|never| match never {}).boxed_unsync());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        response
    }

    fn refusal(status: u16) -> Answer {
        answer(
            status,
            &json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "message": "busy", "reason": "Busy"}),
        )
    }

    fn found() -> Answer {
        answer(
            200,
            &json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}}),
        )
    }

    fn client(answers: impl Fn(u32) -> Answer + Send + Sync + 'static) -> (Api<ConfigMap>, Arc<AtomicU32>) {
        let (count, answers) = (Arc::new(AtomicU32::new(0)), Arc::new(answers));
        let seen = Arc::clone(&count);
        let service = tower::service_fn(move |_: Request<Body>| {
            let answer = answers(seen.fetch_add(1, Ordering::SeqCst) + 1);
            async move { Ok::<_, BoxError>(answer) }
        });
        let policy = RetryPolicy {
            total: Duration::from_millis(400),
            retries: 3,
            min_wait: Duration::from_millis(1),
        };
        (
            Api::namespaced(Client::new(policy.layer(service), "ns"), "ns"),
            count,
        )
    }

    #[tokio::test]
    async fn a_busy_api_is_retried_a_few_times() {
        let (api, count) = client(|n| if n < 3 { refusal(429) } else { found() });
        api.get("a").await.unwrap();
        assert_eq!(count.load(Ordering::SeqCst), 3);
        let (api, count) = client(|_| refusal(503));
        assert!(matches!(api.get("a").await, Err(kube::Error::Api(status)) if status.code == 503));
        assert_eq!(count.load(Ordering::SeqCst), 4);
    }

    #[tokio::test]
    async fn only_reading_is_repeated_after_a_gateway_timeout_and_errors_never() {
        let (api, count) = client(|_| refusal(504));
        assert!(api.get("a").await.is_err());
        assert_eq!(count.load(Ordering::SeqCst), 4);
        let (api, count) = client(|_| refusal(504));
        assert!(
            api.create(&kube::api::PostParams::default(), &ConfigMap::default())
                .await
                .is_err()
        );
        assert_eq!(count.load(Ordering::SeqCst), 1);
        let (api, count) = client(|_| refusal(500));
        assert!(api.get("a").await.is_err());
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_retry_after_beyond_the_timeout_is_not_waited_for() {
        let (api, count) = client(|_| {
            let mut answer = refusal(429);
            answer
                .headers_mut()
                .insert(header::RETRY_AFTER, "3600".parse().unwrap());
            answer
        });
        assert!(matches!(api.get("a").await, Err(kube::Error::Api(status)) if status.code == 429));
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_stalled_body_times_out_a_call_but_not_a_watch() {
        let silent = |_| Response::new(StreamBody::new(futures::stream::pending()).boxed_unsync());
        let (api, _) = client(silent);
        let started = Instant::now();
        assert!(api.get("a").await.is_err());
        assert!(started.elapsed() >= Duration::from_millis(400));
        let (api, _) = client(silent);
        let mut watch = api
            .watch(&kube::api::WatchParams::default(), "0")
            .await
            .unwrap()
            .boxed();
        let waited = tokio::time::timeout(Duration::from_millis(800), watch.next()).await;
        assert!(waited.is_err(), "the watch ended");
    }
}
