//! Reviews: `kubectl auth can-i`, `kubectl auth whoami`, and reviews of other users and their tokens. Roles answer for users, the grant
//! for the holder of a limited credential.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::body;
use super::negotiation::media_type;
use super::request::ObjectRequest;
use super::response::Reply;
use super::{token_review, write};
use crate::cause::Cause;
use crate::grant::{Grant, ResourceAttributes};
use crate::meta;
use crate::rbac::{self, Attributes, Decision, PolicyRule, User};
use crate::requester::Requester;
use crate::status_error::StatusError;

/// The review of a named user.
const SUBJECT_ACCESS: &str = "SubjectAccessReview";
/// The review of a named user in the namespace of the request.
const LOCAL_ACCESS: &str = "LocalSubjectAccessReview";
/// The review of who the requester is.
const SELF_SUBJECT: &str = "SelfSubjectReview";

/// Responds to a review; nothing is stored.
pub(super) fn create(
    request: &ObjectRequest,
    bytes: &Bytes,
    content_type: &str,
) -> Result<Reply, StatusError> {
    let kind = request.resource.kind.as_str();
    let is_of_others = matches!(kind, SUBJECT_ACCESS | LOCAL_ACCESS | token_review::KIND);
    if is_of_others {
        // The others are open to every credential.
        request.authorize("create", "")?;
    }
    // The response to the administrator does not depend on the request, so protobuf need not be decoded.
    let is_independent = kind == SELF_SUBJECT || (!is_of_others && request.requester.is_administrator());
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
        "kind": kind, "apiVersion": request.resource.api_version(), "metadata": {},
    });
    if kind == SELF_SUBJECT {
        meta::set(&mut response, "creationTimestamp", meta::now().into());
    } else {
        response["spec"] = if spec.is_null() { json!({}) } else { spec.clone() };
    }
    if request.resource.namespaced {
        meta::set(&mut response, "namespace", request.at.namespace.as_str().into());
    }
    response["status"] = match kind {
        SUBJECT_ACCESS | LOCAL_ACCESS => user_access(request, &subject(spec), spec),
        "SelfSubjectAccessReview" => self_access(request, spec),
        "SelfSubjectRulesReview" => self_rules(request, spec),
        token_review::KIND => token_review::status(request, spec)?,
        _ => json!({ "userInfo": user_info(&request.requester.user()) }),
    };
    Ok(Reply::Plain(StatusCode::CREATED, response))
}

/// Returns the user that a review of another user names.
fn subject(spec: &Value) -> User {
    let text = |field: &str| spec[field].as_str().unwrap_or("").to_owned();
    let groups = meta::strings(&spec["groups"]).into_iter();
    User {
        name: text("user"),
        uid: text("uid"),
        groups: groups.map(str::to_owned).collect(),
        ..User::default()
    }
}

/// Returns a user as the `UserInfo` of a status.
pub(super) fn user_info(user: &User) -> Value {
    let mut info = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        info["uid"] = user.uid.as_str().into();
    }
    if !user.extra.is_empty() {
        info["extra"] = json!(user.extra);
    }
    info
}

fn self_access(request: &ObjectRequest, spec: &Value) -> Value {
    match &*request.requester {
        Requester::Limited(grant) => json!({ "allowed": is_allowed(grant, spec) }),
        Requester::User(user) => user_access(request, user, spec),
    }
}

/// Returns the status of an access review.
fn user_access(request: &ObjectRequest, user: &User, spec: &Value) -> Value {
    let decision = with_attributes(spec, |attributes| {
        rbac::authorize(user, attributes, &request.api.roles())
    });
    let (allowed, reason) = match decision {
        Decision::Allowed(reason) => (true, reason),
        Decision::Denied(reason) => (false, reason),
    };
    let mut status = json!({ "allowed": allowed });
    if !reason.is_empty() {
        status["reason"] = reason.into();
    }
    status
}

/// Calls `decide` with the attributes in the spec of a review.
fn with_attributes<T>(spec: &Value, decide: impl FnOnce(Attributes<'_>) -> T) -> T {
    let attributes = &spec["resourceAttributes"];
    if !attributes.is_object() {
        let text = |field: &str| spec["nonResourceAttributes"][field].as_str().unwrap_or("");
        return decide(Attributes::NonResource {
            verb: text("verb"),
            path: text("path"),
        });
    }
    let text = |field: &str| attributes[field].as_str().unwrap_or("");
    let resource = match text("subresource") {
        "" => text("resource").to_owned(),
        sub => format!("{}/{sub}", text("resource")),
    };
    decide(Attributes::Resource(ResourceAttributes {
        verb: text("verb"),
        group: text("group"),
        resource: &resource,
        namespace: text("namespace"),
        name: text("name"),
        selector: "",
    }))
}

/// Whether a grant allows the attributes in the spec of a review. Non-resource paths are open to every limited credential.
fn is_allowed(grant: &Grant, spec: &Value) -> bool {
    with_attributes(spec, |attributes| match attributes {
        Attributes::Resource(resource) => grant.allows(resource).is_some(),
        Attributes::NonResource { verb, .. } => matches!(verb, "get" | "head"),
    })
}

fn self_rules(request: &ObjectRequest, spec: &Value) -> Value {
    match &*request.requester {
        Requester::Limited(grant) => grant_rules(grant, spec),
        Requester::User(user) if user.is_administrator() => json!({
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": false,
        }),
        Requester::User(user) => {
            let index = request.api.roles();
            let rules = index.rules_of(user, spec["namespace"].as_str().unwrap_or(""));
            let of_resources = rules.iter().copied().filter_map(PolicyRule::resource_rule);
            let of_urls = rules.iter().copied().filter_map(PolicyRule::non_resource_rule);
            json!({
                "resourceRules": of_resources.collect::<Vec<_>>(),
                "nonResourceRules": of_urls.collect::<Vec<_>>(),
                "incomplete": false,
            })
        }
    }
}

/// Returns the rules of a grant if the review is for its namespace. A trailing `*` of a name matches any suffix.
fn grant_rules(grant: &Grant, spec: &Value) -> Value {
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
    write::check_own_namespace(request, review)?;
    let causes = causes(kind, &request.at.namespace, &review["spec"]);
    if causes.is_empty() {
        Ok(())
    } else {
        Err(StatusError::invalid_review(&request.resource, &causes))
    }
}

/// Returns what is wrong with the spec of a review, as kube-apiserver's validation.
fn causes(kind: &str, namespace: &str, spec: &Value) -> Vec<Cause> {
    const PATH: &str = "spec.nonResourceAttributes";
    if !matches!(kind, "SelfSubjectAccessReview" | SUBJECT_ACCESS | LOCAL_ACCESS) {
        return Vec::new();
    }
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let text = |field: &str| path[field].as_str().unwrap_or("").to_owned();
    // The Go type has no JSON names.
    let path_value = json!({"Path": text("path"), "Verb": text("verb")});
    let mut causes = Vec::new();
    if resource.is_object() && path.is_object() {
        let reason = "cannot be specified in combination with resourceAttributes";
        causes.push(Cause::invalid_json(PATH, &path_value, reason));
    }
    if !resource.is_object() && !path.is_object() {
        let reason = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        causes.push(Cause::invalid_json(
            "spec.resourceAttributes",
            Value::Null,
            reason,
        ));
    }
    if kind == "SelfSubjectAccessReview" {
        return causes;
    }
    let has_user = !spec["user"].as_str().unwrap_or("").is_empty();
    if !has_user && meta::strings(&spec["groups"]).is_empty() {
        let reason = "at least one of user or group must be specified";
        causes.push(Cause::invalid("spec.user", "", reason));
    }
    if kind == LOCAL_ACCESS {
        let found = resource["namespace"].as_str().unwrap_or("");
        if resource.is_object() && found != namespace {
            let field = "spec.resourceAttributes.namespace";
            causes.push(Cause::invalid(field, found, "must match metadata.namespace"));
        }
        if path.is_object() {
            causes.push(Cause::invalid_json(
                PATH,
                &path_value,
                "disallowed on this kind of request",
            ));
        }
    }
    causes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_review_of_a_user_names_the_user_and_one_place() {
        let fields = |kind: &str, spec: Value| -> Vec<String> {
            causes(kind, "team", &spec)
                .into_iter()
                .map(|cause| cause.field)
                .collect()
        };
        let here = json!({"user": "jane", "resourceAttributes": {"namespace": "team"}});
        let none: [&str; 0] = [];
        assert_eq!(fields(LOCAL_ACCESS, here.clone()), none);
        assert_eq!(fields(SUBJECT_ACCESS, here), none);
        assert_eq!(
            fields(SUBJECT_ACCESS, json!({})),
            ["spec.resourceAttributes", "spec.user"]
        );
        assert_eq!(
            fields("SelfSubjectAccessReview", json!({})),
            ["spec.resourceAttributes"]
        );
        let elsewhere = json!({"groups": ["dev"], "resourceAttributes": {"namespace": "other"}});
        assert_eq!(
            fields(LOCAL_ACCESS, elsewhere.clone()),
            ["spec.resourceAttributes.namespace"]
        );
        assert_eq!(fields(SUBJECT_ACCESS, elsewhere), none);
        let path = json!({"user": "jane", "nonResourceAttributes": {"path": "/", "verb": "get"}});
        assert_eq!(fields(LOCAL_ACCESS, path.clone()), ["spec.nonResourceAttributes"]);
        assert_eq!(fields(SUBJECT_ACCESS, path), none);
        assert_eq!(fields("SelfSubjectRulesReview", json!({})), none);
    }
}
