//! What a limited credential is good for: rules as those of a Role, but with patterns for names and with lists that are narrowed
//! to a label selector. Pure.

use serde::{Deserialize, Serialize};

/// The rules of one credential, all in one namespace. What no rule allows is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// The namespace.
    pub namespace: String,
    /// What may be done in it.
    pub rules: Vec<GrantRule>,
}

/// Verbs on objects of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantRule {
    /// API group, empty for core.
    pub group: String,
    /// Name in paths, a subresource behind a slash: `secrets`, `terraformruns/status`.
    pub resource: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`.
    pub verbs: Vec<String>,
    /// Names of the objects; a `*` at the end stands for any rest. Without any name only lists and watches are allowed.
    #[serde(default)]
    pub names: Vec<String>,
    /// Label selector that lists and watches are narrowed to; empty: they are not.
    #[serde(default)]
    pub selector: String,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
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
    /// Whether the request is allowed: with the label selector that it is answered with.
    pub(crate) fn allows(&self, asked: Asked<'_>) -> Option<String> {
        if asked.namespace != self.namespace {
            return None;
        }
        let mut rules = self.rules.iter().filter(|rule| rule.is_about(asked));
        if !asked.name.is_empty() {
            return rules
                .any(|rule| rule.names.iter().any(|name| matches(name, asked.name)))
                .then(|| asked.selector.to_owned());
        }
        if !matches!(asked.verb, "list" | "watch") {
            return None;
        }
        let lists: Vec<_> = rules.collect();
        let contained = |rule: &&&GrantRule| {
            asked
                .selector
                .split(',')
                .any(|part| implies(part, &rule.selector))
        };
        let rule = lists.iter().find(contained).or_else(|| lists.first())?;
        Some(narrowed(asked.selector, &rule.selector))
    }
}

impl GrantRule {
    fn is_about(&self, asked: Asked<'_>) -> bool {
        self.group == asked.group
            && self.resource == asked.resource
            && self.verbs.iter().any(|verb| verb == asked.verb)
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(front) => name.starts_with(front),
        None => pattern == name,
    }
}

/// Whether what matches `part` matches `whole`: the same, or a value for a label of which any would do.
fn implies(part: &str, whole: &str) -> bool {
    part == whole || part.split_once('=').is_some_and(|(key, _)| key == whole)
}

fn narrowed(selector: &str, to: &str) -> String {
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

    fn asked(verb: &str, resource: &str, name: &str, selector: &str) -> Option<String> {
        let namespace = "team";
        let group = "";
        grant().allows(Asked {
            verb,
            group,
            resource,
            namespace,
            name,
            selector,
        })
    }

    #[test]
    fn only_what_a_rule_names_is_allowed() {
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
                asked(verb, resource, name, "").is_some(),
                allowed,
                "{verb} {resource} {name}"
            );
        }
        let elsewhere = Asked {
            verb: "get",
            group: "",
            resource: "secrets",
            namespace: "other",
            name: "tfstate-default-net",
            selector: "",
        };
        assert_eq!(grant().allows(elsewhere), None);
        assert_eq!(
            grant().allows(Asked {
                namespace: "",
                name: "",
                verb: "list",
                ..elsewhere
            }),
            None
        );
        assert_eq!(
            grant().allows(Asked {
                namespace: "team",
                group: "apps",
                ..elsewhere
            }),
            None
        );
    }

    #[test]
    fn lists_are_narrowed() {
        let list = |selector| asked("list", "secrets", "", selector).unwrap();
        assert_eq!(list(""), "suffix=net");
        assert_eq!(list("tfstate=true"), "tfstate=true,suffix=net");
        assert_eq!(list("plan=net"), "plan=net,plan=net");
        assert_eq!(list("plan=other"), "plan=other,suffix=net");
        assert_eq!(list("files=0a"), "files=0a,files");
        assert_eq!(list("files!=0a"), "files!=0a,suffix=net");
        // A list of one name is a list.
        assert_eq!(asked("list", "secrets", "other", ""), None);
        assert_eq!(asked("watch", "secrets", "", ""), None);
    }
}
