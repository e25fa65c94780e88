//! The ids, the content of spans, and the export to a collector of the test.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as SpanStatus;
use prost::Message as _;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, timeout};

use super::*;
use crate::metrics::Metrics;
use crate::schedule::ObjectKey;

/// Deadline of every wait.
const DEADLINE: Duration = Duration::from_mins(1);

/// A span of 1.5 s.
fn span(id: SpanId) -> Span {
    let (start, end) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01.5Z");
    Span::new(id, "reconcile", start.parse().unwrap(), end.parse().unwrap())
}

/// Starts a collector that answers with this status; returns its URL and what it receives.
async fn collector(status: StatusCode) -> (String, UnboundedReceiver<(Parts, ExportTraceServiceRequest)>) {
    crate::http::install_crypto();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, received) = unbounded_channel();
    let service = service_fn(move |request: http::Request<Incoming>| {
        let sender = sender.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let export = ExportTraceServiceRequest::decode(body).unwrap();
            drop(sender.send((head, export)));
            let response = Response::builder().status(status);
            Ok::<_, Infallible>(response.body(Full::new(Bytes::new())).unwrap())
        }
    });
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let connection = hyper::server::conn::http1::Builder::new();
            tokio::spawn(connection.serve_connection(TokioIo::new(stream), service.clone()));
        }
    });
    (url, received)
}

fn count(metrics: &Metrics, result: &str) -> u64 {
    let prefix = format!("sluice_trace_spans_total{{result=\"{result}\"}} ");
    let text = metrics.text();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(&prefix));
    lines.next().unwrap().parse().unwrap()
}

#[test]
fn ids_are_functions_of_the_objects() {
    let root = SpanId::of_revision("u1", "main@sha1:abc");
    // SHA-256 of the two fields, each after its length in eight bytes.
    assert_eq!(
        hex::encode(root.trace_bytes()),
        "7e6d896497c4309ab00f394b2a417dab"
    );
    assert_eq!(hex::encode(root.span_bytes()), "d10a8bf566545485");
    for other in [
        SpanId::of_revision("u2", "main@sha1:abc"),
        SpanId::of_revision("u1", "main@sha1:def"),
        SpanId::of_revision("u1m", "ain@sha1:abc"),
        SpanId::of_object("u1"),
    ] {
        assert_ne!(root.trace_bytes(), other.trace_bytes());
    }
    let child = root.child("fetch");
    assert_eq!(child.trace_bytes(), root.trace_bytes());
    assert_eq!(child, root.child("fetch"));
    assert_ne!(child, root.child("pack"));
    assert_ne!(child.child("x"), root.child("x"));
}

#[test]
fn an_endpoint_is_a_url_without_credentials() {
    for url in [
        "http://collector:4318",
        "https://collector/",
        "http://[::1]:4318/tenant",
    ] {
        assert!(Endpoint::parse(url).unwrap().is_some(), "{url}");
    }
    assert!(Endpoint::parse("").unwrap().is_none());
    for url in [
        "collector:4318",
        "grpc://collector",
        "http://",
        "http://user:secret@collector",
        "http://collector?token=secret",
    ] {
        let error = Endpoint::parse(url).unwrap_err().to_string();
        assert!(!error.contains("secret"), "{url}: {error}");
    }
}

#[tokio::test]
async fn spans_reach_the_collector_with_their_ids_and_attributes() {
    let (url, mut received) = collector(StatusCode::OK).await;
    let metrics = Metrics::new();
    let tracer = Tracer::start(&format!("{url}/"), "source-controller", &metrics).unwrap();
    assert!(tracer.is_enabled());
    let root = SpanId::of_revision("u1", "main@sha1:abc");
    let key = ObjectKey {
        namespace: "team".to_owned(),
        name: "code".to_owned(),
    };
    tracer.record(|| {
        let whole = span(root).with_object("GitRepository", &key);
        vec![
            whole.with_revision("main@sha1:abc"),
            span(root.child("fetch"))
                .below(root)
                .linked_to(SpanId::of_object("u2"))
                .failed("GitOperationFailed"),
            span(root.child("pack")).below(root).failed("password: hunter2"),
        ]
    });
    timeout(DEADLINE, tracer.close(DEADLINE)).await.unwrap();
    let (head, export) = received.recv().await.unwrap();
    assert_eq!(head.uri.path(), "/v1/traces");
    assert_eq!(head.headers["content-type"], "application/x-protobuf");
    let text = format!("{export:?}");
    for part in [
        "source-controller",
        "k8s.namespace.name",
        "vcs.ref.head.revision",
        "\"abc\"",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("hunter2"), "{text}");
    let spans = &export.resource_spans[0].scope_spans[0].spans;
    assert_eq!(spans.len(), 3);
    assert_eq!(spans[0].trace_id, root.trace_bytes());
    assert_eq!(spans[0].span_id, root.span_bytes());
    assert!(spans[0].parent_span_id.is_empty());
    let took = spans[0].end_time_unix_nano - spans[0].start_time_unix_nano;
    assert_eq!(took, 1_500_000_000);
    assert_eq!(spans[1].parent_span_id, root.span_bytes());
    let linked = &spans[1].links[0].trace_id;
    assert_eq!(*linked, SpanId::of_object("u2").trace_bytes());
    for (span, reason) in spans[1..].iter().zip(["GitOperationFailed", "_OTHER"]) {
        let status = span.status.as_ref().unwrap();
        assert_eq!((status.code(), &*status.message), (SpanStatus::Error, reason));
    }
    assert_eq!(count(&metrics, "exported"), 3);
}

#[tokio::test]
async fn a_refused_export_is_counted() {
    let (url, mut received) = collector(StatusCode::BAD_REQUEST).await;
    let metrics = Metrics::new();
    let tracer = Tracer::start(&url, "source-controller", &metrics).unwrap();
    tracer.record(|| vec![span(SpanId::of_object("u"))]);
    timeout(DEADLINE, tracer.close(DEADLINE)).await.unwrap();
    assert!(received.recv().await.is_some());
    assert_eq!((count(&metrics, "failed"), count(&metrics, "exported")), (1, 0));
}

#[tokio::test]
async fn a_collector_that_never_answers_delays_nothing() {
    crate::http::install_crypto();
    // The system accepts connections for a listener that never does.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let metrics = Metrics::new();
    let tracer = Tracer::start(&url, "source-controller", &metrics).unwrap();
    let begin = Instant::now();
    // More than the queue and a batch contain.
    for _ in 0..100 {
        tracer.record(|| vec![span(SpanId::of_object("u")); 100]);
    }
    assert!(count(&metrics, "dropped") >= 4000, "{}", metrics.text());
    tracer.close(Duration::from_millis(100)).await;
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[test]
fn without_an_endpoint_no_span_is_created() {
    let tracer = Tracer::default();
    assert!(!tracer.is_enabled());
    tracer.record(|| panic!("not exported"));
}
