//! Applies the user's manifests: creates missing objects and updates existing ones by a three-way merge, so that removing a field
//! from a manifest removes it from the object. Unknown fields are refused as by `kubectl`: silently dropping a misspelt
//! guard rail would disable it.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{GroupVersionKind, Request};
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client};
use serde_json::Value;

use crate::manifests::{Manifest, Problem};
use crate::three_way;

/// Applies the manifests in order; a refused one becomes a problem and does not stop the others. Creates their namespaces.
pub async fn apply(client: &Client, manifests: Vec<Manifest>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for manifest in manifests {
        let location = manifest.location.clone();
        if let Err(message) = apply_one(client, manifest).await {
            problems.push(Problem { location, message });
        }
    }
    problems
}

async fn apply_one(client: &Client, manifest: Manifest) -> Result<(), String> {
    let object = manifest.object;
    let name = object.metadata.name.clone().unwrap_or_default();
    let api = api(client, &object).await?;
    let mut manifest = serde_json::to_value(&object).map_err(|error| error.to_string())?;
    if let Some(fields) = manifest.as_object_mut() {
        fields.remove("status");
    }
    let desired = three_way::annotated(&manifest);
    let Some(current) = api.get_opt(&name).await.map_err(api_message)? else {
        return create(client, &api, &desired).await;
    };
    let mut current = serde_json::to_value(&current).map_err(|error| error.to_string())?;
    // The request's path implies these fields; the API may omit them.
    for field in ["apiVersion", "kind"] {
        current[field] = manifest[field].clone();
    }
    let Some(body) = three_way::patch(&three_way::last_applied(&current), &desired, &current) else {
        return Ok(());
    };
    let patch: Patch<Value> = Patch::Merge(body);
    api.patch(&name, &PatchParams::default().validation_strict(), &patch)
        .await
        .map(drop)
        .map_err(api_message)
}

/// Creates an object with strict field validation, which the client's `create` does not support.
async fn create(client: &Client, api: &Api<DynamicObject>, body: &Value) -> Result<(), String> {
    let bytes = serde_json::to_vec(body).map_err(|error| error.to_string())?;
    let mut request = Request::new(api.resource_url())
        .create(&PostParams::default(), bytes)
        .map_err(|error| error.to_string())?;
    let uri = format!("{}&fieldValidation=Strict", request.uri());
    *request.uri_mut() = uri.replace("?&", "?").parse().map_err(|_| uri)?;
    let created: Result<Value, _> = client.request(request).await;
    created.map(drop).map_err(api_message)
}

/// Returns the API's message.
fn api_message(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message,
        other => other.to_string(),
    }
}

/// Returns the API of an object's kind, in its namespace or `default`.
async fn api(client: &Client, object: &DynamicObject) -> Result<Api<DynamicObject>, String> {
    let types = object.types.clone().unwrap_or_default();
    let gvk = GroupVersionKind::try_from(&types).map_err(|error| format!("apiVersion: {error}"))?;
    let (resource, capabilities): (ApiResource, _) = pinned_kind(client, &gvk).await.map_err(|_| {
        format!(
            "kind: {:?} in {:?} is not served by this API",
            types.kind, types.api_version
        )
    })?;
    if capabilities.scope == Scope::Cluster {
        return Ok(Api::all_with(client.clone(), &resource));
    }
    let namespace = object.metadata.namespace.as_deref().unwrap_or("default");
    ensure_namespace(client, namespace).await?;
    Ok(Api::namespaced_with(client.clone(), namespace, &resource))
}

async fn ensure_namespace(client: &Client, name: &str) -> Result<(), String> {
    let api: Api<Namespace> = Api::all(client.clone());
    let api_message = |error: kube::Error| format!("metadata.namespace: {error}");
    if api.get_opt(name).await.map_err(api_message)?.is_some() {
        return Ok(());
    }
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(name.to_owned());
    api.create(&PostParams::default(), &namespace)
        .await
        .map(drop)
        .map_err(api_message)
}
