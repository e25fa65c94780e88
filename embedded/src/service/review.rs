//! What a client asks about itself: `kubectl auth can-i`, `kubectl auth whoami`. The holder of the token may do everything, the holder
//! of a limited credential what its grant says.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::{Call, Cause, Reply, StatusError, body, negotiate::media_type};
use crate::{
    grant::{Asked, Grant},
    meta,
};

/// Answers a review; nothing is stored.
pub(super) fn answer(call: &Call, bytes: &Bytes, content_type: &str) -> Result<Reply, StatusError> {
    // For who may do everything the answers do not depend on the question, so Protobuf need not be read.
    let any = call.grant.is_none() || call.resource.kind == "SelfSubjectReview";
    let asked = if any && media_type(content_type) == "application/vnd.kubernetes.protobuf" {
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
    if call.resource.kind == "SelfSubjectReview" {
        meta::set(&mut answer, "creationTimestamp", meta::now().into());
    } else {
        answer["spec"] = if spec.is_null() { json!({}) } else { spec.clone() };
    }
    answer["status"] = match (call.resource.kind.as_str(), call.grant.as_deref()) {
        ("SelfSubjectAccessReview", grant) => json!({"allowed": grant.is_none_or(|grant| may(grant, spec))}),
        ("SelfSubjectRulesReview", Some(grant)) => rules(grant, spec),
        ("SelfSubjectRulesReview", None) => json!({
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": false,
        }),
        (_, Some(_)) => json!({"userInfo": {"username": "limited", "groups": ["system:authenticated"]}}),
        (_, None) => {
            json!({"userInfo": {"username": "admin", "groups": ["system:masters", "system:authenticated"]}})
        }
    };
    Ok(Reply::Plain(StatusCode::CREATED, answer))
}

/// Whether a grant allows what the spec of a review asks for. Every credential opens the paths that are not objects.
fn may(grant: &Grant, spec: &Value) -> bool {
    let attributes = &spec["resourceAttributes"];
    if !attributes.is_object() {
        return matches!(
            spec["nonResourceAttributes"]["verb"].as_str(),
            Some("get" | "head")
        );
    }
    let text = |field: &str| attributes[field].as_str().unwrap_or("");
    let resource = match text("subresource") {
        "" => text("resource").to_owned(),
        sub => format!("{}/{sub}", text("resource")),
    };
    let asked = Asked {
        verb: text("verb"),
        group: text("group"),
        resource: &resource,
        namespace: text("namespace"),
        name: text("name"),
        selector: "",
    };
    grant.allows(asked).is_some()
}

/// The rules of a grant, if it is one of the namespace that is asked for. Names end in `*` where any rest will do.
fn rules(grant: &Grant, spec: &Value) -> Value {
    let all = grant.rules.iter();
    let here = all.filter(|_| spec["namespace"] == grant.namespace.as_str());
    let rule = here.map(|rule| {
        let mut shown = json!({"verbs": rule.verbs, "apiGroups": [rule.group], "resources": [rule.resource]});
        if !rule.names.is_empty() {
            shown["resourceNames"] = json!(rule.names);
        }
        shown
    });
    json!({
        "resourceRules": rule.collect::<Vec<_>>(),
        "nonResourceRules": [{"verbs": ["get", "head"], "nonResourceURLs": ["*"]}],
        "incomplete": false,
    })
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
