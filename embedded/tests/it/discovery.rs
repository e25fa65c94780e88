//! The index of the paths, and aggregated discovery.

use http::Request;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use crate::definitions::{DEFINITIONS, definition};
use crate::fixture::{call, eventually, ok, server};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Requests a document as kubectl does, with this entity tag. Returns status, `ETag` and body.
async fn discover(client: &Client, path: &str, etag: &str) -> (u16, String, Value) {
    let accept = format!("{AGGREGATED},application/json");
    let request = Request::get(path).header("accept", accept);
    let request = request.header("if-none-match", etag);
    let response = client.send(request.body(Body::empty()).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let header = |name: &str| {
        let value = response.headers().get(name);
        value.map_or_else(String::new, |value| value.to_str().unwrap().to_owned())
    };
    assert_eq!(header("vary"), "Accept");
    if status == 200 {
        assert_eq!(header("content-type"), AGGREGATED);
    }
    let etag = header("etag");
    let body = response.into_body().collect_bytes().await.unwrap();
    (status, etag, serde_json::from_slice(&body).unwrap_or_default())
}

fn group<'a>(document: &'a Value, name: &str) -> &'a Value {
    let items = document["items"].as_array().unwrap();
    items
        .iter()
        .find(|item| item["metadata"]["name"] == name)
        .unwrap()
}

#[tokio::test]
async fn one_document_describes_every_group() {
    let client = server().client();
    let (status, _, groups) = discover(&client, "/apis", "").await;
    assert_eq!((status, &groups["kind"]), (200, &json!("APIGroupDiscoveryList")));
    let widgets = group(&groups, "example.dev");
    assert_eq!(widgets["versions"][0]["version"], "v1");
    assert_eq!(widgets["versions"][1]["version"], "v1alpha1");
    let kind = json!({"group": "example.dev", "version": "v1", "kind": "Widget"});
    let expected = json!({
        "resource": "widgets", "responseKind": kind, "scope": "Namespaced", "singularResource": "widget",
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        "shortNames": ["wd"], "categories": ["all"],
        "subresources": [{"subresource": "status", "responseKind": kind, "verbs": ["get", "patch", "update"]}],
    });
    assert_eq!(widgets["versions"][0]["resources"][0], expected);
    let (_, _, core) = discover(&client, "/api", "").await;
    let resources = core["items"][0]["versions"][0]["resources"].as_array().unwrap();
    assert!(resources.iter().any(|kind| kind["resource"] == "secrets"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_known_document_is_not_sent_again_until_a_definition_changes() {
    let client = server().client();
    let (_, etag, _) = discover(&client, "/apis", "").await;
    let (status, same, body) = discover(&client, "/apis", &etag).await;
    assert_eq!((status, &same, body), (304, &etag, Value::Null));
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "tools.tools.dev"},
        "spec": {
            "group": "tools.dev", "scope": "Cluster", "names": {"plural": "tools", "kind": "Tool"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    ok(&client, "POST", definitions, Some(&definition)).await;
    let (status, changed, groups) = discover(&client, "/apis", &etag).await;
    assert_eq!(status, 200);
    assert_ne!(changed, etag);
    let tools = group(&groups, "tools.dev");
    assert_eq!(tools["versions"][0]["resources"][0]["scope"], "Cluster");
}

#[tokio::test]
async fn other_clients_get_the_plain_documents() {
    let client = server().client();
    for (path, kind) in [("/apis", "APIGroupList"), ("/api", "APIVersions")] {
        assert_eq!(ok(&client, "GET", path, None).await["kind"], kind);
    }
}

/// Returns the paths in the index.
async fn root_paths(client: &Client) -> Vec<String> {
    let index = ok(client, "GET", "/", None).await;
    serde_json::from_value(index["paths"].clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_index_lists_the_paths_that_are_served_now() {
    let client = server().client();
    let paths = root_paths(&client).await;
    assert!(paths.is_sorted(), "{paths:?}");
    for expected in [
        "/api",
        "/api/v1",
        "/apis",
        "/apis/coordination.k8s.io",
        "/apis/coordination.k8s.io/v1",
        "/apis/example.dev",
        "/apis/example.dev/v1",
        "/apis/example.dev/v1alpha1",
        "/healthz",
        "/livez",
        "/openapi/v2",
        "/openapi/v3",
        "/readyz",
        "/version",
    ] {
        let is_listed = paths.iter().any(|path| path == expected);
        assert!(is_listed, "{expected}: {paths:?}");
    }
    for path in &paths {
        assert_eq!(call(&client, "GET", path, None).await.code, 200, "{path}");
    }
    let index = ok(&client, "GET", "/index.html", None).await;
    assert_eq!(index["paths"], json!(paths));
    ok(&client, "POST", DEFINITIONS, Some(&definition())).await;
    let more = root_paths(&client).await;
    let added: Vec<&String> = more.iter().filter(|path| !paths.contains(path)).collect();
    assert_eq!(added, ["/apis/tools.dev", "/apis/tools.dev/v1"]);
    ok(&client, "DELETE", &format!("{DEFINITIONS}/tools.tools.dev"), None).await;
    eventually("the group is gone", || async {
        root_paths(&client).await == paths
    })
    .await;
}
