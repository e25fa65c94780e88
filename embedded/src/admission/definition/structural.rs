//! Structural schemas: what the schema of a definition must have so that every field has one type.

use serde_json::Value;

use crate::cause::Cause;

/// The position of a schema in a definition.
#[derive(Clone, Copy)]
enum Level {
    Root,
    Field,
    Item,
}

/// Adds the causes of a schema that is not structural.
pub(super) fn validate(schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    validate_level(schema, path, Level::Root, causes);
}

fn validate_level(schema: &Value, path: &str, level: Level, causes: &mut Vec<Cause>) {
    validate_type(schema, path, level, causes);
    if schema["uniqueItems"] == true {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        causes.push(Cause::forbidden(format!("{path}.uniqueItems"), detail));
    }
    if schema["$ref"].is_string() {
        causes.push(Cause::forbidden(format!("{path}.$ref"), "$ref is not supported"));
    }
    let properties = schema["properties"].as_object();
    if properties.is_some_and(|properties| !properties.is_empty())
        && (schema["additionalProperties"].is_object() || schema["additionalProperties"] == true)
    {
        let detail = "additionalProperties and properties are mutual exclusive";
        causes.push(Cause::forbidden(format!("{path}.additionalProperties"), detail));
    }
    for (name, property) in properties.into_iter().flatten() {
        let path = format!("{path}.properties[{name}]");
        validate_level(property, &path, Level::Field, causes);
    }
    if schema["additionalProperties"].is_object() {
        let path = format!("{path}.additionalProperties");
        validate_level(&schema["additionalProperties"], &path, Level::Field, causes);
    }
    match &schema["items"] {
        Value::Null if schema["type"] == "array" => {
            causes.push(Cause::required(format!("{path}.items"), "must be specified"));
        }
        items @ Value::Object(_) => {
            validate_level(items, &format!("{path}.items"), Level::Item, causes);
        }
        Value::Array(_) => {
            let detail = "items must be a schema object and not an array";
            causes.push(Cause::forbidden(format!("{path}.items"), detail));
        }
        _ => {}
    }
}

fn validate_type(schema: &Value, path: &str, level: Level, causes: &mut Vec<Cause>) {
    let field = format!("{path}.type");
    let is_free = schema["x-kubernetes-int-or-string"] == true
        || schema["x-kubernetes-preserve-unknown-fields"] == true;
    match (schema["type"].as_str().unwrap_or_default(), level) {
        ("", _) if is_free => {}
        ("", Level::Root) => causes.push(Cause::required(field, "must not be empty at the root")),
        ("", Level::Field) => causes.push(Cause::required(
            field,
            "must not be empty for specified object fields",
        )),
        ("", Level::Item) => causes.push(Cause::required(
            field,
            "must not be empty for specified array items",
        )),
        ("object", _) => {}
        (other, Level::Root) => causes.push(Cause::invalid(field, other, "must be object at the root")),
        _ => {}
    }
}
