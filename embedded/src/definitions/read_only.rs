//! Definitions that the program reads from files: validated as new ones of a request are, and read-only like its own.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, CustomResourceDefinitionNames,
    CustomResourceDefinitionSpec, CustomResourceDefinitionVersion, CustomResourceValidation,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::names::{DefinitionNames, UsedNames};
use super::{MAX_DEFINITIONS, too_many};
use crate::resource::{Registry, Strategy};
use crate::{admission, meta};

/// `apiVersion` of definitions.
const API_VERSION: &str = "apiextensions.k8s.io/v1";
/// Kind of definitions.
const KIND: &str = "CustomResourceDefinition";
/// Metadata that an exported definition has, and a file does not need.
const SERVER_FIELDS: [&str; 6] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
    "namespace",
];

/// Why a definition cannot be served. The text begins with the field.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionProblem {
    /// The object is not a definition, or one of another version.
    #[error("{field}: {found:?}, must be {expected:?}")]
    Kind {
        /// `apiVersion` or `kind`.
        field: &'static str,
        /// Its value.
        found: String,
        /// The supported value.
        expected: &'static str,
    },
    /// The object has fields that a definition does not have.
    #[error("{}: unknown", .0.join(", "))]
    UnknownFields(Vec<String>),
    /// Fields are not valid; the text of the API names them.
    #[error("{0}")]
    Invalid(String),
    /// Another definition has the name.
    #[error("metadata.name: {0:?} is defined already")]
    Duplicate(String),
    /// Another kind of the group has one of the names.
    #[error("spec.names: {message} in the group ({reason})")]
    NameConflict {
        /// The reason of the condition `NamesAccepted`.
        reason: &'static str,
        /// The message of the condition.
        message: String,
    },
    /// The number of definitions is limited.
    #[error("{0}")]
    TooMany(String),
}

/// Returns the definition that an object describes, for [`crate::ApiServerBuilder::crds`]. `others` are those that are served beside it.
///
/// # Errors
/// If the object is not a definition that can be served, or has a name of another one.
pub fn read_only_definition(
    object: Value,
    others: &[CustomResourceDefinition],
) -> Result<CustomResourceDefinition, DefinitionProblem> {
    check_kind(&object)?;
    if others.len() >= MAX_DEFINITIONS {
        return Err(DefinitionProblem::TooMany(too_many(others.len())));
    }
    let name = meta::name(&object);
    if others
        .iter()
        .any(|other| other.metadata.name.as_deref() == Some(name))
    {
        return Err(DefinitionProblem::Duplicate(name.to_owned()));
    }
    let definition = admitted(object)?;
    check_names(&definition, others)?;
    serde_json::from_value(definition).map_err(|error| DefinitionProblem::Invalid(error.to_string()))
}

fn check_kind(object: &Value) -> Result<(), DefinitionProblem> {
    for (field, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        let found = object[field].as_str().unwrap_or_default();
        if found != expected {
            let found = found.to_owned();
            return Err(DefinitionProblem::Kind {
                field,
                found,
                expected,
            });
        }
    }
    Ok(())
}

/// Admits a definition as a creation does, without the status and the metadata of a stored one.
fn admitted(object: Value) -> Result<Value, DefinitionProblem> {
    let registry = Registry::builtin();
    let Some(resource) = registry.by_strategy(Strategy::Definition) else {
        return Err(DefinitionProblem::Invalid(
            "definitions are not served".to_owned(),
        ));
    };
    let mut object = without_server_fields(object);
    let unknown = admission::normalize(resource, &mut object)
        .map_err(|error| DefinitionProblem::Invalid(with_field(&object, error)))?;
    if !unknown.is_empty() {
        return Err(DefinitionProblem::UnknownFields(unknown));
    }
    let admitted = admission::prepare_create(resource, object);
    let admitted = admitted.map_err(|error| DefinitionProblem::Invalid(error.message().to_owned()))?;
    Ok(without_server_fields(admitted))
}

/// Returns an error of the decoder, which names no field, with the field whose value has another type.
fn with_field(object: &Value, error: String) -> String {
    match field_of_other_type(&object["spec"]) {
        Some(field) => format!("{field}: {error}"),
        None => error,
    }
}

/// Returns the innermost field of a spec that a type of the API describes and whose value has another type.
fn field_of_other_type(spec: &Value) -> Option<String> {
    let versions = spec["versions"].as_array().into_iter().flatten();
    for (number, version) in versions.enumerate() {
        if has_other_type::<CustomResourceValidation>(&version["schema"]) {
            return Some(format!("spec.versions[{number}].schema"));
        }
        if has_other_type::<CustomResourceDefinitionVersion>(version) {
            return Some(format!("spec.versions[{number}]"));
        }
    }
    let field = if has_other_type::<CustomResourceDefinitionNames>(&spec["names"]) {
        "spec.names"
    } else if has_other_type::<CustomResourceConversion>(&spec["conversion"]) {
        "spec.conversion"
    } else if has_other_type::<String>(&spec["group"]) {
        "spec.group"
    } else if has_other_type::<String>(&spec["scope"]) {
        "spec.scope"
    } else if has_other_type::<CustomResourceDefinitionSpec>(spec) {
        "spec"
    } else {
        return None;
    };
    Some(field.to_owned())
}

fn has_other_type<T: DeserializeOwned>(value: &Value) -> bool {
    !value.is_null() && T::deserialize(value).is_err()
}

fn without_server_fields(mut object: Value) -> Value {
    for field in SERVER_FIELDS {
        meta::set(&mut object, field, Value::Null);
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    object
}

/// Checks that no other kind of the group has a name of the definition.
fn check_names(definition: &Value, others: &[CustomResourceDefinition]) -> Result<(), DefinitionProblem> {
    let mut accepted = BTreeMap::new();
    for other in others {
        let names = DefinitionNames::requested(&json!({"spec": {"names": other.spec.names}}));
        accepted.insert(other.metadata.name.clone().unwrap_or_default(), names);
    }
    let used = UsedNames::beside(definition, &Registry::builtin(), &accepted);
    let requested = DefinitionNames::requested(definition);
    match DefinitionNames::default().accept(&requested, &used) {
        (_, None) => Ok(()),
        (_, Some((reason, message))) => Err(DefinitionProblem::NameConflict { reason, message }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(plural: &str, kind: &str) -> Value {
        json!({
            "apiVersion": API_VERSION, "kind": KIND,
            "metadata": {"name": format!("{plural}.tools.dev"), "uid": "1", "resourceVersion": "7"},
            "spec": {
                "group": "tools.dev", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
            },
            "status": {"storedVersions": ["v1"]},
        })
    }

    #[test]
    fn an_exported_definition_is_read_without_what_a_server_sets() {
        let read = read_only_definition(definition("tools", "Tool"), &[]).unwrap();
        assert_eq!(read.metadata.name.as_deref(), Some("tools.tools.dev"));
        assert_eq!((read.metadata.uid, read.metadata.resource_version), (None, None));
        assert_eq!(read.status, None);
        assert_eq!(read.spec.names.list_kind.as_deref(), Some("ToolList"));
    }

    #[test]
    fn a_name_is_not_defined_twice() {
        let first = [read_only_definition(definition("tools", "Tool"), &[]).unwrap()];
        read_only_definition(definition("gears", "Gear"), &first).unwrap();
        let same = read_only_definition(definition("tools", "Tool"), &first);
        assert!(matches!(same, Err(DefinitionProblem::Duplicate(name)) if name == "tools.tools.dev"));
        let kind = read_only_definition(definition("gears", "Tool"), &first).unwrap_err();
        let text = kind.to_string();
        assert!(text.starts_with("spec.names: \"Tool"), "{text}");
        let many = vec![first[0].clone(); MAX_DEFINITIONS];
        let limit = read_only_definition(definition("gears", "Gear"), &many).unwrap_err();
        assert_eq!(limit.to_string(), too_many(MAX_DEFINITIONS));
    }

    #[test]
    fn a_kind_of_the_program_is_not_replaced() {
        let mut lease = definition("leases", "Lease");
        lease["metadata"]["name"] = "leases.coordination.k8s.io".into();
        lease["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "unapproved"});
        lease["spec"]["group"] = "coordination.k8s.io".into();
        let problem = read_only_definition(lease, &[]);
        assert!(
            matches!(problem, Err(DefinitionProblem::NameConflict { .. })),
            "{problem:?}"
        );
    }

    #[test]
    fn an_error_names_the_field() {
        for (pointer, value, expected) in [
            ("/apiVersion", "apiextensions.k8s.io/v1beta1", "apiVersion: "),
            ("/kind", "ConfigMap", "kind: "),
            ("/spec/scope", "Galaxy", "spec.scope"),
            ("/metadata/name", "other.tools.dev", "metadata.name"),
        ] {
            let mut object = definition("tools", "Tool");
            *object.pointer_mut(pointer).unwrap() = value.into();
            let text = read_only_definition(object, &[]).unwrap_err().to_string();
            assert!(text.contains(expected), "{pointer}: {text}");
        }
        let mut object = definition("tools", "Tool");
        object["spec"]["nope"] = 1.into();
        let text = read_only_definition(object, &[]).unwrap_err().to_string();
        assert_eq!(text, "spec.nope: unknown");
    }

    #[test]
    fn an_error_of_a_type_names_the_field() {
        for (pointer, expected) in [
            (
                "/spec/versions/0/schema/openAPIV3Schema/type",
                "spec.versions[0].schema: ",
            ),
            ("/spec/versions/0/name", "spec.versions[0]: "),
            ("/spec/names/kind", "spec.names: "),
            ("/spec/group", "spec.group: "),
            ("/spec/scope", "spec.scope: "),
            ("/spec/versions", "spec: "),
        ] {
            let mut object = definition("tools", "Tool");
            *object.pointer_mut(pointer).unwrap() = 1.into();
            let text = read_only_definition(object, &[]).unwrap_err().to_string();
            assert!(text.starts_with(expected), "{pointer}: {text}");
        }
    }
}
