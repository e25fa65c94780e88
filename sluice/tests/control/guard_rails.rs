//! Guard rails: what `auto` applies and holds, `force`, `planOnly` and `disable`, in whole reconciliations.

use std::convert::Infallible;

use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use sluice_embedded::ApiServer;
use sluice_runtime::probes::Readiness;
use sluice_runtime::shutdown::Token;
use sluice_tf_controller::definitions;
use tower::Service as _;

use crate::environment::TestEnvironment;
use crate::observe::{condition, pending};

/// Each variable causes another class of change.
const CLASSES: &str = r#"
variable "size" { default = "one" }
variable "mark" { default = "a" }
variable "copies" { default = 1 }
resource "terraform_data" "it" {
  input            = var.size
  triggers_replace = var.mark
}
resource "terraform_data" "more" { count = var.copies }
"#;

/// Returns `vars` with these values.
fn vars(size: &str, copies: i64, mark: &str) -> Value {
    json!({ "vars": [{ "name": "size", "value": size }, { "name": "copies", "value": copies }, { "name": "mark", "value": mark }] })
}

#[tokio::test(flavor = "multi_thread")]
async fn auto_applies_permitted_changes_and_holds_others() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", CLASSES)]).await;
    let policy = json!({ "allow": ["create", "update"], "hold": ["delete"] });
    env.stack("net", json!({ "autoApply": policy })).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    env.edit("net", vars("two", 1, "a")).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;

    // A delete is held with its reason, and the run records it.
    env.edit("net", vars("two", 0, "a")).await;
    let prompt = "Unknown TerraformPlannedWithChanges Plan generated: set approvePlan: ";
    let waiting = env.wait_ready("net", prompt).await;
    let (id, message) = (pending(&waiting), condition(&waiting, "Ready"));
    let why = "1 delete (autoApply.hold): terraform_data.more[0]";
    assert!(message.contains(&id) && message.contains(why), "{message}");
    let run = env.wait_run("net", "held", |run| {
        run.status.as_ref().is_some_and(|s| !s.auto_apply_hold.is_empty())
    });
    let status = run.await.status.unwrap();
    assert_eq!(
        (status.auto_apply_hold.as_str(), status.plan_id.as_str()),
        (why, id.as_str())
    );
    assert!(
        !status.attempted_apply && env.state("net").await.contains("\"more\""),
        "nothing was applied"
    );
    env.edit("net", json!({ "approvePlan": id })).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert!(!env.state("net").await.contains("\"more\""));

    // Back to auto: nothing to do. A replacement is held, since it destroys.
    env.edit("net", json!({ "approvePlan": "auto" })).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    env.edit("net", vars("two", 0, "b")).await;
    let message = condition(&env.wait_ready("net", prompt).await, "Ready");
    assert!(
        message.contains("1 replace (autoApply.hold): terraform_data.it"),
        "{message}"
    );
    // The relaxed policy allows the existing plan: no new plan is needed.
    let wider = json!({ "allow": ["create", "update", "replace"], "hold": null });
    env.edit("net", json!({ "autoApply": wider })).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    insta::assert_snapshot!(env.history("net").await, @"
    1 PlanAndApply Revision 1: Succeeded TerraformAppliedSucceed +2 ~0 -0
    2 PlanAndApply Spec 1: Succeeded TerraformAppliedSucceed +0 ~1 -0
    3 PlanAndApply Spec 1: Succeeded TerraformPlannedWithChanges +0 ~0 -1
    4 Apply Approval 1: Succeeded TerraformAppliedSucceed
    5 PlanAndApply Spec 1: Succeeded TerraformPlannedWithChanges +1 ~0 -1
    6 Apply Approval 1: Succeeded TerraformAppliedSucceed
    ");
}

#[tokio::test(flavor = "multi_thread")]
async fn types_and_numbers_hold_a_plan_even_with_force() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", CLASSES)]).await;
    env.stack(
        "typed",
        json!({ "autoApply": { "holdResourceTypes": ["terraform_*"] } }),
    )
    .await;
    env.stack(
        "many",
        json!({ "approvePlan": "", "force": true, "autoApply": { "maxChanges": 1 } }),
    )
    .await;
    let typed = condition(
        &env.wait_ready("typed", "Unknown TerraformPlannedWithChanges")
            .await,
        "Ready",
    );
    assert!(
        typed.contains("changes of a type in autoApply.holdResourceTypes: terraform_data"),
        "{typed}"
    );
    let waiting = env
        .wait_ready("many", "Unknown TerraformPlannedWithChanges")
        .await;
    let many = condition(&waiting, "Ready");
    assert!(
        many.contains("changes of 2 resources, more than 1 (autoApply.maxChanges)"),
        "{many}"
    );
    env.edit("many", json!({ "approvePlan": pending(&waiting) }))
        .await;
    env.wait_ready("many", "True TerraformAppliedSucceed").await;
}

/// The plan depends on an external file: creating it simulates drift.
const DRIFTING: &str = r#"
variable "marker" {}
resource "terraform_data" "it" { input = fileexists(var.marker) ? "there" : "missing" }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn ignored_differences_do_not_count_as_drift_and_hide_no_other_difference() {
    let env = TestEnvironment::new().await;
    let revision = env.commit("a", &[("main.tf", DRIFTING)]).await;
    let both = json!([{ "addresses": ["terraform_data.*"], "attributes": ["input", "output"] }]);
    let vars = json!([{ "name": "marker", "value": env.path("marker") }]);
    env.stack(
        "net",
        json!({ "interval": "2s", "vars": vars, "ignoreDrift": both }),
    )
    .await;
    env.wait_ready("net", &format!("True NoDrift No drift: {revision}"))
        .await;
    std::fs::write(env.path("marker"), "").unwrap();
    let message = format!("True NoDrift No drift: {revision} (1 in-place; 1 of them ignored)");
    let steady = env.wait_ready("net", &message).await;
    assert!(pending(&steady).is_empty() && env.state("net").await.contains("missing"));
    // The output changes as well: ignoring one attribute does not cover it.
    env.edit("net", json!({ "ignoreDrift": [{ "attributes": ["input"] }] }))
        .await;
    env.wait_event("net", "Warning DriftDetected").await;
    let corrected = env.wait_for("net", "drift corrected", |stack| {
        stack
            .status
            .as_ref()
            .is_some_and(|s| s.last_applied_by_drift_detection_at.is_some())
    });
    corrected.await;
    assert!(env.state("net").await.contains("there"));
}

/// Returns a client whose account may not read definitions, as with Roles of one namespace only.
pub(crate) fn without_definitions(api: &ApiServer) -> Client {
    let api = api.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let mut api = api.clone();
        async move {
            if request.uri().path().starts_with("/apis/apiextensions.k8s.io/") {
                let status =
                    json!({ "kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403 });
                let body = Body::from(status.to_string().into_bytes());
                return Ok(Response::builder().status(403).body(body).unwrap());
            }
            let (head, body) = api.call(request).await?.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            Ok::<_, Infallible>(Response::from_parts(head, Body::from(body)))
        }
    });
    Client::new(service, "default")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_definition_is_reported_and_nothing_starts() {
    let mut older = serde_json::to_value(sluice_api::crds()).unwrap();
    for version in older[1]["spec"]["versions"].as_array_mut().unwrap() {
        let spec = "/schema/openAPIV3Schema/properties/spec/properties";
        version
            .pointer_mut(spec)
            .unwrap()
            .as_object_mut()
            .unwrap()
            .remove("autoApply");
    }
    let older = ApiServer::builder()
        .crds(serde_json::from_value::<Vec<_>>(older).unwrap())
        .build()
        .unwrap();
    let named = "terraforms.infra.contrib.fluxcd.io does not declare spec.autoApply, ";
    let advice = "config/crd/bases/infra.contrib.fluxcd.io_terraforms.yaml";
    for client in [older.client(), without_definitions(&older)] {
        let status = definitions::check(&client).await.unwrap_err().to_string();
        assert!(status.contains(named) && status.contains(advice), "{status}");
    }
    let (ready, stop) = (Readiness::default(), Token::new());
    let client = older.client();
    let waiting = definitions::wait(&client, &ready, &stop);
    let stopping = async {
        stop.cancel();
    };
    tokio::join!(waiting, stopping);
    assert!(!ready.is_set());

    let none = ApiServer::builder()
        .crds(sluice_api::crds().into_iter().take(1))
        .build()
        .unwrap();
    for client in [none.client(), without_definitions(&none)] {
        let status = definitions::check(&client).await.unwrap_err().to_string();
        assert!(
            status.contains("terraforms.infra.contrib.fluxcd.io is not installed"),
            "{status}"
        );
    }
    let current = ApiServer::builder().crds(sluice_api::crds()).build().unwrap();
    definitions::check(&without_definitions(&current)).await.unwrap();
    definitions::wait(&current.client(), &ready, &Token::new()).await;
    assert!(ready.is_set());
}
