//! Refusals in the shape of meta/v1 `Status`, worded as kube-apiserver words them.

use serde_json::{Value, json};

use super::Cause;
use crate::resource::Resource;

/// A request that is answered with a failure `Status`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StatusError {
    code: u16,
    reason: &'static str,
    message: String,
    details: Value,
}

/// Stands in place of a reason where the answer is no `Status`.
const PAGE: &str = "page";

impl StatusError {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: Value::Null,
        }
    }

    fn about(self, resource: &Resource, name: &str) -> Self {
        self.with_details(&resource.group, &resource.plural, name, &[])
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

    /// HTTP status code.
    pub(crate) const fn code(&self) -> u16 {
        self.code
    }

    /// Machine-readable reason.
    pub(crate) const fn reason(&self) -> &'static str {
        self.reason
    }

    /// Human-readable text.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The `Status` object.
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
        status
    }

    /// 404 of an object.
    pub(crate) fn not_found(resource: &Resource, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} {name:?} not found", resource.id())).about(resource, name)
    }

    /// 404 of a namespace that an object should live in.
    pub(crate) fn namespace_not_found(name: &str) -> Self {
        Self::new(404, "NotFound", format!("namespaces {name:?} not found")).with_details(
            "",
            "namespaces",
            name,
            &[],
        )
    }

    /// 404 of a path that belongs to no group: the answer is a page, no `Status`.
    pub(crate) fn no_such_page() -> Self {
        Self::new(404, PAGE, "404 page not found")
    }

    /// Whether the answer is a page.
    pub(crate) fn is_page(&self) -> bool {
        self.reason == PAGE
    }

    /// 404 of a path.
    pub(crate) fn no_such_path() -> Self {
        Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
        .with_details("", "", "", &[])
    }

    /// 405, worded for a custom resource or, as the router of built-in kinds does, for none.
    pub(crate) fn method_not_allowed(resource: Option<(&Resource, &str)>) -> Self {
        match resource {
            Some((resource, verb)) => Self::new(
                405,
                "MethodNotAllowed",
                format!("{verb} is not supported on resources of kind {:?}", resource.id()),
            )
            .about(resource, ""),
            None => Self::new(
                405,
                "MethodNotAllowed",
                "the server does not allow this method on the requested resource",
            )
            .with_details("", "", "", &[]),
        }
    }

    /// 409 of a name that is taken.
    pub(crate) fn already_exists(resource: &Resource, name: &str) -> Self {
        Self::new(
            409,
            "AlreadyExists",
            format!("{} {name:?} already exists", resource.id()),
        )
        .about(resource, name)
    }

    /// 409 with a reason of its own.
    pub(crate) fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: {why}",
            resource.id()
        );
        Self::new(409, "Conflict", message).about(resource, name)
    }

    /// 409 of a deletion's precondition; here kube-apiserver says the kind where it says the resource elsewhere.
    pub(crate) fn precondition(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: {why}",
            resource.qualified_kind()
        );
        Self::new(409, "Conflict", message).with_details(&resource.group, &resource.kind, name, &[])
    }

    /// 409 of a stale resourceVersion.
    pub(crate) fn modified(resource: &Resource, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 422 with the fields of an object that are wrong.
    pub(crate) fn invalid(resource: &Resource, name: &str, causes: &[Cause]) -> Self {
        Self::invalid_kind(&resource.group, &resource.kind, name, causes)
    }

    /// 422 of a custom resource's body that is of another kind, which is the kind that the answer names.
    pub(crate) fn other_kind(resource: &Resource, name: &str, kind: &str) -> Self {
        let cause = Cause::invalid("kind", kind, &format!("must be {}", resource.kind));
        Self::invalid_kind(&resource.group, kind, name, &[cause])
    }

    /// 422 of an update without a version; here kube-apiserver says the resource where it says the kind elsewhere.
    pub(crate) fn version_required(resource: &Resource, name: &str) -> Self {
        let cause = Cause {
            reason: "FieldValueInvalid",
            field: "metadata.resourceVersion".into(),
            message: "Invalid value: 0: must be specified for an update".into(),
        };
        Self::invalid_kind(&resource.group, &resource.plural, name, &[cause])
    }

    /// 422 of a review. Like kube-apiserver it names the group and no kind.
    pub(crate) fn invalid_review(resource: &Resource, cause: Cause) -> Self {
        Self::invalid_kind(&resource.group, "", "", &[cause])
    }

    /// 422 of the parameters of a list or watch.
    pub(crate) fn invalid_list_options(cause: Cause) -> Self {
        Self::invalid_options("ListOptions", cause)
    }

    /// 422 of the parameters of a request, which make up an object of the kind `options`.
    pub(crate) fn invalid_options(options: &str, cause: Cause) -> Self {
        Self::invalid_kind("meta.k8s.io", options, "", &[cause])
    }

    /// 422 of the parameters of a deletion.
    pub(crate) fn invalid_delete_options(cause: Cause) -> Self {
        Self::invalid_options("DeleteOptions", cause)
    }

    /// 422 of a patch whose result cannot be decoded. Like kube-apiserver it names no kind.
    pub(crate) fn invalid_patch(result: &Value, why: &str) -> Self {
        Self::invalid_kind("", "", "", &[Cause::invalid("patch", &result.to_string(), why)])
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
        let kind_text = if group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{group}")
        };
        Self::new(422, "Invalid", format!("{kind_text} {name:?} is invalid: {list}"))
            .with_details(group, kind, name, causes)
    }

    /// 422 of a JSON patch that does not apply; kube-apiserver gives its router's text here.
    pub(crate) fn patch_does_not_apply() -> Self {
        Self::new(
            422,
            "Invalid",
            "the server rejected our request due to an error in our request",
        )
        .with_details("", "", "", &[])
    }

    /// 403 of the deletion of a namespace that every server has.
    pub(crate) fn immortal(resource: &Resource, name: &str) -> Self {
        let message = format!(
            "{} {name:?} is forbidden: this namespace may not be deleted",
            resource.id()
        );
        Self::new(403, "Forbidden", message).about(resource, name)
    }

    /// 403 of a creation in a namespace that is going away.
    pub(crate) fn terminating(resource: &Resource, name: &str, namespace: &str) -> Self {
        let message = format!(
            "{} {name:?} is forbidden: unable to create new content in namespace {namespace} because it is being terminated",
            resource.id()
        );
        let cause = Cause {
            reason: "NamespaceTerminating",
            field: "metadata.namespace".into(),
            message: format!("namespace {namespace} is being terminated"),
        };
        Self::new(403, "Forbidden", message).with_details(&resource.group, &resource.plural, name, &[cause])
    }

    /// 403 of what a limited credential is not good for.
    pub(crate) fn forbidden(resource: &Resource, name: &str, verb: &str) -> Self {
        let message = format!(
            "{} {name:?} is forbidden: this credential is not good for {verb} on it",
            resource.id()
        );
        Self::new(403, "Forbidden", message).with_details(&resource.group, &resource.plural, name, &[])
    }

    /// 400.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 401.
    pub(crate) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 406 of an `Accept` header that names nothing this server can say.
    pub(crate) fn not_acceptable() -> Self {
        Self::new(
            406,
            "NotAcceptable",
            "only the following media types are accepted: application/json, application/yaml",
        )
    }

    /// 410 of a list or continuation that is gone.
    pub(crate) fn gone(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 413 of a request body.
    pub(crate) fn too_large(limit: usize) -> Self {
        Self::new(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {limit}"),
        )
    }

    /// 413 of a JSON patch.
    pub(crate) fn too_many_operations(limit: usize, given: usize) -> Self {
        let message = format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {limit}, got {given}"
        );
        Self::new(413, "RequestEntityTooLarge", message)
    }

    /// 415, with the media types that would do and, where the caller meant a feature, its name.
    pub(crate) fn unsupported_media_type(feature: &str, accepted: &[&str]) -> Self {
        let message = format!(
            "{feature}the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// 504 of a resourceVersion that this server has not reached.
    pub(crate) fn version_too_large(asked: u64, current: u64) -> Self {
        let cause = Cause {
            reason: "ResourceVersionTooLarge",
            field: String::new(),
            message: "Too large resource version".into(),
        };
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let mut error = Self::new(504, "Timeout", message).with_details("", "", "", &[cause]);
        error.details["retryAfterSeconds"] = 1.into();
        error
    }

    /// 500 of this server's own making.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "InternalError", message)
    }

    /// 500 of a new object on a full disk.
    pub(crate) fn no_space(resource: &str) -> Self {
        Self::internal(format!(
            "the disk of the store is full: new {resource} are not stored until there is space again"
        ))
    }

    /// 500 with kube-apiserver's plain text for a watch from what is no version.
    pub(crate) fn unreadable_version(why: &str) -> Self {
        Self::new(500, "", why)
    }

    /// 500 with kube-apiserver's plain text for a creation that carries a version.
    pub(crate) fn version_on_create() -> Self {
        Self::new(
            500,
            "",
            "resourceVersion should not be set on objects to be created",
        )
    }
}
