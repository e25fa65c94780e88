//! Rules of built-in kinds: Secrets of known types, Leases, Events that carry an event time.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use crate::schema::FieldError;

/// The longest texts of an Event.
const LONGEST: [(&str, usize); 4] = [
    ("reportingInstance", 128),
    ("action", 128),
    ("reason", 128),
    ("message", 1024),
];

/// What is wrong with an object of a built-in kind, beyond its schema, its data's keys and size, and immutability.
#[must_use]
pub fn check(kind: &str, object: &Value) -> Vec<FieldError> {
    match kind {
        "Secret" => check_secret_type(object),
        "Lease" => check_lease(&object["spec"]),
        "Event" => check_event(object),
        _ => Vec::new(),
    }
}

fn check_secret_type(secret: &Value) -> Vec<FieldError> {
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
        "kubernetes.io/dockercfg" => check_json(data, ".dockercfg"),
        "kubernetes.io/dockerconfigjson" => check_json(data, ".dockerconfigjson"),
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

/// A key whose content is a JSON object. The content is never shown.
fn check_json(data: &Value, key: &str) -> Vec<FieldError> {
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

fn check_lease(spec: &Value) -> Vec<FieldError> {
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

/// Events with an event time are the newer kind and say who reports what.
fn check_event(event: &Value) -> Vec<FieldError> {
    if event["eventTime"].is_null() {
        return Vec::new();
    }
    let text = |field: &str| event[field].as_str().unwrap_or_default();
    let mut errors = Vec::new();
    errors.extend(check_qualified_name(
        "reportingComponent",
        text("reportingComponent"),
    ));
    for field in ["reportingComponent", "reportingInstance", "action", "reason"] {
        if text(field).is_empty() {
            errors.push(FieldError::required(field, ""));
        }
    }
    for (field, limit) in LONGEST {
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

/// What the part of a qualified name behind the slash, and the DNS name before it, look like.
const NAME: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const SUBDOMAIN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";

/// A name with an optional DNS prefix: `example.org/name`.
fn check_qualified_name(field: &str, name: &str) -> Vec<FieldError> {
    let refuse = |detail: String| FieldError::invalid(field, name, detail);
    let (prefix, name_part) = match name.split_once('/') {
        None => (None, name),
        Some((prefix, rest)) => (Some(prefix), rest),
    };
    let form = format!(
        "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character \
         (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{NAME}')"
    );
    if name_part.contains('/') {
        return vec![refuse(format!(
            "a qualified name {form} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ))];
    }
    let mut errors = Vec::new();
    if let Some(prefix) = prefix {
        errors.extend(wrong_prefix(prefix).map(refuse));
    }
    if name_part.is_empty() {
        errors.push(refuse("name part must be non-empty".to_owned()));
    } else if name_part.len() > 63 {
        errors.push(refuse("name part must be no more than 63 characters".to_owned()));
    }
    if !is_whole(NAME, name_part) {
        errors.push(refuse(format!("name part {form}")));
    }
    errors
}

fn wrong_prefix(prefix: &str) -> Option<String> {
    if prefix.is_empty() {
        return Some("prefix part must be non-empty".to_owned());
    }
    (prefix.len() > 253 || !is_whole(SUBDOMAIN, prefix)).then(|| {
        format!(
            "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
             and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '{SUBDOMAIN}')"
        )
    })
}

fn is_whole(pattern: &str, text: &str) -> bool {
    regex::Regex::new(&format!("^{pattern}$")).is_ok_and(|regex| regex.is_match(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rules_of_built_in_kinds_are_those_of_the_api_server() {
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
            let found: Vec<String> = check(kind, &object).iter().map(ToString::to_string).collect();
            assert_eq!(found.join(", "), expected, "{kind}");
        }
    }
}
