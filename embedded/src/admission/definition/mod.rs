//! Rules of CustomResourceDefinitions, after the validation of apiextensions-apiserver.

mod scale;
mod structural;

use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cause::Cause;
use crate::definitions::{ORIGIN, is_own};
use crate::resource::resources_of;
use crate::{meta, names};

/// Maximum size of a spec as JSON, in bytes: half of what a request can have.
const MAX_SPEC_BYTES: usize = 3 << 19;
/// Annotation by which the owners of `k8s.io` approve a definition in their groups.
const APPROVAL: &str = "api-approved.kubernetes.io";

/// Checks types, and drops fields that a definition does not have. Returns their paths. The error is that of the decoder.
pub(super) fn normalize(object: &mut Value) -> Result<Vec<String>, String> {
    let typed = CustomResourceDefinition::deserialize(&*object).map_err(|error| error.to_string())?;
    let known = serde_json::to_value(&typed).map_err(|error| error.to_string())?;
    let mut unknown = Vec::new();
    retain_known(object, &known, "", &mut unknown);
    drop_origin(object);
    Ok(unknown)
}

/// Drops the fields that `known` lacks; nulls silently.
fn retain_known(value: &mut Value, known: &Value, path: &str, unknown: &mut Vec<String>) {
    match (value, known) {
        (Value::Object(fields), Value::Object(known)) => fields.retain(|name, value| {
            let dot = if path.is_empty() { "" } else { "." };
            let path = format!("{path}{dot}{name}");
            if path == "metadata" {
                return true;
            }
            let Some(known) = known.get(name) else {
                if !value.is_null() {
                    unknown.push(path);
                }
                return false;
            };
            retain_known(value, known, &path, unknown);
            true
        }),
        (Value::Array(items), Value::Array(known)) => {
            for (at, (item, known)) in items.iter_mut().zip(known).enumerate() {
                retain_known(item, known, &format!("{path}[{at}]"), unknown);
            }
        }
        _ => {}
    }
}

/// Drops the annotation of the definitions that the program contains.
fn drop_origin(object: &mut Value) {
    let Some(fields) = meta::fields_mut(object) else {
        return;
    };
    let Some(annotations) = fields.get_mut("annotations").and_then(Value::as_object_mut) else {
        return;
    };
    annotations.remove(ORIGIN);
    if annotations.is_empty() {
        fields.remove("annotations");
    }
}

/// Applies defaults.
pub(super) fn default(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    spec.entry("conversion")
        .or_insert_with(|| json!({"strategy": "None"}));
    let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) else {
        return;
    };
    let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default();
    let defaults = [
        ("singular", kind.to_lowercase()),
        ("listKind", format!("{kind}List")),
    ];
    if kind.is_empty() {
        return;
    }
    for (field, text) in defaults {
        let value = names.entry(field).or_insert(Value::Null);
        if value.as_str().unwrap_or_default().is_empty() {
            *value = text.into();
        }
    }
}

/// Sets the status of a new definition. The conditions follow when it is stored.
pub(super) fn initialize(object: &mut Value) {
    object["status"] = json!({
        "acceptedNames": {"kind": "", "plural": ""}, "conditions": null, "storedVersions": [],
    });
    record_storage_version(object);
}

/// Adds the storage version to the versions that objects may be stored in.
pub(crate) fn record_storage_version(object: &mut Value) {
    let Some(name) = storage_versions(object).first().map(|name| (*name).to_owned()) else {
        return;
    };
    if meta::strings(&object["status"]["storedVersions"]).contains(&name.as_str()) {
        return;
    }
    match &mut object["status"]["storedVersions"] {
        Value::Array(list) => list.push(name.into()),
        other => *other = json!([name]),
    }
}

fn versions(object: &Value) -> &[Value] {
    object["spec"]["versions"].as_array().map_or(&[], Vec::as_slice)
}

fn storage_versions(object: &Value) -> Vec<&str> {
    let storage = versions(object)
        .iter()
        .filter(|version| version["storage"] == true);
    storage.filter_map(|version| version["name"].as_str()).collect()
}

/// Validates a definition whose spec is new.
pub(super) fn validate(object: &Value, old: Option<&Value>) -> Vec<Cause> {
    if is_own(object) || old.is_some_and(|old| old["spec"] == object["spec"]) {
        return Vec::new();
    }
    if object["spec"].to_string().len() > MAX_SPEC_BYTES {
        return vec![Cause::too_long("spec", MAX_SPEC_BYTES)];
    }
    let mut causes = validate_group(object);
    causes.extend(validate_scope_and_conversion(&object["spec"]));
    causes.extend(validate_names(&object["spec"]["names"]));
    causes.extend(validate_versions(object));
    causes.extend(scale::validate(versions(object)));
    if let Some(old) = old {
        causes.extend(validate_change(object, old));
    }
    if causes.is_empty()
        && let Some(error) = cannot_serve(object)
    {
        causes.push(Cause {
            reason: "FieldValueInvalid",
            field: "spec.versions".into(),
            message: format!("Invalid value: {error}"),
        });
    }
    causes
}

/// Returns why no objects of a definition can be served: a schema, rule or column that does not compile.
fn cannot_serve(object: &Value) -> Option<String> {
    let parsed = CustomResourceDefinition::deserialize(object).map_err(|error| error.to_string());
    let resources = parsed.and_then(|crd| resources_of(&crd).map_err(|error| error.to_string()));
    resources.err()
}

fn validate_group(object: &Value) -> Vec<Cause> {
    let text = |field: &str| object["spec"][field].as_str().unwrap_or_default();
    let (group, name) = (text("group"), meta::name(object));
    let mut causes = Vec::new();
    let plural = object["spec"]["names"]["plural"].as_str().unwrap_or_default();
    if name != format!("{plural}.{group}") {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        causes.push(Cause::invalid("metadata.name", name, detail));
    }
    if group.is_empty() {
        causes.push(Cause {
            message: "Required value".into(),
            ..Cause::required("spec.group", "")
        });
    } else if !names::is_subdomain(group) {
        causes.push(Cause::invalid("spec.group", group, names::SUBDOMAIN));
    } else if !group.contains('.') {
        let detail = "should be a domain with at least one dot";
        causes.push(Cause::invalid("spec.group", group, detail));
    }
    let is_protected = ["k8s.io", "kubernetes.io"].iter().any(|domain| {
        group
            .strip_suffix(domain)
            .is_some_and(|front| front.is_empty() || front.ends_with('.'))
    });
    if is_protected && object["metadata"]["annotations"][APPROVAL].is_null() {
        let field = format!("metadata.annotations[{APPROVAL}]");
        let detail = "protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111";
        causes.push(Cause::required(field, detail));
    }
    causes
}

fn validate_scope_and_conversion(spec: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    match spec["scope"].as_str().unwrap_or_default() {
        "Cluster" | "Namespaced" => {}
        "" => causes.push(Cause {
            message: "Required value".into(),
            ..Cause::required("spec.scope", "")
        }),
        other => causes.push(Cause::not_supported(
            "spec.scope",
            other,
            &["Cluster", "Namespaced"],
        )),
    }
    let strategy = spec["conversion"]["strategy"].as_str().unwrap_or_default();
    if strategy != "None" {
        let field = "spec.conversion.strategy";
        causes.push(Cause::not_supported(field, strategy, &["None"]));
    }
    if spec["preserveUnknownFields"] == true {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        causes.push(Cause::invalid_json("spec.preserveUnknownFields", true, detail));
    }
    causes
}

fn validate_names(requested: &Value) -> Vec<Cause> {
    let text = |field: &str| requested[field].as_str().unwrap_or_default();
    let mut causes = Vec::new();
    for field in ["plural", "kind"] {
        if text(field).is_empty() {
            causes.push(Cause {
                message: "Required value".into(),
                ..Cause::required(format!("spec.names.{field}"), "")
            });
        }
    }
    for field in ["plural", "singular"] {
        let name = text(field);
        if !name.is_empty() && !names::is_dns_1035_label(name) {
            let field = format!("spec.names.{field}");
            causes.push(Cause::invalid(field, name, names::DNS_1035_LABEL));
        }
    }
    for field in ["kind", "listKind"] {
        let name = text(field);
        if !name.is_empty() && !names::is_dns_1035_label(&name.to_lowercase()) {
            let detail = format!(
                "may have mixed case, but should otherwise match: {}",
                names::DNS_1035_LABEL
            );
            causes.push(Cause::invalid(format!("spec.names.{field}"), name, &detail));
        }
    }
    for (at, name) in meta::strings(&requested["shortNames"]).into_iter().enumerate() {
        if !names::is_dns_1035_label(name) {
            let field = format!("spec.names.shortNames[{at}]");
            causes.push(Cause::invalid(field, name, names::DNS_1035_LABEL));
        }
    }
    if !text("kind").is_empty() && text("kind") == text("listKind") {
        let detail = "kind and listKind may not be the same";
        causes.push(Cause::invalid("spec.names.listKind", text("listKind"), detail));
    }
    causes
}

fn validate_versions(object: &Value) -> Vec<Cause> {
    let list = &object["spec"]["versions"];
    let versions = versions(object);
    let mut causes = Vec::new();
    // kube-apiserver reports a schema that all versions share at the path that it had in v1beta1.
    let shared = versions
        .first()
        .map(|first| &first["schema"]["openAPIV3Schema"])
        .filter(|schema| !schema.is_null())
        .filter(|schema| {
            versions
                .iter()
                .all(|v| v["schema"]["openAPIV3Schema"] == **schema)
        });
    if let Some(schema) = shared {
        structural::validate(schema, "spec.validation.openAPIV3Schema", &mut causes);
    }
    let mut seen = BTreeSet::new();
    for (at, version) in versions.iter().enumerate() {
        let (field, name) = (
            format!("spec.versions[{at}]"),
            version["name"].as_str().unwrap_or_default(),
        );
        if !names::is_dns_1035_label(name) {
            causes.push(Cause::invalid(
                format!("{field}.name"),
                name,
                names::DNS_1035_LABEL,
            ));
        }
        if !seen.insert(name) {
            let detail = "must contain unique version names";
            causes.push(Cause::invalid_json("spec.versions", list, detail));
        }
        let field = format!("{field}.schema.openAPIV3Schema");
        match &version["schema"]["openAPIV3Schema"] {
            Value::Null => causes.push(Cause::required(field, "")),
            schema if shared.is_none() => structural::validate(schema, &field, &mut causes),
            _ => {}
        }
    }
    if storage_versions(object).len() != 1 {
        let detail = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid_json("spec.versions", list, detail));
    }
    causes
}

/// Validates what an update may not change.
fn validate_change(object: &Value, old: &Value) -> Vec<Cause> {
    let conditions = old["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let is_established = conditions.any(|c| c["type"] == "Established" && c["status"] == "True");
    let mut fields = vec!["/spec/group", "/spec/names/plural"];
    if is_established {
        fields.extend(["/spec/scope", "/spec/names/kind"]);
    }
    let mut causes = Vec::new();
    for pointer in fields {
        let new = object.pointer(pointer).unwrap_or(&Value::Null);
        if old.pointer(pointer) != Some(new) {
            let field = pointer.trim_start_matches('/').replace('/', ".");
            causes.push(Cause::invalid_json(field, new, "field is immutable"));
        }
    }
    let present: Vec<&str> = versions(object)
        .iter()
        .filter_map(|version| version["name"].as_str())
        .collect();
    let stored = meta::strings(&old["status"]["storedVersions"]);
    for (at, version) in stored.into_iter().enumerate() {
        if !present.contains(&version) {
            let detail = format!(
                "missing from spec.versions; {version} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {version} and removes {version} from status.storedVersions"
            );
            causes.push(Cause::invalid(
                format!("status.storedVersions[{at}]"),
                version,
                &detail,
            ));
        }
    }
    causes
}

#[cfg(test)]
mod tests;
