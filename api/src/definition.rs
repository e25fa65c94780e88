//! Compares the installed CustomResourceDefinition with ours. An older definition silently prunes unknown fields, so a
//! pruned guard rail would have no effect.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, JSONSchemaProps, JSONSchemaPropsOrArray,
    JSONSchemaPropsOrBool,
};

/// Returns the sorted paths of the fields that the required definition declares in its stored version and the installed one
/// does not. A missing field implies all fields below it; `[]` denotes the elements of a list, `.*` the values of a map or
/// the content of a free-form field.
#[must_use]
pub fn missing_fields(
    required: &CustomResourceDefinition,
    installed: &CustomResourceDefinition,
) -> Vec<String> {
    let mut paths = Vec::new();
    for version in required.spec.versions.iter().filter(|version| version.storage) {
        let found = installed
            .spec
            .versions
            .iter()
            .find(|found| found.name == version.name && found.served);
        match (schema(version), found.map(schema)) {
            (_, None) => paths.push(format!("version {}", version.name)),
            (Some(ours), Some(Some(theirs))) => compare("", ours, theirs, &mut paths),
            (Some(_), Some(None)) => paths.push(format!("the schema of {}", version.name)),
            (None, Some(_)) => {}
        }
    }
    paths.sort();
    paths
}

fn schema(version: &CustomResourceDefinitionVersion) -> Option<&JSONSchemaProps> {
    version.schema.as_ref()?.open_api_v3_schema.as_ref()
}

/// Compares both schemas at one path, ours first.
fn compare(path: &str, ours: &JSONSchemaProps, theirs: &JSONSchemaProps, paths: &mut Vec<String>) {
    let free = |schema: &JSONSchemaProps| schema.x_kubernetes_preserve_unknown_fields == Some(true);
    if free(theirs) {
        return;
    }
    if free(ours) {
        paths.push(format!("{path}.*"));
        return;
    }
    for (name, field) in ours.properties.iter().flatten() {
        let below = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        match theirs.properties.as_ref().and_then(|fields| fields.get(name)) {
            Some(found) => compare(&below, field, found, paths),
            None => paths.push(below),
        }
    }
    if let Some(JSONSchemaPropsOrArray::Schema(element)) = &ours.items {
        let below = format!("{path}[]");
        match &theirs.items {
            Some(JSONSchemaPropsOrArray::Schema(found)) => compare(&below, element, found, paths),
            _ => paths.push(below),
        }
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &ours.additional_properties {
        let below = format!("{path}.*");
        match &theirs.additional_properties {
            Some(JSONSchemaPropsOrBool::Schema(found)) => compare(&below, value, found, paths),
            Some(JSONSchemaPropsOrBool::Bool(true)) => {}
            _ => paths.push(below),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn ours() -> CustomResourceDefinition {
        let name = "terraforms.infra.contrib.fluxcd.io";
        crate::crds()
            .into_iter()
            .find(|crd| crd.metadata.name.as_deref() == Some(name))
            .unwrap()
    }

    /// Our definition with a change to v1alpha2.
    fn changed(change: impl Fn(&mut Value)) -> CustomResourceDefinition {
        let mut value = serde_json::to_value(ours()).unwrap();
        let versions = value["spec"]["versions"].as_array_mut().unwrap();
        let stored = versions
            .iter_mut()
            .find(|version| version["name"] == "v1alpha2")
            .unwrap();
        change(stored);
        serde_json::from_value(value).unwrap()
    }

    fn remove(stored: &mut Value, parent: &str, field: &str) {
        let parent = stored
            .pointer_mut(&format!("/schema/openAPIV3Schema/properties{parent}"))
            .unwrap();
        assert!(
            parent.as_object_mut().unwrap().remove(field).is_some(),
            "{field} exists before the removal"
        );
    }

    #[test]
    fn all_missing_fields_are_listed() {
        assert_eq!(missing_fields(&ours(), &ours()), Vec::<String>::new());
        let hold = changed(|stored| remove(stored, "/spec/properties/autoApply/properties", "hold"));
        assert_eq!(missing_fields(&ours(), &hold), ["spec.autoApply.hold"]);
        let two = changed(|stored| {
            remove(stored, "/spec/properties", "autoApply");
            remove(
                stored,
                "/spec/properties/ignoreDrift/items/properties",
                "attributes",
            );
        });
        assert_eq!(
            missing_fields(&ours(), &two),
            ["spec.autoApply", "spec.ignoreDrift[].attributes"]
        );
        let values = changed(|stored| {
            remove(
                stored,
                "/spec/properties/values",
                "x-kubernetes-preserve-unknown-fields",
            );
        });
        assert_eq!(missing_fields(&ours(), &values), ["spec.values.*"]);
        // Additional and free-form fields prune nothing.
        let more = changed(|stored| {
            *stored
                .pointer_mut("/schema/openAPIV3Schema/properties/spec/properties/autoApply")
                .unwrap() = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        });
        assert_eq!(missing_fields(&ours(), &more), Vec::<String>::new());
    }

    #[test]
    fn the_stored_version_must_be_served() {
        let unserved = changed(|stored| stored["served"] = json!(false));
        assert_eq!(missing_fields(&ours(), &unserved), ["version v1alpha2"]);
        let bare = changed(|stored| stored["schema"] = json!({}));
        assert_eq!(missing_fields(&ours(), &bare), ["the schema of v1alpha2"]);
    }
}
