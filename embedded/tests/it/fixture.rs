//! A server with one custom resource, and helpers for requests.

use std::path::Path;

use http::Request;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use sluice_embedded::{ApiServer, Store, TlsServer};

/// Returns the definition of Widget: a status subresource, a default, an enumeration, a rule, columns, and a deprecated version.
pub(crate) fn widget_definition() -> CustomResourceDefinition {
    let schema = json!({"openAPIV3Schema": {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "required": ["size"],
                "properties": {
                    "size": {"type": "integer", "minimum": 1, "description": "How big it is."},
                    "color": {"type": "string", "default": "red", "enum": ["red", "green"]},
                    "name": {"type": "string", "x-kubernetes-validations": [
                        {"rule": "self == oldSelf", "message": "name is immutable"},
                    ]},
                },
            },
            "status": {"type": "object", "properties": {
                "phase": {"type": "string"},
                "conditions": {"type": "array", "items": {"type": "object", "properties": {
                    "type": {"type": "string"}, "status": {"type": "string"}, "reason": {"type": "string"},
                    "message": {"type": "string"}, "lastTransitionTime": {"type": "string", "format": "date-time"},
                }}},
            }},
        },
    }});
    let columns = json!([
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
        {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]);
    serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.dev"},
        "spec": {
            "group": "example.dev",
            "scope": "Namespaced",
            "names": {"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget",
                      "shortNames": ["wd"], "categories": ["all"]},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": schema, "subresources": {"status": {}},
                 "additionalPrinterColumns": columns},
                {"name": "v1alpha1", "served": true, "storage": false, "deprecated": true, "schema": schema,
                 "deprecationWarning": "v1alpha1 Widget is deprecated, upgrade to v1", "subresources": {"status": {}}},
            ],
        },
    }))
    .unwrap()
}

/// Builds a server with a store in memory.
pub(crate) fn server() -> ApiServer {
    server_on(Store::memory())
}

/// Builds a server with this store.
pub(crate) fn server_on(store: Store) -> ApiServer {
    ApiServer::builder()
        .crds([widget_definition()])
        .store(store)
        .build()
        .unwrap()
}

/// Serves the API over TLS at a free port. Its files are in the folder `api` of a directory.
pub(crate) async fn serve(server: &ApiServer, dir: &Path) -> TlsServer {
    let any = ([127, 0, 0, 1], 0).into();
    server.serve(any, &dir.join("api")).await.unwrap()
}

/// Returns a widget.
pub(crate) fn widget(name: &str, size: i64) -> Value {
    json!({"apiVersion": "example.dev/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": size}})
}

/// The path of widgets in the namespace `default`.
pub(crate) const WIDGETS: &str = "/apis/example.dev/v1/namespaces/default/widgets";
/// The path of ConfigMaps in the namespace `default`.
pub(crate) const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
/// The path of Secrets in the namespace `default`.
pub(crate) const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// A response: status code, `Warning` headers, body (null if it is not JSON).
#[derive(Debug)]
pub(crate) struct TestResponse {
    pub(crate) code: u16,
    pub(crate) warnings: Vec<String>,
    pub(crate) body: Value,
}

/// Sends a request.
pub(crate) async fn send(
    client: &Client,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> TestResponse {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = client
        .send(request.body(Body::from(body)).unwrap())
        .await
        .unwrap();
    let code = response.status().as_u16();
    let warnings = response
        .headers()
        .get_all("warning")
        .iter()
        .map(|value| value.to_str().unwrap().to_owned())
        .collect();
    let bytes = response.into_body().collect_bytes().await.unwrap();
    TestResponse {
        code,
        warnings,
        body: serde_json::from_slice(&bytes).unwrap_or_default(),
    }
}

/// Sends JSON.
pub(crate) async fn call(client: &Client, method: &str, path: &str, body: Option<&Value>) -> TestResponse {
    let content_type = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let bytes = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
    send(client, method, path, &[("content-type", content_type)], bytes).await
}

/// Sends JSON; the request must succeed.
pub(crate) async fn ok(client: &Client, method: &str, path: &str, body: Option<&Value>) -> Value {
    let response = call(client, method, path, body).await;
    assert!(response.code < 300, "{method} {path}: {response:?}");
    response.body
}

/// Waits until a condition holds, at most 20 seconds: the background tasks of the server report no events.
pub(crate) async fn eventually<F>(what: &str, mut holds: impl FnMut() -> F)
where
    F: Future<Output = bool>,
{
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}
