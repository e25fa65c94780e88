//! The kinds that are served: what discovery, routing, tables and admission know about each.

mod builtin;
mod definition;
mod registry;

use std::sync::Arc;

use serde_json::Value;

pub(crate) use definition::DefinitionError;
pub(crate) use registry::Registry;

use crate::{admit::ObjectSchema, schema::openapi::Published};

/// What a column of names is described with.
pub(crate) const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
/// What a column of ages is described with.
const CREATION: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// Which rules beyond the schema a kind has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Defined by a CustomResourceDefinition.
    Custom,
    /// apiextensions.k8s.io CustomResourceDefinition: read-only here.
    Definition,
    /// core Namespace.
    Namespace,
    /// core Secret.
    Secret,
    /// core ConfigMap.
    ConfigMap,
    /// core Event.
    Event,
    /// core ServiceAccount.
    ServiceAccount,
    /// coordination.k8s.io Lease.
    Lease,
    /// A question about the client itself, which is answered and not stored.
    Review,
}

/// One version of one kind.
#[derive(Debug)]
pub(crate) struct Resource {
    /// API group, empty for core.
    pub(crate) group: String,
    /// Version, for example `v1`.
    pub(crate) version: String,
    /// Kind, for example `Secret`.
    pub(crate) kind: String,
    /// Name in paths, for example `secrets`.
    pub(crate) plural: String,
    /// Lower-case singular name.
    pub(crate) singular: String,
    /// Kind of a list.
    pub(crate) list_kind: String,
    /// Abbreviations.
    pub(crate) short_names: Vec<String>,
    /// Groups of resources that it belongs to, for example `all`.
    pub(crate) categories: Vec<String>,
    /// Whether objects live in namespaces.
    pub(crate) namespaced: bool,
    /// Whether `/status` is written apart.
    pub(crate) status: bool,
    /// Rules beyond the schema.
    pub(crate) family: Family,
    /// What a table shows after the name.
    pub(crate) columns: Vec<Column>,
    /// Fields besides name and namespace that field selectors may name.
    pub(crate) selectable: Vec<String>,
    /// The warning that goes with every answer of a deprecated version.
    pub(crate) deprecation: Option<String>,
    /// The version that objects are stored in.
    pub(crate) storage_version: String,
    /// Structural schema.
    pub(crate) schema: Option<Arc<ObjectSchema>>,
}

/// A column of a table.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    /// Heading.
    pub(crate) name: String,
    /// OpenAPI type, or `date`.
    pub(crate) type_: String,
    /// OpenAPI format.
    pub(crate) format: String,
    /// Explanation.
    pub(crate) description: String,
    /// 0 is always shown; more only with `-o wide`.
    pub(crate) priority: i32,
    /// Where the cell comes from.
    pub(crate) source: Source,
}

/// Where a cell comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// A JSONPath of a custom resource.
    Path(crate::jsonpath::Path),
    /// A rule of a built-in kind.
    Rule(fn(&Value) -> Value),
}

impl Resource {
    /// `plural.group`, or `plural` in the core group: how messages and the store name it.
    pub(crate) fn id(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// `Kind.group`, or `Kind` in the core group.
    pub(crate) fn qualified_kind(&self) -> String {
        if self.group.is_empty() {
            self.kind.clone()
        } else {
            format!("{}.{}", self.kind, self.group)
        }
    }

    /// `group/version`, or `version` in the core group.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The `apiVersion` that objects are stored with.
    pub(crate) fn stored_api_version(&self) -> String {
        if self.group.is_empty() {
            self.storage_version.clone()
        } else {
            format!("{}/{}", self.group, self.storage_version)
        }
    }

    /// Whether writes are taken at all.
    pub(crate) fn is_writable(&self) -> bool {
        self.family != Family::Definition
    }

    /// What discovery lists.
    pub(crate) fn verbs(&self) -> &'static [&'static str] {
        match self.family {
            Family::Definition => &["get", "list", "watch"],
            Family::Review => &["create"],
            // As kube-apiserver: namespaces go one by one.
            Family::Namespace => &["create", "delete", "get", "list", "patch", "update", "watch"],
            _ => &[
                "create",
                "delete",
                "deletecollection",
                "get",
                "list",
                "patch",
                "update",
                "watch",
            ],
        }
    }

    /// How OpenAPI documents show it.
    pub(crate) fn published(&self) -> Published<'_> {
        Published {
            group: &self.group,
            version: &self.version,
            kind: &self.kind,
            list_kind: &self.list_kind,
            plural: &self.plural,
            namespaced: self.namespaced,
            status: self.status,
            schema: self.schema.as_ref().and_then(|schema| schema.published()),
            verbs: self.verbs(),
        }
    }
}
