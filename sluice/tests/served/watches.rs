//! Tests of late and lost watch events: each event of a scenario is delayed past the next writes, lost with its
//! connection, or lost until a new list. The final state is always the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{Stream, StreamExt as _, stream};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::client::Body;
use kube::{Api, Client};
use serde_json::json;
use sluice_harness::git::{GitServer, Repository};

use crate::fixture::{Controller, api, start_on};

/// Delay of an event: longer than a reconciliation with its writes.
const LATE: Duration = Duration::from_millis(300);

/// Number of concurrent scenarios, which mostly wait.
const CONCURRENCY: usize = 6;

/// The disturbance of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disturbance {
    /// The event and those after it are delayed.
    Late,
    /// The connection ends instead.
    Lost,
    /// The server reports an expired watch and ends the connection.
    Expired,
}

/// The API with one disturbed watch event.
#[derive(Clone)]
struct DisturbedApi {
    client: Client,
    events: Arc<AtomicUsize>,
    target: Option<(usize, Disturbance)>,
}

type Failed = Box<dyn std::error::Error + Send + Sync>;
type Answer = http_body_util::combinators::UnsyncBoxBody<Bytes, Failed>;

impl DisturbedApi {
    /// Returns the lines of a watch, up to a lost one.
    fn disturb(self, lines: impl Stream<Item = Bytes> + Send + 'static) -> impl Stream<Item = Bytes> + Send {
        let whole = lines.map(move |line| (line, self.events.fetch_add(1, Ordering::SeqCst), self.target));
        stream::unfold((whole.boxed(), false), |(mut lines, over)| async move {
            if over {
                return None;
            }
            let (line, number, target) = lines.next().await?;
            let disturbance = target.filter(|(at, _)| *at == number).map(|(_, what)| what);
            match disturbance {
                None => Some((line, (lines, false))),
                Some(Disturbance::Late) => {
                    tokio::time::sleep(LATE).await;
                    Some((line, (lines, false)))
                }
                Some(Disturbance::Lost) => None,
                Some(Disturbance::Expired) => {
                    let status = json!({
                        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                        "message": "too old resource version", "reason": "Expired", "code": 410,
                    });
                    let line = format!("{}\n", json!({ "type": "ERROR", "object": status }));
                    Some((Bytes::from(line), (lines, true)))
                }
            }
        })
    }
}

/// Splits a body into lines.
fn lines(body: Body) -> impl Stream<Item = Bytes> + Send {
    let pieces = body.into_data_stream();
    stream::unfold((pieces, Vec::new()), |(mut pieces, mut held)| async move {
        loop {
            if let Some(end) = held.iter().position(|byte| *byte == b'\n') {
                let rest = held.split_off(end + 1);
                return Some((Bytes::from(held), (pieces, rest)));
            }
            held.extend_from_slice(&pieces.next().await?.ok()?);
        }
    })
}

impl tower::Service<Request<Body>> for DisturbedApi {
    type Response = Response<Answer>;
    type Error = Failed;
    type Future = BoxFuture<'static, Result<Self::Response, Failed>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let this = self.clone();
        let query = request.uri().query().unwrap_or_default();
        let watch = request.uri().path().ends_with("/gitrepositories") && query.contains("watch=");
        Box::pin(async move {
            let (head, body) = this.client.send(request).await?.into_parts();
            let body = if watch {
                let frames = this
                    .disturb(lines(body))
                    .map(|line| Ok::<_, Failed>(http_body::Frame::data(line)));
                StreamBody::new(frames).boxed_unsync()
            } else {
                let whole = body.collect().await?.to_bytes();
                Full::new(whole).map_err(|never| match never {}).boxed_unsync()
            };
            Ok(Response::from_parts(head, body))
        })
    }
}

/// Runs the scenario: first artifact, new revision, other ignore rules, deletion. Returns the number of watch events.
async fn run_scenario(server: &GitServer, target: Option<(usize, Disturbance)>) -> usize {
    let repository = Repository::create().unwrap();
    let first = repository.commit_files(&[("main.tf", "")], "first").unwrap();
    let name = format!("app-{target:?}").replace(|c: char| !c.is_ascii_alphanumeric(), "");
    let events = Arc::new(AtomicUsize::new(0));
    let api = api();
    let disturbed_api = DisturbedApi {
        client: api.client(),
        events: Arc::clone(&events),
        target,
    };
    let storage = tempfile::tempdir().unwrap();
    let directory = storage.path().join("gitrepository/default/app");
    let mut controller = start_on(Client::new(disturbed_api, "default"), storage, &[]).await;
    // The test itself uses the undisturbed API.
    controller.objects = Api::namespaced(api.client(), "default");
    controller
        .create("app", &server.serve(&name, &repository), "20s")
        .await;
    let one = controller.ready("app", &first).await;
    let second = repository
        .commit_files(&[("main.tf", "locals {}")], "second")
        .unwrap();
    let patch = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": "1" } } });
    controller.patch("app", patch).await;
    let two = controller.ready("app", &second).await;
    controller
        .patch("app", json!({ "spec": { "ignore": "*.tf" } }))
        .await;
    let three = controller.until("app", |status| {
        status
            .artifact
            .as_ref()
            .is_some_and(|artifact| artifact.digest != two.digest)
    });
    let three = three.await;
    assert_eq!(three.artifact.unwrap().revision, two.revision, "{target:?}");
    assert_ne!(one.revision, two.revision);
    delete(&controller, &directory).await;
    controller.end().await;
    events.load(Ordering::SeqCst)
}

async fn delete(controller: &Controller, directory: &std::path::Path) {
    controller.delete("app").await;
    assert!(!directory.exists(), "the artifacts are removed before the object");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_and_lost_events_change_nothing() {
    let server = GitServer::start().await.unwrap();
    let count = run_scenario(&server, None).await;
    assert!(count >= 6, "{count}");
    let all = [Disturbance::Late, Disturbance::Lost, Disturbance::Expired];
    let targets = (0..count).flat_map(|number| all.map(|disturbance| Some((number, disturbance))));
    let mut scenarios =
        stream::iter(targets.map(|target| run_scenario(&server, target))).buffer_unordered(CONCURRENCY);
    while scenarios.next().await.is_some() {}
    println!("{count} events, each late, lost, and lost until a list: same final state");
}
