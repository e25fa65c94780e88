//! Admission: normalization, server-set fields and validation of an object. Pure except for time and randomness.

mod builtin_kinds;
mod definition;
mod metadata;
mod role_kinds;

use serde_json::{Value, json};

pub(crate) use self::definition::record_storage_version;
pub(crate) use self::metadata::{finalizer_warnings, generate_name};
use crate::cause::Cause;
use crate::resource::{Resource, Strategy};
use crate::status_error::StatusError;
use crate::{builtin, meta};

/// The endpoint that a write addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// The main endpoint: everything except the status, if the kind has a status subresource.
    Main,
    /// The status subresource.
    Status,
    /// The `scale` subresource of custom resources: the desired number of replicas.
    Scale,
    /// The `finalize` subresource of namespaces: `spec.finalizers`.
    Finalize,
}

/// Normalizes a decoded object: checks the metadata, prunes unknown fields and applies defaults. Returns the pruned paths.
/// The error is the text of kube-apiserver's decoder, which the caller wraps.
pub(crate) fn normalize(resource: &Resource, object: &mut Value) -> Result<Vec<String>, String> {
    let mut pruned = metadata::normalize(object)?;
    builtin_kinds::check_types(resource, object)?;
    if let Some(schema) = &resource.schema {
        pruned.extend(schema.prune(object));
        schema.default(object);
    }
    builtin_kinds::default(resource, object);
    if resource.strategy == Strategy::Definition {
        pruned.extend(definition::normalize(object)?);
        definition::default(object);
    }
    Ok(pruned)
}

/// Prepares a normalized object for its creation. The store sets the resourceVersion.
pub(crate) fn prepare_create(resource: &Resource, mut object: Value) -> Result<Value, StatusError> {
    if !meta::resource_version(&object).is_empty() {
        return Err(StatusError::resource_version_on_create());
    }
    let name = meta::name(&object).to_owned();
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
        meta::set(&mut object, field, Value::Null);
    }
    meta::set(&mut object, "uid", uuid::Uuid::new_v4().to_string().into());
    meta::set(&mut object, "creationTimestamp", meta::now().into());
    if has_generation(resource) {
        meta::set(&mut object, "generation", json!(1));
    }
    if resource.has_status
        && let Some(fields) = object.as_object_mut()
    {
        fields.remove("status");
        // kube-apiserver drops the status before it stores the object, and applies defaults again on each read.
        if let Some(schema) = &resource.schema {
            schema.default(&mut object);
        }
    }
    builtin_kinds::initialize(resource, &mut object);
    if resource.strategy == Strategy::Definition {
        definition::initialize(&mut object);
    }
    object["apiVersion"] = resource.storage_api_version().into();
    reject(resource, &name, &validate(resource, &object, None))?;
    Ok(object)
}

/// Prepares a normalized object to replace `old`. Both have the version of `resource`; the store sets the resourceVersion.
pub(crate) fn prepare_update(
    resource: &Resource,
    new: Value,
    old: &Value,
    endpoint: Endpoint,
) -> Result<Value, StatusError> {
    let mut new = match endpoint {
        Endpoint::Main | Endpoint::Scale => new,
        Endpoint::Status => with_field(old, &new, "status"),
        Endpoint::Finalize => with_field(old, &new, "spec"),
    };
    for field in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
    ] {
        meta::set(&mut new, field, old["metadata"][field].clone());
    }
    if endpoint == Endpoint::Main && resource.has_status {
        new = with_field(&new, old, "status");
    }
    if endpoint == Endpoint::Main && resource.strategy == Strategy::Namespace {
        new = with_field(&new, old, "spec");
    }
    if endpoint == Endpoint::Main && resource.strategy == Strategy::Definition {
        definition::record_storage_version(&mut new);
    }
    if has_generation(resource) && is_new_generation(resource, &new, old) {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
        meta::set(&mut new, "generation", json!(generation + 1));
    }
    let name = meta::name(old);
    let mut causes = metadata::validate_update(&new, old);
    if resource.strategy == Strategy::Custom {
        // kube-apiserver validates these once for each object and again for custom resources, and reports both.
        causes.extend_from_within(..);
    }
    causes.extend(validate(resource, &new, Some((old, endpoint))));
    reject(resource, name, &causes)?;
    Ok(new)
}

/// Whether objects of the kind count the changes of their spec.
fn has_generation(resource: &Resource) -> bool {
    matches!(resource.strategy, Strategy::Custom | Strategy::Definition)
}

/// Returns the object with one top-level field taken from another object.
fn with_field(object: &Value, from: &Value, field: &str) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        match from.get(field) {
            Some(value) => fields.insert(field.into(), value.clone()),
            None => fields.remove(field),
        };
    }
    object
}

/// Whether a field differs other than metadata and, where it is a subresource, status.
fn is_new_generation(resource: &Resource, new: &Value, old: &Value) -> bool {
    let is_relevant = |field: &&String| {
        field.as_str() != "metadata"
            && field.as_str() != "apiVersion"
            && !(resource.has_status && *field == "status")
    };
    let fields = |object: &Value| -> Vec<(String, Value)> {
        let fields = object.as_object().into_iter().flatten();
        fields
            .filter(|(field, _)| is_relevant(field))
            .map(|(field, value)| (field.clone(), value.clone()))
            .collect()
    };
    fields(new) != fields(old)
}

fn validate(resource: &Resource, object: &Value, old: Option<(&Value, Endpoint)>) -> Vec<Cause> {
    let mut causes = metadata::validate_name(resource, object);
    causes.extend(metadata::validate(object));
    // Custom resources get warnings, and definitions nothing.
    if !matches!(resource.strategy, Strategy::Custom | Strategy::Definition) {
        causes.extend(metadata::validate_finalizer_domains(object));
    }
    causes.extend(builtin_kinds::validate(resource, object, old.map(|(old, _)| old)));
    if resource.strategy == Strategy::Definition {
        causes.extend(definition::validate(object, old.map(|(old, _)| old)));
    }
    if let Some(schema) = &resource.schema {
        let errors = match old {
            Some((old, Endpoint::Status)) => schema.validate_status(object, old),
            old => {
                let skip_rules = causes.iter().any(Cause::blocks_rules);
                schema.validate(object, old.map(|(old, _)| old), skip_rules)
            }
        };
        causes.extend(errors.into_iter().map(Cause::from));
    }
    if let Some(scale) = &resource.scale {
        causes.extend(scale.validate(object));
    }
    if resource.strategy != Strategy::Custom {
        let errors = builtin::validate(&resource.kind, object);
        causes.extend(errors.into_iter().map(Cause::from));
    }
    causes
}

fn reject(resource: &Resource, name: &str, causes: &[Cause]) -> Result<(), StatusError> {
    if causes.is_empty() {
        Ok(())
    } else {
        Err(StatusError::invalid(resource, name, causes))
    }
}
