//! The schema of a kind for admission.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use serde_json::Value;

use crate::apply::{Shape, builtin_schema};
use crate::schema::{CompileError, FieldError, Schema};
use crate::{builtin, rbac};

/// A compiled schema.
#[derive(Debug)]
pub(crate) struct ObjectSchema {
    compiled: Schema,
    /// The `openAPIV3Schema` of a custom resource. `None` for built-in kinds, whose schema serves only for pruning.
    published: Option<Value>,
    shape: Shape,
}

/// The error of a schema that cannot be compiled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SchemaError {
    /// The schema cannot be converted to JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// A keyword or rule is invalid.
    #[error(transparent)]
    Compile(#[from] CompileError),
}

/// Compiled once per process: the built-in kinds never change.
static BUILTIN: LazyLock<BTreeMap<&str, Arc<ObjectSchema>>> = LazyLock::new(|| {
    let kinds = [
        ("", "ConfigMap"),
        ("", "Event"),
        ("", "Namespace"),
        ("", "Secret"),
        ("", "ServiceAccount"),
        ("coordination.k8s.io", "Lease"),
        (rbac::GROUP, "ClusterRole"),
        (rbac::GROUP, "ClusterRoleBinding"),
        (rbac::GROUP, "Role"),
        (rbac::GROUP, "RoleBinding"),
    ];
    let compile = |(group, kind)| {
        let compiled = builtin::schema(group, "v1", kind).ok()??;
        let schema = ObjectSchema {
            compiled,
            published: None,
            shape: Shape::of_object(&builtin_schema(kind)),
        };
        Some((kind, Arc::new(schema)))
    };
    kinds.into_iter().filter_map(compile).collect()
});

impl ObjectSchema {
    /// Compiles the schema of one version of a custom resource.
    pub(crate) fn custom(schema: &JSONSchemaProps) -> Result<Arc<Self>, SchemaError> {
        let published = serde_json::to_value(schema)?;
        Ok(Arc::new(Self {
            compiled: Schema::compile(&published)?,
            shape: Shape::of_object(&published),
            published: Some(published),
        }))
    }

    /// Returns the schema of a built-in kind.
    pub(crate) fn builtin(kind: &str) -> Option<Arc<Self>> {
        BUILTIN.get(kind).cloned()
    }

    /// Returns the schema that OpenAPI documents publish for a custom resource.
    pub(crate) fn published(&self) -> Option<&Value> {
        self.published.as_ref()
    }

    /// Returns the shape for the ownership of fields.
    pub(crate) const fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Prunes unknown fields and returns their paths.
    pub(crate) fn prune(&self, object: &mut Value) -> Vec<String> {
        self.compiled.prune(object)
    }

    /// Applies defaults.
    pub(crate) fn default(&self, object: &mut Value) {
        if self.published.is_some() {
            self.compiled.apply_defaults(object);
        }
    }

    /// Validates an object, on an update against the old one. `skip_rules`: errors in the metadata keep the rules from running.
    pub(crate) fn validate(&self, object: &Value, old: Option<&Value>, skip_rules: bool) -> Vec<FieldError> {
        match self.published {
            Some(_) => self.compiled.validate(object, old, skip_rules),
            None => Vec::new(),
        }
    }

    /// Validates a write to the status subresource.
    pub(crate) fn validate_status(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        match self.published {
            Some(_) => self.compiled.validate_status(object, old),
            None => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_builtin_kinds_have_schemas() {
        assert_eq!(BUILTIN.len(), 10);
    }
}
