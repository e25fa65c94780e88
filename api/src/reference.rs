//! References between objects, which stay in their namespace unless the administrator allows cross-namespace references.

/// Whether objects may refer to objects of other namespaces. The default is `Denied`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CrossNamespace {
    /// References must stay in their namespace.
    #[default]
    Denied,
    /// References may point to any namespace.
    Allowed,
}

impl CrossNamespace {
    /// Returns the policy of the two flags: `--allow-cross-namespace-refs` wins when it is set, then
    /// `--no-cross-namespace-refs`; without both, cross-namespace references are denied.
    #[must_use]
    pub const fn from_flags(allow: Option<bool>, no: Option<bool>) -> Self {
        match (allow, no) {
            (Some(true), _) | (None, Some(false)) => Self::Allowed,
            (Some(false), _) | (None, Some(true) | None) => Self::Denied,
        }
    }
}

/// Namespace and name of an object.
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

/// A cross-namespace reference that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot access {0}, cross-namespace references have been disabled")]
pub struct AccessDenied(pub ObjectName);

/// Resolves a reference from the namespace `own`; an empty `namespace` means `own`.
///
/// # Errors
/// The target is in another namespace and the policy denies that.
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
            assert_eq!(CrossNamespace::from_flags(allow, no), policy, "{allow:?} {no:?}");
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
