//! The kubeconfig and the users of `sluice up`.

use http::Request;
use serde_json::{Value, json};
use sluice_embedded::ApiServer;
use sluice_runtime::client;

use super::*;

const TEAM: &str = "/api/v1/namespaces/default";
const STACKS: &str = "/apis/infra.contrib.fluxcd.io/v1alpha2/namespaces/default/terraforms";
const RUNS: &str = "/apis/infra.sluice.dev/v1alpha1/namespaces/default/terraformruns";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

fn stack(name: &str, more: &Value) -> Value {
    let mut spec = json!({ "interval": "1m", "path": "./", "sourceRef": { "kind": "GitRepository", "name": "s" },
        "writeOutputsToSecret": { "name": "outputs" } });
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json!({ "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform", "metadata": { "name": name }, "spec": spec })
}

fn run(name: &str, stack: &str) -> Value {
    json!({ "apiVersion": "infra.sluice.dev/v1alpha1", "kind": "TerraformRun", "metadata": { "name": name },
        "spec": { "action": "Plan", "attempt": 1, "deadline": "2h", "trigger": "Spec",
            "source": { "kind": "GitRepository", "name": "s", "namespace": "default" },
            "terraform": { "name": stack, "uid": "0a", "generation": 1 } } })
}

async fn code(client: &Client, method: &str, path: &str, body: &Value) -> u16 {
    let request = Request::builder().method(method).uri(path);
    let request = request.header("content-type", "application/json");
    let body = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    match client.request::<Value>(request.body(body).unwrap()).await {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{method} {path}: {error}"),
    }
}

async fn client_of(kubeconfig: &str) -> Client {
    let settings = client::Settings {
        kubeconfig_text: Some(kubeconfig.to_owned()),
        ..client::Settings::default()
    };
    client::build(&settings).await.unwrap()
}

/// Returns clients of runner and backend for the run `net-0a-1` of this stack, and the server.
async fn access(dir: &std::path::Path, more: &Value) -> (Client, Client, sluice_embedded::TlsServer) {
    sluice_runtime::http::install_crypto();
    let embedded = ApiServer::builder().crds(sluice_api::crds()).build().unwrap();
    let serving = embedded.serve(([127, 0, 0, 1], 0).into(), dir).await.unwrap();
    let own = embedded.client();
    assert_eq!(code(&own, "POST", STACKS, &stack("net", more)).await, 200);
    assert_eq!(code(&own, "POST", RUNS, &run("net-0a-1", "net")).await, 200);
    let reference = RunRef {
        namespace: "default".to_owned(),
        name: "net-0a-1".to_owned(),
    };
    let access = RunAccess::new(own, serving.credential_issuer())
        .access(reference)
        .await
        .unwrap();
    (
        client_of(&access.run).await,
        client_of(&access.backend).await,
        serving,
    )
}

fn secret(name: &str) -> Value {
    json!({ "metadata": { "name": name, "labels": { "infra.sluice.dev/applied-files": "0a" } } })
}

async fn assert_denied(run: &Client, backend: &Client, secrets: &str) {
    for (client, method, path, body) in [
        (
            run,
            "GET",
            format!("{secrets}/tfplan-default-network-0"),
            Value::Null,
        ),
        (run, "GET", format!("{secrets}/tfstate-default-net"), Value::Null),
        (run, "GET", format!("{secrets}/net-0a-1-bundle"), Value::Null),
        (run, "GET", format!("{secrets}/net-0a-2-bundle"), Value::Null),
        (
            run,
            "PUT",
            format!("{STACKS}/net"),
            stack("net", &json!({ "approvePlan": "auto" })),
        ),
        (run, "GET", format!("{STACKS}/network"), Value::Null),
        (run, "POST", RUNS.to_owned(), self::run("net-0a-2", "net")),
        (run, "DELETE", format!("{RUNS}/net-0a-1"), Value::Null),
        (
            run,
            "GET",
            "/api/v1/namespaces/other/secrets/tffiles-0a-0".to_owned(),
            Value::Null,
        ),
        (backend, "GET", format!("{STACKS}/net"), Value::Null),
        (backend, "GET", format!("{RUNS}/net-0a-1"), Value::Null),
        (backend, "GET", format!("{secrets}/tffiles-0a-0"), Value::Null),
        (
            backend,
            "GET",
            format!("{secrets}/tfstate-default-net-b"),
            Value::Null,
        ),
        (
            backend,
            "DELETE",
            format!("{LEASES}/lock-tfstate-default-other"),
            Value::Null,
        ),
    ] {
        assert_eq!(code(client, method, &path, &body).await, 403, "{method} {path}");
    }
}

#[tokio::test]
async fn a_run_has_only_the_permissions_it_needs() {
    let dir = tempfile::tempdir().unwrap();
    let (run, backend, serving) = access(dir.path(), &json!({})).await;
    let secrets = format!("{TEAM}/secrets");
    for name in [
        "tffiles-0a-0",
        "tfplan-default-net-0",
        "tfapplied-default-net-0",
        "tferrored-default-net-0",
        "tfcopy-default-net-0a-00",
        "outputs",
    ] {
        assert_eq!(code(&run, "POST", &secrets, &secret(name)).await, 200, "{name}");
    }
    let owned = json!({ "metadata": { "ownerReferences": [] } });
    let request = Request::patch(format!("{secrets}/tffiles-0a-0"))
        .header("content-type", "application/merge-patch+json");
    let request = request.body(owned.to_string().into_bytes()).unwrap();
    run.request::<Value>(request).await.unwrap();
    for selector in [
        "infra.sluice.dev/applied-files",
        "infra.sluice.dev/applied-files%3D0a",
    ] {
        let request = Request::get(format!("{secrets}?labelSelector={selector}"))
            .body(Vec::new())
            .unwrap();
        let found = run.request::<Value>(request).await.unwrap();
        assert_eq!(found["items"].as_array().unwrap().len(), 6, "{selector}");
    }
    let copies = state_copy::selector("net", "default")
        .replace('=', "%3D")
        .replace(',', "%2C");
    let copies = format!("{secrets}?labelSelector={copies}");
    assert_eq!(code(&run, "GET", &copies, &Value::Null).await, 200);
    assert_eq!(
        code(&run, "DELETE", &format!("{secrets}/tffiles-0a-0"), &Value::Null).await,
        200
    );
    for path in ["tfplan-default-net", "tfplan-default-net.json"] {
        assert_eq!(
            code(&run, "GET", &format!("{secrets}/{path}"), &Value::Null).await,
            404,
            "{path}"
        );
    }
    assert_eq!(
        code(&backend, "POST", &secrets, &secret("tfstate-default-net")).await,
        200
    );
    assert_denied(&run, &backend, &secrets).await;
    serving.stop().await;
}

#[tokio::test]
async fn a_run_may_read_but_not_write_a_state_that_labels_select() {
    let generated = json!({ "secretSuffix": "net", "labels": { "team": "network" } });
    let custom = "backend \"kubernetes\" {\n secret_suffix = \"net\"\n namespace = \"default\"\n labels = { team = \"x\" }\n}";
    for (place, config) in [
        ("generated", generated),
        ("custom", json!({ "customConfiguration": custom })),
    ] {
        let more = json!({ "workspace": "blue", "backendConfig": config });
        let dir = tempfile::tempdir().unwrap();
        let (run, _, serving) = access(dir.path(), &more).await;
        for (method, name, expected) in [
            ("GET", "tfstate-default-net", 404),
            ("GET", "tfstate-blue-net", 404),
            ("DELETE", "tfstate-blue-net", 403),
            ("GET", "tfstate-blue-other", 403),
        ] {
            let path = format!("{TEAM}/secrets/{name}");
            assert_eq!(
                code(&run, method, &path, &Value::Null).await,
                expected,
                "{place}: {method} {name}"
            );
        }
        serving.stop().await;
    }
}

#[tokio::test]
async fn a_custom_backend_may_use_all_states_of_its_namespace() {
    let dir = tempfile::tempdir().unwrap();
    let custom = "backend \"kubernetes\" {\n secret_suffix = \"x\"\n namespace = \"default\"\n}";
    let more = json!({ "backendConfig": { "customConfiguration": custom } });
    let (_, backend, serving) = access(dir.path(), &more).await;
    let state = format!("{TEAM}/secrets/tfstate-default-x");
    assert_eq!(code(&backend, "GET", &state, &Value::Null).await, 404);
    let lock = format!("{LEASES}/lock-tfstate-default-x");
    assert_eq!(code(&backend, "GET", &lock, &Value::Null).await, 404);
    assert_eq!(
        code(&backend, "GET", &format!("{TEAM}/secrets/outputs"), &Value::Null).await,
        403
    );
    serving.stop().await;
}
