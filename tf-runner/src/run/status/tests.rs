//! Tests of the writer against an API that refuses writes.

use std::sync::atomic::AtomicUsize;

use kube::client::Body;
use kube::{Client, ResourceExt as _};
use serde_json::json;
use sluice_api::annotation::CANCEL;

use super::*;

const INTERVALS: WriteIntervals = WriteIntervals {
    heartbeat: Duration::from_hours(1),
    step: Duration::from_hours(1),
};

fn run() -> TerraformRun {
    serde_json::from_value(json!({
        "apiVersion": "infra.sluice.dev/v1alpha1", "kind": "TerraformRun",
        "metadata": { "name": "net-u-1", "namespace": "team", "resourceVersion": "1" },
        "spec": { "action": "Plan", "attempt": 1, "deadline": "1h", "trigger": "Revision",
            "source": { "kind": "GitRepository", "name": "code", "namespace": "team" },
            "terraform": { "name": "net", "uid": "u", "generation": 1 } },
        "status": { "phase": "Claimed" },
    }))
    .unwrap()
}

/// Returns an API that answers the first requests with these codes, all others with the run, and the number of its requests.
fn api(codes: &'static [u16]) -> (Api<TerraformRun>, Arc<AtomicUsize>) {
    api_with(codes, run())
}

/// As [`api`], with another run.
fn api_with(codes: &'static [u16], run: TerraformRun) -> (Api<TerraformRun>, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let service = tower::service_fn(move |_: http::Request<Body>| {
        let code = codes.get(counted.fetch_add(1, Ordering::SeqCst)).copied();
        let body = match code {
            Some(code) => json!({ "kind": "Status", "status": "Failure", "code": code, "message": "no" }),
            None => serde_json::to_value(&run).unwrap(),
        };
        let answer = http::Response::builder().status(code.unwrap_or(200));
        let answer = answer.body(Body::from(body.to_string().into_bytes())).unwrap();
        async move { Ok::<_, std::convert::Infallible>(answer) }
    });
    (Api::namespaced(Client::new(service, "team"), "team"), count)
}

/// An API server that has just started knows neither the account (401) nor its role (403).
#[tokio::test]
async fn a_status_that_the_api_refuses_for_a_moment_is_written() {
    let (api, count) = api(&[503, 401, 403]);
    let stop = CancellationToken::new();
    let writer = StatusWriter::start(api, &run(), INTERVALS, stop.clone());
    writer.write(|status| "planned".clone_into(&mut status.message));
    assert_eq!(writer.flush(Duration::from_secs(30)).await, Ok(()));
    assert_eq!(count.load(Ordering::SeqCst), 4);
    assert!(!stop.is_cancelled());
}

#[tokio::test]
async fn a_status_that_the_api_cannot_take_is_not_written_again() {
    let (api, count) = api(&[422]);
    let writer = StatusWriter::start(api, &run(), INTERVALS, CancellationToken::new());
    writer.write(|status| "planned".clone_into(&mut status.message));
    assert_eq!(
        writer.flush(Duration::from_secs(30)).await,
        Err(FlushError::Refused)
    );
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn the_answer_to_a_write_cancels_the_run_whose_status_is_still_written() {
    let mut cancelled = run();
    cancelled
        .annotations_mut()
        .insert(CANCEL.to_owned(), "now".to_owned());
    let (api, count) = api_with(&[], cancelled);
    let stop = CancellationToken::new();
    let writer = StatusWriter::start(api, &run(), INTERVALS, stop.clone());
    assert!(!writer.is_cancelled());
    writer.write(|status| "planned".clone_into(&mut status.message));
    assert_eq!(writer.flush(Duration::from_secs(30)).await, Ok(()));
    assert!(stop.is_cancelled() && writer.is_cancelled());
    writer.write(|status| "interrupted".clone_into(&mut status.message));
    assert_eq!(writer.flush(Duration::from_secs(30)).await, Ok(()));
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_run_that_was_cancelled_before_its_claim_stops_at_once() {
    let mut cancelled = run();
    cancelled
        .annotations_mut()
        .insert(CANCEL.to_owned(), "now".to_owned());
    let (api, _) = api(&[]);
    let stop = CancellationToken::new();
    let writer = StatusWriter::start(api, &cancelled, INTERVALS, stop.clone());
    assert!(stop.is_cancelled() && writer.is_cancelled());
}
