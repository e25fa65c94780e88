//! What follows an apply: outputs, inventory, health checks.

use crate::looks::condition;
use crate::world::World;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

const OUTPUTS: &str = r#"
resource "terraform_data" "it" { input = "x" }
output "age_agekey" { value = "key" }
output "list" { value = ["a", 1] }
output "truth" { value = true }
"#;

/// A service whose answer can be set, and that counts its questions.
struct Service {
    address: String,
    status: Arc<AtomicU16>,
    asked: Arc<AtomicUsize>,
}

impl Service {
    fn start(status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (status, asked) = (Arc::new(AtomicU16::new(status)), Arc::new(AtomicUsize::new(0)));
        let (answer, count) = (Arc::clone(&status), Arc::clone(&asked));
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
            asked,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_checked_after_an_apply_and_again_until_it_is_there() {
    let world = World::new().await;
    let service = Service::start(503);
    let module = format!(
        "resource \"terraform_data\" \"it\" {{ input = \"x\" }}\noutput \"host\" {{ value = \"{}\" }}\n\
         output \"token\" {{\n  value = \"hunter2\"\n  sensitive = true\n}}\n",
        service.address
    );
    let revision = world.commit("a", &[("main.tf", &module)]).await;
    let checks = json!([
        { "name": "port", "type": "tcp", "address": "${{ .host }}" },
        { "name": "web", "type": "http", "url": "http://${{.host}}/ready?token=${{.token}}", "timeout": "5s" },
    ]);
    world
        .stack(
            "net",
            json!({ "healthChecks": checks, "writeOutputsToSecret": { "name": "out" } }),
        )
        .await;
    let told = format!(
        "HTTP health check error: web, url: http://{}/ready?token=(sensitive): the answer is 503",
        service.address
    );
    let ill = world
        .ready("net", &format!("False HealthChecksFailed {told}"))
        .await;
    assert_eq!(
        condition(&ill, "HealthCheck"),
        format!("False HealthChecksFailed {told}")
    );
    assert!(condition(&ill, "Apply").starts_with("True TerraformAppliedSucceed"));
    assert_eq!(ill.status.unwrap().last_applied_revision, revision);
    world.event("net", "Warning HealthChecksFailed").await;

    service.status.store(200, Ordering::SeqCst);
    let well = world.ready("net", "True TerraformPlannedNoChanges").await;
    assert_eq!(
        condition(&well, "HealthCheck"),
        "True HealthChecksSucceed Health checks succeeded"
    );
    // While all is well nobody is asked, until the next apply.
    let asked = service.asked.load(Ordering::SeqCst);
    world.request("net", "look").await;
    world.ready("net", "True NoDrift").await;
    assert_eq!(service.asked.load(Ordering::SeqCst), asked);
    world
        .commit("b", &[("main.tf", &module.replace("\"x\"", "\"y\""))])
        .await;
    world
        .ready(
            "net",
            "True TerraformOutputsWritten Outputs written: main@sha1:bbb",
        )
        .await;
    assert!(service.asked.load(Ordering::SeqCst) > asked);
    world.edit("net", json!({ "healthChecks": null })).await;
    world
        .until("net", "no verdict", |s| condition(s, "HealthCheck").is_empty())
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_have_aliases_types_labels_and_come_back_when_they_are_lost() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", OUTPUTS)]).await;
    let target = json!({ "name": "out", "outputs": ["age_agekey:age.agekey", "list", "truth:flag"],
        "labels": { "a": "b" }, "annotations": { "c": "d" } });
    world
        .stack("net", json!({ "writeOutputsToSecret": target }))
        .await;
    world.ready("net", "True TerraformOutputsWritten").await;
    world.event("net", "Normal TerraformOutputsWritten").await;
    let api: Api<Secret> = world.api();
    let keys = async || {
        let secret = api.get("out").await.unwrap();
        secret.data.unwrap().into_keys().collect::<Vec<_>>()
    };
    let all = ["age.agekey", "flag", "flag__type", "list", "list__type"];
    assert_eq!(keys().await, all);
    assert_eq!(
        world.value("out", "list__type").await.unwrap(),
        "[\n      \"tuple\",\n      [\n        \"string\",\n        \"number\"\n      ]\n    ]"
    );
    let metadata = api.get("out").await.unwrap().metadata;
    assert_eq!(
        (
            metadata.labels.unwrap()["a"].as_str(),
            metadata.annotations.unwrap()["c"].as_str()
        ),
        ("b", "d")
    );
    let owner = &metadata.owner_references.unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.controller), ("Terraform", Some(true)));

    // Lost, and noticed at once: written without waiting for the interval.
    api.delete("out", &DeleteParams::default()).await.unwrap();
    world
        .run("net", "a repair", |run| run.spec.trigger.as_str() == "Repair")
        .await;
    world.ready("net", "True NoDrift").await;
    assert_eq!(keys().await, all);
    // Keys of somebody else go, keys that are missing come, at the next look.
    let other = json!({ "data": { "list": null, "stranger": "eA==" } });
    api.patch("out", &PatchParams::default(), &Patch::Merge(other))
        .await
        .unwrap();
    world.request("net", "look").await;
    world
        .run("net", "a look", |run| {
            let ended = run.status.as_ref().is_some_and(|status| status.phase.is_final());
            run.spec.trigger.as_str() == "Request" && ended
        })
        .await;
    world.ready("net", "True NoDrift").await;
    assert_eq!(keys().await, all);
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_that_cannot_be_written_say_why_and_the_apply_counts() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", OUTPUTS)]).await;
    world
        .stack(
            "net",
            json!({ "writeOutputsToSecret": { "name": "out", "outputs": ["absent"] } }),
        )
        .await;
    let failed = world
        .ready("net", "False OutputsWritingFailed output not found: absent")
        .await;
    assert!(condition(&failed, "Apply").starts_with("True TerraformAppliedSucceed"));
    let owner: Api<ConfigMap> = world.api();
    let made = json!({ "metadata": { "name": "owner" } });
    let made = owner
        .create(&PostParams::default(), &serde_json::from_value(made).unwrap())
        .await
        .unwrap();
    let reference =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": made.metadata.uid });
    let foreign =
        json!({ "metadata": { "name": "theirs", "ownerReferences": [reference] }, "data": { "k": "eA==" } });
    let api: Api<Secret> = world.api();
    api.create(&PostParams::default(), &serde_json::from_value(foreign).unwrap())
        .await
        .unwrap();
    world
        .edit(
            "net",
            json!({ "writeOutputsToSecret": { "name": "theirs", "outputs": null } }),
        )
        .await;
    world
        .ready(
            "net",
            "False OutputsWritingFailed secret theirs belongs to another owner",
        )
        .await;
    assert_eq!(world.value("theirs", "k").await.as_deref(), Some("x"));
    let adopt = json!({ "metadata": { "labels": { "infra.contrib.fluxcd.io/adopt": "true" } } });
    api.patch("theirs", &PatchParams::default(), &Patch::Merge(adopt))
        .await
        .unwrap();
    world.ready("net", "True TerraformPlannedNoChanges").await;
    assert_eq!(world.value("theirs", "age_agekey").await.as_deref(), Some("key"));
    assert_eq!(world.value("theirs", "k").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_inventory_lists_the_state_and_goes_with_its_switch() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", OUTPUTS)]).await;
    world.stack("net", json!({ "enableInventory": true })).await;
    let stack = world.ready("net", "True TerraformAppliedSucceed").await;
    let entries = stack.status.unwrap().inventory.unwrap().entries;
    assert_eq!(entries.len(), 1);
    assert_eq!(
        (entries[0].name.as_str(), entries[0].kind.as_str()),
        ("it", "terraform_data")
    );
    assert_eq!(entries[0].identifier.len(), 36, "the resource's id");
    world.edit("net", json!({ "enableInventory": false })).await;
    world
        .until("net", "no inventory", |s| {
            s.status.as_ref().is_some_and(|s| s.inventory.is_none())
        })
        .await;
    // Turned on again, it is read at the next look, without an apply.
    world.edit("net", json!({ "enableInventory": true })).await;
    world.request("net", "look").await;
    let listed = world
        .until("net", "an inventory", |s| {
            s.status.as_ref().is_some_and(|s| s.inventory.is_some())
        })
        .await;
    assert_eq!(listed.status.unwrap().inventory.unwrap().entries, entries);
    world.edit("net", json!({ "destroy": true })).await;
    let gone = world.ready("net", "True TerraformAppliedSucceed Destroy").await;
    assert_eq!(gone.status.unwrap().inventory.unwrap().entries, []);
}
