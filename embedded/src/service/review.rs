//! Self reviews: `kubectl auth can-i`, `kubectl auth whoami`. The administrator has all permissions, the holder of a limited
//! credential those of its grant.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::body;
use super::negotiation::media_type;
use super::request::ObjectRequest;
use super::response::Reply;
use crate::cause::Cause;
use crate::grant::{ADMIN_GROUPS, ADMIN_USER, Grant, LIMITED_USER, ResourceAttributes};
use crate::meta;
use crate::status_error::StatusError;

/// Responds to a review; nothing is stored.
pub(super) fn create(
    request: &ObjectRequest,
    bytes: &Bytes,
    content_type: &str,
) -> Result<Reply, StatusError> {
    // The response to the administrator does not depend on the request, so protobuf need not be decoded.
    let is_independent = request.grant.is_none() || request.resource.kind == "SelfSubjectReview";
    let review = if is_independent && media_type(content_type) == "application/vnd.kubernetes.protobuf" {
        None
    } else {
        Some(body::value(bytes, content_type)?)
    };
    let spec = review.as_ref().map_or(&Value::Null, |review| &review["spec"]);
    if let Some(review) = &review {
        validate(request, review)?;
    }
    let mut response = json!({
        "kind": request.resource.kind, "apiVersion": request.resource.api_version(), "metadata": {},
    });
    if request.resource.kind == "SelfSubjectReview" {
        meta::set(&mut response, "creationTimestamp", meta::now().into());
    } else {
        response["spec"] = if spec.is_null() { json!({}) } else { spec.clone() };
    }
    response["status"] = match (request.resource.kind.as_str(), request.grant.as_deref()) {
        ("SelfSubjectAccessReview", grant) => {
            json!({"allowed": grant.is_none_or(|grant| is_allowed(grant, spec))})
        }
        ("SelfSubjectRulesReview", Some(grant)) => resource_rules(grant, spec),
        ("SelfSubjectRulesReview", None) => json!({
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": false,
        }),
        (_, Some(_)) => json!({"userInfo": {"username": LIMITED_USER, "groups": ["system:authenticated"]}}),
        (_, None) => json!({"userInfo": {"username": ADMIN_USER, "groups": ADMIN_GROUPS}}),
    };
    Ok(Reply::Plain(StatusCode::CREATED, response))
}

/// Whether a grant allows the attributes in the spec of a review. Non-resource paths are open to every credential.
fn is_allowed(grant: &Grant, spec: &Value) -> bool {
    let attributes = &spec["resourceAttributes"];
    if !attributes.is_object() {
        let verb = spec["nonResourceAttributes"]["verb"].as_str();
        return matches!(verb, Some("get" | "head"));
    }
    let text = |field: &str| attributes[field].as_str().unwrap_or("");
    let resource = match text("subresource") {
        "" => text("resource").to_owned(),
        sub => format!("{}/{sub}", text("resource")),
    };
    let review = ResourceAttributes {
        verb: text("verb"),
        group: text("group"),
        resource: &resource,
        namespace: text("namespace"),
        name: text("name"),
        selector: "",
    };
    grant.allows(review).is_some()
}

/// Returns the rules of a grant if the review is for its namespace. A trailing `*` of a name matches any suffix.
fn resource_rules(grant: &Grant, spec: &Value) -> Value {
    let all = grant.rules.iter();
    let here = all.filter(|_| spec["namespace"] == grant.namespace.as_str());
    let rule = here.map(|rule| {
        let mut entry = json!({"verbs": rule.verbs, "apiGroups": [rule.group], "resources": [rule.resource]});
        if !rule.names.is_empty() {
            entry["resourceNames"] = json!(rule.names);
        }
        entry
    });
    json!({
        "resourceRules": rule.collect::<Vec<_>>(),
        "nonResourceRules": [{"verbs": ["get", "head"], "nonResourceURLs": ["*"]}],
        "incomplete": false,
    })
}

fn validate(request: &ObjectRequest, review: &Value) -> Result<(), StatusError> {
    let kind = review["kind"].as_str().unwrap_or(&request.resource.kind);
    if kind != request.resource.kind {
        return Err(StatusError::bad_request(format!(
            "{kind} cannot be handled as a {}",
            request.resource.kind
        )));
    }
    let spec = &review["spec"];
    let resource = spec["resourceAttributes"].is_object();
    if kind == "SelfSubjectAccessReview" && resource == spec["nonResourceAttributes"].is_object() {
        let (field, value, reason) = if resource {
            let attributes = &spec["nonResourceAttributes"];
            let text = |field: &str| attributes[field].as_str().unwrap_or("").to_owned();
            (
                "spec.nonResourceAttributes",
                // The Go type has no JSON names.
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
        let cause = Cause::invalid_json(field, value, reason);
        return Err(StatusError::invalid_review(&request.resource, cause));
    }
    Ok(())
}
