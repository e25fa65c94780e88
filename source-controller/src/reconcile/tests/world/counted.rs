//! The API with a count of what is asked of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Request;
use kube::Client;
use kube::client::Body;

/// Requests that were sent, without watches.
#[derive(Clone, Default)]
pub(in crate::reconcile::tests) struct Requests(Arc<AtomicUsize>);

impl Requests {
    /// A client whose requests count.
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
