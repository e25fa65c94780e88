use std::sync::Arc;

use serde_json::{Value, json};

use super::*;

pub(super) fn rule(verbs: &[&str], groups: &[&str], resources: &[&str], names: &[&str]) -> Value {
    json!({"verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": names})
}

pub(super) fn urls(verbs: &[&str], urls: &[&str]) -> Value {
    json!({"verbs": verbs, "nonResourceURLs": urls})
}

fn role(namespace: &str, name: &str, rules: &[Value]) -> Arc<Value> {
    Arc::new(json!({"metadata": {"namespace": namespace, "name": name}, "rules": rules}))
}

/// Returns a binding; subjects are `Kind:name`, those of ServiceAccounts `ServiceAccount:namespace:name`.
fn binding(namespace: &str, name: &str, kind: &str, subjects: &[&str]) -> Arc<Value> {
    let subject = |text: &&str| {
        let (kind, name) = text.split_once(':').unwrap();
        match name.split_once(':').filter(|_| kind == "ServiceAccount") {
            Some((namespace, name)) => json!({"kind": kind, "namespace": namespace, "name": name}),
            None => json!({"kind": kind, "name": name}),
        }
    };
    Arc::new(json!({
        "metadata": {"namespace": namespace, "name": format!("{name}-binding")},
        "roleRef": {"kind": kind, "name": name},
        "subjects": subjects.iter().map(subject).collect::<Vec<_>>(),
    }))
}

pub(super) fn user(name: &str, groups: &[&str]) -> User {
    User {
        name: name.to_owned(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        ..User::default()
    }
}

/// Returns the attributes of a request: verb, group, resource, namespace, name.
pub(super) const fn resource([verb, group, resource, namespace, name]: [&str; 5]) -> Attributes<'_> {
    Attributes::Resource(ResourceAttributes {
        verb,
        group,
        resource,
        namespace,
        name,
        selector: "",
    })
}

pub(super) fn is_allowed(index: &RoleIndex, user: &User, attributes: Attributes<'_>) -> bool {
    matches!(authorize(user, attributes, index), Decision::Allowed(_))
}

/// Returns an index in which `jane` has these rules: in the namespace `team`, and in the cluster.
pub(super) fn index_of(local: &[Value], cluster: &[Value]) -> RoleIndex {
    RoleIndex::new(&RoleObjects {
        roles: vec![role("team", "r", local)],
        cluster_roles: vec![role("", "c", cluster)],
        role_bindings: vec![binding("team", "r", "Role", &["User:jane"])],
        cluster_role_bindings: vec![binding("", "c", "ClusterRole", &["User:jane"])],
    })
}

#[test]
fn rules_match_verbs_groups_resources_and_names() {
    let all = rule(&["*"], &["*"], &["*"], &[]);
    let pods = rule(&["get", "list"], &[""], &["pods", "pods/log"], &[]);
    let status = rule(&["patch"], &["infra.contrib.fluxcd.io"], &["*/status"], &[]);
    let named = rule(&["get", "update"], &[""], &["secrets"], &["a"]);
    for (rule, attributes, allowed) in [
        (&all, ["get", "", "pods", "team", "a"], true),
        (&all, ["delete", "apps", "deployments/scale", "team", ""], true),
        (&all, ["get", "", "pods", "other", "a"], false),
        (&all, ["get", "", "nodes", "", "a"], false),
        (&pods, ["get", "", "pods", "team", "a"], true),
        (&pods, ["list", "", "pods", "team", ""], true),
        (&pods, ["watch", "", "pods", "team", ""], false),
        (&pods, ["get", "", "pods/log", "team", "a"], true),
        (&pods, ["get", "", "pods/exec", "team", "a"], false),
        (&pods, ["get", "metrics.k8s.io", "pods", "team", "a"], false),
        (
            &status,
            [
                "patch",
                "infra.contrib.fluxcd.io",
                "terraforms/status",
                "team",
                "a",
            ],
            true,
        ),
        (
            &status,
            ["patch", "infra.contrib.fluxcd.io", "terraforms", "team", "a"],
            false,
        ),
        (
            &status,
            [
                "patch",
                "infra.contrib.fluxcd.io",
                "terraforms/scale",
                "team",
                "a",
            ],
            false,
        ),
        (&named, ["get", "", "secrets", "team", "a"], true),
        (&named, ["get", "", "secrets", "team", "b"], false),
        (&named, ["list", "", "secrets", "team", ""], false),
        (&named, ["create", "", "secrets", "team", ""], false),
    ] {
        let index = index_of(std::slice::from_ref(rule), &[]);
        let jane = user("jane", &[]);
        assert_eq!(
            is_allowed(&index, &jane, resource(attributes)),
            allowed,
            "{rule}: {attributes:?}"
        );
        assert!(
            !is_allowed(&index, &user("john", &[]), resource(attributes)),
            "{attributes:?}"
        );
    }
}

#[test]
fn rules_of_the_cluster_hold_in_each_namespace_and_for_urls() {
    let rules = [
        rule(&["get"], &[""], &["namespaces"], &[]),
        urls(&["get"], &["/apis", "/openapi/*"]),
    ];
    let (index, jane) = (index_of(&[], &rules), user("jane", &[]));
    assert!(is_allowed(
        &index,
        &jane,
        resource(["get", "", "namespaces", "", "a"])
    ));
    assert!(is_allowed(
        &index,
        &jane,
        resource(["get", "", "namespaces", "any", "a"])
    ));
    for (verb, path, allowed) in [
        ("get", "/apis", true),
        ("get", "/apis/apps", false),
        ("get", "/openapi/v3", true),
        ("get", "/openapi", false),
        ("post", "/apis", false),
    ] {
        let attributes = Attributes::NonResource { verb, path };
        assert_eq!(is_allowed(&index, &jane, attributes), allowed, "{verb} {path}");
    }
    let local = index_of(&[urls(&["get"], &["/apis"])], &[]);
    let attributes = Attributes::NonResource {
        verb: "get",
        path: "/apis",
    };
    assert!(!is_allowed(&local, &jane, attributes), "a Role is not for URLs");
}

#[test]
fn subjects_are_users_groups_and_service_accounts() {
    let rules = [rule(&["get"], &[""], &["secrets"], &[])];
    let index = |namespace: &str, subjects: &[&str]| {
        let bound = binding(namespace, "c", "ClusterRole", subjects);
        let (role_bindings, cluster_role_bindings) = if namespace.is_empty() {
            (vec![], vec![bound])
        } else {
            (vec![bound], vec![])
        };
        RoleIndex::new(&RoleObjects {
            roles: vec![],
            cluster_roles: vec![role("", "c", &rules)],
            role_bindings,
            cluster_role_bindings,
        })
    };
    let deployer = User::service_account("team", "deployer", "u");
    for (namespace, subject, user, allowed) in [
        ("team", "User:jane", user("jane", &["dev"]), true),
        ("team", "Group:dev", user("jane", &["dev"]), true),
        ("team", "Group:jane", user("jane", &["dev"]), false),
        ("team", "User:dev", user("jane", &["dev"]), false),
        ("team", "ServiceAccount:deployer", deployer.clone(), true),
        ("team", "ServiceAccount:other:deployer", deployer.clone(), false),
        ("", "ServiceAccount:team:deployer", deployer.clone(), true),
        ("", "ServiceAccount:deployer", deployer.clone(), false),
        (
            "team",
            "Group:system:serviceaccounts:team",
            deployer.clone(),
            true,
        ),
        ("team", "Group:system:authenticated", deployer.clone(), true),
        ("team", "User:system:serviceaccount:team:deployer", deployer, true),
        ("other", "User:jane", user("jane", &[]), false),
    ] {
        let attributes = resource(["get", "", "secrets", "team", "a"]);
        let index = index(namespace, &[subject]);
        assert_eq!(
            is_allowed(&index, &user, attributes),
            allowed,
            "{namespace} {subject}"
        );
    }
}

#[test]
fn decisions_have_the_texts_of_kube_apiserver() {
    let index = RoleIndex::new(&RoleObjects {
        roles: vec![role("team", "r", &[rule(&["get"], &[""], &["secrets"], &[])])],
        role_bindings: vec![
            binding("team", "r", "Role", &["ServiceAccount:deployer"]),
            binding("team", "gone", "ClusterRole", &["ServiceAccount:deployer"]),
        ],
        ..RoleObjects::default()
    });
    let deployer = User::service_account("team", "deployer", "u");
    assert_eq!(
        authorize(&deployer, resource(["get", "", "secrets", "team", "a"]), &index),
        Decision::Allowed(
            "RBAC: allowed by RoleBinding \"r-binding/team\" of Role \"r\" to ServiceAccount \"deployer/team\"".to_owned()
        )
    );
    let reason = "RBAC: clusterrole.rbac.authorization.k8s.io \"gone\" not found";
    let denied = authorize(&deployer, resource(["list", "", "secrets", "team", ""]), &index);
    assert_eq!(denied, Decision::Denied(reason.to_owned()));
    let attributes = resource(["get", "infra.contrib.fluxcd.io", "terraforms", "default", "x"]);
    assert_eq!(
        denial(&user("u", &[]), attributes, ""),
        "User \"u\" cannot get resource \"terraforms\" in API group \"infra.contrib.fluxcd.io\" in the namespace \"default\""
    );
    assert_eq!(
        denial(&user("u", &[]), resource(["list", "", "nodes", "", ""]), "why"),
        "User \"u\" cannot list resource \"nodes\" in API group \"\" at the cluster scope: why"
    );
}

#[test]
fn members_of_system_masters_need_no_role() {
    let masters = user("any", &["system:masters"]);
    let attributes = resource(["delete", "", "secrets", "team", "a"]);
    assert!(is_allowed(&RoleIndex::default(), &masters, attributes));
    assert!(!is_allowed(
        &RoleIndex::default(),
        &user("system:masters", &[]),
        attributes
    ));
}

#[test]
fn aggregated_roles_have_the_rules_of_the_selected_ones() {
    let labelled = |name: &str, label: &str, verb: &str| {
        let rules = [rule(&[verb], &[""], &["secrets"], &[])];
        Arc::new(json!({"metadata": {"name": name, "labels": {label: "true"}}, "rules": rules}))
    };
    let aggregated = |name: &str, label: &str, own: &str| {
        let selectors = json!([{"matchLabels": {label: "true"}}]);
        // Its own rules do not count: the controller-manager would overwrite them.
        let rules = [rule(&["delete"], &[""], &["secrets"], &[])];
        Arc::new(json!({
            "metadata": {"name": name, "labels": {own: "true"}}, "rules": rules,
            "aggregationRule": {"clusterRoleSelectors": selectors},
        }))
    };
    let index = RoleIndex::new(&RoleObjects {
        cluster_roles: vec![
            labelled("get", "to-view", "get"),
            labelled("update", "to-edit", "update"),
            labelled("create", "to-other", "create"),
            aggregated("view", "to-view", "to-edit"),
            aggregated("edit", "to-edit", "to-view"),
        ],
        role_bindings: vec![binding("team", "edit", "ClusterRole", &["User:jane"])],
        ..RoleObjects::default()
    });
    let jane = user("jane", &[]);
    for (verb, allowed) in [
        ("get", true),
        ("update", true),
        ("create", false),
        ("delete", false),
    ] {
        let attributes = resource([verb, "", "secrets", "team", "a"]);
        assert_eq!(is_allowed(&index, &jane, attributes), allowed, "{verb}");
    }
}

#[test]
fn default_roles_give_discovery_to_all_and_their_rights_where_they_are_bound() {
    let mut objects = RoleObjects::default();
    for object in default_roles() {
        let list = match object["kind"].as_str() {
            Some("ClusterRole") => &mut objects.cluster_roles,
            _ => &mut objects.cluster_role_bindings,
        };
        list.push(Arc::new(object));
    }
    objects.role_bindings = vec![
        binding("team", "view", "ClusterRole", &["User:viewer"]),
        binding("team", "edit", "ClusterRole", &["User:editor"]),
        binding("team", "admin", "ClusterRole", &["User:owner"]),
    ];
    let index = RoleIndex::new(&objects);
    let of = |name: &str| user(name, &[AUTHENTICATED]);
    let version = Attributes::NonResource {
        verb: "get",
        path: "/version",
    };
    assert!(is_allowed(&index, &of("anybody"), version));
    let review = [
        "create",
        "authorization.k8s.io",
        "selfsubjectaccessreviews",
        "",
        "",
    ];
    assert!(is_allowed(&index, &of("anybody"), resource(review)));
    for (attributes, allowed) in [
        (["list", "", "configmaps", "team", ""], [true, true, true]),
        (["get", "", "secrets", "team", "a"], [false, true, true]),
        (["create", "", "configmaps", "team", ""], [false, true, true]),
        (
            ["create", "", "serviceaccounts/token", "team", "a"],
            [false, true, true],
        ),
        (
            ["create", "rbac.authorization.k8s.io", "roles", "team", ""],
            [false, false, true],
        ),
        (["list", "", "configmaps", "other", ""], [false, false, false]),
        (
            [
                "create",
                "apiextensions.k8s.io",
                "customresourcedefinitions",
                "",
                "",
            ],
            [false; 3],
        ),
    ] {
        let found =
            ["viewer", "editor", "owner"].map(|name| is_allowed(&index, &of(name), resource(attributes)));
        assert_eq!(found, allowed, "{attributes:?}");
    }
}

#[test]
fn account_names_are_parsed() {
    assert_eq!(split_account_user("system:serviceaccount:a:b"), Some(("a", "b")));
    for other in [
        "jane",
        "system:serviceaccount:a",
        "system:serviceaccount::b",
        "system:serviceaccount:a:b:c",
    ] {
        assert_eq!(split_account_user(other), None, "{other}");
    }
    let account = User::service_account("a", "b", "u");
    assert_eq!(
        account.groups,
        [account_groups("a"), vec![AUTHENTICATED.to_owned()]].concat()
    );
}
