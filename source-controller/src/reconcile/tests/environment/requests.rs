//! A client that counts its requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Request;
use kube::Client;
use kube::client::Body;

/// The number of requests sent, without watches.
#[derive(Clone, Default)]
pub(in crate::reconcile::tests) struct RequestCounter(Arc<AtomicUsize>);

impl RequestCounter {
    /// Returns a client whose requests are counted.
    pub(in crate::reconcile::tests) fn client(&self, client: Client) -> Client {
        let count = self.clone();
        let send = move |request: Request<Body>| {
            let (client, count) = (client.clone(), count.clone());
            async move {
                if !request.uri().query().unwrap_or_default().contains("watch=") {
                    count.0.fetch_add(1, Ordering::Relaxed);
                }
                client.send(request).await
            }
        };
        Client::new(tower::service_fn(send), "default")
    }

    pub(in crate::reconcile::tests) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}
