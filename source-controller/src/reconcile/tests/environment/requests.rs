//! A client that records its requests.

use std::sync::{Arc, Mutex, PoisonError};

use http::Request;
use kube::Client;
use kube::client::Body;

/// The requests sent, without watches: method and path.
#[derive(Clone, Default)]
pub(in crate::reconcile::tests) struct RequestCounter(Arc<Mutex<Vec<String>>>);

impl RequestCounter {
    /// Returns a client whose requests are counted.
    pub(in crate::reconcile::tests) fn client(&self, client: Client) -> Client {
        let count = self.clone();
        let send = move |request: Request<Body>| {
            let (client, count) = (client.clone(), count.clone());
            async move {
                if !request.uri().query().unwrap_or_default().contains("watch=") {
                    count.record(format!("{} {}", request.method(), request.uri().path()));
                }
                client.send(request).await
            }
        };
        Client::new(tower::service_fn(send), "default")
    }

    fn record(&self, request: String) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(request);
    }

    /// Returns the requests so far.
    pub(in crate::reconcile::tests) fn sent(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(in crate::reconcile::tests) fn count(&self) -> usize {
        self.sent().len()
    }
}
