//! Errors of authorization by roles.

use super::StatusError;
use crate::cause::Cause;
use crate::grant::ResourceAttributes;
use crate::rbac::{self, Attributes, User};
use crate::resource::{Resource, with_group};

impl StatusError {
    /// 403 for a request that no role allows.
    pub(crate) fn denied(user: &User, attributes: Attributes<'_>, reason: &str) -> Self {
        let text = rbac::denial(user, attributes, reason);
        let error = match attributes {
            Attributes::NonResource { .. } => Self::generic(403, "Forbidden", format!("forbidden: {text}")),
            Attributes::Resource(resource) => Self::denied_resource(resource, &text),
        };
        Self {
            is_denial: true,
            ..error
        }
    }

    fn denied_resource(attributes: ResourceAttributes<'_>, text: &str) -> Self {
        let (group, name) = (attributes.group, attributes.name);
        let plural = attributes.resource.split('/').next().unwrap_or_default();
        let of = with_group(plural, group);
        let message = if name.is_empty() {
            format!("{of} is forbidden: {text}")
        } else {
            format!("{of} {name:?} is forbidden: {text}")
        };
        Self::new(403, "Forbidden", message).with_details(group, plural, name, &[])
    }

    /// Whether the authorization of the request failed.
    pub(crate) const fn is_denial(&self) -> bool {
        self.is_denial
    }

    /// 403 for a role or binding with more rights than those of its author.
    pub(crate) fn escalation(resource: &Resource, name: &str, reason: &str) -> Self {
        let text = format!("is forbidden: {reason}");
        Self::of(403, "Forbidden", resource, name, &text)
    }

    /// 404 for the role of a binding, with this message.
    pub(crate) fn role_not_found(plural: &str, name: &str, message: String) -> Self {
        Self::new(404, "NotFound", message).with_details(rbac::GROUP, plural, name, &[])
    }

    /// 404 for the object that a token is bound to.
    pub(crate) fn bound_object_not_found(plural: &str, name: &str) -> Self {
        let message = format!("{plural} {name:?} not found");
        Self::new(404, "NotFound", message).with_details("", plural, name, &[])
    }

    /// 422 for the request of a token.
    pub(crate) fn invalid_token_request(name: &str, cause: Cause) -> Self {
        Self::invalid_kind("authentication.k8s.io", "TokenRequest", name, &[cause])
    }

    /// 403 for a limited credential that acts as another user.
    pub(crate) fn limited_impersonation() -> Self {
        Self::generic(403, "Forbidden", "a limited credential cannot impersonate")
    }
}
