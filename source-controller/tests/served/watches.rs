//! Watch events that come late or not at all: each event of a story is held back past the next writes, lost with its
//! connection, and lost until a new list; the story ends the same.

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

use crate::world::{Started, api, start_on};

/// How long an event is held back: longer than a pass and its writes take.
const LATE: Duration = Duration::from_millis(300);

/// Stories told at once: they wait most of the time.
const AT_ONCE: usize = 6;

/// What happens to one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disturbance {
    /// It comes late; what follows it waits behind it.
    Late,
    /// The connection ends instead.
    Lost,
    /// The server says that the watch is too old, and ends the connection.
    Expired,
}

/// The API, with one event of its watches of the kind disturbed.
#[derive(Clone)]
struct Disturbed {
    client: Client,
    events: Arc<AtomicUsize>,
    target: Option<(usize, Disturbance)>,
}

type Failed = Box<dyn std::error::Error + Send + Sync>;
type Answer = http_body_util::combinators::UnsyncBoxBody<Bytes, Failed>;

impl Disturbed {
    /// The lines of a watch, until one that is lost.
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

/// A body cut into lines.
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

impl tower::Service<Request<Body>> for Disturbed {
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

/// A first artifact, a new revision, another ignore, the end. Gives the number of events that the controller was sent.
async fn story(server: &GitServer, target: Option<(usize, Disturbance)>) -> usize {
    let repository = Repository::create().unwrap();
    let first = repository.commit_files(&[("main.tf", "")], "first").unwrap();
    let name = format!("app-{target:?}").replace(|c: char| !c.is_ascii_alphanumeric(), "");
    let events = Arc::new(AtomicUsize::new(0));
    let api = api();
    let disturbed = Disturbed {
        client: api.client(),
        events: Arc::clone(&events),
        target,
    };
    let storage = tempfile::tempdir().unwrap();
    let directory = storage.path().join("gitrepository/default/app");
    let mut started = start_on(Client::new(disturbed, "default"), storage, &[]).await;
    // The test looks at the API itself.
    started.objects = Api::namespaced(api.client(), "default");
    started
        .create("app", &server.serve(&name, &repository), "20s")
        .await;
    let one = started.ready("app", &first).await;
    let second = repository
        .commit_files(&[("main.tf", "locals {}")], "second")
        .unwrap();
    let asked = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": "1" } } });
    started.patch("app", asked).await;
    let two = started.ready("app", &second).await;
    started
        .patch("app", json!({ "spec": { "ignore": "*.tf" } }))
        .await;
    let three = started.until("app", |status| {
        status
            .artifact
            .as_ref()
            .is_some_and(|artifact| artifact.digest != two.digest)
    });
    let three = three.await;
    assert_eq!(three.artifact.unwrap().revision, two.revision, "{target:?}");
    assert_ne!(one.revision, two.revision);
    delete(&started, &directory).await;
    started.end().await;
    events.load(Ordering::SeqCst)
}

async fn delete(started: &Started, directory: &std::path::Path) {
    started.delete("app").await;
    assert!(!directory.exists(), "the artifacts go before the object");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_and_lost_events_change_nothing() {
    let server = GitServer::start().await.unwrap();
    let count = story(&server, None).await;
    assert!(count >= 6, "{count}");
    let all = [Disturbance::Late, Disturbance::Lost, Disturbance::Expired];
    let targets = (0..count).flat_map(|number| all.map(|disturbance| Some((number, disturbance))));
    let mut stories = stream::iter(targets.map(|target| story(&server, target))).buffer_unordered(AT_ONCE);
    while stories.next().await.is_some() {}
    println!("{count} events, each late, lost, and lost until a list: the story ended the same");
}
