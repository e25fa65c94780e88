//! Aggregated ClusterRoles: the union of the rules of the roles that their selectors match. The controller-manager writes it into
//! the object; here it is computed when the roles are read.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::policy_rule::PolicyRule;
use crate::meta;

/// Returns the rules of a ClusterRole. A role with an `aggregationRule` has no rules of its own, as in Kubernetes.
pub(super) fn rules(role: &Value, all: &[Arc<Value>]) -> Vec<PolicyRule> {
    if !is_aggregated(role) {
        return PolicyRule::of_role(role);
    }
    let mut rules: Vec<PolicyRule> = Vec::new();
    // A set, because users can label many roles.
    let mut known = BTreeSet::new();
    let (mut reached, mut next) = (BTreeSet::from([meta::name(role)]), vec![role]);
    while let Some(role) = next.pop() {
        if !is_aggregated(role) {
            for rule in PolicyRule::of_role(role) {
                if known.insert(rule.clone()) {
                    rules.push(rule);
                }
            }
            continue;
        }
        for selected in all.iter().filter(|other| selects(role, other)) {
            // Aggregated roles may select each other.
            if reached.insert(meta::name(selected)) {
                next.push(selected);
            }
        }
    }
    rules
}

fn is_aggregated(role: &Value) -> bool {
    role["aggregationRule"].is_object()
}

fn selects(role: &Value, other: &Value) -> bool {
    let selectors = role["aggregationRule"]["clusterRoleSelectors"].as_array();
    let labels = &other["metadata"]["labels"];
    let mut selectors = selectors.into_iter().flatten();
    selectors.any(|selector| matches_labels(selector, labels))
}

/// Whether labels match a meta/v1 `LabelSelector`. An empty selector matches everything.
fn matches_labels(selector: &Value, labels: &Value) -> bool {
    let value = |key: &str| labels.get(key).and_then(Value::as_str);
    let mut pairs = selector["matchLabels"].as_object().into_iter().flatten();
    let mut expressions = selector["matchExpressions"].as_array().into_iter().flatten();
    pairs.all(|(key, wanted)| value(key).is_some() && value(key) == wanted.as_str())
        && expressions.all(|expression| {
            let actual = value(expression["key"].as_str().unwrap_or(""));
            let values = meta::strings(&expression["values"]);
            match expression["operator"].as_str() {
                Some("In") => actual.is_some_and(|actual| values.contains(&actual)),
                Some("NotIn") => !actual.is_some_and(|actual| values.contains(&actual)),
                Some("Exists") => actual.is_some(),
                Some("DoesNotExist") => actual.is_none(),
                _ => false,
            }
        })
}
