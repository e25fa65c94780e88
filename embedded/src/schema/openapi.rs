//! `OpenAPI` v3 documents, one per group version, for `kubectl explain` and `kubectl apply`.
//!
//! kubectl finds a kind by its paths (`x-kubernetes-group-version-kind` of the operations), its schema by the same extension of
//! the components, and the supported patch options by the query parameters of the PATCH operation.

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::builtin;

/// The description of one kind in a document.
#[derive(Clone, Debug)]
pub(crate) struct PublishedKind<'a> {
    /// API group, empty for core.
    pub(crate) group: &'a str,
    /// Version, for example `v1alpha2`.
    pub(crate) version: &'a str,
    /// Kind.
    pub(crate) kind: &'a str,
    /// Kind of a list.
    pub(crate) list_kind: &'a str,
    /// Name in paths.
    pub(crate) plural: &'a str,
    /// Whether objects are namespaced.
    pub(crate) namespaced: bool,
    /// Whether `/status` is a subresource.
    pub(crate) has_status: bool,
    /// `openAPIV3Schema` of a custom resource; `None` for a built-in kind.
    pub(crate) schema: Option<&'a Value>,
    /// Served verbs, as in discovery.
    pub(crate) verbs: &'a [&'a str],
}

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
const API_VERSION_TEXT: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND_TEXT: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const METADATA_TEXT: &str = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// Returns the path of a group version in the index: `api/v1`, `apis/<group>/<version>`.
pub(crate) fn path(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("api/{version}")
    } else {
        format!("apis/{group}/{version}")
    }
}

/// Returns the index at `/openapi/v3` from the [`path`] and document of each group version.
pub(crate) fn index<'a>(documents: impl IntoIterator<Item = (&'a str, &'a Value)>) -> Value {
    let entries = documents.into_iter().map(|(path, document)| {
        let url = format!("/openapi/v3/{path}?hash={}", hash(document));
        (path.to_owned(), json!({"serverRelativeURL": url}))
    });
    json!({"paths": entries.collect::<Map<_, _>>()})
}

/// Returns the hash by which clients cache a document.
pub(crate) fn hash(document: &Value) -> String {
    hex::encode_upper(Sha256::digest(document.to_string()))
}

/// Returns the document of one group version.
pub(crate) fn document(kinds: &[PublishedKind<'_>]) -> Value {
    let mut paths = Map::new();
    let mut components = Map::new();
    let library = builtin::definitions();
    for kind in kinds {
        add_paths(kind, &mut paths);
        components.insert(schema_name(kind), component(kind, &library));
        components.insert(format!("{}List", schema_name(kind)), list_component(kind));
    }
    let components = with_references(components, &library);
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.34.0"},
        "paths": paths,
        "components": {"schemas": components},
    })
}

/// Returns the component name: reversed group, version and kind, `dev.sluice.infra.v1alpha1.TerraformRun`.
pub(crate) fn schema_name(kind: &PublishedKind<'_>) -> String {
    let built_in = kind
        .schema
        .is_none()
        .then(|| builtin::definition_name(kind.group, kind.version, kind.kind));
    built_in.flatten().unwrap_or_else(|| {
        let reversed: Vec<&str> = kind.group.rsplit('.').collect();
        format!("{}.{}.{}", reversed.join("."), kind.version, kind.kind)
    })
}

fn group_version_kind(kind: &PublishedKind<'_>, name: &str) -> Value {
    json!({"group": kind.group, "kind": name, "version": kind.version})
}

fn component(kind: &PublishedKind<'_>, library: &Map<String, Value>) -> Value {
    let mut schema = match kind.schema {
        Some(schema) => {
            let mut schema = schema.clone();
            schema["properties"]["apiVersion"] = json!({"description": API_VERSION_TEXT, "type": "string"});
            schema["properties"]["kind"] = json!({"description": KIND_TEXT, "type": "string"});
            schema["properties"]["metadata"] =
                builtin::reference_with_description(OBJECT_META, METADATA_TEXT);
            schema
        }
        None => library
            .get(&schema_name(kind))
            .cloned()
            .unwrap_or_else(|| json!({"type": "object"})),
    };
    schema["x-kubernetes-group-version-kind"] = json!([group_version_kind(kind, kind.kind)]);
    schema
}

fn list_component(kind: &PublishedKind<'_>) -> Value {
    let text = format!("{} is a list of {}", kind.list_kind, kind.kind);
    json!({
        "description": text,
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"description": API_VERSION_TEXT, "type": "string"},
            "kind": {"description": KIND_TEXT, "type": "string"},
            "metadata": builtin::reference_with_description(LIST_META, "Standard list metadata."),
            "items": {"type": "array", "items": {"allOf": [{"$ref": reference(&schema_name(kind))}]}},
        },
        "x-kubernetes-group-version-kind": [group_version_kind(kind, kind.list_kind)],
    })
}

fn reference(name: &str) -> String {
    format!("#/components/schemas/{name}")
}

/// Adds the components that these refer to, directly or not.
fn with_references(mut components: Map<String, Value>, library: &Map<String, Value>) -> Map<String, Value> {
    let mut pending: Vec<String> = components.values().flat_map(references).collect();
    while let Some(name) = pending.pop() {
        if let Some(definition) = library.get(&name).filter(|_| !components.contains_key(&name)) {
            pending.extend(references(definition));
            components.insert(name, definition.clone());
        }
    }
    components
}

/// Returns the names that a schema refers to.
fn references(schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut pending = vec![schema];
    while let Some(value) = pending.pop() {
        match value {
            Value::Object(fields) => {
                let name = fields.get("$ref").and_then(Value::as_str);
                found.extend(name.and_then(|name| name.rsplit('/').next()).map(str::to_owned));
                pending.extend(fields.values());
            }
            Value::Array(entries) => pending.extend(entries),
            _ => {}
        }
    }
    found
}

/// An operation of a path.
struct Operation {
    method: &'static str,
    action: &'static str,
    /// Verb in discovery.
    verb: &'static str,
}

const COLLECTION_OPERATIONS: [Operation; 3] = [
    Operation {
        method: "get",
        action: "list",
        verb: "list",
    },
    Operation {
        method: "post",
        action: "post",
        verb: "create",
    },
    Operation {
        method: "delete",
        action: "deletecollection",
        verb: "deletecollection",
    },
];
const ITEM_OPERATIONS: [Operation; 4] = [
    Operation {
        method: "get",
        action: "get",
        verb: "get",
    },
    Operation {
        method: "put",
        action: "put",
        verb: "update",
    },
    Operation {
        method: "patch",
        action: "patch",
        verb: "patch",
    },
    Operation {
        method: "delete",
        action: "delete",
        verb: "delete",
    },
];

fn add_paths(kind: &PublishedKind<'_>, paths: &mut Map<String, Value>) {
    let root = format!("/{}", path(kind.group, kind.version));
    let scope = if kind.namespaced {
        "/namespaces/{namespace}"
    } else {
        ""
    };
    let all = format!("{root}{scope}/{}", kind.plural);
    if kind.namespaced {
        let list = &COLLECTION_OPERATIONS[..1];
        paths.insert(format!("{root}/{}", kind.plural), operations(kind, list, &[]));
    }
    let in_scope: &[&str] = if kind.namespaced { &["namespace"] } else { &[] };
    let of_one: &[&str] = if kind.namespaced {
        &["name", "namespace"]
    } else {
        &["name"]
    };
    paths.insert(all.clone(), operations(kind, &COLLECTION_OPERATIONS, in_scope));
    paths.insert(
        format!("{all}/{{name}}"),
        operations(kind, &ITEM_OPERATIONS, of_one),
    );
    if kind.has_status {
        paths.insert(
            format!("{all}/{{name}}/status"),
            operations(kind, &ITEM_OPERATIONS[..3], of_one),
        );
    }
}

fn operations(kind: &PublishedKind<'_>, operations: &[Operation], in_path: &[&str]) -> Value {
    let mut item = Map::new();
    for operation in operations
        .iter()
        .filter(|operation| kind.verbs.contains(&operation.verb))
    {
        item.insert(operation.method.to_owned(), describe(kind, operation));
    }
    let parameters: Vec<Value> = in_path
        .iter()
        .map(|name| {
            json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "uniqueItems": true}})
        })
        .collect();
    item.insert("parameters".to_owned(), parameters.into());
    Value::Object(item)
}

fn describe(kind: &PublishedKind<'_>, operation: &Operation) -> Value {
    let name = schema_name(kind);
    let response = match operation.action {
        "list" => format!("{name}List"),
        _ => name.clone(),
    };
    let content = json!({"application/json": {"schema": {"$ref": reference(&response)}}});
    let mut described = json!({
        "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": group_version_kind(kind, kind.kind),
    });
    let writes = matches!(operation.method, "post" | "put" | "patch");
    if writes {
        described["parameters"] = json!([query("fieldManager"), query("fieldValidation"), query("dryRun")]);
        let body = match operation.method {
            // Only the patch types of custom resources: kubectl itself has the merge rules of built-in kinds.
            "patch" => json!({
                "application/apply-patch+yaml": {"schema": {"type": "object"}},
                "application/json-patch+json": {"schema": {"type": "object"}},
                "application/merge-patch+json": {"schema": {"type": "object"}},
            }),
            _ => json!({"application/json": {"schema": {"$ref": reference(&name)}}}),
        };
        described["requestBody"] = json!({"required": true, "content": body});
    }
    described
}

fn query(name: &str) -> Value {
    json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(schema: &Value) -> PublishedKind<'_> {
        PublishedKind {
            group: "infra.sluice.dev",
            version: "v1alpha1",
            kind: "TerraformRun",
            list_kind: "TerraformRunList",
            plural: "terraformruns",
            namespaced: true,
            has_status: true,
            schema: Some(schema),
            verbs: &[
                "get",
                "list",
                "create",
                "update",
                "patch",
                "delete",
                "deletecollection",
                "watch",
            ],
        }
    }

    #[test]
    fn custom_kinds_are_found_by_name_path_and_gvk() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object"}}});
        let document = document(&[run(&schema)]);
        let name = "dev.sluice.infra.v1alpha1.TerraformRun";
        let component = &document["components"]["schemas"][name];
        let group_version_kind =
            json!({"group": "infra.sluice.dev", "kind": "TerraformRun", "version": "v1alpha1"});
        assert_eq!(
            component["x-kubernetes-group-version-kind"],
            json!([group_version_kind])
        );
        let one = "/apis/infra.sluice.dev/v1alpha1/namespaces/{namespace}/terraformruns/{name}";
        let patch = &document["paths"][one]["patch"];
        assert_eq!(patch["x-kubernetes-group-version-kind"], group_version_kind);
        assert_eq!(patch["parameters"][1]["name"], "fieldValidation");
    }

    #[test]
    fn every_reference_has_a_target() {
        let schema = json!({"type": "object"});
        let secret = PublishedKind {
            group: "",
            version: "v1",
            kind: "Secret",
            list_kind: "SecretList",
            plural: "secrets",
            schema: None,
            ..run(&schema)
        };
        for document in [document(&[run(&schema)]), document(&[secret])] {
            let components = document["components"]["schemas"].as_object().unwrap();
            assert!(components.contains_key(OBJECT_META));
            for name in references(&document) {
                assert!(components.contains_key(&name), "{name}");
            }
        }
    }

    #[test]
    fn the_index_changes_with_the_documents() {
        let (a, b) = (json!({"a": 1}), json!({"a": 2}));
        let url = |document: &Value| {
            index([("api/v1", document)])["paths"]["api/v1"]["serverRelativeURL"].to_string()
        };
        assert!(url(&a).contains("/openapi/v3/api/v1?hash="));
        assert_ne!(url(&a), url(&b));
    }
}
