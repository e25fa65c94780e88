//! The task that posts events to the receiver of `--events-addr`.
//!
//! It has its own queue, so that a slow or unavailable receiver loses events at worst and never delays a reconciliation.

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

/// Maximum number of bytes read from a response, so that the connection can be reused.
const MAX_RESPONSE: usize = 16 * 1024;

/// The URL that events are posted to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver(Uri);

/// `--events-addr` is invalid.
#[derive(Debug, thiserror::Error)]
#[error(
    "--events-addr must be empty or an http or https URL with a host, such as http://notification-controller/"
)]
pub struct InvalidReceiver;

/// Events cannot be posted.
#[derive(Debug, thiserror::Error)]
pub enum PosterError {
    /// The address is invalid.
    #[error(transparent)]
    Address(#[from] InvalidReceiver),
    /// TLS cannot be set up.
    #[error("cannot create a client for --events-addr")]
    Tls(#[from] TlsError),
}

impl Receiver {
    /// Parses the URL of a receiver; `None` for an empty text.
    ///
    /// # Errors
    /// The text is neither empty nor an `http` or `https` URL.
    pub fn parse(url: &str) -> Result<Option<Self>, InvalidReceiver> {
        if url.is_empty() {
            return Ok(None);
        }
        let uri: Uri = url.parse().map_err(|_| InvalidReceiver)?;
        let known = matches!(uri.scheme_str(), Some("http" | "https"));
        let hosted = uri.host().is_some_and(|host| !host.is_empty());
        if known && hosted {
            Ok(Some(Self(uri)))
        } else {
            Err(InvalidReceiver)
        }
    }

    /// Returns the host; the rest of the URL may contain a secret.
    fn host(&self) -> &str {
        self.0.host().unwrap_or_default()
    }
}

/// Timeout and retries of one event.
#[derive(Clone, Copy, Debug)]
pub struct RetryLimits {
    /// Timeout of one attempt.
    pub limit: Duration,
    /// Retries after the first attempt.
    pub retries: u32,
    /// Delay before the first retry; doubled each time.
    pub min_wait: Duration,
    /// Maximum delay.
    pub max_wait: Duration,
}

impl Default for RetryLimits {
    /// Returns Flux's values.
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

/// A command for the posting task.
#[derive(Debug)]
enum Command {
    Post(Box<Body>),
    Flush(oneshot::Sender<()>),
}

/// Queues events for a receiver; cheap to clone.
#[derive(Clone)]
pub struct Poster {
    queue: mpsc::Sender<Command>,
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
    /// Starts a poster for the value of `--events-addr`; `None` if it is empty.
    ///
    /// # Errors
    /// The value is neither empty nor a URL, or TLS cannot be set up.
    pub(crate) fn for_address(
        url: &str,
        reporter: Reporter,
        clock: Arc<dyn Clock>,
        metrics: &Metrics,
    ) -> Result<Option<Self>, PosterError> {
        let Some(receiver) = Receiver::parse(url)? else {
            return Ok(None);
        };
        let poster = Self::start(receiver, RetryLimits::default(), reporter, clock, metrics)?;
        Ok(Some(poster))
    }

    /// Starts the posting task, which ends when all clones of the poster are dropped and the queue is empty.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn start(
        receiver: Receiver,
        attempts: RetryLimits,
        reporter: Reporter,
        clock: Arc<dyn Clock>,
        metrics: &Metrics,
    ) -> Result<Self, TlsError> {
        let settings = Settings {
            connect_timeout: attempts.limit,
            idle_per_host: 1,
            ..Settings::default()
        };
        let (queue, commands) = mpsc::channel(QUEUE);
        let outcomes = Family::<Outcome, Counter>::default();
        metrics.register(
            "sluice_event_posts",
            "Events posted to the receiver by result",
            outcomes.clone(),
        );
        let lost = Arc::<AtomicU64>::default();
        let task = Task {
            client: client(&settings)?,
            receiver,
            attempts,
            lost: Arc::clone(&lost),
            outcomes: outcomes.clone(),
            last_failure: None,
        };
        tokio::spawn(task.run(commands));
        Ok(Self {
            queue,
            reporter,
            clock,
            lost,
            outcomes,
        })
    }

    /// Queues an event unless it is for the cluster only. Never waits: a full queue drops the event, with a metric and a log line.
    pub(super) fn post(&self, object: &ObjectReference, event: &Event) {
        if matches!(event.severity, Severity::Trace | Severity::ClusterOnly) {
            return;
        }
        let Some(body) = Body::of(object, event, &self.reporter, self.clock.now()) else {
            tracing::warn!(
                reason = event.reason,
                "event of an object without kind, name or namespace: not posted"
            );
            return;
        };
        if self.queue.try_send(Command::Post(Box::new(body))).is_err() {
            self.outcomes.get_or_create(&Outcome { result: "dropped" }).inc();
            // Log the first one now, and the number of others when the queue moves again.
            if self.lost.fetch_add(1, Ordering::Relaxed) == 0 {
                tracing::warn!(
                    queued = QUEUE,
                    "the receiver of events is too slow: events are dropped"
                );
            }
        }
    }

    /// Waits until all queued events are posted or dropped.
    pub(super) async fn flush(&self) {
        let (done, is_done) = oneshot::channel();
        if self.queue.send(Command::Flush(done)).await.is_ok() {
            // An error means that the task ended.
            drop(is_done.await);
        }
    }
}

/// Classification of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseClass {
    /// Accepted; 429 means that the receiver already has the event.
    Accepted,
    /// A retry may succeed.
    Retry,
    /// A retry cannot succeed.
    Rejected,
}

fn classify(status: StatusCode) -> ResponseClass {
    match status {
        StatusCode::TOO_MANY_REQUESTS => ResponseClass::Accepted,
        _ if status.is_success() => ResponseClass::Accepted,
        _ if status.is_server_error() => ResponseClass::Retry,
        _ => ResponseClass::Rejected,
    }
}

struct Task {
    client: HttpClient<Full<Bytes>>,
    receiver: Receiver,
    attempts: RetryLimits,
    lost: Arc<AtomicU64>,
    outcomes: Family<Outcome, Counter>,
    /// The last logged failure, so that a repeated one is logged only once.
    last_failure: Option<String>,
}

impl Task {
    async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        while let Some(command) = commands.recv().await {
            match command {
                Command::Flush(done) => drop(done.send(())),
                Command::Post(body) => {
                    let posted = self.post(&body).await;
                    self.report(&body, posted);
                }
            }
        }
    }

    /// Posts one event with retries; fails with the result of the last attempt.
    async fn post(&self, body: &Body) -> Result<(), String> {
        let json = serde_json::to_vec(body).map_err(|error| error.to_string())?;
        let json = Bytes::from(json);
        let mut wait = self.attempts.min_wait;
        for left in (0..=self.attempts.retries).rev() {
            let failure = match self.attempt(json.clone()).await {
                Ok(status) => match classify(status) {
                    ResponseClass::Accepted => return Ok(()),
                    ResponseClass::Rejected => return Err(format!("status {status}")),
                    ResponseClass::Retry => format!("status {status}"),
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
            // Read so that the connection can be reused.
            drop(Limited::new(answer.into_body(), MAX_RESPONSE).collect().await);
            Ok(status)
        };
        let limit = self.attempts.limit;
        let late = |_| Err(format!("no response within {limit:?}"));
        tokio::time::timeout(limit, exchange).await.unwrap_or_else(late)
    }

    fn report(&mut self, body: &Body, posted: Result<(), String>) {
        let result = if posted.is_ok() { "posted" } else { "failed" };
        self.outcomes.get_or_create(&Outcome { result }).inc();
        let host = self.receiver.host();
        match posted {
            Ok(()) if self.last_failure.take().is_some() => {
                tracing::info!(host, "the receiver accepts events again");
            }
            Ok(()) => {}
            Err(error) if self.last_failure.as_ref() == Some(&error) => {
                tracing::debug!(host, error, event = body.subject(), "unable to post event");
            }
            Err(error) => {
                tracing::warn!(host, error, event = body.subject(), "unable to post event");
                self.last_failure = Some(error);
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
