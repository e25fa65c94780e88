//! What a client asks about itself: `kubectl auth can-i`, `kubectl auth whoami`. The holder of the token may do everything.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::{Call, Cause, Reply, StatusError, body, negotiate::media_type};

/// Answers a review; nothing is stored.
pub(super) fn answer(call: &Call, bytes: &Bytes, content_type: &str) -> Result<Reply, StatusError> {
    // The answers do not depend on the question, so Protobuf need not be read.
    let asked = if media_type(content_type) == "application/vnd.kubernetes.protobuf" {
        None
    } else {
        Some(body::value(bytes, content_type)?)
    };
    let spec = asked.as_ref().map_or(&Value::Null, |asked| &asked["spec"]);
    if let Some(asked) = &asked {
        check(call, asked)?;
    }
    let mut answer = json!({
        "kind": call.resource.kind, "apiVersion": call.resource.api_version(), "metadata": {},
    });
    if call.resource.kind != "SelfSubjectReview" {
        answer["spec"] = if spec.is_null() { json!({}) } else { spec.clone() };
    }
    answer["status"] = match call.resource.kind.as_str() {
        "SelfSubjectAccessReview" => json!({"allowed": true}),
        "SelfSubjectRulesReview" => json!({
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": false,
        }),
        _ => json!({"userInfo": {"username": "admin", "groups": ["system:masters", "system:authenticated"]}}),
    };
    Ok(Reply::Plain(StatusCode::CREATED, answer))
}

fn check(call: &Call, asked: &Value) -> Result<(), StatusError> {
    let kind = asked["kind"].as_str().unwrap_or(&call.resource.kind);
    if kind != call.resource.kind {
        return Err(StatusError::bad_request(format!(
            "{kind} cannot be handled as a {}",
            call.resource.kind
        )));
    }
    let spec = &asked["spec"];
    let resource = spec["resourceAttributes"].is_object();
    if kind == "SelfSubjectAccessReview" && resource == spec["nonResourceAttributes"].is_object() {
        let (field, value, why) = if resource {
            let text = |field: &str| {
                spec["nonResourceAttributes"][field]
                    .as_str()
                    .unwrap_or("")
                    .to_owned()
            };
            (
                "spec.nonResourceAttributes",
                // The type of the original has no JSON names.
                json!({"Path": text("path"), "Verb": text("verb")}),
                "cannot be specified in combination with resourceAttributes",
            )
        } else {
            (
                "spec.resourceAttributes",
                Value::Null,
                "exactly one of nonResourceAttributes or resourceAttributes must be specified",
            )
        };
        let cause = Cause {
            reason: "FieldValueInvalid",
            field: field.into(),
            message: format!("Invalid value: {value}: {why}"),
        };
        return Err(StatusError::invalid_review(&call.resource, cause));
    }
    Ok(())
}
