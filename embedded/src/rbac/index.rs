//! The rules of all bindings, read from the objects once per change.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::aggregation;
use super::policy_rule::PolicyRule;
use super::user::{User, account_user};
use crate::meta;

/// All objects of `rbac.authorization.k8s.io`.
#[derive(Debug, Default)]
pub(crate) struct RoleObjects {
    pub(crate) roles: Vec<Arc<Value>>,
    pub(crate) cluster_roles: Vec<Arc<Value>>,
    pub(crate) role_bindings: Vec<Arc<Value>>,
    pub(crate) cluster_role_bindings: Vec<Arc<Value>>,
}

/// Namespace and name of a role; a ClusterRole has no namespace.
type RoleKey = (String, String);

/// The rules of all roles, and the users that have them.
#[derive(Debug, Default)]
pub(crate) struct RoleIndex {
    rules: BTreeMap<RoleKey, Arc<[PolicyRule]>>,
    /// ClusterRoleBindings.
    cluster: Vec<Binding>,
    /// RoleBindings by namespace.
    namespaces: BTreeMap<String, Vec<Binding>>,
}

/// A RoleBinding or ClusterRoleBinding.
#[derive(Debug)]
pub(super) struct Binding {
    name: String,
    /// Empty for a ClusterRoleBinding.
    namespace: String,
    role: RoleRef,
    /// The rules of the role; `None` if there is no such role.
    pub(super) rules: Option<Arc<[PolicyRule]>>,
    subjects: Vec<Subject>,
}

/// The reference of a binding to its role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoleRef {
    /// `Role` or `ClusterRole`.
    pub(crate) kind: String,
    /// Name of the role.
    pub(crate) name: String,
}

impl RoleRef {
    /// Reads the reference of a binding.
    pub(crate) fn of(binding: &Value) -> Self {
        let text = |field: &str| binding["roleRef"][field].as_str().unwrap_or("").to_owned();
        Self {
            kind: text("kind"),
            name: text("name"),
        }
    }

    /// Returns the resource name of the role.
    pub(crate) fn plural(&self) -> &'static str {
        if self.kind == "Role" {
            "roles"
        } else {
            "clusterroles"
        }
    }

    /// Returns the message for a missing role, as kube-apiserver words it.
    pub(crate) fn not_found(&self) -> String {
        let kind = self.kind.to_lowercase();
        format!("{kind}.{} {:?} not found", super::GROUP, self.name)
    }

    fn key(&self, namespace: &str) -> RoleKey {
        let namespace = if self.kind == "Role" { namespace } else { "" };
        (namespace.to_owned(), self.name.clone())
    }
}

#[derive(Debug)]
pub(super) struct Subject {
    kind: String,
    name: String,
    namespace: String,
}

impl Subject {
    fn of(subject: &Value) -> Self {
        let text = |field: &str| subject[field].as_str().unwrap_or("").to_owned();
        Self {
            kind: text("kind"),
            name: text("name"),
            namespace: text("namespace"),
        }
    }

    fn matches(&self, user: &User, binding_namespace: &str) -> bool {
        match self.kind.as_str() {
            "User" => user.name == self.name,
            "Group" => user.groups.contains(&self.name),
            "ServiceAccount" => {
                let namespace = self.account_namespace(binding_namespace);
                !namespace.is_empty() && user.name == account_user(namespace, &self.name)
            }
            _ => false,
        }
    }

    fn account_namespace<'a>(&'a self, binding_namespace: &'a str) -> &'a str {
        if self.namespace.is_empty() {
            binding_namespace
        } else {
            &self.namespace
        }
    }

    fn describe(&self, binding_namespace: &str) -> String {
        let name = match self.kind.as_str() {
            "ServiceAccount" => format!("{}/{}", self.name, self.account_namespace(binding_namespace)),
            _ => self.name.clone(),
        };
        format!("{} {name:?}", self.kind)
    }
}

impl Binding {
    fn of(binding: &Value, rules: &BTreeMap<RoleKey, Arc<[PolicyRule]>>) -> Self {
        let role = RoleRef::of(binding);
        let namespace = meta::namespace(binding).to_owned();
        let subjects = binding["subjects"].as_array().into_iter().flatten();
        Self {
            name: meta::name(binding).to_owned(),
            rules: rules.get(&role.key(&namespace)).cloned(),
            subjects: subjects.map(Subject::of).collect(),
            namespace,
            role,
        }
    }
}

/// A binding that applies to a user.
#[derive(Clone, Copy, Debug)]
pub(super) struct BoundRole<'a> {
    binding: &'a Binding,
    subject: &'a Subject,
}

impl<'a> BoundRole<'a> {
    /// Returns the rules; `None` if there is no such role.
    pub(super) fn rules(self) -> Option<&'a [PolicyRule]> {
        self.binding.rules.as_deref()
    }

    /// Returns the message for a missing role.
    pub(super) fn not_found(self) -> String {
        self.binding.role.not_found()
    }

    /// Describes the binding for the reason of a decision.
    pub(super) fn describe(self) -> String {
        let Binding {
            name,
            namespace,
            role,
            ..
        } = self.binding;
        let (kind, name) = if namespace.is_empty() {
            ("ClusterRoleBinding", name.clone())
        } else {
            ("RoleBinding", format!("{name}/{namespace}"))
        };
        let subject = self.subject.describe(namespace);
        format!("{kind} {name:?} of {} {:?} to {subject}", role.kind, role.name)
    }
}

impl RoleIndex {
    /// Reads all roles and bindings.
    pub(crate) fn new(objects: &RoleObjects) -> Self {
        let mut rules: BTreeMap<RoleKey, Arc<[PolicyRule]>> = BTreeMap::new();
        for role in &objects.roles {
            let key = (meta::namespace(role).to_owned(), meta::name(role).to_owned());
            rules.insert(key, PolicyRule::of_role(role).into());
        }
        for role in &objects.cluster_roles {
            let key = (String::new(), meta::name(role).to_owned());
            let aggregated = aggregation::rules(role, &objects.cluster_roles);
            rules.insert(key, aggregated.into());
        }
        let mut namespaces: BTreeMap<String, Vec<Binding>> = BTreeMap::new();
        for binding in &objects.role_bindings {
            let binding = Binding::of(binding, &rules);
            namespaces
                .entry(binding.namespace.clone())
                .or_default()
                .push(binding);
        }
        let cluster = objects.cluster_role_bindings.iter();
        Self {
            cluster: cluster.map(|binding| Binding::of(binding, &rules)).collect(),
            namespaces,
            rules,
        }
    }

    /// Returns the bindings of a user in a namespace; an empty namespace means the cluster.
    pub(super) fn bound_roles(&self, user: &User, namespace: &str) -> impl Iterator<Item = BoundRole<'_>> {
        let local = self.namespaces.get(namespace).into_iter().flatten();
        self.cluster.iter().chain(local).filter_map(move |binding| {
            let mut subjects = binding.subjects.iter();
            let subject = subjects.find(|subject| subject.matches(user, &binding.namespace))?;
            Some(BoundRole { binding, subject })
        })
    }

    /// Returns the rules of a user in a namespace.
    pub(crate) fn rules_of(&self, user: &User, namespace: &str) -> Vec<&PolicyRule> {
        let bound = self.bound_roles(user, namespace);
        bound.filter_map(BoundRole::rules).flatten().collect()
    }

    /// Returns the rules that a binding in this namespace refers to; `None` if there is no such role.
    pub(crate) fn rules_of_role(&self, role: &RoleRef, namespace: &str) -> Option<&[PolicyRule]> {
        self.rules.get(&role.key(namespace)).map(|rules| &**rules)
    }
}
