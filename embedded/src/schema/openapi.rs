//! `OpenAPI` v3 documents: one per group version, as `kubectl explain` and `kubectl apply` read them.
//!
//! kubectl finds a kind by the paths that name it (`x-kubernetes-group-version-kind` on their operations), its schema among
//! the components by the same extension, and what a patch supports by the query parameters of the PATCH operation.

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::builtin;

/// One kind of a group version, as the document shows it.
#[derive(Clone, Debug)]
pub struct Published<'a> {
    /// API group, empty for core.
    pub group: &'a str,
    /// Version, for example `v1alpha2`.
    pub version: &'a str,
    /// Kind.
    pub kind: &'a str,
    /// Kind of a list.
    pub list_kind: &'a str,
    /// Name in paths.
    pub plural: &'a str,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Whether `/status` is written apart.
    pub status: bool,
    /// `openAPIV3Schema` of a custom resource; `None` for a built-in kind.
    pub schema: Option<&'a Value>,
    /// The verbs that are served, as in discovery.
    pub verbs: &'a [&'a str],
}

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
const API_VERSION_TEXT: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND_TEXT: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const METADATA_TEXT: &str = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// How the index names a group version: `api/v1`, `apis/<group>/<version>`.
#[must_use]
pub fn path(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("api/{version}")
    } else {
        format!("apis/{group}/{version}")
    }
}

/// The index at `/openapi/v3`, from each group version's [`path`] and its document.
#[must_use]
pub fn index<'a>(documents: impl IntoIterator<Item = (&'a str, &'a Value)>) -> Value {
    let entries = documents.into_iter().map(|(path, document)| {
        let url = format!("/openapi/v3/{path}?hash={}", hash(document));
        (path.to_owned(), json!({"serverRelativeURL": url}))
    });
    json!({"paths": entries.collect::<Map<_, _>>()})
}

/// The hash by which clients cache a document.
#[must_use]
pub fn hash(document: &Value) -> String {
    hex::encode_upper(Sha256::digest(document.to_string()))
}

/// The document of one group version.
#[must_use]
pub fn document(kinds: &[Published<'_>]) -> Value {
    let mut paths = Map::new();
    let mut wanted = Map::new();
    let library = builtin::definitions();
    for kind in kinds {
        add_paths(kind, &mut paths);
        wanted.insert(schema_name(kind), component(kind, &library));
        wanted.insert(format!("{}List", schema_name(kind)), list_component(kind));
    }
    let components = with_references(wanted, &library);
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.34.0"},
        "paths": paths,
        "components": {"schemas": components},
    })
}

/// The component name: the reversed group, version and kind, `dev.sluice.infra.v1alpha1.TerraformRun`.
#[must_use]
pub fn schema_name(kind: &Published<'_>) -> String {
    let built_in = kind
        .schema
        .is_none()
        .then(|| builtin::definition_name(kind.group, kind.version, kind.kind));
    built_in.flatten().unwrap_or_else(|| {
        let reversed: Vec<&str> = kind.group.rsplit('.').collect();
        format!("{}.{}.{}", reversed.join("."), kind.version, kind.kind)
    })
}

fn identity(kind: &Published<'_>, name: &str) -> Value {
    json!({"group": kind.group, "kind": name, "version": kind.version})
}

fn component(kind: &Published<'_>, library: &Map<String, Value>) -> Value {
    let mut schema = match kind.schema {
        Some(schema) => {
            let mut schema = schema.clone();
            schema["properties"]["apiVersion"] = json!({"description": API_VERSION_TEXT, "type": "string"});
            schema["properties"]["kind"] = json!({"description": KIND_TEXT, "type": "string"});
            schema["properties"]["metadata"] = builtin::described_reference(OBJECT_META, METADATA_TEXT);
            schema
        }
        None => library
            .get(&schema_name(kind))
            .cloned()
            .unwrap_or_else(|| json!({"type": "object"})),
    };
    schema["x-kubernetes-group-version-kind"] = json!([identity(kind, kind.kind)]);
    schema
}

fn list_component(kind: &Published<'_>) -> Value {
    let text = format!("{} is a list of {}", kind.list_kind, kind.kind);
    json!({
        "description": text,
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"description": API_VERSION_TEXT, "type": "string"},
            "kind": {"description": KIND_TEXT, "type": "string"},
            "metadata": builtin::described_reference(LIST_META, "Standard list metadata."),
            "items": {"type": "array", "items": {"allOf": [{"$ref": reference(&schema_name(kind))}]}},
        },
        "x-kubernetes-group-version-kind": [identity(kind, kind.list_kind)],
    })
}

fn reference(name: &str) -> String {
    format!("#/components/schemas/{name}")
}

/// The wanted components and all that they refer to.
fn with_references(mut wanted: Map<String, Value>, library: &Map<String, Value>) -> Map<String, Value> {
    let mut pending: Vec<String> = wanted.values().flat_map(references).collect();
    while let Some(name) = pending.pop() {
        if let Some(definition) = library.get(&name).filter(|_| !wanted.contains_key(&name)) {
            pending.extend(references(definition));
            wanted.insert(name, definition.clone());
        }
    }
    wanted
}

/// The names that a schema refers to.
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

/// One operation that a path offers.
struct Operation {
    method: &'static str,
    action: &'static str,
    /// The verb that discovery lists for it.
    verb: &'static str,
}

const ON_ALL: [Operation; 3] = [
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
const ON_ONE: [Operation; 4] = [
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

fn add_paths(kind: &Published<'_>, paths: &mut Map<String, Value>) {
    let root = format!("/{}", path(kind.group, kind.version));
    let scope = if kind.namespaced {
        "/namespaces/{namespace}"
    } else {
        ""
    };
    let all = format!("{root}{scope}/{}", kind.plural);
    if kind.namespaced {
        let list = &ON_ALL[..1];
        paths.insert(format!("{root}/{}", kind.plural), operations(kind, list, &[]));
    }
    let in_scope: &[&str] = if kind.namespaced { &["namespace"] } else { &[] };
    let of_one: &[&str] = if kind.namespaced {
        &["name", "namespace"]
    } else {
        &["name"]
    };
    paths.insert(all.clone(), operations(kind, &ON_ALL, in_scope));
    paths.insert(format!("{all}/{{name}}"), operations(kind, &ON_ONE, of_one));
    if kind.status {
        paths.insert(
            format!("{all}/{{name}}/status"),
            operations(kind, &ON_ONE[..3], of_one),
        );
    }
}

fn operations(kind: &Published<'_>, operations: &[Operation], in_path: &[&str]) -> Value {
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

fn describe(kind: &Published<'_>, operation: &Operation) -> Value {
    let name = schema_name(kind);
    let answer = match operation.action {
        "list" => format!("{name}List"),
        _ => name.clone(),
    };
    let content = json!({"application/json": {"schema": {"$ref": reference(&answer)}}});
    let mut described = json!({
        "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": identity(kind, kind.kind),
    });
    let writes = matches!(operation.method, "post" | "put" | "patch");
    if writes {
        described["parameters"] = json!([query("fieldManager"), query("fieldValidation")]);
        let body = match operation.method {
            // Only the patches that custom resources take: kubectl has the built-in kinds' merge rules itself.
            "patch" => json!({
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

    fn run(schema: &Value) -> Published<'_> {
        Published {
            group: "infra.sluice.dev",
            version: "v1alpha1",
            kind: "TerraformRun",
            list_kind: "TerraformRunList",
            plural: "terraformruns",
            namespaced: true,
            status: true,
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
    fn a_custom_kind_is_found_by_name_path_and_identity() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object"}}});
        let document = document(&[run(&schema)]);
        let name = "dev.sluice.infra.v1alpha1.TerraformRun";
        let component = &document["components"]["schemas"][name];
        let identity = json!({"group": "infra.sluice.dev", "kind": "TerraformRun", "version": "v1alpha1"});
        assert_eq!(component["x-kubernetes-group-version-kind"], json!([identity]));
        let one = "/apis/infra.sluice.dev/v1alpha1/namespaces/{namespace}/terraformruns/{name}";
        let patch = &document["paths"][one]["patch"];
        assert_eq!(patch["x-kubernetes-group-version-kind"], identity);
        assert_eq!(patch["parameters"][1]["name"], "fieldValidation");
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let schema = json!({"type": "object"});
        let secret = Published {
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
