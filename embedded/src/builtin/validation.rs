//! Validation of built-in kinds: Secrets of known types, Leases, Events with an event time.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use crate::names;
use crate::schema::FieldError;

/// Maximum lengths of Event fields, in bytes.
const MAX_LENGTHS: [(&str, usize); 4] = [
    ("reportingInstance", 128),
    ("action", 128),
    ("reason", 128),
    ("message", 1024),
];

/// Validates an object of a built-in kind beyond its schema, the keys and size of its data, and immutability.
pub(crate) fn validate(kind: &str, object: &Value) -> Vec<FieldError> {
    match kind {
        "Secret" => validate_secret(object),
        "Lease" => validate_lease(&object["spec"]),
        "Event" => validate_event(object),
        _ => Vec::new(),
    }
}

fn validate_secret(secret: &Value) -> Vec<FieldError> {
    let data = &secret["data"];
    let require = |keys: &[&str]| -> Vec<FieldError> {
        let missing = keys.iter().filter(|key| data.get(**key).is_none());
        missing
            .map(|key| FieldError::required(format!("data[{key}]"), ""))
            .collect()
    };
    match secret["type"].as_str().unwrap_or_default() {
        "kubernetes.io/service-account-token" => {
            let key = "kubernetes.io/service-account.name";
            if secret["metadata"]["annotations"][key]
                .as_str()
                .unwrap_or_default()
                .is_empty()
            {
                return vec![FieldError::required(format!("metadata.annotations[{key}]"), "")];
            }
            Vec::new()
        }
        "kubernetes.io/dockercfg" => validate_json(data, ".dockercfg"),
        "kubernetes.io/dockerconfigjson" => validate_json(data, ".dockerconfigjson"),
        "kubernetes.io/basic-auth" => {
            let missing = require(&["username", "password"]);
            if missing.len() == 2 { missing } else { Vec::new() }
        }
        "kubernetes.io/ssh-auth" => {
            if data["ssh-privatekey"].as_str().unwrap_or_default().is_empty() {
                return vec![FieldError::required("data[ssh-privatekey]", "")];
            }
            Vec::new()
        }
        "kubernetes.io/tls" => require(&["tls.crt", "tls.key"]),
        _ => Vec::new(),
    }
}

/// Validates that a key contains a JSON object. The error never shows the content.
fn validate_json(data: &Value, key: &str) -> Vec<FieldError> {
    let Some(encoded) = data.get(key).and_then(Value::as_str) else {
        return vec![FieldError::required(format!("data[{key}]"), "")];
    };
    let bytes = BASE64_STANDARD.decode(encoded).unwrap_or_default();
    if serde_json::from_slice::<serde_json::Map<String, Value>>(&bytes).is_ok() {
        return Vec::new();
    }
    vec![FieldError::invalid(
        format!("data[{key}]"),
        "<secret contents redacted>",
        "must be a JSON object",
    )]
}

fn validate_lease(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(seconds) = spec["leaseDurationSeconds"]
        .as_i64()
        .filter(|seconds| *seconds <= 0)
    {
        errors.push(FieldError::invalid(
            "spec.leaseDurationSeconds",
            seconds,
            "must be greater than 0",
        ));
    }
    if let Some(count) = spec["leaseTransitions"].as_i64().filter(|count| *count < 0) {
        errors.push(FieldError::invalid(
            "spec.leaseTransitions",
            count,
            "must be greater than or equal to 0",
        ));
    }
    errors
}

/// Validates Events with an event time: the newer type, which requires a reporter.
fn validate_event(event: &Value) -> Vec<FieldError> {
    if event["eventTime"].is_null() {
        return Vec::new();
    }
    let text = |field: &str| event[field].as_str().unwrap_or_default();
    let mut errors = Vec::new();
    let component = text("reportingComponent");
    let name_errors = names::qualified_name_errors(component).into_iter();
    errors.extend(name_errors.map(|detail| FieldError::invalid("reportingComponent", component, detail)));
    for field in ["reportingComponent", "reportingInstance", "action", "reason"] {
        if text(field).is_empty() {
            errors.push(FieldError::required(field, ""));
        }
    }
    for (field, limit) in MAX_LENGTHS {
        if text(field).len() > limit {
            errors.push(FieldError::invalid(
                field,
                "",
                format!("can have at most {limit} characters"),
            ));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn builtin_kinds_are_validated_like_kube_apiserver() {
        let table = [
            ("Secret", json!({"type": "Opaque"}), ""),
            (
                "Secret",
                json!({"type": "kubernetes.io/tls", "data": {"tls.crt": ""}}),
                "data[tls.key]: Required value",
            ),
            (
                "Secret",
                json!({"type": "kubernetes.io/basic-auth", "data": {"password": ""}}),
                "",
            ),
            (
                "Secret",
                json!({"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "eA=="}}),
                r#"data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": must be a JSON object"#,
            ),
            (
                "Lease",
                json!({"spec": {"leaseDurationSeconds": 0}}),
                "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
            ),
            ("Event", json!({"eventTime": null}), ""),
            (
                "Event",
                json!({"eventTime": "2024-01-01T00:00:00.000000Z", "reportingComponent": "a", "reportingInstance": "b", "reason": "c"}),
                "action: Required value",
            ),
            (
                "Event",
                json!({"eventTime": "2024-01-01T00:00:00.000000Z"}),
                r#"reportingComponent: Invalid value: "": name part must be non-empty, reportingComponent: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]'), reportingComponent: Required value, reportingInstance: Required value, action: Required value, reason: Required value"#,
            ),
        ];
        for (kind, object, expected) in table {
            let found: Vec<String> = validate(kind, &object).iter().map(ToString::to_string).collect();
            assert_eq!(found.join(", "), expected, "{kind}");
        }
    }
}
