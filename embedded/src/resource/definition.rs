//! Resources from CustomResourceDefinitions.

use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionSpec,
    CustomResourceDefinitionVersion,
};
use kube::core::Version;
use serde::Deserialize;
use serde_json::Value;

use super::object_schema::{ObjectSchema, SchemaError};
use super::{CellSource, Column, Resource, ScalePaths, Strategy};
use crate::jsonpath::{Path, PathError};

/// The error of a definition that cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DefinitionError {
    /// No version is marked for storage.
    #[error("no version is marked for storage")]
    NoStorageVersion,
    /// The conversion strategy is not `None`.
    #[error("conversion strategy {0:?} is not supported")]
    Conversion(String),
    /// The path of a printer column is invalid.
    #[error("version {version}, column {column}: {source}")]
    Column {
        version: String,
        column: String,
        source: PathError,
    },
    /// The schema of a version is invalid.
    #[error("version {version}: {source}")]
    Schema { version: String, source: SchemaError },
}

/// Returns one resource for each served version.
pub(crate) fn resources(crd: &CustomResourceDefinition) -> Result<Vec<Resource>, DefinitionError> {
    if let Some(conversion) = crd.spec.conversion.as_ref().filter(|c| c.strategy != "None") {
        return Err(DefinitionError::Conversion(conversion.strategy.clone()));
    }
    let storage = crd.spec.versions.iter().find(|version| version.storage);
    let storage = storage.ok_or(DefinitionError::NoStorageVersion)?;
    let served = crd.spec.versions.iter().filter(|version| version.served);
    served
        .map(|version| resource(crd, version, &storage.name))
        .collect()
}

/// Returns one resource for each served version of the spec of a stored definition. The error is the reason.
pub(crate) fn resources_of_spec(spec: &Value) -> Result<Vec<Arc<Resource>>, String> {
    let spec = CustomResourceDefinitionSpec::deserialize(spec).map_err(|error| error.to_string())?;
    let crd = CustomResourceDefinition {
        spec,
        ..CustomResourceDefinition::default()
    };
    let resources = resources(&crd).map_err(|error| error.to_string())?;
    Ok(resources.into_iter().map(Arc::new).collect())
}

fn resource(
    crd: &CustomResourceDefinition,
    version: &CustomResourceDefinitionVersion,
    storage: &str,
) -> Result<Resource, DefinitionError> {
    let (spec, names) = (&crd.spec, &crd.spec.names);
    let schema = version
        .schema
        .iter()
        .find_map(|schema| schema.open_api_v3_schema.as_ref());
    let schema = schema.map(ObjectSchema::custom).transpose();
    let schema = schema.map_err(|source| DefinitionError::Schema {
        version: version.name.clone(),
        source,
    })?;
    let columns = version.additional_printer_columns.iter().flatten();
    let columns: Result<Vec<_>, _> = columns.map(|c| column(c, &version.name)).collect();
    let kind = names.kind.clone();
    let deprecation_warning = version.deprecated.unwrap_or(false).then(|| {
        let standard = || deprecation_warning(crd, &version.name);
        version.deprecation_warning.clone().unwrap_or_else(standard)
    });
    let subresources = version.subresources.as_ref();
    let selectable_fields = version.selectable_fields.iter().flatten();
    let selectable_fields = selectable_fields.map(|field| field.json_path.trim_start_matches('.').to_owned());
    Ok(Resource {
        group: spec.group.clone(),
        version: version.name.clone(),
        plural: names.plural.clone(),
        singular: names.singular.clone().unwrap_or_else(|| kind.to_lowercase()),
        list_kind: names.list_kind.clone().unwrap_or_else(|| format!("{kind}List")),
        short_names: names.short_names.clone().unwrap_or_default(),
        categories: names.categories.clone().unwrap_or_default(),
        namespaced: spec.scope == "Namespaced",
        has_status: subresources.is_some_and(|s| s.status.is_some()),
        scale: subresources.and_then(|s| s.scale.as_ref()).map(ScalePaths::from),
        strategy: Strategy::Custom,
        columns: match columns? {
            none if none.is_empty() => vec![age_column()?],
            some => some,
        },
        selectable_fields: selectable_fields.collect(),
        deprecation_warning,
        storage_version: storage.into(),
        schema,
        kind,
    })
}

/// Returns the default warning of a deprecated version, which names the best version above it.
fn deprecation_warning(crd: &CustomResourceDefinition, version: &str) -> String {
    let (group, kind) = (&crd.spec.group, &crd.spec.names.kind);
    let priority = |name: &str| Version::parse(name).priority();
    let better = crd
        .spec
        .versions
        .iter()
        .filter(|other| other.served && !other.deprecated.unwrap_or(false))
        .filter(|other| priority(&other.name) > priority(version))
        .max_by_key(|other| priority(&other.name));
    let advice = better.map_or_else(String::new, |other| {
        format!("; use {group}/{} {kind}", other.name)
    });
    format!("{group}/{version} {kind} is deprecated{advice}")
}

fn column(column: &CustomResourceColumnDefinition, version: &str) -> Result<Column, DefinitionError> {
    let path = Path::parse(&column.json_path).map_err(|source| DefinitionError::Column {
        version: version.into(),
        column: column.name.clone(),
        source,
    })?;
    let standard = || {
        let path = &column.json_path;
        format!("Custom resource definition column (in JSONPath format): {path}")
    };
    Ok(Column {
        name: column.name.clone(),
        type_: column.type_.clone(),
        format: column.format.clone().unwrap_or_default(),
        description: column.description.clone().unwrap_or_else(standard),
        priority: column.priority.unwrap_or_default(),
        source: CellSource::Path(path),
    })
}

/// Returns the column of a definition without columns.
fn age_column() -> Result<Column, DefinitionError> {
    let age = CustomResourceColumnDefinition {
        name: "Age".into(),
        type_: "date".into(),
        json_path: ".metadata.creationTimestamp".into(),
        description: Some(super::CREATION_DESCRIPTION.into()),
        ..Default::default()
    };
    column(&age, "")
}
