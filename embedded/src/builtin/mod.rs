//! Schemas of the built-in kinds, and their validation beyond the schema. Pure.

mod validation;

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{
    SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Secret, ServiceAccount};
use k8s_openapi::api::events;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ListMeta, ObjectMeta};
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};
pub(crate) use validation::validate;

use crate::schema::{CompileError, Schema};

/// The prefix of schema references in `OpenAPI` documents.
const REFERENCE_PREFIX: &str = "#/components/schemas/";

/// Returns the definitions of the built-in kinds and of everything they refer to, by `OpenAPI` name
/// (`io.k8s.api.core.v1.Secret`), with references in `OpenAPI` form.
pub(crate) fn definitions() -> Map<String, Value> {
    let settings = SchemaSettings::openapi3().with(|settings| settings.meta_schema = None);
    let mut generator = settings.into_generator();
    add::<Secret>(&mut generator);
    add::<ConfigMap>(&mut generator);
    add::<Namespace>(&mut generator);
    add::<Event>(&mut generator);
    add::<ServiceAccount>(&mut generator);
    add::<Lease>(&mut generator);
    add::<events::v1::Event>(&mut generator);
    add::<SelfSubjectReview>(&mut generator);
    add::<SelfSubjectAccessReview>(&mut generator);
    add::<SelfSubjectRulesReview>(&mut generator);
    add::<SubjectAccessReview>(&mut generator);
    add::<Role>(&mut generator);
    add::<RoleBinding>(&mut generator);
    add::<ClusterRole>(&mut generator);
    add::<ClusterRoleBinding>(&mut generator);
    add::<CustomResourceDefinition>(&mut generator);
    add::<ObjectMeta>(&mut generator);
    add::<ListMeta>(&mut generator);
    generator.take_definitions(true)
}

fn add<T: schemars::JsonSchema>(generator: &mut SchemaGenerator) {
    let _ = generator.subschema_for::<T>();
}

/// Returns the `OpenAPI` name of a built-in kind.
pub(crate) fn definition_name(group: &str, version: &str, kind: &str) -> Option<String> {
    let package = match group {
        "" => "io.k8s.api.core",
        "coordination.k8s.io" => "io.k8s.api.coordination",
        "events.k8s.io" => "io.k8s.api.events",
        "authentication.k8s.io" => "io.k8s.api.authentication",
        "authorization.k8s.io" => "io.k8s.api.authorization",
        crate::rbac::GROUP => "io.k8s.api.rbac",
        "apiextensions.k8s.io" => "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions",
        _ => return None,
    };
    Some(format!("{package}.{version}.{kind}"))
}

/// Compiles the schema of a built-in kind for pruning: it finds unknown fields, while the decoder rejects wrong types.
/// `None` for kinds that are not built in, and for CustomResourceDefinition, whose schema is recursive: admission prunes it by its type.
///
/// # Errors
/// If the generated schema cannot be compiled; a test compiles all of them.
pub(crate) fn schema(group: &str, version: &str, kind: &str) -> Result<Option<Schema>, CompileError> {
    if kind == "CustomResourceDefinition" {
        return Ok(None);
    }
    let definitions = definitions();
    let named = definition_name(group, version, kind).and_then(|name| definitions.get(&name).cloned());
    let Some(mut schema) = named else { return Ok(None) };
    inline_references(&mut schema, &definitions);
    Schema::compile(&schema).map(Some)
}

/// Replaces references by their targets. The definitions above have no recursive references.
fn inline_references(schema: &mut Value, definitions: &Map<String, Value>) {
    let target = reference_name(schema)
        .and_then(|name| definitions.get(name))
        .cloned();
    if let Some(target) = target {
        *schema = target;
    }
    match schema {
        Value::Object(fields) => fields
            .values_mut()
            .for_each(|field| inline_references(field, definitions)),
        Value::Array(entries) => entries
            .iter_mut()
            .for_each(|entry| inline_references(entry, definitions)),
        _ => {}
    }
}

/// Returns the name that a schema refers to, directly or through an `allOf` of one element.
fn reference_name(schema: &Value) -> Option<&str> {
    let lone = schema
        .get("allOf")
        .and_then(Value::as_array)
        .filter(|parts| parts.len() == 1);
    let holder = lone.map_or(schema, |parts| &parts[0]);
    holder.get("$ref")?.as_str()?.strip_prefix(REFERENCE_PREFIX)
}

/// Returns a reference to `name` with a description.
pub(crate) fn reference_with_description(name: &str, description: &str) -> Value {
    json!({"description": description, "allOf": [{"$ref": format!("{REFERENCE_PREFIX}{name}")}]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_of_built_in_kinds_are_found() {
        let table = [
            (
                "",
                "Secret",
                json!({"data": {"a": "YQ=="}, "extra": 1}),
                vec!["extra"],
            ),
            (
                "",
                "ConfigMap",
                json!({"data": {"a": "b"}, "binaryData": {}}),
                vec![],
            ),
            (
                "",
                "Namespace",
                json!({"spec": {"finalizers": ["kubernetes"], "x": 1}}),
                vec!["spec.x"],
            ),
            (
                "",
                "Event",
                json!({"involvedObject": {"name": "a", "nope": "b"}}),
                vec!["involvedObject.nope"],
            ),
            (
                "",
                "ServiceAccount",
                json!({"secrets": [{"name": "a", "x": 1}]}),
                vec!["secrets[0].x"],
            ),
            (
                "coordination.k8s.io",
                "Lease",
                json!({"spec": {"holderIdentity": "a", "y": 1}}),
                vec!["spec.y"],
            ),
        ];
        for (group, kind, mut object, expected) in table {
            let schema = schema(group, "v1", kind).unwrap().unwrap();
            object["metadata"] = json!({"name": "a", "anything": 1});
            assert_eq!(schema.prune(&mut object), expected, "{kind}");
            assert_eq!(object["metadata"]["anything"], 1);
        }
        assert!(schema("example.org", "v1", "Secret").unwrap().is_none());
    }
}
