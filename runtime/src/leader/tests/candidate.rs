//! A candidate's connection to the API, which fails, loses responses and delays writes, and its clocks.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Request;
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use sluice_embedded::ApiServer;
use tokio::time::Instant;
use tower::{BoxError, ServiceExt as _};

use crate::sync::lock;

/// What the API does with a request of a candidate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fault {
    #[default]
    None,
    /// Rejects the request.
    Refused,
    /// Executes the request and loses the response.
    Mute,
    /// Sends no response; executes writes later.
    Late,
}

/// A candidate's connection to the API.
#[derive(Clone, Default)]
pub(super) struct Way {
    pub(super) fault: Arc<Mutex<Fault>>,
    late: Arc<Mutex<Vec<Request<Body>>>>,
}

impl Way {
    pub(super) fn client(&self, api: &ApiServer) -> Client {
        let (way, api) = (self.clone(), api.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (way, api) = (way.clone(), api.clone());
            async move {
                let fault = *lock(&way.fault);
                match fault {
                    Fault::None => Ok(api.oneshot(request).await?),
                    Fault::Refused => Err(BoxError::from("refused")),
                    Fault::Mute => {
                        drop(api.oneshot(request).await?);
                        Err("no answer".into())
                    }
                    Fault::Late => {
                        lock(&way.late).push(request);
                        Err("no answer".into())
                    }
                }
            }
        });
        Client::new(service, "default")
    }

    /// Executes the delayed writes.
    pub(super) async fn arrive(&self, api: &ApiServer) {
        let requests = std::mem::take(&mut *lock(&self.late));
        for request in requests {
            drop(api.clone().oneshot(request).await);
        }
    }
}

/// The clocks of a candidate, relative to the time of the test.
#[derive(Clone, Copy, Debug)]
pub(super) struct Skew {
    /// Offset of its wall clock in milliseconds, which it writes to the Lease.
    pub(super) wall: i64,
    /// Time between the start of its monotonic clock and the test.
    pub(super) age: Duration,
    /// Rate of its monotonic clock.
    pub(super) rate: f64,
}

impl Skew {
    /// No skew.
    pub(super) const NONE: Self = Self {
        wall: 0,
        age: Duration::ZERO,
        rate: 1.0,
    };

    pub(super) fn wall(self, elapsed: Duration) -> Timestamp {
        Timestamp::UNIX_EPOCH + elapsed + jiff::SignedDuration::from_millis(self.wall)
    }

    pub(super) fn steady(self, start: Instant, elapsed: Duration) -> Instant {
        start + self.age + elapsed.mul_f64(self.rate)
    }
}
