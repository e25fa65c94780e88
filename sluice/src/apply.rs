//! Puts the user's manifests into the API: made where they are missing, changed by a three-way merge where they are there, so
//! that a field that is taken out of a manifest is taken out of the object. A field that the API does not know is refused, as
//! `kubectl` does: dropped without a word, a misspelt guard rail would guard nothing.

use crate::{
    manifests::{Manifest, Problem},
    three_way,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams},
    core::{GroupVersionKind, Request},
    discovery::{Scope, pinned_kind},
};
use serde_json::Value;

/// Applies one after the other; what is refused is named and the others go on. Namespaces that manifests name are made.
pub async fn apply(client: &Client, manifests: Vec<Manifest>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for manifest in manifests {
        let place = manifest.place.clone();
        if let Err(what) = apply_one(client, manifest).await {
            problems.push(Problem { place, what });
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
    let wanted = three_way::annotated(&manifest);
    let Some(current) = api.get_opt(&name).await.map_err(told)? else {
        return create(client, &api, &wanted).await;
    };
    let mut current = serde_json::to_value(&current).map_err(|error| error.to_string())?;
    // What the request's path says; the API may leave it out.
    for field in ["apiVersion", "kind"] {
        current[field] = manifest[field].clone();
    }
    let Some(body) = three_way::patch(&three_way::last_applied(&current), &wanted, &current) else {
        return Ok(());
    };
    let patch: Patch<Value> = Patch::Merge(body);
    api.patch(&name, &PatchParams::default().validation_strict(), &patch)
        .await
        .map(drop)
        .map_err(told)
}

/// Makes an object, strictly: the client's own way of creating cannot ask for that.
async fn create(client: &Client, api: &Api<DynamicObject>, body: &Value) -> Result<(), String> {
    let bytes = serde_json::to_vec(body).map_err(|error| error.to_string())?;
    let mut request = Request::new(api.resource_url())
        .create(&PostParams::default(), bytes)
        .map_err(|error| error.to_string())?;
    let address = format!("{}&fieldValidation=Strict", request.uri());
    *request.uri_mut() = address.replace("?&", "?").parse().map_err(|_| address)?;
    let made: Result<Value, _> = client.request(request).await;
    made.map(drop).map_err(told)
}

/// What the API says of a refusal.
fn told(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message,
        other => other.to_string(),
    }
}

/// The place of an object, in the namespace that it names or `default`.
async fn api(client: &Client, object: &DynamicObject) -> Result<Api<DynamicObject>, String> {
    let types = object.types.clone().unwrap_or_default();
    let gvk = GroupVersionKind::try_from(&types).map_err(|error| format!("apiVersion: {error}"))?;
    let (resource, capabilities): (ApiResource, _) = pinned_kind(client, &gvk).await.map_err(|_| {
        format!(
            "kind: no {:?} in {:?} is served here",
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
    let told = |error: kube::Error| format!("metadata.namespace: {error}");
    if api.get_opt(name).await.map_err(told)?.is_some() {
        return Ok(());
    }
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    };
    let namespace = Namespace {
        metadata,
        ..Namespace::default()
    };
    api.create(&PostParams::default(), &namespace)
        .await
        .map(drop)
        .map_err(told)
}
