//! Errors in the form of meta/v1 `Status`, with kube-apiserver's messages.

mod authorization;
mod scale;
mod store;

use serde_json::{Value, json};

use crate::cause::Cause;
use crate::resource::{Resource, with_group};

/// An error response: a failure `Status`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StatusError {
    code: u16,
    reason: &'static str,
    message: String,
    details: Value,
    /// `metadata.continue`, empty if absent.
    continue_token: String,
    /// Whether the authorization of the request failed.
    is_denial: bool,
}

/// The reason of an error whose response is plain text instead of a `Status`.
const PLAIN_TEXT: &str = "page";

impl StatusError {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: Value::Null,
            continue_token: String::new(),
            is_denial: false,
        }
    }

    /// An error of an object, whose name precedes `text` in the message.
    fn of(code: u16, reason: &'static str, resource: &Resource, name: &str, text: &str) -> Self {
        let message = format!("{} {name:?} {text}", resource.group_resource());
        Self::new(code, reason, message).with_details(&resource.group, &resource.plural, name, &[])
    }

    /// An error of the request router, with empty details.
    fn generic(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(code, reason, message).with_details("", "", "", &[])
    }

    fn with_details(mut self, group: &str, kind: &str, name: &str, causes: &[Cause]) -> Self {
        let mut details = serde_json::Map::new();
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                details.insert(key.into(), value.into());
            }
        }
        if !causes.is_empty() {
            let causes = causes.iter().map(Cause::to_value);
            details.insert("causes".into(), causes.collect());
        }
        self.details = Value::Object(details);
        self
    }

    pub(crate) const fn code(&self) -> u16 {
        self.code
    }

    pub(crate) const fn reason(&self) -> &'static str {
        self.reason
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn to_value(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        if !self.continue_token.is_empty() {
            status["metadata"]["continue"] = self.continue_token.clone().into();
        }
        status
    }

    /// 404 for an object.
    pub(crate) fn not_found(resource: &Resource, name: &str) -> Self {
        Self::of(404, "NotFound", resource, name, "not found")
    }

    /// 404 for the namespace of an object.
    pub(crate) fn namespace_not_found(name: &str) -> Self {
        let message = format!("namespaces {name:?} not found");
        Self::new(404, "NotFound", message).with_details("", "namespaces", name, &[])
    }

    /// 404 for an unknown path; the response is plain text.
    pub(crate) fn page_not_found() -> Self {
        Self::new(404, PLAIN_TEXT, "404 page not found")
    }

    /// Whether the response is plain text.
    pub(crate) fn is_plain_text(&self) -> bool {
        self.reason == PLAIN_TEXT
    }

    /// 404 for an unknown resource of a known group version.
    pub(crate) fn resource_not_found() -> Self {
        Self::generic(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
    }

    /// 405 for a custom resource; without one, the message of the router for built-in kinds.
    pub(crate) fn method_not_allowed(resource: Option<(&Resource, &str)>) -> Self {
        let Some((resource, verb)) = resource else {
            let message = "the server does not allow this method on the requested resource";
            return Self::generic(405, "MethodNotAllowed", message);
        };
        let kind = resource.group_resource();
        let message = format!("{verb} is not supported on resources of kind {kind:?}");
        Self::new(405, "MethodNotAllowed", message).with_details(&resource.group, &resource.plural, "", &[])
    }

    /// 409 for an existing name.
    pub(crate) fn already_exists(resource: &Resource, name: &str) -> Self {
        Self::of(409, "AlreadyExists", resource, name, "already exists")
    }

    /// 409 with this explanation.
    pub(crate) fn conflict(resource: &Resource, name: &str, detail: &str) -> Self {
        Self::conflict_on(
            &resource.group_resource(),
            &resource.plural,
            resource,
            name,
            detail,
        )
    }

    /// 409 for a failed precondition of a deletion. kube-apiserver prints the kind here, the resource elsewhere.
    pub(crate) fn precondition_failed(resource: &Resource, name: &str, detail: &str) -> Self {
        Self::conflict_on(&resource.group_kind(), &resource.kind, resource, name, detail)
    }

    fn conflict_on(shown: &str, kind: &str, resource: &Resource, name: &str, detail: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {shown} {name:?}: {detail}");
        Self::new(409, "Conflict", message).with_details(&resource.group, kind, name, &[])
    }

    /// 409 for an apply that changes fields of other managers.
    pub(crate) fn apply_conflict(message: String, causes: &[Cause]) -> Self {
        Self::new(409, "Conflict", message).with_details("", "", "", causes)
    }

    /// 409 for an apply that names the uid of an object that does not exist.
    pub(crate) fn uid_of_missing(resource: &Resource, name: &str, uid: &str) -> Self {
        let detail = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        Self::conflict(resource, name, &detail)
    }

    /// 409 for an outdated resourceVersion.
    pub(crate) fn stale_resource_version(resource: &Resource, name: &str) -> Self {
        let detail =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, detail)
    }

    /// 422 for an object with invalid fields.
    pub(crate) fn invalid(resource: &Resource, name: &str, causes: &[Cause]) -> Self {
        Self::invalid_kind(&resource.group, &resource.kind, name, causes)
    }

    /// 422 for a custom resource whose body has another kind, which the message contains.
    pub(crate) fn wrong_kind(resource: &Resource, name: &str, kind: &str) -> Self {
        let cause = Cause::invalid("kind", kind, &format!("must be {}", resource.kind));
        Self::invalid_kind(&resource.group, kind, name, &[cause])
    }

    /// 422 for an update without a resourceVersion. kube-apiserver prints the resource here, the kind elsewhere.
    pub(crate) fn resource_version_required(resource: &Resource, name: &str) -> Self {
        let cause = Cause::invalid_json("metadata.resourceVersion", 0, "must be specified for an update");
        Self::invalid_kind(&resource.group, &resource.plural, name, &[cause])
    }

    /// 422 for a review. As in kube-apiserver it has a group but no kind.
    pub(crate) fn invalid_review(resource: &Resource, causes: &[Cause]) -> Self {
        Self::invalid_kind(&resource.group, "", "", causes)
    }

    /// 422 for the options of a list or watch.
    pub(crate) fn invalid_list_options(causes: &[Cause]) -> Self {
        Self::invalid_kind("meta.k8s.io", "ListOptions", "", causes)
    }

    /// 422 for the options of a request; `options` is their kind.
    pub(crate) fn invalid_options(options: &str, cause: Cause) -> Self {
        Self::invalid_kind("meta.k8s.io", options, "", &[cause])
    }

    /// 422 for delete options.
    pub(crate) fn invalid_delete_options(cause: Cause) -> Self {
        Self::invalid_options("DeleteOptions", cause)
    }

    /// 422 for a patch whose result cannot be decoded. As in kube-apiserver it has no kind.
    pub(crate) fn invalid_patch(result: &Value, detail: &str) -> Self {
        let cause = Cause::invalid("patch", &result.to_string(), detail);
        Self::invalid_kind("", "", "", &[cause])
    }

    fn invalid_kind(group: &str, kind: &str, name: &str, causes: &[Cause]) -> Self {
        let mut texts: Vec<String> = Vec::new();
        for cause in causes {
            let text = format!("{}: {}", cause.field, cause.message);
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let list = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let message = format!("{} {name:?} is invalid: {list}", with_group(kind, group));
        Self::new(422, "Invalid", message).with_details(group, kind, name, causes)
    }

    /// 422 for a JSON patch that does not apply, with kube-apiserver's generic message.
    pub(crate) fn patch_does_not_apply() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self::generic(422, "Invalid", message)
    }

    /// 403 for the deletion of an immortal namespace.
    pub(crate) fn immortal_namespace(resource: &Resource, name: &str) -> Self {
        let text = "is forbidden: this namespace may not be deleted";
        Self::of(403, "Forbidden", resource, name, text)
    }

    /// 403 for a write of a definition that the program sets.
    pub(crate) fn own_definition(resource: &Resource, name: &str) -> Self {
        let text = "is forbidden: the program sets this definition when it starts";
        Self::of(403, "Forbidden", resource, name, text)
    }

    /// 403 for a definition that cannot be added, for this reason.
    pub(crate) fn definition_refused(resource: &Resource, name: &str, reason: &str) -> Self {
        Self::of(
            403,
            "Forbidden",
            resource,
            name,
            &format!("is forbidden: {reason}"),
        )
    }

    /// 403 for a new object of a definition that is being deleted.
    pub(crate) fn definition_terminating(resource: &Resource, name: &str) -> Self {
        let reason = "create not allowed while custom resource definition is terminating";
        Self::definition_refused(resource, name, reason)
    }

    /// 403 for a creation in a terminating namespace.
    pub(crate) fn namespace_terminating(resource: &Resource, name: &str, namespace: &str) -> Self {
        let message = format!(
            "{} {name:?} is forbidden: unable to create new content in namespace {namespace} because it is being terminated",
            resource.group_resource()
        );
        let cause = Cause {
            reason: "NamespaceTerminating",
            field: "metadata.namespace".into(),
            message: format!("namespace {namespace} is being terminated"),
        };
        Self::new(403, "Forbidden", message).with_details(&resource.group, &resource.plural, name, &[cause])
    }

    /// 403 for a request that a limited credential does not allow.
    pub(crate) fn forbidden(resource: &Resource, name: &str, verb: &str) -> Self {
        let text = format!("is forbidden: the credential does not allow {verb}");
        Self::of(403, "Forbidden", resource, name, &text)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 406 for an `Accept` header without a supported media type.
    pub(crate) fn not_acceptable() -> Self {
        let message = "only the following media types are accepted: application/json, application/yaml";
        Self::new(406, "NotAcceptable", message)
    }

    /// 410 for an expired version.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// Adds a token with which a client continues a list.
    pub(crate) fn with_continue(mut self, token: String) -> Self {
        self.continue_token = token;
        self
    }

    /// 413 for a request body.
    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(413, "RequestEntityTooLarge", message)
    }

    /// 413 for a JSON patch.
    pub(crate) fn too_many_operations(limit: usize, count: usize) -> Self {
        let message = format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {limit}, got {count}"
        );
        Self::new(413, "RequestEntityTooLarge", message)
    }

    /// 415 with the supported media types; `prefix` can name an unsupported feature.
    pub(crate) fn unsupported_media_type(prefix: &str, accepted: &[&str]) -> Self {
        let message = format!(
            "{prefix}the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// 504 for a resourceVersion that the server has not reached.
    pub(crate) fn resource_version_too_large(requested: u64, current: u64) -> Self {
        let cause = Cause {
            reason: "ResourceVersionTooLarge",
            field: String::new(),
            message: "Too large resource version".into(),
        };
        let message = format!("Timeout: Too large resource version: {requested}, current: {current}");
        let mut error = Self::new(504, "Timeout", message).with_details("", "", "", &[cause]);
        error.details["retryAfterSeconds"] = 1.into();
        error
    }

    /// 500 for an internal error.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "InternalError", message)
    }

    /// 500 for a new object on a full disk.
    pub(crate) fn no_space(resource: &str) -> Self {
        Self::internal(format!(
            "the disk of the store is full: new {resource} are rejected until there is space"
        ))
    }

    /// 500 with etcd's message for an object that is too large, which kube-apiserver passes on.
    pub(crate) fn request_too_large() -> Self {
        Self::new(500, "", "etcdserver: request is too large")
    }

    /// 500 with kube-apiserver's plain message for a watch from an invalid version.
    pub(crate) fn invalid_resource_version(detail: &str) -> Self {
        Self::new(500, "", detail)
    }

    /// 500 with kube-apiserver's plain message for an applied configuration that does not fit the schema.
    pub(crate) fn not_typed(detail: String) -> Self {
        Self::new(500, "", detail)
    }

    /// 500 with kube-apiserver's plain message for a new object with a resourceVersion.
    pub(crate) fn resource_version_on_create() -> Self {
        Self::new(
            500,
            "",
            "resourceVersion should not be set on objects to be created",
        )
    }
}
