//! Requests to the Kubernetes API, counted one by one, retries included.

use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Request, Response};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tower::{Layer, Service};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    code: String,
    host: String,
    method: String,
}

/// `rest_client_requests_total`.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests(Family<Labels, Counter>);

impl Requests {
    pub(super) fn register(&self, metrics: &super::Metrics) {
        metrics.register(
            "rest_client_requests",
            "Requests to the API by answer",
            self.0.clone(),
        );
    }

    pub(super) fn to(&self, host: &str) -> CountRequests {
        CountRequests {
            requests: self.clone(),
            host: host.to_owned(),
        }
    }
}

/// A tower layer that counts the requests to a host.
#[derive(Clone, Debug)]
pub struct CountRequests {
    requests: Requests,
    host: String,
}

impl<S> Layer<S> for CountRequests {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted {
            inner,
            count: self.clone(),
        }
    }
}

/// A service whose requests are counted.
#[derive(Clone, Debug)]
pub struct Counted<S> {
    inner: S,
    count: CountRequests,
}

impl<S, B, C> Service<Request<B>> for Counted<S>
where
    S: Service<Request<B>, Response = Response<C>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let method = request.method().to_string();
        let CountRequests { requests, host } = self.count.clone();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            // The text for no answer is client-go's.
            let code = answer.as_ref().map_or_else(
                |_| "<error>".to_owned(),
                |answer| answer.status().as_str().to_owned(),
            );
            let labels = Labels { code, host, method };
            requests.0.get_or_create(&labels).inc();
            answer
        })
    }
}
