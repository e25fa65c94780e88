//! The reconciliation of default roles and bindings at a start, as kube-apiserver (`component-helpers/auth/rbac/reconciliation`): what
//! is missing is added, and what users added remains. Pure.

use serde_json::Value;

use super::default_roles::AUTO_UPDATE;
use super::escalation::missing_rules;
use super::policy_rule::PolicyRule;

/// How an existing object becomes the expected default.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reconciliation {
    /// Nothing is missing, or a user forbids updates.
    Keep,
    /// This object replaces it.
    Update(Value),
    /// The object is deleted and created again: the role of a binding cannot be changed.
    Recreate,
}

/// Compares an existing ClusterRole or ClusterRoleBinding with the default.
pub(crate) fn reconcile(existing: &Value, expected: &Value) -> Reconciliation {
    if existing["metadata"]["annotations"][AUTO_UPDATE] == "false" {
        return Reconciliation::Keep;
    }
    let is_binding = expected["roleRef"].is_object();
    if is_binding && reference(&existing["roleRef"]) != reference(&expected["roleRef"]) {
        return Reconciliation::Recreate;
    }
    let mut updated = existing.clone();
    for field in ["annotations", "labels"] {
        add_keys(&mut updated["metadata"], field, &expected["metadata"][field]);
    }
    if is_binding {
        add_subjects(&mut updated, expected);
    } else {
        add_rules(&mut updated, expected);
        add_selectors(&mut updated, expected);
    }
    if updated == *existing {
        Reconciliation::Keep
    } else {
        Reconciliation::Update(updated)
    }
}

/// Adds the keys that a map lacks. The values of users remain.
fn add_keys(metadata: &mut Value, field: &str, expected: &Value) {
    for (key, value) in expected.as_object().into_iter().flatten() {
        if metadata[field][key].is_null() {
            metadata[field][key] = value.clone();
        }
    }
}

/// Appends to a list, which may be absent.
fn append(object: &mut Value, field: &str, added: Vec<Value>) {
    if added.is_empty() {
        return;
    }
    match &mut object[field] {
        Value::Array(items) => items.extend(added),
        absent => *absent = added.into(),
    }
}

fn add_rules(role: &mut Value, expected: &Value) {
    let (held, expected) = (PolicyRule::of_role(role), PolicyRule::of_role(expected));
    let held: Vec<&PolicyRule> = held.iter().collect();
    // Default roles are far below the limit.
    let missing = missing_rules(&held, &expected).unwrap_or(expected);
    let entry = |rule: &PolicyRule| rule.resource_rule().or_else(|| rule.non_resource_rule());
    append(role, "rules", missing.iter().filter_map(entry).collect());
}

fn add_selectors(role: &mut Value, expected: &Value) {
    const RULE: &str = "aggregationRule";
    const SELECTORS: &str = "clusterRoleSelectors";
    if !expected[RULE].is_object() {
        // An aggregation would replace the rules of the role.
        if let Some(fields) = role.as_object_mut() {
            fields.remove(RULE);
        }
        return;
    }
    let found = role[RULE][SELECTORS].as_array().cloned().unwrap_or_default();
    let expected = expected[RULE][SELECTORS].as_array().into_iter().flatten();
    let missing: Vec<Value> = expected
        .filter(|selector| !found.contains(selector))
        .cloned()
        .collect();
    if !missing.is_empty() {
        append(&mut role[RULE], SELECTORS, missing);
    }
}

fn add_subjects(binding: &mut Value, expected: &Value) {
    let missing = subjects(expected).filter(|subject| {
        let mut found = subjects(binding);
        !found.any(|found| reference(found) == reference(subject))
    });
    let missing = missing.cloned().collect();
    append(binding, "subjects", missing);
}

fn subjects(binding: &Value) -> impl Iterator<Item = &Value> {
    binding["subjects"].as_array().into_iter().flatten()
}

/// Returns the identity of a role or subject: an absent field is an empty one.
fn reference(value: &Value) -> [&str; 4] {
    ["apiGroup", "kind", "namespace", "name"].map(|field| value[field].as_str().unwrap_or(""))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rbac::default_roles;

    fn default_of(kind: &str, name: &str) -> Value {
        let mut all = default_roles().into_iter();
        let found = all.find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
        found.unwrap()
    }

    fn updated(existing: &Value, expected: &Value) -> Value {
        match reconcile(existing, expected) {
            Reconciliation::Update(updated) => {
                assert_eq!(reconcile(&updated, expected), Reconciliation::Keep, "{updated}");
                updated
            }
            other => panic!("{other:?} of {existing}"),
        }
    }

    #[test]
    fn a_default_is_kept() {
        for object in default_roles() {
            assert_eq!(reconcile(&object, &object), Reconciliation::Keep, "{object}");
        }
    }

    #[test]
    fn missing_rules_are_added_and_those_of_users_remain() {
        let expected = default_of("ClusterRole", "system:aggregate-to-view");
        let mut existing = expected.clone();
        let own = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]});
        let part =
            json!({"apiGroups": [""], "resources": ["configmaps", "events"], "verbs": ["get", "list"]});
        existing["rules"] = json!([own, part]);
        let rules = PolicyRule::of_role(&updated(&existing, &expected));
        let held: Vec<&PolicyRule> = rules.iter().collect();
        assert_eq!(
            missing_rules(&held, &PolicyRule::of_role(&expected)),
            Some(Vec::new())
        );
        assert_eq!(
            missing_rules(&held, &PolicyRule::of_role(&existing)),
            Some(Vec::new())
        );
        existing["rules"] = Value::Null;
        assert!(updated(&existing, &expected)["rules"].is_array());
        let mut wider = expected.clone();
        wider["rules"] = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
        assert_eq!(reconcile(&wider, &expected), Reconciliation::Keep);
    }

    #[test]
    fn an_aggregation_is_restored_and_an_unexpected_one_removed() {
        let expected = default_of("ClusterRole", "edit");
        let mut existing = expected.clone();
        let own = json!({"matchLabels": {"team": "a"}});
        existing["aggregationRule"] = json!({"clusterRoleSelectors": [own]});
        let selectors = &updated(&existing, &expected)["aggregationRule"]["clusterRoleSelectors"];
        let default = &expected["aggregationRule"]["clusterRoleSelectors"][0];
        assert_eq!(*selectors, json!([own, default]));
        existing.as_object_mut().unwrap().remove("aggregationRule");
        assert_eq!(updated(&existing, &expected), expected);
        let plain = default_of("ClusterRole", "cluster-admin");
        let mut aggregated = plain.clone();
        aggregated["aggregationRule"] = json!({"clusterRoleSelectors": [own]});
        assert_eq!(updated(&aggregated, &plain), plain);
    }

    #[test]
    fn subjects_are_restored_and_another_role_recreates_a_binding() {
        let expected = default_of("ClusterRoleBinding", "cluster-admin");
        let mut existing = expected.clone();
        let own = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"});
        existing["subjects"] = json!([own]);
        let subjects = &updated(&existing, &expected)["subjects"];
        assert_eq!(*subjects, json!([own, expected["subjects"][0]]));
        existing.as_object_mut().unwrap().remove("subjects");
        assert_eq!(updated(&existing, &expected), expected);
        existing["roleRef"]["name"] = "view".into();
        assert_eq!(reconcile(&existing, &expected), Reconciliation::Recreate);
    }

    #[test]
    fn labels_are_restored_and_a_user_can_forbid_all_updates() {
        let expected = default_of("ClusterRole", "view");
        let mut existing = expected.clone();
        existing["metadata"]["labels"] = json!({"team": "a"});
        existing["metadata"]["annotations"] = json!({AUTO_UPDATE: "yes"});
        let metadata = &updated(&existing, &expected)["metadata"];
        assert_eq!(
            metadata["labels"]["rbac.authorization.k8s.io/aggregate-to-edit"],
            "true"
        );
        assert_eq!(
            (&metadata["labels"]["team"], &metadata["annotations"][AUTO_UPDATE]),
            (&json!("a"), &json!("yes"))
        );
        existing["metadata"]["annotations"][AUTO_UPDATE] = "false".into();
        assert_eq!(reconcile(&existing, &expected), Reconciliation::Keep);
        let mut binding = default_of("ClusterRoleBinding", "cluster-admin");
        let default = binding.clone();
        binding["metadata"]["annotations"][AUTO_UPDATE] = "false".into();
        binding["roleRef"]["name"] = "view".into();
        assert_eq!(reconcile(&binding, &default), Reconciliation::Keep);
    }
}
