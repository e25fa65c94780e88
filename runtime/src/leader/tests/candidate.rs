//! What each candidate has of its own: a way to the API, which fails, loses answers and carries writes out late; and clocks.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Request;
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use sluice_embedded::Embedded;
use tokio::time::Instant;
use tower::{BoxError, ServiceExt as _};

use crate::clock::lock;

/// What the API does with a request of one candidate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fault {
    #[default]
    None,
    /// Refused, nothing done.
    Refused,
    /// Done, and the answer lost.
    Mute,
    /// Not answered; writes are carried out some time later.
    Late,
}

/// A candidate's way to the API.
#[derive(Clone, Default)]
pub(super) struct Way {
    pub(super) fault: Arc<Mutex<Fault>>,
    late: Arc<Mutex<Vec<Request<Body>>>>,
}

impl Way {
    pub(super) fn client(&self, api: &Embedded) -> Client {
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

    /// What is on its way arrives.
    pub(super) async fn arrive(&self, api: &Embedded) {
        let requests = std::mem::take(&mut *lock(&self.late));
        for request in requests {
            drop(api.clone().oneshot(request).await);
        }
    }
}

/// The clocks of one candidate, next to the time of the test.
#[derive(Clone, Copy, Debug)]
pub(super) struct Skew {
    /// How far its clock of the day is off, in milliseconds: this is what it writes into the Lease.
    pub(super) wall: i64,
    /// How long before the test its steady clock began.
    pub(super) age: Duration,
    /// Seconds of its steady clock for each second of the test.
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
