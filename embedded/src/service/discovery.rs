//! What the server serves: versions, groups, resources, health, OpenAPI.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::{
    Api, StatusError,
    respond::{self, ResponseBody},
    route::Target,
};
use crate::{
    resource::{Registry, Resource},
    schema::{openapi, swagger},
    store::StorageHealth,
};

/// The Kubernetes version whose API this is.
const MAJOR: &str = "1";
const MINOR: &str = "34";

/// The answer to a GET that is not about objects.
pub(super) fn answer(
    api: &Api,
    target: &Target,
    accept: &str,
) -> Result<Response<ResponseBody>, StatusError> {
    let registry = &api.registry;
    let document = match target {
        Target::Health(check) => return Ok(health(check, &api.store.health().borrow())),
        Target::Version => version(),
        Target::CoreVersions => json!({
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
            resources(registry, group, version).ok_or_else(StatusError::no_such_page)?
        }
        // kubectl names the version of the format by an at sign, which a content type cannot have.
        Target::Swagger if accept.contains("proto-openapi.spec.v2") => {
            return Ok(respond::bytes(swagger::protobuf(), swagger::PROTOBUF));
        }
        Target::Swagger => swagger::document(registry.documents()),
        Target::OpenApiIndex => openapi::index(
            registry
                .documents()
                .iter()
                .map(|(path, document)| (path.as_str(), document)),
        ),
        Target::OpenApiDocument { group, version } => registry
            .documents()
            .get(&openapi::path(group, version))
            .cloned()
            .ok_or_else(StatusError::no_such_page)?,
        Target::Group(_) | Target::Unknown | Target::Objects(_) => {
            return Err(StatusError::no_such_page());
        }
    };
    Ok(respond::json(StatusCode::OK, &document))
}

/// A store that cannot be written is not ready, and alive: a restart would not help.
fn health(check: &str, storage: &StorageHealth) -> Response<ResponseBody> {
    let failed = |why: &str| {
        let text = format!("[-]store failed: {why}\n{check} check failed\n");
        respond::text(StatusCode::INTERNAL_SERVER_ERROR, text)
    };
    match storage {
        StorageHealth::OnReserve if check != "livez" => failed("the disk is full, the reserve is in use"),
        StorageHealth::Failing(why) if check != "livez" => failed(why),
        _ => respond::text(StatusCode::OK, "ok"),
    }
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
    let served: Vec<_> = registry
        .all()
        .iter()
        .filter(|r| r.group == group && r.version == version)
        .collect();
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
    if resource.status {
        entries.push(json!({
            "name": format!("{}/status", resource.plural), "singularName": "", "namespaced": resource.namespaced,
            "kind": resource.kind, "verbs": ["get", "patch", "update"],
        }));
    }
    entries
}
