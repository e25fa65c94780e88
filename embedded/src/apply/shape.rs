//! The shape of an object for field ownership: which lists and maps merge, and by what. From a structural schema, as kube-openapi's
//! `schemaconv` converts it for structured-merge-diff. Pure.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Value, json};

use super::path::Scalar;

/// Maximum nesting of a schema.
const MAX_DEPTH: usize = 128;

/// The shape of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A declared scalar.
    Scalar,
    /// A declared list.
    List(ListShape),
    /// A declared object.
    Map(MapShape),
    /// Undeclared: a value of any type, owned as a whole.
    Atomic,
    /// Undeclared, but its unknown fields are preserved: objects merge, lists are owned as a whole.
    Deduced,
}

/// The shape of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListShape {
    pub(super) kind: ListKind,
    pub(super) items: Box<Shape>,
}

/// How the entries of a list are identified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ListKind {
    /// Not at all: the list is owned as a whole.
    Atomic,
    /// By their value.
    Set,
    /// By these keys, each with its default.
    Map(Vec<(String, Option<Scalar>)>),
}

/// The shape of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MapShape {
    /// Whether it is owned as a whole.
    pub(super) is_atomic: bool,
    pub(super) fields: BTreeMap<String, Shape>,
    /// Shape of other fields; `None` if there may be none.
    pub(super) others: Option<Box<Shape>>,
}

/// The shape that applies to one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind<'a> {
    /// A value that is owned as a whole.
    Leaf,
    /// A list whose entries are owned.
    List(&'a ListShape),
    /// An object whose fields are owned.
    Map(&'a MapShape),
}

static DEDUCED: LazyLock<MapShape> = LazyLock::new(|| MapShape {
    is_atomic: false,
    fields: BTreeMap::new(),
    others: Some(Box::new(Shape::Deduced)),
});

impl Shape {
    /// Returns the shape of a structural schema, without regard to the metadata of an object.
    pub(super) fn from_schema(schema: &Value) -> Self {
        Self::convert(schema, MAX_DEPTH)
    }

    /// Returns the shape of an object of a custom or built-in kind: its schema, with apiVersion, kind and metadata.
    pub(crate) fn of_object(schema: &Value) -> Self {
        let mut shape = Self::from_schema(schema);
        if let Self::Map(map) = &mut shape {
            map.fields.insert("apiVersion".into(), Self::Scalar);
            map.fields.insert("kind".into(), Self::Scalar);
            map.fields
                .insert("metadata".into(), Self::from_schema(&metadata_schema()));
        }
        shape
    }

    fn convert(schema: &Value, depth: usize) -> Self {
        let Some(depth) = depth.checked_sub(1) else {
            return Self::Atomic;
        };
        if schema["x-kubernetes-int-or-string"] == true {
            return Self::Scalar;
        }
        let preserves = schema["x-kubernetes-preserve-unknown-fields"] == true;
        match schema["type"].as_str() {
            Some("object") => Self::Map(Self::convert_object(schema, preserves, depth)),
            Some("array") => Self::List(ListShape {
                kind: list_kind(schema),
                items: Box::new(Self::convert(&schema["items"], depth)),
            }),
            Some("string" | "integer" | "number" | "boolean") => Self::Scalar,
            _ if preserves => Self::Deduced,
            _ => Self::Atomic,
        }
    }

    fn convert_object(schema: &Value, preserves: bool, depth: usize) -> MapShape {
        let properties = schema["properties"].as_object();
        let fields: BTreeMap<String, Self> = properties
            .into_iter()
            .flatten()
            .map(|(name, property)| (name.clone(), Self::convert(property, depth)))
            .collect();
        let others = match schema.get("additionalProperties") {
            // An object without any keyword for its fields is a free-form object.
            None | Some(Value::Null) if preserves || fields.is_empty() => Some(Self::Deduced),
            None | Some(Value::Null | Value::Bool(false)) => None,
            Some(Value::Bool(true)) => Some(Self::Deduced),
            Some(other) => Some(Self::convert(other, depth)),
        };
        MapShape {
            is_atomic: schema["x-kubernetes-map-type"] == "atomic",
            fields,
            others: others.map(Box::new),
        }
    }

    /// Returns what applies to `value`: its type selects among undeclared shapes. `null` fits every shape.
    pub(super) fn kind_of(&self, value: &Value) -> Kind<'_> {
        match (self, value) {
            (Self::List(list), _) if list.kind != ListKind::Atomic => Kind::List(list),
            (Self::Map(map), _) if !map.is_atomic => Kind::Map(map),
            (Self::Deduced, Value::Object(_) | Value::Null) => Kind::Map(&DEDUCED),
            _ => Kind::Leaf,
        }
    }

    /// Whether this name is a declared field.
    pub(super) fn declares(&self, name: &str) -> bool {
        matches!(self, Self::Map(map) if map.fields.contains_key(name))
    }

    /// Returns the shape of a field.
    pub(super) fn field(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Map(map) => map.field(name),
            Self::Deduced => Some(self),
            _ => None,
        }
    }

    /// Returns the shape of the entries of a list.
    pub(super) fn items(&self) -> Option<&Self> {
        match self {
            Self::List(list) => Some(&list.items),
            _ => None,
        }
    }
}

impl MapShape {
    /// Returns the shape of a field; `None` if it may not exist.
    pub(super) fn field(&self, name: &str) -> Option<&Shape> {
        self.fields.get(name).or(self.others.as_deref())
    }
}

fn list_kind(schema: &Value) -> ListKind {
    match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => ListKind::Set,
        Some("map") => {
            let keys = schema["x-kubernetes-list-map-keys"].as_array();
            let names = keys.into_iter().flatten().filter_map(Value::as_str);
            let default = |name: &str| {
                let default = schema["items"]["properties"][name].get("default")?;
                Scalar::from_value(default).filter(|default| *default != Scalar::Null)
            };
            ListKind::Map(names.map(|name| (name.to_owned(), default(name))).collect())
        }
        _ => ListKind::Atomic,
    }
}

/// Returns the schema of meta/v1 `ObjectMeta`, with its list and map types.
fn metadata_schema() -> Value {
    let texts = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let text = json!({"type": "string"});
    json!({"type": "object", "properties": {
        "name": text, "generateName": text, "namespace": text, "uid": text, "resourceVersion": text, "selfLink": text,
        "creationTimestamp": text, "deletionTimestamp": text,
        "generation": {"type": "integer"}, "deletionGracePeriodSeconds": {"type": "integer"},
        "labels": texts, "annotations": texts,
        "finalizers": {"type": "array", "x-kubernetes-list-type": "set", "items": text},
        "ownerReferences": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"],
            "items": {"type": "object", "x-kubernetes-map-type": "atomic"},
        },
        "managedFields": {"type": "array"},
    }})
}

/// Returns the schema of a built-in kind with the list and map types of its Go type; other kinds are free-form.
pub(crate) fn builtin_schema(kind: &str) -> Value {
    let text = json!({"type": "string"});
    let texts = json!({"type": "object", "additionalProperties": text});
    let reference = json!({"type": "object", "x-kubernetes-map-type": "atomic"});
    let properties = match kind {
        "ConfigMap" => json!({"data": texts, "binaryData": texts, "immutable": {"type": "boolean"}}),
        "Secret" => json!({
            "data": texts, "stringData": texts, "type": text, "immutable": {"type": "boolean"},
        }),
        "ServiceAccount" => json!({
            "automountServiceAccountToken": {"type": "boolean"},
            "imagePullSecrets": {"type": "array", "items": reference},
            "secrets": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": reference,
            },
        }),
        "Namespace" => json!({
            "spec": {"type": "object", "properties": {"finalizers": {"type": "array", "items": text}}},
            "status": {"type": "object", "properties": {
                "phase": text,
                "conditions": {
                    "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
                    "items": {"type": "object"},
                },
            }},
        }),
        "Role" | "ClusterRole" => json!({
            "rules": {"type": "array", "items": {"type": "object"}},
            "aggregationRule": {"type": "object", "properties": {
                "clusterRoleSelectors": {"type": "array", "items": reference},
            }},
        }),
        "RoleBinding" | "ClusterRoleBinding" => json!({
            "roleRef": reference, "subjects": {"type": "array", "items": reference},
        }),
        "Lease" => json!({"spec": {"type": "object"}}),
        "Event" => json!({
            "action": text, "count": {"type": "integer"}, "eventTime": text, "firstTimestamp": text, "lastTimestamp": text,
            "involvedObject": reference, "related": reference, "message": text, "reason": text, "reportingComponent": text,
            "reportingInstance": text, "type": text, "series": {"type": "object"}, "source": {"type": "object"},
        }),
        _ => return json!({"type": "object"}),
    };
    json!({"type": "object", "properties": properties})
}
