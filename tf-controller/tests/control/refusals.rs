//! An API that refuses what a stack needs, its runs or its finalizer on another: it says so on the object, and holds up nobody
//! else.

use crate::looks::condition;
use crate::world::World;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::net::TcpListener;

type Failed = std::io::Error;
type Answer = Response<UnsyncBoxBody<Bytes, Failed>>;

const SIMPLE: &str = r#"resource "terraform_data" "it" { input = "x" }"#;

/// The definition of runs, with a rule as an admission policy or a quota would have it.
fn runs_unless(rule: &str) -> Value {
    let all = serde_json::to_value(sluice_api::crds()).unwrap();
    let runs = |one: &&Value| one["spec"]["names"]["kind"] == "TerraformRun";
    let mut runs = all.as_array().unwrap().iter().find(runs).unwrap().clone();
    for version in runs["spec"]["versions"].as_array_mut().unwrap() {
        let rules =
            &mut version["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"];
        let refused = json!({ "rule": rule, "message": "exceeded quota" });
        rules.as_array_mut().unwrap().push(refused);
    }
    runs
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_whose_runs_are_refused_says_so_and_takes_nobodys_place() {
    let mut world = World::serving(&[runs_unless("self.terraform.name != 'barred'")]).await;
    world.start(1).await;
    world.commit("a", &[("main.tf", SIMPLE)]).await;
    world.stack("barred", json!({})).await;
    let barred = world
        .ready("barred", "False TFExecNewFailed cannot make a run: ")
        .await;
    assert!(condition(&barred, "Ready").contains("exceeded quota"));
    assert!(condition(&barred, "Reconciling").contains("ProgressingWithRetry"));
    world.event("barred", "Warning ReconciliationFailed").await;
    world.stack("net", json!({})).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    assert!(world.runs("barred").await.is_empty());
}

/// Opens a way to the API on which, while it is barred, nobody puts a dependant's finalizer on `net`, as with an admission
/// rule. Gives its kubeconfig.
async fn way(world: &World, barred: &Arc<AtomicBool>) -> PathBuf {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let (client, barred) = (world.client.clone(), Arc::clone(barred));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (client, barred) = (client.clone(), Arc::clone(&barred));
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let (client, barred) = (client.clone(), Arc::clone(&barred));
                    async move { pass(&client, &barred, request).await }
                });
                let answered = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
                // Runners come and go.
                drop(answered);
            });
        }
    });
    let config = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{ "name": "c", "context": { "cluster": "k", "user": "u" } }],
        "clusters": [{ "name": "k", "cluster": { "server": server } }],
        "users": [{ "name": "u", "user": { "token": "t" } }] });
    let path = world.path("kubeconfig-of-the-way");
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

async fn pass(client: &Client, barred: &AtomicBool, request: Request<Incoming>) -> Result<Answer, Failed> {
    let (head, body) = request.into_parts();
    let bytes = body.collect().await.map_err(Failed::other)?.to_bytes();
    let puts_on = head.method == Method::PATCH
        && head.uri.path().ends_with("/terraforms/net")
        && String::from_utf8_lossy(&bytes).contains("tf.dependency.of.");
    if puts_on && barred.load(Ordering::SeqCst) {
        let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "no finalizers here", "reason": "Forbidden", "code": 403 });
        let body = Full::new(Bytes::from(status.to_string())).map_err(|never| match never {});
        let mut answer = Response::new(body.boxed_unsync());
        *answer.status_mut() = StatusCode::FORBIDDEN;
        return Ok(answer);
    }
    let answer = client.send(Request::from_parts(head, Body::from(bytes))).await;
    let answer = answer.map_err(Failed::other)?;
    Ok(answer.map(|body| body.map_err(Failed::other).boxed_unsync()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dependency_that_takes_no_finalizer_is_named_and_asked_again() {
    let mut world = World::without_controller().await;
    let barred = Arc::new(AtomicBool::new(true));
    world.kubeconfig = way(&world, &barred).await;
    world.start(4).await;
    world.commit("a", &[("main.tf", SIMPLE)]).await;
    world.stack("net", json!({})).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    world
        .stack("app", json!({ "dependsOn": [{ "name": "net" }] }))
        .await;
    let text = "cannot put finalizer tf.dependency.of.app on dependency 'team/net': no finalizers here";
    let waits = world
        .ready("app", &format!("False DependencyNotReady {text}"))
        .await;
    assert!(condition(&waits, "Reconciling").contains("ProgressingWithRetry"));
    assert!(world.runs("app").await.is_empty());
    // Nobody tells of it: the next look finds out.
    barred.store(false, Ordering::SeqCst);
    world.ready("app", "True TerraformAppliedSucceed").await;
}
