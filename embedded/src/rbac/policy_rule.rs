//! The rules of roles, and what they match: `pkg/apis/rbac/v1/evaluation_helpers.go` of Kubernetes.

use std::fmt;

use serde_json::{Value, json};

use super::Attributes;
use crate::grant::ResourceAttributes;
use crate::meta;

/// Matches everything.
const ALL: &str = "*";

/// A `PolicyRule` of a Role or ClusterRole.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PolicyRule {
    pub(crate) api_groups: Vec<String>,
    pub(crate) resources: Vec<String>,
    pub(crate) non_resource_urls: Vec<String>,
    pub(crate) resource_names: Vec<String>,
    pub(crate) verbs: Vec<String>,
}

impl PolicyRule {
    /// Reads the rules of a role.
    pub(crate) fn of_role(role: &Value) -> Vec<Self> {
        let rules = role["rules"].as_array().into_iter().flatten();
        rules.map(Self::of).collect()
    }

    fn of(rule: &Value) -> Self {
        let texts = |field: &str| {
            let texts = meta::strings(&rule[field]).into_iter();
            texts.map(str::to_owned).collect()
        };
        Self {
            api_groups: texts("apiGroups"),
            resources: texts("resources"),
            non_resource_urls: texts("nonResourceURLs"),
            resource_names: texts("resourceNames"),
            verbs: texts("verbs"),
        }
    }

    /// Whether the rule allows a request.
    pub(super) fn allows(&self, attributes: Attributes<'_>) -> bool {
        match attributes {
            Attributes::Resource(resource) => {
                has(&self.verbs, resource.verb)
                    && has(&self.api_groups, resource.group)
                    && self.matches_resource(resource)
                    && (self.resource_names.is_empty()
                        || self.resource_names.iter().any(|name| name == resource.name))
            }
            Attributes::NonResource { verb, path } => {
                has(&self.verbs, verb)
                    && self
                        .non_resource_urls
                        .iter()
                        .any(|pattern| matches_url(pattern, path))
            }
        }
    }

    fn matches_resource(&self, attributes: ResourceAttributes<'_>) -> bool {
        self.resources.iter().any(|resource| {
            resource == ALL || resource == attributes.resource || {
                // `*/scale` is the subresource of every resource.
                let requested = attributes.resource.split_once('/');
                requested.is_some_and(|(_, sub)| resource.strip_prefix("*/") == Some(sub))
            }
        })
    }

    /// Whether a user with this rule may do everything that `other` allows.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let names_covered = self.resource_names.is_empty()
            || (!other.resource_names.is_empty() && has_all(&self.resource_names, &other.resource_names));
        names_covered
            && covers_all(&self.verbs, &other.verbs)
            && covers_all(&self.api_groups, &other.api_groups)
            && self.covers_resources(&other.resources)
            && other.non_resource_urls.iter().all(|path| {
                self.non_resource_urls
                    .iter()
                    .any(|pattern| matches_url(pattern, path))
            })
    }

    fn covers_resources(&self, resources: &[String]) -> bool {
        has(&self.resources, ALL)
            || resources.iter().all(|resource| {
                let of_all = resource.split_once('/').map(|(_, sub)| format!("*/{sub}"));
                self.resources.contains(resource)
                    || of_all.is_some_and(|of_all| self.resources.contains(&of_all))
            })
    }

    /// Returns the rule as an entry of `SelfSubjectRulesReview`'s `resourceRules`; `None` if it is not for resources.
    pub(crate) fn resource_rule(&self) -> Option<Value> {
        if self.resources.is_empty() {
            return None;
        }
        let mut entry =
            json!({"verbs": self.verbs, "apiGroups": self.api_groups, "resources": self.resources});
        if !self.resource_names.is_empty() {
            entry["resourceNames"] = json!(self.resource_names);
        }
        Some(entry)
    }

    /// Returns the rule as an entry of `nonResourceRules`; `None` if it is not for URLs.
    pub(crate) fn non_resource_rule(&self) -> Option<Value> {
        let urls = &self.non_resource_urls;
        (!urls.is_empty()).then(|| json!({"verbs": self.verbs, "nonResourceURLs": urls}))
    }
}

/// The form of Kubernetes' `CompactString`: `{APIGroups:["apps"], Resources:["deployments"], Verbs:["get" "list"]}`.
impl fmt::Display for PolicyRule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let parts: Vec<String> = fields
            .into_iter()
            .filter(|(_, texts)| !texts.is_empty())
            .map(|(name, texts)| format!("{name}:{}", go_list(texts)))
            .collect();
        write!(formatter, "{{{}}}", parts.join(", "))
    }
}

/// Returns Go's `%q` of a list of strings.
pub(super) fn go_list(texts: &[String]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", quoted.join(" "))
}

fn has(texts: &[String], wanted: &str) -> bool {
    texts.iter().any(|text| text == ALL || text == wanted)
}

fn has_all(texts: &[String], wanted: &[String]) -> bool {
    wanted.iter().all(|wanted| texts.contains(wanted))
}

fn covers_all(texts: &[String], wanted: &[String]) -> bool {
    texts.iter().any(|text| text == ALL) || has_all(texts, wanted)
}

/// Whether a URL, or a pattern of URLs, is within `pattern`: a trailing `*` matches any suffix.
fn matches_url(pattern: &str, path: &str) -> bool {
    pattern == path
        || pattern
            .strip_suffix('*')
            .is_some_and(|prefix| path.starts_with(prefix.trim_end_matches('*')))
}
