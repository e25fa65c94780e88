//! The task that POSTs events to the receiver of `--events-addr`.
//!
//! It has a queue of its own, so that a receiver which is slow or away costs events at worst and never a pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use k8s_openapi::api::core::v1::ObjectReference;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::sync::{mpsc, oneshot};

use super::body::Body;
use super::{Event, QUEUE, Reporter, Severity};
use crate::clock::Clock;
use crate::failure::chain;
use crate::http::{HttpClient, Settings, TlsError, client};
use crate::metrics::Metrics;

/// Bytes of an answer that are read, so that its connection can be used again.
const ANSWER: usize = 16 * 1024;

/// Where events are posted to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver(Uri);

/// `--events-addr` is no address.
#[derive(Debug, thiserror::Error)]
#[error(
    "--events-addr must be empty or an http or https URL with a host, such as http://notification-controller/"
)]
pub struct BadReceiver;

/// Events cannot be posted.
#[derive(Debug, thiserror::Error)]
pub enum PosterError {
    /// The address is none.
    #[error(transparent)]
    Address(#[from] BadReceiver),
    /// TLS cannot be set up.
    #[error("cannot make a client for --events-addr")]
    Tls(#[from] TlsError),
}

impl Receiver {
    /// The receiver at this URL; none for the empty text.
    ///
    /// # Errors
    /// The text is neither empty nor an `http` or `https` URL.
    pub fn at(url: &str) -> Result<Option<Self>, BadReceiver> {
        if url.is_empty() {
            return Ok(None);
        }
        let uri: Uri = url.parse().map_err(|_| BadReceiver)?;
        let known = matches!(uri.scheme_str(), Some("http" | "https"));
        let hosted = uri.host().is_some_and(|host| !host.is_empty());
        if known && hosted {
            Ok(Some(Self(uri)))
        } else {
            Err(BadReceiver)
        }
    }

    /// Its host; the rest of the URL may hold a secret.
    fn host(&self) -> &str {
        self.0.host().unwrap_or_default()
    }
}

/// How often and how long the receiver is tried, for one event.
#[derive(Clone, Copy, Debug)]
pub struct Attempts {
    /// Limit of one attempt.
    pub limit: Duration,
    /// Attempts beyond the first.
    pub retries: u32,
    /// Wait before the first retry; doubled each time.
    pub min_wait: Duration,
    /// Longest wait.
    pub max_wait: Duration,
}

impl Default for Attempts {
    /// Flux's values.
    fn default() -> Self {
        Self {
            limit: Duration::from_secs(5),
            retries: 4,
            min_wait: Duration::from_secs(1),
            max_wait: Duration::from_secs(30),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    result: &'static str,
}

/// What the posting task is told.
#[derive(Debug)]
enum Order {
    Post(Box<Body>),
    Flush(oneshot::Sender<()>),
}

/// Takes events for a receiver; cheap to clone.
#[derive(Clone)]
pub struct Poster {
    queue: mpsc::Sender<Order>,
    reporter: Reporter,
    clock: Arc<dyn Clock>,
    lost: Arc<AtomicU64>,
    outcomes: Family<Outcome, Counter>,
}

impl std::fmt::Debug for Poster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poster").finish_non_exhaustive()
    }
}

impl Poster {
    /// A poster for the value of `--events-addr`; none where it is empty.
    ///
    /// # Errors
    /// It is neither empty nor a URL, or TLS cannot be set up.
    pub fn for_address(
        url: &str,
        reporter: Reporter,
        clock: Arc<dyn Clock>,
        metrics: &Metrics,
    ) -> Result<Option<Self>, PosterError> {
        let Some(receiver) = Receiver::at(url)? else {
            return Ok(None);
        };
        let poster = Self::start(receiver, Attempts::default(), reporter, clock, metrics)?;
        Ok(Some(poster))
    }

    /// Starts the posting task. It ends when the last clone of the poster is gone and the queue is empty.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn start(
        receiver: Receiver,
        attempts: Attempts,
        reporter: Reporter,
        clock: Arc<dyn Clock>,
        metrics: &Metrics,
    ) -> Result<Self, TlsError> {
        let settings = Settings {
            connect_timeout: attempts.limit,
            idle_per_host: 1,
            ..Settings::default()
        };
        let (queue, orders) = mpsc::channel(QUEUE);
        let outcomes = Family::<Outcome, Counter>::default();
        metrics.register(
            "sluice_event_posts",
            "Events for the receiver by result",
            outcomes.clone(),
        );
        let lost = Arc::<AtomicU64>::default();
        let task = Task {
            client: client(&settings)?,
            receiver,
            attempts,
            lost: Arc::clone(&lost),
            outcomes: outcomes.clone(),
            trouble: None,
        };
        tokio::spawn(task.run(orders));
        Ok(Self {
            queue,
            reporter,
            clock,
            lost,
            outcomes,
        })
    }

    /// Queues an event, unless it is for the cluster alone. Never waits: a full queue drops the event, which is counted and logged.
    pub(super) fn post(&self, object: &ObjectReference, event: &Event) {
        if matches!(event.severity, Severity::Trace | Severity::Unposted) {
            return;
        }
        let Some(body) = Body::of(object, event, &self.reporter, self.clock.now()) else {
            tracing::warn!(
                reason = event.reason,
                "event of an object without kind, name or namespace: not posted"
            );
            return;
        };
        if self.queue.try_send(Order::Post(Box::new(body))).is_err() {
            self.outcomes.get_or_create(&Outcome { result: "dropped" }).inc();
            // The first one is told at once, the others when the queue moves again.
            if self.lost.fetch_add(1, Ordering::Relaxed) == 0 {
                tracing::warn!(
                    queued = QUEUE,
                    "the receiver of events is too slow: events are dropped"
                );
            }
        }
    }

    /// Waits until what was queued before has been posted, or given up.
    pub(super) async fn flush(&self) {
        let (done, is_done) = oneshot::channel();
        if self.queue.send(Order::Flush(done)).await.is_ok() {
            // An error says that the task is gone: nothing is left to wait for.
            drop(is_done.await);
        }
    }
}

/// What an answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Taken; 429 says that the receiver has it already.
    Taken,
    /// Another attempt may be taken.
    Again,
    /// It will never be taken.
    Refused,
}

fn judge(status: StatusCode) -> Verdict {
    match status {
        StatusCode::TOO_MANY_REQUESTS => Verdict::Taken,
        _ if status.is_success() => Verdict::Taken,
        _ if status.is_server_error() => Verdict::Again,
        _ => Verdict::Refused,
    }
}

struct Task {
    client: HttpClient<Full<Bytes>>,
    receiver: Receiver,
    attempts: Attempts,
    lost: Arc<AtomicU64>,
    outcomes: Family<Outcome, Counter>,
    /// What was last logged as wrong: the same trouble is told once until it is over.
    trouble: Option<String>,
}

impl Task {
    async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        while let Some(order) = orders.recv().await {
            match order {
                Order::Flush(done) => drop(done.send(())),
                Order::Post(body) => {
                    let posted = self.post(&body).await;
                    self.tell(&body, posted);
                }
            }
        }
    }

    /// One event, with its retries; fails with what the last attempt came to.
    async fn post(&self, body: &Body) -> Result<(), String> {
        let json = serde_json::to_vec(body).map_err(|error| error.to_string())?;
        let json = Bytes::from(json);
        let mut wait = self.attempts.min_wait;
        for left in (0..=self.attempts.retries).rev() {
            let failure = match self.attempt(json.clone()).await {
                Ok(status) => match judge(status) {
                    Verdict::Taken => return Ok(()),
                    Verdict::Refused => return Err(format!("status {status}")),
                    Verdict::Again => format!("status {status}"),
                },
                Err(failure) => failure,
            };
            if left == 0 {
                return Err(failure);
            }
            tokio::time::sleep(wait.min(self.attempts.max_wait)).await;
            wait = wait.saturating_mul(2);
        }
        Ok(())
    }

    async fn attempt(&self, json: Bytes) -> Result<StatusCode, String> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(self.receiver.0.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(json))
            .map_err(|error| error.to_string())?;
        let exchange = async {
            let answer = self
                .client
                .request(request)
                .await
                .map_err(|error| chain(&error))?;
            let status = answer.status();
            // Read for the sake of the connection only: the status says it all.
            drop(Limited::new(answer.into_body(), ANSWER).collect().await);
            Ok(status)
        };
        let limit = self.attempts.limit;
        let late = |_| Err(format!("no answer within {limit:?}"));
        tokio::time::timeout(limit, exchange).await.unwrap_or_else(late)
    }

    fn tell(&mut self, body: &Body, posted: Result<(), String>) {
        let result = if posted.is_ok() { "posted" } else { "failed" };
        self.outcomes.get_or_create(&Outcome { result }).inc();
        let host = self.receiver.host();
        match posted {
            Ok(()) if self.trouble.take().is_some() => tracing::info!(host, "events are received again"),
            Ok(()) => {}
            Err(error) if self.trouble.as_ref() == Some(&error) => {
                tracing::debug!(host, error, event = body.subject(), "unable to post event");
            }
            Err(error) => {
                tracing::warn!(host, error, event = body.subject(), "unable to post event");
                self.trouble = Some(error);
            }
        }
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            tracing::warn!(host, lost, "events were dropped while the receiver was too slow");
        }
    }
}

#[cfg(test)]
mod tests;
