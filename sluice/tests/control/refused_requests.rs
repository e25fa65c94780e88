//! An API that refuses a stack's runs or its finalizer on another stack: the refusal is reported on the object and affects no other
//! object.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::environment::TestEnvironment;
use crate::observe::condition;

type Failed = std::io::Error;
type Answer = Response<UnsyncBoxBody<Bytes, Failed>>;

const SIMPLE: &str = r#"resource "terraform_data" "it" { input = "x" }"#;

/// Returns the definition of runs with a validation rule, which acts as an admission policy or a quota.
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
async fn a_stack_with_rejected_runs_reports_them_and_takes_no_slot() {
    let mut env = TestEnvironment::with_definitions(&[runs_unless("self.terraform.name != 'barred'")]).await;
    env.start(1).await;
    env.commit("a", &[("main.tf", SIMPLE)]).await;
    env.stack("barred", json!({})).await;
    let blocked = env
        .wait_ready("barred", "False TFExecNewFailed cannot create a run: ")
        .await;
    assert!(condition(&blocked, "Ready").contains("exceeded quota"));
    assert!(condition(&blocked, "Reconciling").contains("ProgressingWithRetry"));
    env.wait_event("barred", "Warning ReconciliationFailed").await;
    env.stack("net", json!({})).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert!(env.runs("barred").await.is_empty());
}

/// Returns why the API refuses a request: the message and the kind of object.
pub(crate) type Refusal = Arc<dyn Fn(&Parts, &[u8]) -> Option<(String, &'static str)> + Send + Sync>;

/// Opens a proxy of the API that refuses requests (403), as a role or an admission rule would. Returns its kubeconfig.
pub(crate) async fn open_proxy(env: &TestEnvironment, refusal: Refusal) -> PathBuf {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let client = env.client.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (client, refusal) = (client.clone(), Arc::clone(&refusal));
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let (client, refusal) = (client.clone(), Arc::clone(&refusal));
                    async move { forward(&client, &refusal, request).await }
                });
                let answered = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
                // Runners connect and disconnect.
                drop(answered);
            });
        }
    });
    let config = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{ "name": "c", "context": { "cluster": "k", "user": "u" } }],
        "clusters": [{ "name": "k", "cluster": { "server": server } }],
        "users": [{ "name": "u", "user": { "token": "t" } }] });
    let path = env.path("refusing-proxy.kubeconfig");
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

async fn forward(client: &Client, refusal: &Refusal, request: Request<Incoming>) -> Result<Answer, Failed> {
    let (head, body) = request.into_parts();
    let bytes = body.collect().await.map_err(Failed::other)?.to_bytes();
    if let Some((message, kind)) = refusal(&head, &bytes) {
        let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": "Forbidden", "details": { "kind": kind }, "code": 403 });
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
async fn a_dependency_that_refuses_the_finalizer_is_reported_and_retried() {
    let mut env = TestEnvironment::without_controller().await;
    let blocked = Arc::new(AtomicBool::new(true));
    let is_blocked = Arc::clone(&blocked);
    let refusal: Refusal = Arc::new(move |head, body| {
        let puts_on = head.method == Method::PATCH
            && head.uri.path().ends_with("/terraforms/net")
            && String::from_utf8_lossy(body).contains("tf.dependency.of.");
        let is_refused = puts_on && is_blocked.load(Ordering::SeqCst);
        is_refused.then(|| ("no finalizers here".to_owned(), "terraforms"))
    });
    env.kubeconfig = open_proxy(&env, refusal).await;
    env.start(4).await;
    env.commit("a", &[("main.tf", SIMPLE)]).await;
    env.stack("net", json!({})).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    env.stack("app", json!({ "dependsOn": [{ "name": "net" }] }))
        .await;
    let text = "cannot add finalizer tf.dependency.of.app to dependency 'team/net': no finalizers here";
    let refused_stack = env
        .wait_ready("app", &format!("False DependencyNotReady {text}"))
        .await;
    assert!(condition(&refused_stack, "Reconciling").contains("ProgressingWithRetry"));
    assert!(env.runs("app").await.is_empty());
    // No event reports it: the retry succeeds.
    blocked.store(false, Ordering::SeqCst);
    env.wait_ready("app", "True TerraformAppliedSucceed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_stack_whose_data_cannot_be_deleted_keeps_no_slot() {
    let mut env = TestEnvironment::without_controller().await;
    let blocked = Arc::new(AtomicBool::new(true));
    let is_blocked = Arc::clone(&blocked);
    let refusal: Refusal = Arc::new(move |head, _| {
        // Only the controller lists these, and only after the destroy.
        let lists = head.method == Method::GET
            && head.uri.path().ends_with("/configmaps")
            && head
                .uri
                .query()
                .is_some_and(|query| query.contains("sluice.dev%2Fapplied"));
        (lists && is_blocked.load(Ordering::SeqCst)).then(|| ("no lists here".to_owned(), "configmaps"))
    });
    env.kubeconfig = open_proxy(&env, refusal).await;
    env.start(1).await;
    env.commit("a", &[("main.tf", SIMPLE)]).await;
    env.stack("net", json!({ "destroyResourcesOnDeletion": true }))
        .await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    env.delete("net").await;
    env.wait_run("net", "destroyed", |run| {
        let status = run.status.as_ref();
        run.spec.destroy && status.is_some_and(|status| status.phase.is_final())
    })
    .await;
    env.stack("app", json!({})).await;
    env.wait_ready("app", "True TerraformAppliedSucceed").await;
    assert!(!env.runs("net").await.is_empty(), "it is not released yet");
    blocked.store(false, Ordering::SeqCst);
    env.wait_gone("net").await;
}
