//! What an object must satisfy to be stored, and what the server itself writes into it. Pure but for time and randomness.

mod metadata;
mod name;
mod rules;
mod schema;

use serde_json::{Value, json};

pub(crate) use self::{
    name::generated,
    schema::{ObjectSchema, SchemaError},
};
use crate::{
    builtin, meta,
    resource::{Family, Resource},
    service::{Cause, StatusError},
};

/// Which part of an object a write is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The object without its status, where that is apart.
    Main,
    /// Its status only.
    Status,
    /// A namespace's `spec.finalizers` only.
    Finalize,
}

/// Brings a decoded object into form: metadata checked, unknown fields dropped, defaults set.
/// The paths of dropped fields are returned; the error is the decoder's, to be put into words by the caller.
pub(crate) fn form(resource: &Resource, object: &mut Value) -> Result<Vec<String>, String> {
    let mut dropped = metadata::form(object)?;
    rules::decode(resource, object)?;
    if let Some(schema) = &resource.schema {
        dropped.extend(schema.prune(object));
        schema.default(object);
    }
    rules::default(resource, object);
    Ok(dropped)
}

/// A formed object as it is first stored, but for its version.
pub(crate) fn create(resource: &Resource, mut object: Value) -> Result<Value, StatusError> {
    if !meta::resource_version(&object).is_empty() {
        return Err(StatusError::version_on_create());
    }
    let name = meta::name(&object).to_owned();
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
        meta::set(&mut object, field, Value::Null);
    }
    meta::set(&mut object, "uid", uuid::Uuid::new_v4().to_string().into());
    meta::set(&mut object, "creationTimestamp", meta::now().into());
    if resource.family == Family::Custom {
        meta::set(&mut object, "generation", json!(1));
    }
    if resource.status
        && let Some(fields) = object.as_object_mut()
    {
        fields.remove("status");
        // The API server drops it before it stores the object, and sets defaults once more whenever it reads one.
        if let Some(schema) = &resource.schema {
            schema.default(&mut object);
        }
    }
    rules::initialise(resource, &mut object);
    object["apiVersion"] = resource.stored_api_version().into();
    refuse(resource, &name, &check(resource, &object, None))?;
    Ok(object)
}

/// A formed object as it replaces `old`, but for its version. Both are in the version of `resource`.
pub(crate) fn update(resource: &Resource, new: Value, old: &Value, part: Part) -> Result<Value, StatusError> {
    let mut new = match part {
        Part::Main => new,
        Part::Status => with_field(old, &new, "status"),
        Part::Finalize => with_field(old, &new, "spec"),
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
    if part == Part::Main && resource.status {
        new = with_field(&new, old, "status");
    }
    if part == Part::Main && resource.family == Family::Namespace {
        new = with_field(&new, old, "spec");
    }
    if resource.family == Family::Custom && is_new_generation(resource, &new, old) {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
        meta::set(&mut new, "generation", json!(generation + 1));
    }
    let name = meta::name(old);
    let mut causes = metadata::check_update(&new, old);
    if resource.family == Family::Custom {
        // The API server looks at these once for every object and once more for custom resources, and tells both.
        causes.extend_from_within(..);
    }
    causes.extend(check(resource, &new, Some((old, part))));
    refuse(resource, name, &causes)?;
    Ok(new)
}

/// The object with one top-level field taken from another.
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

/// Whether anything but metadata, and status where it is apart, differs.
fn is_new_generation(resource: &Resource, new: &Value, old: &Value) -> bool {
    let counts = |field: &&String| {
        field.as_str() != "metadata"
            && field.as_str() != "apiVersion"
            && !(resource.status && *field == "status")
    };
    let fields = |object: &Value| -> Vec<(String, Value)> {
        let fields = object.as_object().into_iter().flatten();
        fields
            .filter(|(field, _)| counts(field))
            .map(|(field, value)| (field.clone(), value.clone()))
            .collect()
    };
    fields(new) != fields(old)
}

fn check(resource: &Resource, object: &Value, old: Option<(&Value, Part)>) -> Vec<Cause> {
    let mut causes = name::check(resource, object);
    causes.extend(metadata::check(object));
    causes.extend(rules::check(resource, object, old.map(|(old, _)| old)));
    if let Some(schema) = &resource.schema {
        let blocked = causes.iter().any(Cause::blocks_rules);
        causes.extend(schema.check(object, old, blocked).into_iter().map(Cause::from));
    }
    if resource.family != Family::Custom {
        causes.extend(
            builtin::check(&resource.kind, object)
                .into_iter()
                .map(Cause::from),
        );
    }
    causes
}

fn refuse(resource: &Resource, name: &str, causes: &[Cause]) -> Result<(), StatusError> {
    if causes.is_empty() {
        Ok(())
    } else {
        Err(StatusError::invalid(resource, name, causes))
    }
}
