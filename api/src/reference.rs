//! Who may refer to whom: references stay in their namespace unless the administrator allowed otherwise.

/// Whether objects may refer to objects of other namespaces. Denied unless a flag says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CrossNamespace {
    /// References stay in their namespace.
    #[default]
    Denied,
    /// References may lead to any namespace.
    Allowed,
}

impl CrossNamespace {
    /// The policy that two flags give: `--allow-cross-namespace-refs` wins whenever it is supplied, otherwise
    /// `--no-cross-namespace-refs` counts, and without both nothing is allowed.
    #[must_use]
    pub const fn of_flags(allow: Option<bool>, no: Option<bool>) -> Self {
        match (allow, no) {
            (Some(true), _) | (None, Some(false)) => Self::Allowed,
            (Some(false), _) | (None, Some(true) | None) => Self::Denied,
        }
    }
}

/// An object's full name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl std::fmt::Display for ObjectName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A reference that leads out of its namespace although that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot access {0}, cross-namespace references have been disabled")]
pub struct AccessDenied(pub ObjectName);

/// What a reference leads to, seen from an object's own namespace; an empty namespace means that one.
///
/// # Errors
/// When it leads to another namespace and the policy denies that.
pub fn resolve(
    own: &str,
    namespace: &str,
    name: &str,
    policy: CrossNamespace,
) -> Result<ObjectName, AccessDenied> {
    let namespace = if namespace.is_empty() { own } else { namespace };
    let target = ObjectName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    if namespace == own || policy == CrossNamespace::Allowed {
        Ok(target)
    } else {
        Err(AccessDenied(target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_give_the_policy() {
        use CrossNamespace::{Allowed, Denied};
        for (allow, no, policy) in [
            (None, None, Denied),
            (None, Some(true), Denied),
            (None, Some(false), Allowed),
            (Some(true), None, Allowed),
            (Some(true), Some(true), Allowed),
            (Some(true), Some(false), Allowed),
            (Some(false), None, Denied),
            (Some(false), Some(true), Denied),
            (Some(false), Some(false), Denied),
        ] {
            assert_eq!(CrossNamespace::of_flags(allow, no), policy, "{allow:?} {no:?}");
        }
    }

    #[test]
    fn a_reference_leaves_its_namespace_only_when_allowed() {
        use CrossNamespace::{Allowed, Denied};
        for (namespace, policy, target) in [
            ("", Denied, Some("own/x")),
            ("own", Denied, Some("own/x")),
            ("", Allowed, Some("own/x")),
            ("other", Allowed, Some("other/x")),
            ("other", Denied, None),
        ] {
            let found = resolve("own", namespace, "x", policy);
            assert_eq!(
                found.as_ref().ok().map(ToString::to_string).as_deref(),
                target,
                "{namespace:?} {policy:?}"
            );
        }
        assert_eq!(
            resolve("own", "other", "x", Denied).unwrap_err().to_string(),
            "cannot access other/x, cross-namespace references have been disabled"
        );
    }
}
