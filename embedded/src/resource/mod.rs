//! The served kinds: what discovery, routing, tables and admission share.

mod builtin;
mod definition;
mod discovery_document;
mod object_schema;
mod registry;
mod scale;

use std::sync::{Arc, LazyLock};

pub(crate) use definition::{DefinitionError, resources as resources_of, resources_of_spec};
pub(crate) use discovery_document::DiscoveryDocument;
pub(crate) use registry::Registry;
pub(crate) use scale::{SCALE_API_VERSION, SCALE_KIND, ScalePaths, desired_replicas, preconditions};
use serde_json::Value;

use self::object_schema::ObjectSchema;
use crate::apply::Shape;
use crate::schema::openapi::PublishedKind;

/// Description of a name column.
pub(crate) const NAME_DESCRIPTION: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
/// Description of a creation timestamp column.
const CREATION_DESCRIPTION: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// The rules of a kind beyond its schema, as the registry strategies of kube-apiserver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strategy {
    /// Defined by a CustomResourceDefinition.
    Custom,
    /// CustomResourceDefinition of apiextensions.k8s.io.
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
    /// rbac.authorization.k8s.io Role and ClusterRole.
    Role,
    /// rbac.authorization.k8s.io RoleBinding and ClusterRoleBinding.
    RoleBinding,
    /// A review, which is answered and not stored.
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
    /// Categories, for example `all`.
    pub(crate) categories: Vec<String>,
    /// Whether objects are namespaced.
    pub(crate) namespaced: bool,
    /// Whether `/status` is a subresource.
    pub(crate) has_status: bool,
    /// The paths of the `scale` subresource, if there is one.
    pub(crate) scale: Option<ScalePaths>,
    /// Rules beyond the schema.
    pub(crate) strategy: Strategy,
    /// Table columns after the name.
    pub(crate) columns: Vec<Column>,
    /// Fields that field selectors support besides name and namespace.
    pub(crate) selectable_fields: Vec<String>,
    /// The warning in every response of a deprecated version.
    pub(crate) deprecation_warning: Option<String>,
    /// Storage version.
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
    /// 0: always shown; above: only with `-o wide`.
    pub(crate) priority: i32,
    /// Source of the cells.
    pub(crate) source: CellSource,
}

/// The source of a table cell.
#[derive(Clone, Debug)]
pub(crate) enum CellSource {
    /// JSONPath of a custom resource.
    Path(crate::jsonpath::Path),
    /// Function of a built-in kind.
    Rule(fn(&Value) -> Value),
}

/// Returns `name.group`, or `name` in the core group.
pub(crate) fn with_group(name: &str, group: &str) -> String {
    let dot = if group.is_empty() { "" } else { "." };
    format!("{name}{dot}{group}")
}

/// Returns `group/version`, or `version` in the core group.
pub(crate) fn group_version(group: &str, version: &str) -> String {
    let slash = if group.is_empty() { "" } else { "/" };
    format!("{group}{slash}{version}")
}

impl Resource {
    /// Returns `plural.group`, or `plural` in the core group: the name in messages and in the store.
    pub(crate) fn group_resource(&self) -> String {
        with_group(&self.plural, &self.group)
    }

    /// Returns `Kind.group`, or `Kind` in the core group.
    pub(crate) fn group_kind(&self) -> String {
        with_group(&self.kind, &self.group)
    }

    /// Returns `group/version`, or `version` in the core group.
    pub(crate) fn api_version(&self) -> String {
        group_version(&self.group, &self.version)
    }

    /// Returns the `apiVersion` of stored objects.
    pub(crate) fn storage_api_version(&self) -> String {
        group_version(&self.group, &self.storage_version)
    }

    /// Returns the shape for the ownership of fields; that of a free-form object without a schema.
    pub(crate) fn shape(&self) -> &Shape {
        static FREE_FORM: LazyLock<Shape> =
            LazyLock::new(|| Shape::of_object(&serde_json::json!({"type": "object"})));
        self.schema
            .as_ref()
            .map_or_else(|| &*FREE_FORM, |schema| schema.shape())
    }

    /// Returns the verbs for discovery.
    pub(crate) fn verbs(&self) -> &'static [&'static str] {
        match self.strategy {
            Strategy::Review => &["create"],
            // As in kube-apiserver, namespaces have no deletecollection.
            Strategy::Namespace => &["create", "delete", "get", "list", "patch", "update", "watch"],
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

    /// Returns the description for OpenAPI documents.
    pub(crate) fn published_kind(&self) -> PublishedKind<'_> {
        PublishedKind {
            group: &self.group,
            version: &self.version,
            kind: &self.kind,
            list_kind: &self.list_kind,
            plural: &self.plural,
            namespaced: self.namespaced,
            has_status: self.has_status,
            schema: self.schema.as_ref().and_then(|schema| schema.published()),
            verbs: self.verbs(),
        }
    }
}
