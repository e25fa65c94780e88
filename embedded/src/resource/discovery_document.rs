//! Aggregated discovery: all groups, versions and kinds in one document, an `APIGroupDiscoveryList` of apidiscovery.k8s.io/v2. Pure.

use bytes::Bytes;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha512};

use super::{Registry, Resource, SCALE_KIND, Strategy};

/// A document and its entity tag.
#[derive(Clone, Debug)]
pub(crate) struct DiscoveryDocument {
    /// The document as JSON.
    pub(crate) json: Bytes,
    /// Value of the `ETag` header, with its quotes.
    pub(crate) etag: String,
}

/// Builds the document of these groups.
pub(super) fn of_groups(registry: &Registry, groups: &[&str]) -> DiscoveryDocument {
    let items: Vec<Value> = groups.iter().map(|name| group(registry, name)).collect();
    let document = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    });
    let json = document.to_string();
    DiscoveryDocument {
        etag: format!("\"{}\"", hex::encode_upper(Sha512::digest(&json))),
        json: json.into(),
    }
}

fn group(registry: &Registry, name: &str) -> Value {
    let version = |version: &str| {
        let served = registry
            .all()
            .iter()
            .filter(|kind| kind.group == name && kind.version == version);
        let resources: Vec<Value> = served.map(|kind| resource(kind)).collect();
        json!({"version": version, "resources": resources, "freshness": "Current"})
    };
    let versions: Vec<Value> = registry.versions(name).into_iter().map(version).collect();
    let metadata = if name.is_empty() {
        json!({})
    } else {
        json!({ "name": name })
    };
    json!({"metadata": metadata, "versions": versions})
}

fn resource(kind: &Resource) -> Value {
    // kube-apiserver leaves the group and version of built-in kinds to the item that contains them.
    let (group, version) = if kind.strategy == Strategy::Custom {
        (kind.group.as_str(), kind.version.as_str())
    } else {
        ("", "")
    };
    let response_kind = json!({"group": group, "version": version, "kind": kind.kind});
    let mut resource = json!({
        "resource": kind.plural, "responseKind": response_kind, "singularResource": kind.singular,
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" }, "verbs": kind.verbs(),
    });
    for (field, names) in [
        ("shortNames", &kind.short_names),
        ("categories", &kind.categories),
    ] {
        if !names.is_empty() {
            resource[field] = names.clone().into();
        }
    }
    let mut subresources = Vec::new();
    if kind.has_status {
        subresources.push(json!({
            "subresource": "status", "responseKind": response_kind, "verbs": ["get", "patch", "update"],
        }));
    }
    if kind.scale.is_some() {
        let scale_kind = json!({"group": "autoscaling", "version": "v1", "kind": SCALE_KIND});
        subresources.push(json!({
            "subresource": "scale", "responseKind": scale_kind, "verbs": ["get", "patch", "update"],
        }));
    }
    if kind.strategy == Strategy::ServiceAccount {
        let response_kind =
            json!({"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest"});
        subresources.push(json!({
            "subresource": "token", "responseKind": response_kind, "verbs": ["create"],
        }));
    }
    if !subresources.is_empty() {
        resource["subresources"] = subresources.into();
    }
    resource
}
