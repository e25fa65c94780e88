//! A client for which the API refuses copies of the state.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use sluice_api::run::TerraformRun;
use tokio_util::sync::CancellationToken;
use tower::Service as _;

use super::{bundle, three};
use crate::environment::{NAMESPACE, RunSetup, TestEnvironment};

/// Returns a client whose first requests to create a copy are refused with this code and reason.
pub(super) fn refuse_copies(
    env: &TestEnvironment,
    refusals: u32,
    (code, reason): (u16, &'static str),
) -> Client {
    let api = env.embedded.clone();
    let requests = Arc::new(AtomicU32::new(0));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (mut api, requests) = (api.clone(), requests.clone());
        async move {
            let (head, body) = request.into_parts();
            let bytes = body.collect().await.unwrap().to_bytes();
            let is_copy =
                head.method == Method::POST && String::from_utf8_lossy(&bytes).contains("\"tfcopy-");
            if is_copy && requests.fetch_add(1, Ordering::SeqCst) < refusals {
                let status = json!({ "kind": "Status", "status": "Failure", "reason": reason,
                    "message": "exceeded quota: secrets", "code": code });
                let body = Body::from(status.to_string().into_bytes());
                return Ok(Response::builder().status(code).body(body).unwrap());
            }
            let request = Request::from_parts(head, Body::from(bytes));
            let (head, body) = api.call(request).await?.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            Ok::<_, Infallible>(Response::from_parts(head, Body::from(body)))
        }
    });
    Client::new(service, NAMESPACE)
}

/// Applies with a client of [`refuse_copies`].
pub(super) async fn apply_with(env: &TestEnvironment, size: &str, client: Client) -> TerraformRun {
    let name = env
        .prepare(RunSetup::plan_and_apply().with(bundle(size, &three())))
        .await;
    let mut context = env.context(&name);
    context.client = client;
    env.execute_run(&name, context, CancellationToken::new()).await;
    env.get(&name).await
}
