//! The optional repo-controller: what its roles permit, and its replicas.

use serde_json::{Value, json};

use super::permissions::{CREATE_LEASES, READ, Rule, WRITE, assert_rules, bindings};
use super::pods::pod;
use super::{find, list, user_overlay};

const REPO_CONTROLLER: [Rule; 7] = [
    ("terraform.gitops.k8s.io/repos", "get list watch"),
    ("terraform.gitops.k8s.io/repos/status", "patch"),
    (
        "source.toolkit.fluxcd.io/gitrepositories",
        "get list watch create patch",
    ),
    (
        "infra.contrib.fluxcd.io/terraforms",
        "get list watch create patch",
    ),
    ("infra.sluice.dev/terraformruns", "get list watch"),
    (
        "apiextensions.k8s.io/customresourcedefinitions[repos.terraform.gitops.k8s.io]",
        "get",
    ),
    ("/events", "create patch"),
];
const REPO_CONTROLLER_LEASE: [Rule; 2] = [
    (
        "coordination.k8s.io/leases[repo-controller-leader-election]",
        "get update",
    ),
    CREATE_LEASES,
];
const VIEW_REPOS: [Rule; 1] = [("terraform.gitops.k8s.io/repos", READ)];
const EDIT_REPOS: [Rule; 1] = [("terraform.gitops.k8s.io/repos", WRITE)];

/// Returns the objects of an overlay with components.
fn build(overlay: &str, components: &[&str]) -> Vec<Value> {
    let paths = components.iter();
    let paths: Vec<_> = paths.map(|name| format!("../config/components/{name}")).collect();
    user_overlay(&json!({ "namespace": "sluice-system",
        "resources": [format!("../config/overlays/{overlay}")], "components": paths }))
}

/// Returns the bindings of the repo-controller.
fn bindings_of_repo_controller(objects: &[Value]) -> Vec<String> {
    let bound = bindings(objects).into_iter();
    bound
        .filter(|binding| binding.ends_with("-> repo-controller"))
        .collect()
}

#[test]
fn the_repo_controller_writes_sources_and_stacks_and_reads_no_secret() {
    let objects = build("standalone", &["repo-controller"]);
    for (role, expected) in [
        ("ClusterRole sluice-repo-controller", &REPO_CONTROLLER[..]),
        (
            "Role sluice-repo-controller-leader-election",
            &REPO_CONTROLLER_LEASE,
        ),
        ("ClusterRole sluice-repo-view", &VIEW_REPOS),
        ("ClusterRole sluice-repo-edit", &EDIT_REPOS),
    ] {
        assert_rules(find(&objects, role), expected, "repo-controller");
    }
    assert_eq!(
        bindings_of_repo_controller(&objects),
        [
            "ClusterRoleBinding: ClusterRole sluice-repo-controller -> repo-controller",
            "RoleBinding: Role sluice-repo-controller-leader-election -> repo-controller",
        ]
    );
    let labels = &find(&objects, "ClusterRole sluice-repo-edit")["metadata"]["labels"];
    assert!(labels.is_null(), "writing is part of no other role: {labels}");
}

/// The same permissions, but for the definition: a Role cannot permit to read it.
#[test]
fn the_repo_controller_of_one_namespace_has_roles_of_that_namespace_only() {
    let objects = build("single-namespace", &["repo-controller-single-namespace"]);
    let mut rules = REPO_CONTROLLER.to_vec();
    rules.retain(|(resources, _)| !resources.starts_with("apiextensions.k8s.io/"));
    for (role, expected) in [
        ("Role sluice-repo-controller", &rules[..]),
        (
            "Role sluice-repo-controller-leader-election",
            &REPO_CONTROLLER_LEASE,
        ),
        ("Role sluice-repo-view", &VIEW_REPOS),
        ("Role sluice-repo-edit", &EDIT_REPOS),
    ] {
        assert_rules(find(&objects, role), expected, "repo-controller");
        let labels = &find(&objects, role)["metadata"]["labels"];
        assert!(labels.is_null(), "Roles are not aggregated: {role}: {labels}");
    }
    assert_eq!(
        bindings_of_repo_controller(&objects),
        [
            "RoleBinding: Role sluice-repo-controller -> repo-controller",
            "RoleBinding: Role sluice-repo-controller-leader-election -> repo-controller",
        ]
    );
}

/// With `ha` after its component it has two replicas too; alone, its budget blocks no drain.
#[test]
fn a_drain_takes_one_replica_of_the_repo_controller_at_a_time() {
    for (components, replicas) in [
        (["repo-controller"].as_slice(), 1),
        (&["repo-controller", "ha"], 2),
    ] {
        let objects = build("standalone", components);
        let deployment = find(&objects, "Deployment repo-controller");
        assert_eq!(deployment["spec"]["replicas"], replicas, "{components:?}");
        assert!(list(pod(deployment), "/containers/0/args").any(|flag| flag == "--enable-leader-election"));
        let budget = find(&objects, "PodDisruptionBudget repo-controller");
        assert_eq!(budget["spec"]["maxUnavailable"], 1, "{components:?}");
        let labels = &deployment["spec"]["template"]["metadata"]["labels"];
        assert_eq!(budget["spec"]["selector"]["matchLabels"]["app"], labels["app"]);
    }
}
