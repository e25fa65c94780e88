//! Counts requests to the Kubernetes API, including retries.

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
            "Requests to the API by response code",
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
    type Service = CountedService<S>;

    fn layer(&self, inner: S) -> CountedService<S> {
        CountedService {
            inner,
            count: self.clone(),
        }
    }
}

/// A service that counts its requests.
#[derive(Clone, Debug)]
pub struct CountedService<S> {
    inner: S,
    count: CountRequests,
}

impl<S, B, C> Service<Request<B>> for CountedService<S>
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
        let response = self.inner.call(request);
        Box::pin(async move {
            let response = response.await;
            // client-go's text for a missing response.
            let code = response.as_ref().map_or_else(
                |_| "<error>".to_owned(),
                |response| response.status().as_str().to_owned(),
            );
            let labels = Labels { code, host, method };
            requests.0.get_or_create(&labels).inc();
            response
        })
    }
}
