//! The privilege escalation check of writes: `pkg/registry/rbac/*/policybased` of Kubernetes. A user who writes a role needs its rules, or
//! the verb `escalate`. A user who writes a binding needs the rules of its role, or the verb `bind`.

use std::sync::Arc;

use serde_json::Value;

use super::request::ObjectRequest;
use crate::grant::ResourceAttributes;
use crate::meta;
use crate::rbac::{self, Attributes, Decision, PolicyRule, RoleIndex, RoleRef, User};
use crate::resource::{Resource, Strategy};
use crate::status_error::StatusError;

/// Metadata that garbage collection and the server write.
const LIFECYCLE_FIELDS: [&str; 7] = [
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
];

/// The check of one write, with the rules at its start.
#[derive(Debug)]
pub(super) struct EscalationCheck {
    user: User,
    roles: Arc<RoleIndex>,
    resource: Arc<Resource>,
    namespace: String,
}

impl EscalationCheck {
    /// Returns the check of a request; `None` if it needs none.
    pub(super) fn of(request: &ObjectRequest) -> Option<Self> {
        let resource = &request.resource;
        let is_checked = matches!(resource.strategy, Strategy::Role | Strategy::RoleBinding);
        if !is_checked || request.requester.is_administrator() {
            return None;
        }
        Some(Self {
            user: request.requester.user().into_owned(),
            roles: request.api.roles(),
            resource: resource.clone(),
            namespace: request.at.namespace.clone(),
        })
    }

    /// Checks a new or changed object.
    pub(super) fn check(&self, old: Option<&Value>, new: &Value) -> Result<(), StatusError> {
        if old.is_some_and(|old| without_lifecycle(old) == without_lifecycle(new)) {
            return Ok(());
        }
        match self.resource.strategy {
            Strategy::RoleBinding => self.check_binding(new),
            _ => self.check_role(old, new),
        }
    }

    fn check_role(&self, old: Option<&Value>, role: &Value) -> Result<(), StatusError> {
        let name = meta::name(role);
        if self.may("escalate", &self.resource.plural, name) {
            return Ok(());
        }
        let mut rules = PolicyRule::of_role(role);
        // As in kube-apiserver, also if the rule stays: a label of the role can add all that it collects to another role.
        let is_aggregated = |role: &Value| !role["aggregationRule"].is_null();
        if is_aggregated(role) || old.is_some_and(is_aggregated) {
            rules.extend(all_rules());
        }
        self.confirm(name, &rules)
    }

    fn check_binding(&self, binding: &Value) -> Result<(), StatusError> {
        let role = RoleRef::of(binding);
        if self.may("bind", role.plural(), &role.name) {
            return Ok(());
        }
        let rules = self.roles.rules_of_role(&role, &self.namespace);
        let rules =
            rules.ok_or_else(|| StatusError::role_not_found(role.plural(), &role.name, role.not_found()))?;
        self.confirm(meta::name(binding), rules)
    }

    fn may(&self, verb: &str, resource: &str, name: &str) -> bool {
        let attributes = Attributes::Resource(ResourceAttributes {
            verb,
            group: rbac::GROUP,
            resource,
            namespace: &self.namespace,
            name,
            selector: "",
        });
        matches!(
            rbac::authorize(&self.user, attributes, &self.roles),
            Decision::Allowed(_)
        )
    }

    fn confirm(&self, name: &str, rules: &[PolicyRule]) -> Result<(), StatusError> {
        rbac::check_escalation(&self.user, &self.namespace, &self.roles, rules)
            .map_err(|reason| StatusError::escalation(&self.resource, name, &reason))
    }
}

/// Returns the rules that a user needs to write an `aggregationRule`, which can collect any rule.
fn all_rules() -> [PolicyRule; 2] {
    let all = || vec!["*".to_owned()];
    [
        PolicyRule {
            api_groups: all(),
            resources: all(),
            verbs: all(),
            ..PolicyRule::default()
        },
        PolicyRule {
            non_resource_urls: all(),
            verbs: all(),
            ..PolicyRule::default()
        },
    ]
}

fn without_lifecycle(object: &Value) -> Value {
    let mut object = object.clone();
    for field in LIFECYCLE_FIELDS {
        meta::set(&mut object, field, Value::Null);
    }
    object
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rbac::RoleObjects;
    use crate::resource::Registry;

    fn rule(resource: &str, verbs: &[&str]) -> Value {
        json!({"apiGroups": [""], "resources": [resource], "verbs": verbs})
    }

    /// Returns the check of writes of `kind` by `jane`, who has a role in the namespace `team` with these rules.
    fn check(kind: &str, rules: &[Value]) -> EscalationCheck {
        let meta = json!({"namespace": "team", "name": "own"});
        let reference = json!({"apiGroup": rbac::GROUP, "kind": "Role", "name": "own"});
        let subjects = json!([{"apiGroup": rbac::GROUP, "kind": "User", "name": "jane"}]);
        let wide = json!({"metadata": {"name": "wide"}, "rules": [rule("secrets", &["get"])]});
        let objects = RoleObjects {
            roles: vec![Arc::new(json!({"metadata": meta, "rules": rules}))],
            cluster_roles: vec![Arc::new(wide)],
            role_bindings: vec![Arc::new(
                json!({"metadata": meta, "roleRef": reference, "subjects": subjects}),
            )],
            cluster_role_bindings: Vec::new(),
        };
        let registry = Registry::builtin();
        EscalationCheck {
            user: User {
                name: "jane".to_owned(),
                groups: vec!["dev".to_owned()],
                ..User::default()
            },
            roles: Arc::new(RoleIndex::new(&objects)),
            resource: registry.by_kind(rbac::GROUP, kind).unwrap().clone(),
            namespace: "team".to_owned(),
        }
    }

    fn role(rules: &[Value]) -> Value {
        json!({"metadata": {"namespace": "team", "name": "new"}, "rules": rules})
    }

    #[test]
    fn a_user_grants_only_rules_that_the_user_has() {
        let own = [rule("configmaps", &["get", "list"])];
        let check_of = check("Role", &own);
        assert_eq!(
            check_of.check(None, &role(&[rule("configmaps", &["list"])])),
            Ok(())
        );
        let wider = role(&[rule("configmaps", &["get", "create", "delete"])]);
        let error = check_of.check(None, &wider).unwrap_err();
        assert_eq!(error.code(), 403);
        assert_eq!(
            error.message(),
            "roles.rbac.authorization.k8s.io \"new\" is forbidden: user \"jane\" (groups=[\"dev\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"configmaps\"], Verbs:[\"create\" \"delete\"]}"
        );
        // A label can make a role part of an aggregated one, so the rules count also if they do not change.
        let mut labelled = wider.clone();
        labelled["metadata"]["labels"]["a"] = "b".into();
        assert!(check_of.check(Some(&wider), &labelled).is_err());
        let mut terminating = wider.clone();
        terminating["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert_eq!(check_of.check(Some(&wider), &terminating), Ok(()));
        let escalate = json!({"apiGroups": [rbac::GROUP], "resources": ["roles"], "verbs": ["escalate"]});
        assert_eq!(check("Role", &[escalate]).check(None, &wider), Ok(()));
    }

    #[test]
    fn a_user_binds_only_roles_whose_rules_the_user_has() {
        let binding = |kind: &str, name: &str| json!({"metadata": {"namespace": "team", "name": "new"}, "roleRef": {"apiGroup": rbac::GROUP, "kind": kind, "name": name}});
        let own = [rule("configmaps", &["get"])];
        let check_of = check("RoleBinding", &own);
        assert_eq!(check_of.check(None, &binding("Role", "own")), Ok(()));
        let wide = check_of.check(None, &binding("ClusterRole", "wide")).unwrap_err();
        assert!(wide.message().contains("Resources:[\"secrets\"]"), "{wide:?}");
        let missing = check_of.check(None, &binding("Role", "none")).unwrap_err();
        assert_eq!(missing.code(), 404, "{missing:?}");
        let bind = json!({"apiGroups": [rbac::GROUP], "resources": ["clusterroles"], "resourceNames": ["wide"], "verbs": ["bind"]});
        let check_of = check("RoleBinding", &[bind]);
        assert_eq!(check_of.check(None, &binding("ClusterRole", "wide")), Ok(()));
    }

    #[test]
    fn only_a_user_with_all_rules_writes_an_aggregation() {
        let mut aggregated = role(&[]);
        aggregated["aggregationRule"] = json!({"clusterRoleSelectors": [{}]});
        let check_of = check("ClusterRole", &[rule("configmaps", &["get"])]);
        assert!(check_of.check(None, &aggregated).is_err());
        let mut labelled = aggregated.clone();
        labelled["metadata"]["labels"]["a"] = "b".into();
        assert!(
            check_of.check(Some(&aggregated), &labelled).is_err(),
            "a label adds its rules to another role"
        );
        assert!(
            check_of.check(Some(&aggregated), &role(&[])).is_err(),
            "its rules were not its own"
        );
        let mut collected = aggregated.clone();
        collected["metadata"]["ownerReferences"] = json!([]);
        assert_eq!(check_of.check(Some(&aggregated), &collected), Ok(()));
    }

    #[test]
    fn a_rule_with_too_many_combinations_is_refused() {
        let texts = |prefix: &str| {
            (0..200)
                .map(|number| format!("{prefix}{number}"))
                .collect::<Vec<_>>()
        };
        let huge = json!({"apiGroups": texts("g"), "resources": texts("r"), "verbs": texts("v")});
        // Each of these has 40,000.
        let large = json!({"apiGroups": [""], "resources": texts("r"), "verbs": texts("v")});
        let larger = json!({"apiGroups": ["a"], "resources": texts("r"), "verbs": texts("v")});
        for rules in [vec![huge], vec![large.clone(), larger, large]] {
            let error = check("Role", &[]).check(None, &role(&rules)).unwrap_err();
            assert!(error.message().contains("combinations"), "{error:?}");
        }
    }
}
