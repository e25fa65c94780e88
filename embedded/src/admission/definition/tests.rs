//! Tests of definitions as input.

use super::*;

fn definition() -> Value {
    let mut definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "tools.example.dev"},
        "spec": {
            "group": "example.dev", "scope": "Namespaced", "names": {"plural": "tools", "kind": "Tool"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": {
                    "size": {"type": "integer", "maximum": 10},
                }}},
            }}}],
        },
    });
    assert_eq!(normalize(&mut definition), Ok(Vec::new()));
    default(&mut definition);
    initialize(&mut definition);
    definition
}

#[test]
fn a_valid_definition_gets_defaults() {
    let definition = definition();
    assert!(validate(&definition, None).is_empty());
    let names = json!({"plural": "tools", "kind": "Tool", "singular": "tool", "listKind": "ToolList"});
    assert_eq!(definition["spec"]["names"], names);
    assert_eq!(definition["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(definition["status"]["storedVersions"], json!(["v1"]));
    let maximum = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/maximum";
    assert_eq!(
        definition.pointer(maximum),
        Some(&json!(10)),
        "numbers stay as written"
    );
}

#[test]
fn unknown_fields_and_the_origin_are_dropped() {
    let mut definition = definition();
    definition["spec"]["versions"][0]["nope"] = 1.into();
    definition["metadata"]["annotations"] = json!({ORIGIN: "program"});
    assert_eq!(
        normalize(&mut definition),
        Ok(vec!["spec.versions[0].nope".to_owned()])
    );
    assert!(!is_own(&definition) && definition["metadata"]["annotations"].is_null());
    definition["spec"]["versions"] = "text".into();
    assert!(normalize(&mut definition).is_err());
}

#[test]
fn each_invalid_field_of_a_definition_is_reported() {
    let schema = "/spec/versions/0/schema/openAPIV3Schema";
    for (pointer, value, field) in [
        ("/metadata/name", json!("other.example.dev"), "metadata.name"),
        ("/spec/scope", json!("Galaxy"), "spec.scope"),
        ("/spec/names/kind", json!("A Tool"), "spec.names.kind"),
        ("/spec/names/listKind", json!("Tool"), "spec.names.listKind"),
        (
            "/spec/conversion/strategy",
            json!("Webhook"),
            "spec.conversion.strategy",
        ),
        ("/spec/versions/0/storage", json!(false), "spec.versions"),
        (schema, Value::Null, "spec.versions[0].schema.openAPIV3Schema"),
        (
            schema,
            json!({"type": "string"}),
            "spec.validation.openAPIV3Schema.type",
        ),
        (
            schema,
            json!({"type": "object", "properties": {"spec": {}}}),
            "spec.validation.openAPIV3Schema.properties[spec].type",
        ),
        (
            schema,
            json!({"type": "object", "properties": {"spec": {"type": "string", "pattern": "("}}}),
            "spec.versions",
        ),
    ] {
        let mut definition = definition();
        *definition.pointer_mut(pointer).unwrap() = value;
        let fields: Vec<String> = validate(&definition, None)
            .into_iter()
            .map(|cause| cause.field)
            .collect();
        assert_eq!(fields, [field], "{pointer}");
    }
}

#[test]
fn an_established_definition_keeps_its_scope_and_stored_versions() {
    let mut old = definition();
    old["status"]["conditions"] = json!([{"type": "Established", "status": "True"}]);
    let mut new = old.clone();
    assert!(validate(&new, Some(&old)).is_empty());
    new["spec"]["scope"] = "Cluster".into();
    new["spec"]["versions"][0]["name"] = "v2".into();
    let fields: Vec<String> = validate(&new, Some(&old))
        .into_iter()
        .map(|cause| cause.field)
        .collect();
    assert_eq!(fields, ["spec.scope", "status.storedVersions[0]"]);
}
