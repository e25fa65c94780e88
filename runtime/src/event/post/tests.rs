//! Tests of the poster with receivers on loopback that accept, reject, fail and hang.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Mutex;

use http::Response;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::*;
use crate::clock::ManualClock;
use crate::sync::lock;

const LIMIT: Duration = Duration::from_secs(30);

/// A receiver; `answers(n)` is the status of its n-th response, 0 for no response.
struct FakeReceiver {
    address: String,
    bodies: Arc<Mutex<Vec<(String, Value)>>>,
}

async fn start_receiver(answers: impl Fn(usize) -> u16 + Send + Sync + 'static) -> FakeReceiver {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/hook?token=x", listener.local_addr().unwrap());
    let bodies = Arc::<Mutex<Vec<(String, Value)>>>::default();
    let (seen, answers) = (Arc::clone(&bodies), Arc::new(answers));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (seen, answers) = (Arc::clone(&seen), Arc::clone(&answers));
            let service = service_fn(move |request: Request<Incoming>| {
                let (seen, answers) = (Arc::clone(&seen), Arc::clone(&answers));
                async move {
                    let kind = request.headers()[header::CONTENT_TYPE]
                        .to_str()
                        .unwrap()
                        .to_owned();
                    let line = format!("{} {} {kind}", request.method(), request.uri());
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    let n = {
                        let mut seen = lock(&seen);
                        seen.push((line, serde_json::from_slice(&body).unwrap()));
                        seen.len()
                    };
                    let status = answers(n);
                    if status == 0 {
                        std::future::pending::<()>().await;
                    }
                    let mut response = Response::new(Full::new(Bytes::from("answer")));
                    *response.status_mut() = StatusCode::from_u16(status).unwrap();
                    Ok::<_, Infallible>(response)
                }
            });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    FakeReceiver { address, bodies }
}

impl FakeReceiver {
    fn seen(&self) -> Vec<String> {
        let reason = |(_, body): &(String, Value)| body["reason"].as_str().unwrap().to_owned();
        lock(&self.bodies).iter().map(reason).collect()
    }
}

const QUICK: RetryLimits = RetryLimits {
    limit: Duration::from_millis(500),
    retries: 4,
    min_wait: Duration::from_millis(1),
    max_wait: Duration::from_millis(4),
};

fn poster(address: &str, attempts: RetryLimits) -> (Poster, Metrics) {
    let metrics = Metrics::new();
    let reporter = Reporter {
        component: "source-controller".into(),
        instance: "pod-1".into(),
        trace: false,
    };
    let receiver = Receiver::parse(address).unwrap().unwrap();
    let clock = Arc::new(ManualClock::new(Timestamp::UNIX_EPOCH));
    let poster = Poster::start(receiver, attempts, reporter, clock, &metrics).unwrap();
    (poster, metrics)
}

fn object() -> ObjectReference {
    ObjectReference {
        kind: Some("GitRepository".into()),
        namespace: Some("ns".into()),
        name: Some("a".into()),
        ..ObjectReference::default()
    }
}

async fn done<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("done in time")
}

fn count(metrics: &Metrics, result: &str) -> Option<u64> {
    let start = format!("sluice_event_posts_total{{result=\"{result}\"}} ");
    metrics
        .text()
        .lines()
        .find_map(|line| line.strip_prefix(&start).map(|n| n.parse().unwrap()))
}

#[tokio::test]
async fn an_event_is_posted_as_json_to_the_exact_url_and_routine_is_not() {
    let receiver = start_receiver(|_| 202).await;
    let (poster, metrics) = poster(&receiver.address, QUICK);
    poster.post(&object(), &Event::trace("ArtifactUpToDate", "same"));
    poster.post(&object(), &Event::normal("NewArtifact", "stored"));
    poster.post(&object(), &Event::warning("GitOperationFailed", "no"));
    done(poster.flush()).await;
    assert_eq!(receiver.seen(), ["NewArtifact", "GitOperationFailed"]);
    assert_eq!(lock(&receiver.bodies)[0].0, "POST /hook?token=x application/json");
    assert_eq!(count(&metrics, "posted"), Some(2));
}

#[tokio::test]
async fn a_failing_receiver_is_retried_four_times() {
    let receiver = start_receiver(|n| if n <= 4 { 503 } else { 202 }).await;
    let (poster, metrics) = poster(&receiver.address, QUICK);
    poster.post(&object(), &Event::normal("A", "a"));
    done(poster.flush()).await;
    assert_eq!(receiver.seen().len(), 5);
    assert_eq!(
        (count(&metrics, "posted"), count(&metrics, "failed")),
        (Some(1), None)
    );
    let receiver = start_receiver(|_| 500).await;
    let (poster, metrics) = self::poster(&receiver.address, QUICK);
    poster.post(&object(), &Event::normal("A", "a"));
    done(poster.flush()).await;
    assert_eq!(receiver.seen().len(), 5);
    assert_eq!(count(&metrics, "failed"), Some(1));
}

#[tokio::test]
async fn too_many_requests_means_accepted() {
    let receiver = start_receiver(|_| 429).await;
    let (poster, metrics) = poster(&receiver.address, QUICK);
    poster.post(&object(), &Event::normal("A", "a"));
    done(poster.flush()).await;
    assert_eq!(receiver.seen().len(), 1);
    assert_eq!(count(&metrics, "posted"), Some(1));
}

#[tokio::test]
async fn a_rejected_event_is_not_retried_and_the_next_one_is_posted() {
    let receiver = start_receiver(|n| if n == 1 { 400 } else { 202 }).await;
    let (poster, metrics) = poster(&receiver.address, QUICK);
    poster.post(&object(), &Event::normal("A", "a"));
    poster.post(&object(), &Event::normal("B", "b"));
    done(poster.flush()).await;
    assert_eq!(receiver.seen(), ["A", "B"]);
    assert_eq!(
        (count(&metrics, "failed"), count(&metrics, "posted")),
        (Some(1), Some(1))
    );
}

#[tokio::test]
async fn an_attempt_without_response_times_out_and_is_retried() {
    let receiver = start_receiver(|n| if n == 1 { 0 } else { 202 }).await;
    let attempts = RetryLimits {
        limit: Duration::from_millis(200),
        ..QUICK
    };
    let (poster, _) = poster(&receiver.address, attempts);
    poster.post(&object(), &Event::normal("A", "a"));
    done(poster.flush()).await;
    assert_eq!(receiver.seen(), ["A", "A"]);
}

#[tokio::test]
async fn a_refused_connection_is_a_failure_after_the_retries() {
    // Bound without listening, so that no other test gets the port.
    let closed = tokio::net::TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = format!("http://{}/", closed.local_addr().unwrap());
    let (poster, metrics) = poster(&address, QUICK);
    poster.post(&object(), &Event::normal("A", "a"));
    done(poster.flush()).await;
    assert_eq!(count(&metrics, "failed"), Some(1));
}

#[tokio::test]
async fn a_dead_receiver_delays_nothing_and_dropped_events_are_counted() {
    let receiver = start_receiver(|_| 0).await;
    let (poster, metrics) = poster(&receiver.address, RetryLimits::default());
    let started = Instant::now();
    // Recording must not block.
    for n in 0..QUEUE + 500 {
        poster.post(&object(), &Event::normal("A", n.to_string()));
    }
    assert!(started.elapsed() < LIMIT);
    // One event may have left the queue in the meantime.
    let dropped = count(&metrics, "dropped").unwrap();
    assert!((499..=500).contains(&dropped), "{dropped}");
}

#[test]
fn an_address_is_empty_or_an_http_url() {
    assert_eq!(Receiver::parse("").unwrap(), None);
    let flux = Receiver::parse("http://notification-controller.flux-system.svc.cluster.local./").unwrap();
    assert_eq!(
        flux.unwrap().host(),
        "notification-controller.flux-system.svc.cluster.local."
    );
    for bad in [
        "notification-controller",
        "ftp://host/",
        "http://",
        "http:///x",
        "::",
    ] {
        assert!(Receiver::parse(bad).is_err(), "{bad}");
    }
}
