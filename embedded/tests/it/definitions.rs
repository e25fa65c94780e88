//! CustomResourceDefinitions as objects: watches, restarts, limited credentials, kubectl.

use serde_json::{Value, json};
use sluice_embedded::Store;

use crate::fixture::{call, ok, server, server_on};
use crate::kubectl::KubectlFixture;
use crate::restart::open_when_released;
use crate::watch::{pair, watch};

pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const TOOLS: &str = "/apis/tools.dev/v1/namespaces/default/tools";

pub(crate) fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "tools.tools.dev"},
        "spec": {
            "group": "tools.dev", "scope": "Namespaced", "names": {"plural": "tools", "kind": "Tool"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": {
                    "size": {"type": "integer", "maximum": 10},
                }}},
            }}}],
        },
    })
}

pub(crate) fn tool(name: &str) -> Value {
    json!({"apiVersion": "tools.dev/v1", "kind": "Tool", "metadata": {"name": name}, "spec": {"size": 1}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_ends_with_its_kind() {
    let client = server().client();
    ok(&client, "POST", DEFINITIONS, Some(&definition())).await;
    ok(&client, "POST", TOOLS, Some(&tool("a"))).await;
    let mut events = watch(&client, &format!("{TOOLS}?watch=1")).await;
    assert_eq!(events.next_name().await, pair("ADDED", "a"));
    ok(&client, "DELETE", &format!("{DEFINITIONS}/tools.tools.dev"), None).await;
    assert_eq!(events.next_name().await, pair("DELETED", "a"));
    assert_eq!(events.next().await, None, "the watch ends");
    let gone = call(&client, "GET", TOOLS, None).await;
    assert_eq!(gone.code, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_serves_stored_definitions() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let (created, stored) = {
        let client = server_on(Store::file(&path).unwrap()).client();
        ok(&client, "POST", DEFINITIONS, Some(&definition())).await;
        let created = ok(&client, "POST", TOOLS, Some(&tool("a"))).await;
        let stored = ok(&client, "GET", &format!("{DEFINITIONS}/tools.tools.dev"), None).await;
        (created, stored)
    };
    assert_eq!(stored["status"]["conditions"][1]["type"], "Established");
    let client = server_on(open_when_released(&path).await).client();
    assert_eq!(ok(&client, "GET", &format!("{TOOLS}/a"), None).await, created);
    let restarted = ok(&client, "GET", &format!("{DEFINITIONS}/tools.tools.dev"), None).await;
    assert_eq!(restarted, stored, "a restart changes nothing");
    let mut wrong = tool("b");
    wrong["spec"]["size"] = 11.into();
    assert_eq!(call(&client, "POST", TOOLS, Some(&wrong)).await.code, 422);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_definitions_of_the_program_are_read_only() {
    let client = server().client();
    let own = format!("{DEFINITIONS}/widgets.example.dev");
    let before = ok(&client, "GET", &own, None).await;
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    for (method, path, body) in [
        ("DELETE", own.as_str(), None),
        ("PATCH", own.as_str(), Some(&patch)),
        ("PUT", own.as_str(), Some(&before)),
    ] {
        let refused = call(&client, method, path, body).await;
        assert_eq!(refused.code, 403, "{method}: {refused:?}");
    }
    // The deletion of the collection keeps the definitions of the program.
    ok(&client, "POST", DEFINITIONS, Some(&definition())).await;
    ok(&client, "DELETE", DEFINITIONS, None).await;
    assert_eq!(ok(&client, "GET", &own, None).await, before);
    let other = format!("{DEFINITIONS}/tools.tools.dev");
    assert_eq!(call(&client, "GET", &other, None).await.code, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_creates_and_waits_for_a_definition() {
    let Some(kubectl) = KubectlFixture::open().await else {
        return;
    };
    kubectl.write("definition.json", &definition().to_string());
    kubectl.write("tool.json", &tool("a").to_string());
    kubectl.run("apply -f definition.json").await;
    kubectl
        .run("wait --for=condition=Established --timeout=20s crd/tools.tools.dev")
        .await;
    kubectl.run("apply -f tool.json").await;
    kubectl
        .run("apply --server-side --force-conflicts -f definition.json")
        .await;
    let size = kubectl.run("get tool a -o jsonpath={.spec.size}").await;
    assert_eq!(size, "1");
    kubectl.run("delete crd tools.tools.dev").await;
    let (success, output) = kubectl.try_run("get tools").await;
    assert!(!success, "{output}");
}
