//! The schema of a kind, as admission uses it.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use serde_json::Value;

use super::Part;
use crate::{
    builtin,
    schema::{CompileError, FieldError, Schema},
};

/// A compiled schema.
#[derive(Debug)]
pub(crate) struct ObjectSchema {
    compiled: Schema,
    /// The `openAPIV3Schema` of a custom resource. Built-in kinds have none here: their schema finds unknown fields only.
    published: Option<Value>,
}

/// A schema that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SchemaError {
    /// It is no JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// A keyword or rule in it.
    #[error(transparent)]
    Compile(#[from] CompileError),
}

/// Compiled once for all servers of the process: the kinds never change.
static BUILTIN: LazyLock<BTreeMap<&str, Arc<ObjectSchema>>> = LazyLock::new(|| {
    let kinds = [
        ("", "ConfigMap"),
        ("", "Event"),
        ("", "Namespace"),
        ("", "Secret"),
        ("", "ServiceAccount"),
        ("coordination.k8s.io", "Lease"),
    ];
    let compile = |(group, kind)| {
        let compiled = builtin::schema(group, "v1", kind).ok()??;
        Some((
            kind,
            Arc::new(ObjectSchema {
                compiled,
                published: None,
            }),
        ))
    };
    kinds.into_iter().filter_map(compile).collect()
});

impl ObjectSchema {
    /// The schema of a custom resource's version.
    pub(crate) fn custom(schema: &JSONSchemaProps) -> Result<Arc<Self>, SchemaError> {
        let published = serde_json::to_value(schema)?;
        Ok(Arc::new(Self {
            compiled: Schema::compile(&published)?,
            published: Some(published),
        }))
    }

    /// The schema of a built-in kind.
    pub(crate) fn builtin(kind: &str) -> Option<Arc<Self>> {
        BUILTIN.get(kind).cloned()
    }

    /// What OpenAPI documents show of a custom resource.
    pub(crate) fn published(&self) -> Option<&Value> {
        self.published.as_ref()
    }

    /// Drops fields that the schema does not know and returns their paths.
    pub(crate) fn prune(&self, object: &mut Value) -> Vec<String> {
        self.compiled.prune(object)
    }

    /// Sets defaults.
    pub(crate) fn default(&self, object: &mut Value) {
        if self.published.is_some() {
            self.compiled.apply_defaults(object);
        }
    }

    /// What is wrong with an object, in itself and against what it replaces.
    /// `blocked`: its metadata is so wrong that rules must not run.
    pub(crate) fn check(
        &self,
        object: &Value,
        old: Option<(&Value, Part)>,
        blocked: bool,
    ) -> Vec<FieldError> {
        match old {
            _ if self.published.is_none() => Vec::new(),
            Some((old, Part::Status)) => self.compiled.validate_status(object, old),
            old => self
                .compiled
                .validate_after(blocked, object, old.map(|(old, _)| old)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_kind_that_is_written_has_a_schema() {
        assert_eq!(BUILTIN.len(), 6);
    }
}
