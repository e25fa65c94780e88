//! Rules of built-in kinds beyond their schema: Secret data, immutability, Event references, Namespace lifecycle.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::role_kinds;
use crate::cause::Cause;
use crate::meta;
use crate::resource::{Resource, Strategy};

/// The limit for all values of a Secret or ConfigMap, in bytes.
const MAX_DATA_BYTES: usize = 1024 * 1024;
const KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

/// Rejects what kube-apiserver's decoder of a built-in kind rejects: values of wrong types and data that is not base64.
pub(super) fn check_types(resource: &Resource, object: &Value) -> Result<(), String> {
    let field = if resource.strategy == Strategy::ConfigMap {
        "binaryData"
    } else {
        "data"
    };
    if matches!(resource.strategy, Strategy::Secret | Strategy::ConfigMap) {
        let entries = object[field].as_object().into_iter().flatten();
        for text in entries.filter_map(|(_, value)| value.as_str()) {
            if STANDARD.decode(text).is_err() {
                let is_invalid = |c: char| !c.is_ascii_alphanumeric() && !"+/=".contains(c);
                let at = text.find(is_invalid).unwrap_or(text.len());
                return Err(format!("illegal base64 data at input byte {at}"));
            }
        }
    }
    let typed = match resource.strategy {
        Strategy::Secret => typed::<Secret>(object),
        Strategy::ConfigMap => typed::<ConfigMap>(object),
        Strategy::Event => typed::<Event>(object),
        Strategy::Namespace => typed::<Namespace>(object),
        Strategy::ServiceAccount => typed::<ServiceAccount>(object),
        Strategy::Lease => typed::<Lease>(object),
        Strategy::Role if resource.namespaced => typed::<Role>(object),
        Strategy::Role => typed::<ClusterRole>(object),
        Strategy::RoleBinding if resource.namespaced => typed::<RoleBinding>(object),
        Strategy::RoleBinding => typed::<ClusterRoleBinding>(object),
        Strategy::Custom | Strategy::Definition | Strategy::Review => Ok(()),
    };
    typed.map_err(|error| error.to_string())
}

fn typed<T: DeserializeOwned>(object: &Value) -> Result<(), serde_json::Error> {
    T::deserialize(object).map(drop)
}

/// Applies the defaults of a built-in kind.
pub(super) fn default(resource: &Resource, object: &mut Value) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    match resource.strategy {
        Strategy::Secret => {
            if let Some(Value::Object(texts)) = fields.remove("stringData") {
                let data = fields.entry("data").or_insert_with(|| json!({}));
                for (key, text) in texts {
                    data[key] = STANDARD.encode(text.as_str().unwrap_or("")).into();
                }
            }
            let type_ = fields.entry("type").or_insert_with(|| "Opaque".into());
            if type_ == "" || type_.is_null() {
                *type_ = "Opaque".into();
            }
        }
        Strategy::Event => {
            for (field, empty) in [
                ("source", json!({})),
                ("reportingComponent", json!("")),
                ("reportingInstance", json!("")),
            ] {
                fields.entry(field).or_insert(empty);
            }
            for time in ["firstTimestamp", "lastTimestamp", "eventTime"] {
                fields.entry(time).or_insert(Value::Null);
            }
        }
        Strategy::Namespace => {
            let name = fields["metadata"]["name"].clone();
            if name.is_string() {
                fields["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
            }
        }
        Strategy::Role | Strategy::RoleBinding => role_kinds::default(resource.strategy, fields),
        _ => {}
    }
    // Go omits these fields if they are empty. Custom resources define their own fields.
    if resource.strategy != Strategy::Custom {
        for field in ["data", "binaryData", "secrets", "imagePullSecrets"] {
            if fields.get(field).is_some_and(is_empty) {
                fields.remove(field);
            }
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// Sets the initial spec and status of a new object.
pub(super) fn initialize(resource: &Resource, object: &mut Value) {
    if resource.strategy == Strategy::Namespace {
        object["spec"] = json!({"finalizers": ["kubernetes"]});
        object["status"] = json!({"phase": "Active"});
    }
}

/// Validates an object of a built-in kind.
pub(super) fn validate(resource: &Resource, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    match resource.strategy {
        Strategy::Secret => {
            let mut causes = validate_data(object, &["data"]);
            if let Some(old) = old {
                causes.extend(validate_immutable(object, old, &["data"]));
                if object["type"] != old["type"] {
                    causes.push(Cause::invalid_json("type", &object["type"], "field is immutable"));
                }
            }
            causes
        }
        Strategy::ConfigMap => {
            let mut causes = validate_data(object, &["data", "binaryData"]);
            causes.extend(duplicate_keys(object));
            if let Some(old) = old {
                causes.extend(validate_immutable(object, old, &["data", "binaryData"]));
            }
            causes
        }
        Strategy::Event => validate_event(object),
        Strategy::Role => role_kinds::validate_role(resource, object),
        Strategy::RoleBinding => role_kinds::validate_binding(resource, object, old),
        _ => Vec::new(),
    }
}

fn validate_data(object: &Value, fields: &[&str]) -> Vec<Cause> {
    let (mut causes, mut bytes) = (Vec::new(), 0);
    for field in fields {
        for (key, value) in object[*field].as_object().into_iter().flatten() {
            let well_formed = !key.is_empty()
                && key
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
            if !well_formed || key.len() > 253 || key == "." || key.starts_with("..") {
                causes.push(Cause::invalid(format!("{field}[{key}]"), key, KEY));
            }
            let length = value.as_str().map_or(0, str::len);
            bytes += if object["kind"] == "ConfigMap" && *field == "data" {
                length
            } else {
                length / 4 * 3
            };
        }
    }
    if bytes > MAX_DATA_BYTES {
        let field = if object["kind"] == "Secret" { "data" } else { "" };
        causes.push(Cause::too_long(field, MAX_DATA_BYTES));
    }
    causes
}

/// Rejects keys that a ConfigMap has in both data and binaryData.
fn duplicate_keys(object: &Value) -> Vec<Cause> {
    let texts = object["data"].as_object().into_iter().flatten();
    let detail = "duplicate of key present in binaryData";
    texts
        .filter(|(key, _)| object["binaryData"].get(key.as_str()).is_some())
        .map(|(key, _)| Cause::invalid(format!("data[{key}]"), key, detail))
        .collect()
}

fn validate_immutable(object: &Value, old: &Value, fields: &[&str]) -> Vec<Cause> {
    if old["immutable"] != true {
        return Vec::new();
    }
    let forbidden = |field: &str| Cause::forbidden(field, "field is immutable when `immutable` is set");
    let mut causes = Vec::new();
    if object["immutable"] != true {
        causes.push(forbidden("immutable"));
    }
    let changed = fields.iter().filter(|field| object[**field] != old[**field]);
    causes.extend(changed.map(|field| forbidden(field)));
    causes
}

fn validate_event(object: &Value) -> Vec<Cause> {
    let involved = object["involvedObject"]["namespace"].as_str().unwrap_or("");
    let namespace = meta::namespace(object);
    if involved == namespace || (involved.is_empty() && namespace == "default") {
        return Vec::new();
    }
    let detail = "does not match event.namespace";
    vec![Cause::invalid("involvedObject.namespace", involved, detail)]
}
