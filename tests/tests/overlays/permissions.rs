//! What each role permits: the tables are the whole of it, so that each new verb is a decision.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{OVERLAYS, find, list, name, objects, of_kind, text, user_overlay};

/// A rule: groups with resources, and verbs.
pub(super) type Rule = (&'static str, &'static str);

const SOURCE_CONTROLLER: [Rule; 4] = [
    ("source.toolkit.fluxcd.io/gitrepositories", "get list watch patch"),
    ("source.toolkit.fluxcd.io/gitrepositories/status", "patch"),
    ("/secrets", "get list watch"),
    ("/events", "create patch"),
];
const TF_CONTROLLER: [Rule; 11] = [
    ("infra.contrib.fluxcd.io/terraforms", "get list watch patch"),
    ("infra.contrib.fluxcd.io/terraforms/status", "patch"),
    (
        "infra.sluice.dev/terraformruns",
        "get list watch create patch delete",
    ),
    (
        "infra.sluice.dev/terraformruns/status,planapprovals/status",
        "patch",
    ),
    ("infra.sluice.dev/planapprovals", "list watch patch"),
    (
        "source.toolkit.fluxcd.io/gitrepositories,buckets,ocirepositories",
        "get list watch",
    ),
    ("/secrets,configmaps", "get list watch"),
    ("/events", "create patch list"),
    (
        "apiextensions.k8s.io/customresourcedefinitions[terraforms.infra.contrib.fluxcd.io,terraformruns.infra.sluice.dev,planapprovals.infra.sluice.dev]",
        "get",
    ),
    ("batch/jobs", "get list watch"),
    ("/pods", "list watch"),
];
const TF_CONTROLLER_STACKS: [Rule; 5] = [
    ("/secrets", "create patch delete"),
    ("/configmaps", "delete"),
    ("coordination.k8s.io/leases", "delete"),
    ("batch/jobs", "create delete"),
    ("/serviceaccounts", "get"),
];
pub(super) const CREATE_LEASES: Rule = ("coordination.k8s.io/leases", "create");
/// The names are those of Flux and tofu-controller; `end_to_end::cluster` finds them.
const SOURCE_CONTROLLER_LEASE: [Rule; 2] = [
    (
        "coordination.k8s.io/leases[source-controller-leader-election]",
        "get update",
    ),
    CREATE_LEASES,
];
const TF_CONTROLLER_LEASE: [Rule; 2] = [
    (
        "coordination.k8s.io/leases[1953de50.contrib.fluxcd.io]",
        "get update",
    ),
    CREATE_LEASES,
];
const TF_RUNNER: [Rule; 8] = [
    ("infra.contrib.fluxcd.io/terraforms", "get"),
    ("infra.sluice.dev/terraformruns", "get list"),
    ("infra.sluice.dev/planapprovals", "list"),
    ("infra.sluice.dev/terraformruns/status", "patch"),
    ("/secrets", "get list create patch update delete"),
    ("/configmaps", "list create update delete"),
    ("coordination.k8s.io/leases", "get list create update"),
    ("/pods", "get"),
];
pub(super) const READ: &str = "get list watch";
pub(super) const WRITE: &str = "get list watch create update patch delete deletecollection";
const VIEW: [Rule; 3] = [
    ("infra.contrib.fluxcd.io/terraforms", READ),
    ("infra.sluice.dev/terraformruns,planapprovals", READ),
    ("source.toolkit.fluxcd.io/gitrepositories", READ),
];
const EDIT: [Rule; 3] = [
    ("infra.contrib.fluxcd.io/terraforms", WRITE),
    ("infra.sluice.dev/terraformruns,planapprovals", READ),
    ("source.toolkit.fluxcd.io/gitrepositories", WRITE),
];
const APPROVE: [Rule; 3] = [
    ("infra.sluice.dev/planapprovals", "get list watch create delete"),
    ("infra.sluice.dev/terraformruns", READ),
    ("infra.contrib.fluxcd.io/terraforms", READ),
];
const CANCEL: [Rule; 2] = [
    ("infra.sluice.dev/terraformruns", "get list watch patch"),
    ("infra.contrib.fluxcd.io/terraforms", READ),
];

/// Returns the rules of a role as in the tables.
fn rules(role: &Value) -> Vec<(String, String)> {
    let words = |rule: &Value, field: &str, separator: &str| {
        let words: Vec<&str> = list(rule, field).filter_map(Value::as_str).collect();
        words.join(separator)
    };
    let row = |rule: &Value| {
        let names = words(rule, "/resourceNames", ",");
        let names = if names.is_empty() {
            names
        } else {
            format!("[{names}]")
        };
        let resources = words(rule, "/resources", ",");
        assert!(rule["nonResourceURLs"].is_null(), "{rule}");
        (
            format!("{}/{resources}{names}", words(rule, "/apiGroups", ",")),
            words(rule, "/verbs", " "),
        )
    };
    list(role, "/rules").map(row).collect()
}

pub(super) fn assert_rules(role: &Value, expected: &[Rule], overlay: &str) {
    let expected: Vec<(String, String)> = expected
        .iter()
        .map(|(resources, verbs)| ((*resources).to_owned(), (*verbs).to_owned()))
        .collect();
    assert_eq!(rules(role), expected, "{overlay}: {}", name(role));
}

/// Returns the rules of a role by its name.
fn table(role: &str) -> &'static [Rule] {
    match role {
        "sluice-source-controller" => &SOURCE_CONTROLLER,
        "sluice-tf-controller" => &TF_CONTROLLER,
        "sluice-tf-controller-stacks" => &TF_CONTROLLER_STACKS,
        "sluice-source-controller-leader-election" => &SOURCE_CONTROLLER_LEASE,
        "sluice-tf-controller-leader-election" => &TF_CONTROLLER_LEASE,
        "sluice-tf-runner" => &TF_RUNNER,
        "sluice-view" => &VIEW,
        "sluice-edit" => &EDIT,
        "sluice-approve" => &APPROVE,
        "sluice-cancel" => &CANCEL,
        other => panic!("the role {other} is in no table"),
    }
}

/// Returns the rules of a role where inputs are read under the accounts of their stacks, and not with those of tf-controller.
fn with_impersonation(role: &str) -> Vec<Rule> {
    let added: Option<Rule> = match role {
        "sluice-tf-controller" => Some(("/configmaps", "list watch")),
        "sluice-tf-controller-stacks" => Some(("/serviceaccounts", "impersonate")),
        "sluice-tf-runner" => Some(("/configmaps", "get")),
        _ => None,
    };
    let rules = table(role).iter().map(|rule| match *rule {
        ("/secrets,configmaps", verbs) => ("/secrets", verbs),
        other => other,
    });
    rules.chain(added).collect()
}

fn is_role(object: &Value) -> bool {
    matches!(text(object, "/kind"), "Role" | "ClusterRole")
}

#[test]
fn each_role_permits_exactly_what_its_table_lists() {
    for overlay in OVERLAYS {
        let objects = overlay.objects();
        let roles: Vec<&Value> = objects.iter().filter(|object| is_role(object)).collect();
        assert_eq!(
            roles.len(),
            if overlay.has_sources { 10 } else { 8 },
            "{}",
            overlay.name
        );
        for role in roles {
            let name = text(role, "/metadata/name");
            let mut expected = table(name).to_vec();
            if overlay.name == "single-namespace" {
                expected.retain(|(resources, _)| !resources.starts_with("apiextensions.k8s.io/"));
            }
            if overlay.name == "multi-tenant" {
                expected = with_impersonation(name);
            }
            assert_rules(role, &expected, overlay.name);
        }
    }
}

/// Returns `role -> account` of each binding, with the kind of the binding.
pub(super) fn bindings(objects: &[Value]) -> BTreeSet<String> {
    let bindings = objects
        .iter()
        .filter(|object| text(object, "/kind").ends_with("Binding"));
    bindings
        .flat_map(|binding| {
            list(binding, "/subjects").map(move |subject| {
                let role = format!(
                    "{} {}",
                    text(binding, "/roleRef/kind"),
                    text(binding, "/roleRef/name")
                );
                format!("{}: {role} -> {}", text(binding, "/kind"), text(subject, "/name"))
            })
        })
        .collect()
}

const SOURCES_BOUND: [&str; 2] = [
    "ClusterRoleBinding: ClusterRole sluice-source-controller -> source-controller",
    "RoleBinding: Role sluice-source-controller-leader-election -> source-controller",
];
const STACKS_BOUND: [&str; 2] = [
    "ClusterRoleBinding: ClusterRole sluice-tf-controller -> tf-controller",
    "RoleBinding: Role sluice-tf-controller-leader-election -> tf-controller",
];
const WRITES_BOUND: &str = "ClusterRoleBinding: ClusterRole sluice-tf-controller-stacks -> tf-controller";

/// No overlay binds the roles of runs or users in all namespaces.
#[test]
fn each_controller_has_its_own_roles_and_no_other() {
    for overlay in OVERLAYS {
        let sources = overlay.has_sources.then_some(SOURCES_BOUND).into_iter().flatten();
        let writes = (overlay.name != "multi-tenant").then_some(WRITES_BOUND);
        let expected = sources.chain(STACKS_BOUND).chain(writes).map(str::to_owned);
        let expected: BTreeSet<String> = if overlay.name == "single-namespace" {
            expected
                .map(|binding| binding.replace("ClusterRole", "Role"))
                .chain(["RoleBinding: Role sluice-tf-runner -> tf-runner".to_owned()])
                .collect()
        } else {
            expected.collect()
        };
        assert_eq!(bindings(&overlay.objects()), expected, "{}", overlay.name);
    }
}

#[test]
fn a_tenant_binds_runs_and_controller_in_its_namespace_only() {
    let objects = objects("samples/tenant");
    assert_eq!(
        bindings(&objects),
        [
            "RoleBinding: ClusterRole sluice-tf-controller-stacks -> tf-controller",
            "RoleBinding: ClusterRole sluice-tf-runner -> tf-runner",
        ]
        .map(str::to_owned)
        .into()
    );
    let controller = find(&objects, "RoleBinding sluice-tf-controller-stacks");
    assert_eq!(controller["metadata"]["namespace"], "team-a");
    assert_eq!(controller["subjects"][0]["namespace"], "sluice-system");
    let namespace = find(&objects, "Namespace team-a");
    let profile = &namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"];
    assert_eq!(profile, "restricted");
}

/// Reading is part of the cluster's roles for users. Writing is part of none: who writes a stack runs code.
#[test]
fn users_may_read_by_default_and_write_nothing() {
    let objects = objects("overlays/standalone");
    let labels = |role: &str| find(&objects, role)["metadata"]["labels"].clone();
    let aggregated = ["view", "edit", "admin"].map(|role| {
        (
            format!("rbac.authorization.k8s.io/aggregate-to-{role}"),
            json!("true"),
        )
    });
    let aggregated: serde_json::Map<String, Value> = aggregated.into_iter().collect();
    assert_eq!(labels("ClusterRole sluice-view"), Value::Object(aggregated));
    for role in of_kind(&objects, "ClusterRole").filter(|role| text(role, "/metadata/name") != "sluice-view")
    {
        assert!(role["metadata"]["labels"].is_null(), "{}", name(role));
    }
}

/// As Flux's flux-edit. Approving and cancelling stay apart.
#[test]
fn a_component_makes_writing_part_of_the_roles_of_the_cluster() {
    let components =
        ["repo-controller", "edit-aggregation"].map(|name| format!("../config/components/{name}"));
    let objects = user_overlay(&json!({ "namespace": "sluice-system",
        "resources": ["../config/overlays/standalone"], "components": components }));
    let labels = |role: &str| find(&objects, &format!("ClusterRole {role}"))["metadata"]["labels"].clone();
    for role in ["sluice-edit", "sluice-repo-edit"] {
        let expected = json!({ "rbac.authorization.k8s.io/aggregate-to-edit": "true",
            "rbac.authorization.k8s.io/aggregate-to-admin": "true" });
        assert_eq!(labels(role), expected, "{role}");
    }
    for role in ["sluice-approve", "sluice-cancel"] {
        assert!(labels(role).is_null(), "{role}");
    }
}

#[test]
fn with_the_process_executor_the_controller_has_the_rights_of_runs_and_creates_no_jobs() {
    let objects = user_overlay(&json!({ "namespace": "sluice-system",
        "resources": ["../config/overlays/standalone"], "components": ["../config/components/process-executor"] }));
    let runs = "ClusterRoleBinding: ClusterRole sluice-tf-runner -> tf-controller";
    assert!(bindings(&objects).contains(runs));
    let without_jobs = |rules: &[Rule]| -> Vec<Rule> {
        let kept = rules
            .iter()
            .filter(|(resources, _)| !matches!(*resources, "batch/jobs" | "/pods" | "/serviceaccounts"));
        kept.map(|rule| match *rule {
            ("/events", _) => ("/events", "create patch"),
            rule => rule,
        })
        .collect()
    };
    for (role, expected) in [
        ("ClusterRole sluice-tf-controller", &TF_CONTROLLER[..]),
        ("ClusterRole sluice-tf-controller-stacks", &TF_CONTROLLER_STACKS),
    ] {
        assert_rules(find(&objects, role), &without_jobs(expected), "process-executor");
    }
}

#[test]
fn only_a_component_permits_tokens_of_service_accounts() {
    let with_component = user_overlay(&json!({ "namespace": "sluice-system",
        "resources": ["../config/overlays/standalone"], "components": ["../config/components/workload-identity"] }));
    let role = find(&with_component, "ClusterRole sluice-source-controller-tokens");
    assert_rules(
        role,
        &[("/serviceaccounts", "get"), ("/serviceaccounts/token", "create")],
        "workload-identity",
    );
    let deployment = find(&with_component, "Deployment source-controller").to_string();
    assert!(deployment.contains("--feature-gates=ObjectLevelWorkloadIdentity=true"));
}
