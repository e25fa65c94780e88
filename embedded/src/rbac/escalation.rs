//! The privilege escalation check: a user grants only rules that the user has. From Kubernetes
//! (`pkg/registry/rbac/validation`: `ConfirmNoEscalation`, `Covers`).

use std::collections::BTreeSet;

use super::index::RoleIndex;
use super::policy_rule::{PolicyRule, go_list};
use super::user::User;

/// Maximum number of single permissions in all rules that are not covered as a whole: a small object can name billions.
const MAX_PERMISSIONS: usize = 100_000;
/// Maximum number of missing rules in a message.
const MAX_LINES: usize = 100;

/// Checks that a user has all of these rules in a namespace; empty for the cluster. The error is the text after `is forbidden: `.
pub(crate) fn check_escalation(
    user: &User,
    namespace: &str,
    roles: &RoleIndex,
    granted: &[PolicyRule],
) -> Result<(), String> {
    let held = roles.rules_of(user, namespace);
    let missing = missing_rules(&held, granted).ok_or_else(|| {
        format!("rules with more than {MAX_PERMISSIONS} combinations must be granted by a user who has each as a whole")
    })?;
    if missing.is_empty() {
        return Ok(());
    }
    let texts: BTreeSet<String> = missing.iter().map(PolicyRule::to_string).collect();
    let lines: Vec<String> = texts.into_iter().take(MAX_LINES).collect();
    Err(format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        go_list(&user.groups),
        lines.join("\n")
    ))
}

/// Returns what no held rule covers, with one group, resource, name or URL per rule; `None` if there are too many combinations to check.
pub(super) fn missing_rules(held: &[&PolicyRule], wanted: &[PolicyRule]) -> Option<Vec<PolicyRule>> {
    let mut missing = Vec::new();
    let mut left = MAX_PERMISSIONS;
    for rule in wanted {
        if held.iter().any(|held| held.covers(rule)) {
            continue;
        }
        let permissions = single_permissions(rule, left)?;
        left = left.saturating_sub(permissions.len());
        let is_missing = |permission: &PolicyRule| !held.iter().any(|held| held.covers(permission));
        missing.extend(permissions.into_iter().filter(is_missing));
    }
    Some(compact(missing))
}

/// Returns the rules with one verb, group, resource, name or URL each; `None` if there are more than `max`.
fn single_permissions(rule: &PolicyRule, max: usize) -> Option<Vec<PolicyRule>> {
    let names = rule.resource_names.len().max(1);
    let counts = [
        rule.verbs.len(),
        rule.api_groups.len(),
        rule.resources.len(),
        names,
    ];
    let resources = counts.into_iter().try_fold(1_usize, usize::checked_mul)?;
    let urls = rule.verbs.len().checked_mul(rule.non_resource_urls.len())?;
    if resources.checked_add(urls)? > max {
        return None;
    }
    let mut permissions = Vec::new();
    for group in &rule.api_groups {
        for resource in &rule.resources {
            for names in names_of(rule) {
                permissions.extend(rule.verbs.iter().map(|verb| PolicyRule {
                    api_groups: vec![group.clone()],
                    resources: vec![resource.clone()],
                    resource_names: names.clone(),
                    verbs: vec![verb.clone()],
                    ..PolicyRule::default()
                }));
            }
        }
    }
    for url in &rule.non_resource_urls {
        permissions.extend(rule.verbs.iter().map(|verb| PolicyRule {
            non_resource_urls: vec![url.clone()],
            verbs: vec![verb.clone()],
            ..PolicyRule::default()
        }));
    }
    Some(permissions)
}

/// Returns the names of a rule one by one; one empty list if it is for all names.
fn names_of(rule: &PolicyRule) -> Vec<Vec<String>> {
    if rule.resource_names.is_empty() {
        return vec![Vec::new()];
    }
    rule.resource_names
        .iter()
        .map(|name| vec![name.clone()])
        .collect()
}

/// Joins the verbs of permissions on the same resource. As upstream, permissions on URLs stay apart.
fn compact(permissions: Vec<PolicyRule>) -> Vec<PolicyRule> {
    let mut compacted: Vec<PolicyRule> = Vec::new();
    for permission in permissions {
        let is_same = |other: &&mut PolicyRule| {
            permission.non_resource_urls.is_empty()
                && other.non_resource_urls.is_empty()
                && other.api_groups == permission.api_groups
                && other.resources == permission.resources
                && other.resource_names == permission.resource_names
        };
        match compacted.last_mut().filter(is_same) {
            Some(last) => last.verbs.extend(permission.verbs),
            None => compacted.push(permission),
        }
    }
    compacted
}
