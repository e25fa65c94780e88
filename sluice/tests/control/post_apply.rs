//! Post-apply steps: outputs, inventory and health checks.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use sluice_api::terraform::outputs_secret::non_sensitive_keys;

use crate::environment::TestEnvironment;
use crate::observe::condition;

const OUTPUTS: &str = r#"
resource "terraform_data" "it" { input = "x" }
output "age_agekey" { value = "key" }
output "list" { value = ["a", 1] }
output "truth" { value = true }
"#;

/// A service with a configurable response that counts its requests.
struct Service {
    address: String,
    status: Arc<AtomicU16>,
    requests: Arc<AtomicUsize>,
}

impl Service {
    fn start(status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (status, requests) = (Arc::new(AtomicU16::new(status)), Arc::new(AtomicUsize::new(0)));
        let (answer, count) = (Arc::clone(&status), Arc::clone(&requests));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut head = [0; 1024];
                if stream.read(&mut head).unwrap_or(0) == 0 {
                    continue; // a tcp check
                }
                count.fetch_add(1, Ordering::SeqCst);
                let status = answer.load(Ordering::SeqCst);
                let _ = write!(
                    stream,
                    "HTTP/1.1 {status} It\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                );
            }
        });
        Self {
            address,
            status,
            requests,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_checks_run_after_an_apply_and_repeat_until_they_pass() {
    let env = TestEnvironment::new().await;
    let service = Service::start(503);
    let module = format!(
        "resource \"terraform_data\" \"it\" {{ input = \"x\" }}\noutput \"host\" {{ value = \"{}\" }}\n\
         output \"token\" {{\n  value = \"hunter2\"\n  sensitive = true\n}}\n",
        service.address
    );
    let revision = env.commit("a", &[("main.tf", &module)]).await;
    let checks = json!([
        { "name": "port", "type": "tcp", "address": "${{ .host }}" },
        { "name": "web", "type": "http", "url": "http://${{.host}}/ready?token=${{.token}}", "timeout": "5s" },
    ]);
    env.stack(
        "net",
        json!({ "healthChecks": checks, "writeOutputsToSecret": { "name": "out" } }),
    )
    .await;
    let expected = format!(
        "HTTP health check error: web, url: http://{}/ready?token=(sensitive): the answer is 503",
        service.address
    );
    let ill = env
        .wait_ready("net", &format!("False HealthChecksFailed {expected}"))
        .await;
    assert_eq!(
        condition(&ill, "HealthCheck"),
        format!("False HealthChecksFailed {expected}")
    );
    assert!(condition(&ill, "Apply").starts_with("True TerraformAppliedSucceed"));
    assert_eq!(ill.status.unwrap().last_applied_revision, revision);
    env.wait_event("net", "Warning HealthChecksFailed").await;

    service.status.store(200, Ordering::SeqCst);
    let well = env.wait_ready("net", "True TerraformPlannedNoChanges").await;
    assert_eq!(
        condition(&well, "HealthCheck"),
        "True HealthChecksSucceed Health checks succeeded"
    );
    // Once healthy, no check runs until the next apply.
    let requests = service.requests.load(Ordering::SeqCst);
    env.request("net", "drift-detection").await;
    env.wait_ready("net", "True NoDrift").await;
    assert_eq!(service.requests.load(Ordering::SeqCst), requests);
    env.commit("b", &[("main.tf", &module.replace("\"x\"", "\"y\""))])
        .await;
    env.wait_ready(
        "net",
        "True TerraformOutputsWritten Outputs written: main@sha1:bbb",
    )
    .await;
    assert!(service.requests.load(Ordering::SeqCst) > requests);
    env.edit("net", json!({ "healthChecks": null })).await;
    env.wait_for("net", "no verdict", |s| condition(s, "HealthCheck").is_empty())
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_have_aliases_types_and_labels_and_are_restored_when_lost() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", OUTPUTS)]).await;
    let target = json!({ "name": "out", "outputs": ["age_agekey:age.agekey", "list", "truth:flag"],
        "labels": { "a": "b" }, "annotations": { "c": "d" } });
    env.stack("net", json!({ "writeOutputsToSecret": target })).await;
    env.wait_ready("net", "True TerraformOutputsWritten").await;
    env.wait_event("net", "Normal TerraformOutputsWritten").await;
    let api: Api<Secret> = env.api();
    let keys = async || {
        let secret = api.get("out").await.unwrap();
        secret.data.unwrap().into_keys().collect::<Vec<_>>()
    };
    let all = ["age.agekey", "flag", "flag__type", "list", "list__type"];
    assert_eq!(keys().await, all);
    assert_eq!(
        env.value("out", "list__type").await.unwrap(),
        "[\n      \"tuple\",\n      [\n        \"string\",\n        \"number\"\n      ]\n    ]"
    );
    let secret = api.get("out").await.unwrap();
    let shown: Vec<_> = non_sensitive_keys(&secret).unwrap().into_iter().collect();
    assert_eq!(shown, ["age.agekey", "flag", "list"], "keys, and no types");
    let metadata = secret.metadata;
    assert_eq!(
        (
            metadata.labels.unwrap()["a"].as_str(),
            metadata.annotations.unwrap()["c"].as_str()
        ),
        ("b", "d")
    );
    let owner = &metadata.owner_references.unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.controller), ("Terraform", Some(true)));

    // The lost Secret is detected by a watch and restored before the interval ends.
    api.delete("out", &DeleteParams::default()).await.unwrap();
    env.wait_run("net", "a repair", |run| run.spec.trigger.as_str() == "Repair")
        .await;
    env.wait_ready("net", "True NoDrift").await;
    assert_eq!(keys().await, all);
    // Foreign keys are removed and missing keys restored by the next drift detection.
    let other = json!({ "data": { "list": null, "stranger": "eA==" } });
    api.patch("out", &PatchParams::default(), &Patch::Merge(other))
        .await
        .unwrap();
    env.request("net", "drift-detection").await;
    env.wait_run("net", "drift detection", |run| {
        let ended = run.status.as_ref().is_some_and(|status| status.phase.is_final());
        run.spec.trigger.as_str() == "Request" && ended
    })
    .await;
    env.wait_ready("net", "True NoDrift").await;
    assert_eq!(keys().await, all);
}

#[tokio::test(flavor = "multi_thread")]
async fn unwritable_outputs_are_reported_and_the_apply_counts() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", OUTPUTS)]).await;
    env.stack(
        "net",
        json!({ "writeOutputsToSecret": { "name": "out", "outputs": ["absent"] } }),
    )
    .await;
    let failed = env
        .wait_ready("net", "False OutputsWritingFailed output not found: absent")
        .await;
    assert!(condition(&failed, "Apply").starts_with("True TerraformAppliedSucceed"));
    let owner: Api<ConfigMap> = env.api();
    let owner_object = json!({ "metadata": { "name": "owner" } });
    let owner_object = owner
        .create(
            &PostParams::default(),
            &serde_json::from_value(owner_object).unwrap(),
        )
        .await
        .unwrap();
    let reference =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner_object.metadata.uid });
    let foreign =
        json!({ "metadata": { "name": "theirs", "ownerReferences": [reference] }, "data": { "k": "eA==" } });
    let api: Api<Secret> = env.api();
    api.create(&PostParams::default(), &serde_json::from_value(foreign).unwrap())
        .await
        .unwrap();
    env.edit(
        "net",
        json!({ "writeOutputsToSecret": { "name": "theirs", "outputs": null } }),
    )
    .await;
    env.wait_ready(
        "net",
        "False OutputsWritingFailed secret theirs belongs to another owner",
    )
    .await;
    assert_eq!(env.value("theirs", "k").await.as_deref(), Some("x"));
    let adopt = json!({ "metadata": { "labels": { "infra.contrib.fluxcd.io/adopt": "true" } } });
    api.patch("theirs", &PatchParams::default(), &Patch::Merge(adopt))
        .await
        .unwrap();
    env.wait_ready("net", "True TerraformPlannedNoChanges").await;
    assert_eq!(env.value("theirs", "age_agekey").await.as_deref(), Some("key"));
    assert_eq!(env.value("theirs", "k").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_inventory_lists_the_state_and_is_removed_when_disabled() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", OUTPUTS)]).await;
    env.stack("net", json!({ "enableInventory": true })).await;
    let stack = env.wait_ready("net", "True TerraformAppliedSucceed").await;
    let entries = stack.status.unwrap().inventory.unwrap().entries;
    assert_eq!(entries.len(), 1);
    assert_eq!(
        (entries[0].name.as_str(), entries[0].kind.as_str()),
        ("it", "terraform_data")
    );
    assert_eq!(entries[0].identifier.len(), 36, "the resource's id");
    env.edit("net", json!({ "enableInventory": false })).await;
    env.wait_for("net", "no inventory", |s| {
        s.status.as_ref().is_some_and(|s| s.inventory.is_none())
    })
    .await;
    // When enabled again, it is read by the next drift detection without an apply.
    env.edit("net", json!({ "enableInventory": true })).await;
    env.request("net", "drift-detection").await;
    let listed = env
        .wait_for("net", "an inventory", |s| {
            s.status.as_ref().is_some_and(|s| s.inventory.is_some())
        })
        .await;
    assert_eq!(listed.status.unwrap().inventory.unwrap().entries, entries);
    env.edit("net", json!({ "destroy": true })).await;
    let destroyed = env
        .wait_ready("net", "True TerraformAppliedSucceed Destroy")
        .await;
    assert_eq!(destroyed.status.unwrap().inventory.unwrap().entries, []);
}
