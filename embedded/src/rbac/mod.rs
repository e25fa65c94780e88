//! The RBAC authorizer of kube-apiserver (`plugin/pkg/auth/authorizer/rbac`). Pure.
//!
//! [`RoleIndex`] has the rules of all bindings. [`authorize`] decides a request from it, and [`check_escalation`] a write of a role
//! or binding.

mod aggregation;
mod default_roles;
mod escalation;
mod index;
mod policy_rule;
#[cfg(test)]
mod property_tests;
mod reconciliation;
#[cfg(test)]
mod tests;
mod user;

pub(crate) use self::default_roles::default_roles;
pub(crate) use self::escalation::check_escalation;
pub(crate) use self::index::{RoleIndex, RoleObjects, RoleRef};
pub(crate) use self::policy_rule::PolicyRule;
pub(crate) use self::reconciliation::{Reconciliation, reconcile};
pub(crate) use self::user::{AUTHENTICATED, User, account_groups, split_account_user};
use crate::grant::ResourceAttributes;

/// API group of roles and bindings.
pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

/// A request as authorization sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Attributes<'a> {
    /// A request for objects. Its selector does not matter here.
    Resource(ResourceAttributes<'a>),
    /// A request for another path.
    NonResource {
        /// Method in lower case.
        verb: &'a str,
        /// Path.
        path: &'a str,
    },
}

impl Attributes<'_> {
    const fn namespace(&self) -> &str {
        match self {
            Self::Resource(resource) => resource.namespace,
            Self::NonResource { .. } => "",
        }
    }
}

/// The decision about a request, with its reason, which may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// A rule allows it.
    Allowed(String),
    /// No rule allows it.
    Denied(String),
}

/// Decides a request.
pub(crate) fn authorize(user: &User, attributes: Attributes<'_>, roles: &RoleIndex) -> Decision {
    if user.is_administrator() {
        return Decision::Allowed(String::new());
    }
    let mut unresolved = Vec::new();
    for bound in roles.bound_roles(user, attributes.namespace()) {
        match bound.rules() {
            Some(granted) if granted.iter().any(|rule| rule.allows(attributes)) => {
                return Decision::Allowed(format!("RBAC: allowed by {}", bound.describe()));
            }
            Some(_) => {}
            None => unresolved.push(bound.not_found()),
        }
    }
    Decision::Denied(match unresolved.as_slice() {
        [] => String::new(),
        [one] => format!("RBAC: {one}"),
        many => format!("RBAC: [{}]", many.join(", ")),
    })
}

/// Returns kube-apiserver's text for a denied request, without the object and `is forbidden: `.
pub(crate) fn denial(user: &User, attributes: Attributes<'_>, reason: &str) -> String {
    let name = &user.name;
    let text = match attributes {
        Attributes::NonResource { verb, path } => format!("User {name:?} cannot {verb} path {path:?}"),
        Attributes::Resource(ResourceAttributes {
            verb,
            group,
            resource,
            namespace,
            ..
        }) => {
            let scope = if namespace.is_empty() {
                "at the cluster scope".to_owned()
            } else {
                format!("in the namespace {namespace:?}")
            };
            format!("User {name:?} cannot {verb} resource {resource:?} in API group {group:?} {scope}")
        }
    };
    if reason.is_empty() {
        text
    } else {
        format!("{text}: {reason}")
    }
}
