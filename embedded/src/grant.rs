//! Grants: the permissions of a limited credential. The rules are those of a Role, plus name patterns and a label selector
//! that restricts lists. Pure.

use serde::{Deserialize, Serialize};

/// Name of the only user with all permissions.
pub const ADMIN_USER: &str = "admin";
/// Name of the holder of a limited credential.
pub(crate) const LIMITED_USER: &str = "limited";
/// The groups of [`ADMIN_USER`].
pub const ADMIN_GROUPS: [&str; 2] = ["system:masters", "system:authenticated"];

/// The rules of one credential, all in one namespace. Requests that no rule allows are forbidden.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// Namespace of all rules.
    pub namespace: String,
    /// Allowed requests.
    pub rules: Vec<GrantRule>,
}

/// Verbs on objects of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantRule {
    /// API group, empty for core.
    pub group: String,
    /// Resource name as in paths, with the subresource after a slash: `secrets`, `terraformruns/status`.
    pub resource: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`.
    pub verbs: Vec<String>,
    /// Object names; a trailing `*` matches any suffix. Without names only lists and watches are allowed.
    #[serde(default)]
    pub names: Vec<String>,
    /// Label selector that restricts lists and watches; empty for no restriction.
    #[serde(default)]
    pub selector: String,
}

/// The attributes of a request that authorization checks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResourceAttributes<'a> {
    pub(crate) verb: &'a str,
    pub(crate) group: &'a str,
    /// With the subresource.
    pub(crate) resource: &'a str,
    pub(crate) namespace: &'a str,
    /// Empty for a collection.
    pub(crate) name: &'a str,
    /// The label selector of the request.
    pub(crate) selector: &'a str,
}

impl Grant {
    /// Authorizes a request: returns its label selector with the restriction of the rule, or `None` if it is forbidden.
    pub(crate) fn allows(&self, attributes: ResourceAttributes<'_>) -> Option<String> {
        if attributes.namespace != self.namespace {
            return None;
        }
        let mut rules = self.rules.iter().filter(|rule| rule.matches(attributes));
        if !attributes.name.is_empty() {
            return rules
                .any(|rule| rule.names.iter().any(|name| matches_name(name, attributes.name)))
                .then(|| attributes.selector.to_owned());
        }
        if !matches!(attributes.verb, "list" | "watch") {
            return None;
        }
        let lists: Vec<_> = rules.collect();
        let is_implied = |rule: &&&GrantRule| {
            attributes
                .selector
                .split(',')
                .any(|part| implies(part, &rule.selector))
        };
        let rule = lists.iter().find(is_implied).or_else(|| lists.first())?;
        Some(join_selectors(attributes.selector, &rule.selector))
    }
}

impl GrantRule {
    fn matches(&self, attributes: ResourceAttributes<'_>) -> bool {
        self.group == attributes.group
            && self.resource == attributes.resource
            && self.verbs.iter().any(|verb| verb == attributes.verb)
    }
}

fn matches_name(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => pattern == name,
    }
}

/// Whether objects that match `part` also match `whole`: they are equal, or `part` requires a value for the label `whole`.
fn implies(part: &str, whole: &str) -> bool {
    part == whole || part.split_once('=').is_some_and(|(key, _)| key == whole)
}

fn join_selectors(selector: &str, to: &str) -> String {
    let parts = [selector, to].into_iter().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant() -> Grant {
        let rule = |resource: &str, verbs: &[&str], names: &[&str], selector: &str| GrantRule {
            resource: resource.to_owned(),
            verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            selector: selector.to_owned(),
            ..GrantRule::default()
        };
        Grant {
            namespace: "team".to_owned(),
            rules: vec![
                rule(
                    "secrets",
                    &["get", "create"],
                    &["tfstate-default-net", "tfplan-default-net-*"],
                    "",
                ),
                rule("secrets", &["list"], &[], "suffix=net"),
                rule("secrets", &["list"], &[], "plan=net"),
                rule("secrets", &["list"], &[], "files"),
                rule("runs/status", &["patch"], &["net-1"], ""),
            ],
        }
    }

    fn allows(verb: &str, resource: &str, name: &str, selector: &str) -> Option<String> {
        let namespace = "team";
        let group = "";
        grant().allows(ResourceAttributes {
            verb,
            group,
            resource,
            namespace,
            name,
            selector,
        })
    }

    #[test]
    fn only_requests_that_match_a_rule_are_allowed() {
        for (verb, resource, name, allowed) in [
            ("get", "secrets", "tfstate-default-net", true),
            ("create", "secrets", "tfplan-default-net-0a-0", true),
            ("get", "secrets", "tfstate-default-net-2", false),
            ("get", "secrets", "other", false),
            ("delete", "secrets", "tfstate-default-net", false),
            ("create", "secrets", "", false),
            ("deletecollection", "secrets", "", false),
            ("get", "configmaps", "tfstate-default-net", false),
            ("patch", "runs/status", "net-1", true),
            ("patch", "runs", "net-1", false),
        ] {
            assert_eq!(
                allows(verb, resource, name, "").is_some(),
                allowed,
                "{verb} {resource} {name}"
            );
        }
        let definition = ResourceAttributes {
            verb: "create",
            group: "apiextensions.k8s.io",
            resource: "customresourcedefinitions",
            namespace: "",
            name: "tools.example.dev",
            selector: "",
        };
        assert_eq!(grant().allows(definition), None, "no rule is cluster-wide");
        let other_namespace = ResourceAttributes {
            verb: "get",
            group: "",
            resource: "secrets",
            namespace: "other",
            name: "tfstate-default-net",
            selector: "",
        };
        assert_eq!(grant().allows(other_namespace), None);
        assert_eq!(
            grant().allows(ResourceAttributes {
                namespace: "",
                name: "",
                verb: "list",
                ..other_namespace
            }),
            None
        );
        assert_eq!(
            grant().allows(ResourceAttributes {
                namespace: "team",
                group: "apps",
                ..other_namespace
            }),
            None
        );
    }

    #[test]
    fn lists_are_restricted_to_the_selector() {
        let list = |selector| allows("list", "secrets", "", selector).unwrap();
        assert_eq!(list(""), "suffix=net");
        assert_eq!(list("tfstate=true"), "tfstate=true,suffix=net");
        assert_eq!(list("plan=net"), "plan=net,plan=net");
        assert_eq!(list("plan=other"), "plan=other,suffix=net");
        assert_eq!(list("files=0a"), "files=0a,files");
        assert_eq!(list("files!=0a"), "files!=0a,suffix=net");
        // A list that selects one name is still a list.
        assert_eq!(allows("list", "secrets", "other", ""), None);
        assert_eq!(allows("watch", "secrets", "", ""), None);
    }
}
