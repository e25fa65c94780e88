//! Discovery and other documents: paths, versions, groups, resources, health, OpenAPI.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

use super::api::Api;
use super::negotiation::accepts_aggregated_discovery;
use super::response::{self, ResponseBody};
use super::route::Target;
use crate::resource::{DiscoveryDocument, Registry, Resource, SCALE_KIND, Strategy};
use crate::schema::{openapi, openapi_v2};
use crate::status_error::StatusError;
use crate::store::StorageHealth;

/// The Kubernetes version of the API.
const MAJOR: &str = "1";
const MINOR: &str = "34";
/// The paths that are served with any kinds.
const ROOT_PATHS: [&str; 8] = [
    "/api",
    "/apis",
    "/healthz",
    "/livez",
    "/openapi/v2",
    "/openapi/v3",
    "/readyz",
    "/version",
];
/// The content type of aggregated discovery.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Responds to a GET that is not for objects.
pub(super) fn respond(
    api: &Api,
    target: &Target,
    query: &str,
    accept: &str,
    if_none_match: &str,
) -> Result<Response<ResponseBody>, StatusError> {
    let registry = &api.registry();
    if matches!(target, Target::ApiVersions | Target::Groups) && accepts_aggregated_discovery(accept) {
        let document = registry.discovery_document(*target == Target::ApiVersions);
        return aggregated(document, if_none_match);
    }
    let document = match target {
        Target::Health(check) => {
            let is_verbose = query
                .split('&')
                .any(|part| part.split('=').next() == Some("verbose"));
            return Ok(health(check, is_verbose, &api.store.health().borrow()));
        }
        Target::RootPaths => return Ok(root_paths(registry)),
        Target::Version => version(),
        Target::ApiVersions => json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [],
        }),
        Target::Groups => json!({
            "kind": "APIGroupList", "apiVersion": "v1",
            "groups": registry.groups().into_iter().map(|name| group(registry, name)).collect::<Vec<_>>(),
        }),
        Target::Group(name) if registry.groups().contains(&name.as_str()) => {
            let mut document = group(registry, name);
            document["kind"] = "APIGroup".into();
            document["apiVersion"] = "v1".into();
            document
        }
        Target::Resources { group, version } => {
            resources(registry, group, version).ok_or_else(StatusError::page_not_found)?
        }
        // kubectl separates the version of the format with an at sign, which a content type cannot contain.
        Target::OpenApiV2 if accept.contains("proto-openapi.spec.v2") => {
            return Ok(response::bytes(openapi_v2::protobuf(), openapi_v2::PROTOBUF));
        }
        Target::OpenApiV2 => openapi_v2::document(registry.openapi_documents()),
        Target::OpenApiIndex => {
            let documents = registry.openapi_documents().iter();
            openapi::index(documents.map(|(path, document)| (path.as_str(), document)))
        }
        Target::OpenApiDocument { group, version } => registry
            .openapi_documents()
            .get(&openapi::path(group, version))
            .cloned()
            .ok_or_else(StatusError::page_not_found)?,
        Target::Group(_) | Target::Unknown | Target::Objects(_) => {
            return Err(StatusError::page_not_found());
        }
    };
    Ok(response::json(StatusCode::OK, &document))
}

/// Returns an aggregated document, or 304 if the client has it.
fn aggregated(
    document: &DiscoveryDocument,
    if_none_match: &str,
) -> Result<Response<ResponseBody>, StatusError> {
    let etag =
        HeaderValue::from_str(&document.etag).map_err(|error| StatusError::internal(error.to_string()))?;
    let is_known = if_none_match == document.etag;
    let body = if is_known {
        Bytes::new()
    } else {
        document.json.clone()
    };
    let mut response = response::bytes(body, AGGREGATED);
    let headers = response.headers_mut();
    headers.insert(header::ETAG, etag);
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    if is_known {
        headers.remove(header::CONTENT_TYPE);
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    Ok(response)
}

/// Reports a store that cannot be written as alive but not ready: a restart would not help. A store without its remote repository is
/// ready, because most requests do not need it; the verbose text, in the format of kube-apiserver, shows the outage.
fn health(check: &str, is_verbose: bool, storage: &StorageHealth) -> Response<ResponseBody> {
    let failed = |reason: &str| {
        let text = format!("[-]store failed: {reason}\n{check} check failed\n");
        response::text(StatusCode::INTERNAL_SERVER_ERROR, text)
    };
    let store = match storage {
        _ if check == "livez" => String::new(),
        StorageHealth::OnReserve => return failed("the disk is full, the reserve is in use"),
        StorageHealth::Failing(reason) => return failed(reason),
        StorageHealth::RemoteAway(reason) => {
            format!("[+]store ok\n[-]store-remote failed, reads go on: {reason}\n")
        }
        StorageHealth::Writable => "[+]store ok\n".to_owned(),
    };
    let text = if is_verbose {
        format!("[+]ping ok\n{store}{check} check passed\n")
    } else {
        "ok".to_owned()
    };
    response::text(StatusCode::OK, text)
}

/// Returns the paths of the documents as meta/v1 `RootPaths`. As in kube-apiserver the text is indented: users read it with
/// `kubectl get --raw /`.
fn root_paths(registry: &Registry) -> Response<ResponseBody> {
    let mut paths: BTreeSet<String> = ROOT_PATHS.into_iter().map(str::to_owned).collect();
    for resource in registry.all() {
        let (group, version) = (&resource.group, &resource.version);
        paths.insert(format!("/{}", openapi::path(group, version)));
        if !group.is_empty() {
            paths.insert(format!("/apis/{group}"));
        }
    }
    let text = serde_json::to_vec_pretty(&json!({ "paths": paths })).unwrap_or_default();
    response::bytes(text, "application/json")
}

fn version() -> Value {
    json!({
        "major": MAJOR, "minor": MINOR,
        "gitVersion": format!("v{MAJOR}.{MINOR}.0+sluice.{}", env!("CARGO_PKG_VERSION")),
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

fn group(registry: &Registry, name: &str) -> Value {
    let version = |version: &str| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    let versions: Vec<Value> = registry.versions(name).into_iter().map(version).collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions.first()})
}

fn resources(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let is_served = |r: &&Arc<Resource>| r.group == group && r.version == version;
    let served: Vec<_> = registry.all().iter().filter(is_served).collect();
    let first = served.first()?;
    let listed: Vec<Value> = served.iter().flat_map(|resource| entries(resource)).collect();
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": first.api_version(), "resources": listed,
    }))
}

fn entries(resource: &Resource) -> Vec<Value> {
    let mut main = json!({
        "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
        "kind": resource.kind, "verbs": resource.verbs(),
    });
    for (field, names) in [
        ("shortNames", &resource.short_names),
        ("categories", &resource.categories),
    ] {
        if !names.is_empty() {
            main[field] = names.clone().into();
        }
    }
    let mut entries = vec![main];
    if resource.has_status {
        entries.push(json!({
            "name": format!("{}/status", resource.plural), "singularName": "", "namespaced": resource.namespaced,
            "kind": resource.kind, "verbs": ["get", "patch", "update"],
        }));
    }
    if resource.scale.is_some() {
        entries.push(json!({
            "name": format!("{}/scale", resource.plural), "singularName": "", "namespaced": resource.namespaced,
            "group": "autoscaling", "version": "v1", "kind": SCALE_KIND, "verbs": ["get", "patch", "update"],
        }));
    }
    if resource.strategy == Strategy::ServiceAccount {
        entries.push(json!({
            "name": "serviceaccounts/token", "singularName": "", "namespaced": true,
            "group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest", "verbs": ["create"],
        }));
    }
    entries
}
