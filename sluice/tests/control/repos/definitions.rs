//! The start check of the repo-controller: the definition of `Repo`, and the kinds of the other controllers.

use serde_json::{Value, json};
use sluice_embedded::ApiServer;
use sluice_repo_controller::definition;
use sluice_runtime::probes::Readiness;
use sluice_runtime::shutdown::Token;

use crate::guard_rails::without_definitions;

/// An API with these definitions.
fn api(definitions: &Value) -> ApiServer {
    let definitions: Vec<_> = serde_json::from_value(definitions.clone()).unwrap();
    ApiServer::builder().crds(definitions).build().unwrap()
}

/// Our definitions, with this one of `Repo`.
fn with(repo: Value) -> Value {
    let mut all = serde_json::to_value(sluice_api::crds()).unwrap();
    all.as_array_mut().unwrap().push(repo);
    all
}

fn repo_definition() -> Value {
    serde_json::to_value(sluice_api::optional_crds().remove(0)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_definition_of_repo_is_reported_and_nothing_starts() {
    let mut older = repo_definition();
    older["spec"]["versions"][0]["subresources"] = Value::Null;
    let fields = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let fields = older.pointer_mut(fields).unwrap().as_object_mut().unwrap();
    fields.retain(|field, _| field == "url");
    let client = api(&with(older)).client();
    let text = definition::check(&client, None).await.unwrap_err().to_string();
    for part in [
        "repos.terraform.gitops.k8s.io does not declare spec.approval, spec.approvePlan, spec.branch, ",
        ", the subresource status; ",
        "--force-conflicts -k config/components/repo-controller/crd",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let (ready, stop) = (Readiness::default(), Token::new());
    let waiting = definition::wait(&client, None, &ready, &stop);
    let stopping = async {
        stop.cancel();
    };
    tokio::join!(waiting, stopping);
    assert!(!ready.is_set());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_must_be_served() {
    let refusal = async |definitions: &Value| {
        let client = api(definitions).client();
        let checked = definition::check(&client, None).await;
        checked.unwrap_err().to_string()
    };
    let text = refusal(&json!(sluice_api::crds())).await;
    assert!(
        text.contains("repos.terraform.gitops.k8s.io is not installed"),
        "{text}"
    );
    for kind in ["GitRepository", "Terraform", "TerraformRun"] {
        let mut others = with(repo_definition());
        let all = others.as_array_mut().unwrap();
        all.retain(|definition| definition["spec"]["names"]["kind"] != kind);
        let text = refusal(&others).await;
        assert!(
            text.starts_with(&format!("the kind {kind} is not installed; ")),
            "{text}"
        );
    }
    let ready = Readiness::default();
    let client = api(&with(repo_definition())).client();
    definition::wait(&client, None, &ready, &Token::new()).await;
    assert!(ready.is_set());
}

/// As with Roles of one namespace: no Role can permit to read a definition, so its published schema counts.
#[tokio::test(flavor = "multi_thread")]
async fn the_published_definition_counts_for_an_account_that_may_not_read_it() {
    let check = async |definitions: &Value| {
        let client = without_definitions(&api(definitions));
        definition::check(&client, Some("default")).await
    };
    check(&with(repo_definition())).await.unwrap();
    let mut without_status = repo_definition();
    without_status["spec"]["versions"][0]["subresources"] = Value::Null;
    let text = check(&with(without_status)).await.unwrap_err().to_string();
    assert!(
        text.contains("does not declare the subresource status; "),
        "{text}"
    );
    let text = check(&json!(sluice_api::crds())).await.unwrap_err().to_string();
    assert!(
        text.contains("repos.terraform.gitops.k8s.io is not installed"),
        "{text}"
    );
}
