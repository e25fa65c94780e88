//! Checks the objects that `kubectl kustomize` builds from each overlay in `config`, and from a user's overlay based on it.

#![expect(
    clippy::unwrap_used,
    reason = "tests fail by panicking; clippy exempts only the test functions themselves"
)]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde::Deserialize as _;
use serde_json::{Value, json};

const OVERLAYS: [&str; 3] = ["standalone", "with-flux", "replace-flux"];
/// Cluster-scoped kinds.
const CLUSTER_WIDE: [&str; 4] = [
    "Namespace",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleBinding",
];

fn config() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../config")
}

/// Builds the objects of a folder.
fn build(folder: &Path) -> Vec<Value> {
    let kubectl = sluice_harness::cli::kubectl().unwrap();
    let output = Command::new(kubectl)
        .arg("kustomize")
        .arg(folder)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", folder.display());
    serde_yaml_ng::Deserializer::from_slice(&output.stdout)
        .map(|object| Value::deserialize(object).unwrap())
        .collect()
}

fn overlay(name: &str) -> Vec<Value> {
    build(&config().join("overlays").join(name))
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Returns `Kind name` of each object.
fn names(objects: &[Value]) -> BTreeSet<String> {
    let name = |object| format!("{} {}", text(object, "/kind"), text(object, "/metadata/name"));
    objects.iter().map(name).collect()
}

fn find<'a>(objects: &'a [Value], name: &str) -> &'a Value {
    let (kind, name) = name.split_once(' ').unwrap();
    let is_it = |object: &&Value| text(object, "/kind") == kind && text(object, "/metadata/name") == name;
    objects.iter().find(is_it).unwrap()
}

/// Asserts that all objects, and the subjects of bindings, are in this namespace.
fn assert_namespace(objects: &[Value], namespace: &str, overlay: &str) {
    let accounts: Vec<&str> = objects
        .iter()
        .filter(|object| text(object, "/kind") == "ServiceAccount")
        .map(|object| text(object, "/metadata/name"))
        .collect();
    let mut subjects = 0;
    for object in objects {
        let kind = text(object, "/kind");
        let actual_namespace = text(object, "/metadata/namespace");
        let expected = if CLUSTER_WIDE.contains(&kind) {
            ""
        } else {
            namespace
        };
        assert_eq!(
            actual_namespace,
            expected,
            "{overlay}: {kind} {}",
            text(object, "/metadata/name")
        );
        for subject in object["subjects"].as_array().into_iter().flatten() {
            assert_eq!(text(subject, "/namespace"), namespace, "{overlay}: {object}");
            assert!(accounts.contains(&text(subject, "/name")), "{overlay}: {subject}");
            subjects += 1;
        }
    }
    assert!(subjects >= 2, "{overlay}");
}

#[test]
fn an_overlay_with_another_namespace_also_changes_the_subjects_of_bindings() {
    for name in OVERLAYS {
        assert_namespace(&overlay(name), "flux-system", name);
        let folder = tempfile::tempdir().unwrap();
        symlink(config(), folder.path().join("config")).unwrap();
        let overlay_dir = folder.path().join("own");
        fs::create_dir(&overlay_dir).unwrap();
        let kustomization = json!({ "namespace": "other", "namePrefix": "my-", "resources": [format!("../config/overlays/{name}")] });
        fs::write(overlay_dir.join("kustomization.yaml"), kustomization.to_string()).unwrap();
        assert_namespace(&build(&overlay_dir), "other", name);
    }
}

/// `kubectl delete -k` of an overlay must keep the namespace, which may contain other objects, and the definitions, whose deletion
/// would delete all objects.
#[test]
fn namespace_and_definitions_are_separate_from_the_controllers() {
    let terraform = [
        "CustomResourceDefinition terraformruns.infra.sluice.dev",
        "CustomResourceDefinition terraforms.infra.contrib.fluxcd.io",
    ];
    let source = ["CustomResourceDefinition gitrepositories.source.toolkit.fluxcd.io"];
    for (name, expected) in [
        (
            "standalone",
            [&["Namespace flux-system"][..], &terraform, &source].concat(),
        ),
        ("with-flux", terraform.to_vec()),
        ("replace-flux", [&terraform[..], &source].concat()),
    ] {
        let objects = overlay(name);
        let is_setup = |kind: &str| matches!(kind, "Namespace" | "CustomResourceDefinition");
        assert!(
            !objects.iter().any(|object| is_setup(text(object, "/kind"))),
            "{name}"
        );
        let setup = build(&config().join("overlays").join(name).join("setup"));
        assert_eq!(
            names(&setup),
            expected.into_iter().map(str::to_owned).collect(),
            "{name}"
        );
    }
}

/// Flux's Deployment of source-controller selects its pods by `app` only.
#[test]
fn only_replace_flux_replaces_the_source_controller_of_flux() {
    let with_flux = names(&overlay("with-flux"));
    assert!(
        !with_flux.iter().any(|name| name.contains("source-controller")),
        "{with_flux:?}"
    );
    let selector = |name: &str| {
        let objects = overlay(name);
        let deployment = find(&objects, "Deployment source-controller");
        let labels = deployment["spec"]["template"]["metadata"]["labels"]
            .as_object()
            .unwrap();
        let selector = deployment["spec"]["selector"]["matchLabels"].clone();
        let selected = |(key, value): (&String, &Value)| labels.get(key) == Some(value);
        assert!(selector.as_object().unwrap().iter().all(selected), "{name}");
        selector
    };
    let flux = json!({ "app": "source-controller" });
    assert_eq!(selector("replace-flux"), flux);
    // Selectors are immutable: the API server refuses the Deployment if Flux's exists.
    assert_ne!(selector("standalone"), flux);
}

#[test]
fn images_have_an_unresolvable_registry() {
    for name in OVERLAYS {
        let objects = overlay(name);
        let deployments = objects
            .iter()
            .filter(|object| text(object, "/kind") == "Deployment");
        for deployment in deployments {
            let image = text(deployment, "/spec/template/spec/containers/0/image");
            // RFC 6761, section 6.4: no resolver finds a host in this domain.
            let host = image.split('/').next().unwrap();
            assert!(host.ends_with(".invalid"), "{name}: {image}");
        }
    }
}

/// Each pod has a policy, and a policy opens only ports of its pod.
#[test]
fn network_policies_open_artifacts_to_the_namespace_and_metrics_to_all() {
    for name in OVERLAYS {
        let objects = overlay(name);
        for deployment in objects
            .iter()
            .filter(|object| text(object, "/kind") == "Deployment")
        {
            let app = text(deployment, "/metadata/name");
            let policy = find(&objects, &format!("NetworkPolicy {app}"));
            assert_eq!(
                policy["spec"]["podSelector"]["matchLabels"],
                json!({ "app": app }),
                "{name}"
            );
            assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress"]), "{name}");
            let ports = deployment
                .pointer("/spec/template/spec/containers/0/ports")
                .unwrap();
            let is_declared = |port: &Value| {
                ports
                    .as_array()
                    .unwrap()
                    .iter()
                    .any(|declared| declared["name"] == *port)
            };
            let mut opened = Vec::new();
            for rule in policy["spec"]["ingress"].as_array().unwrap() {
                for port in rule["ports"].as_array().unwrap() {
                    assert!(is_declared(&port["port"]), "{name}: {port}");
                    opened.push((text(port, "/port").to_owned(), rule["from"].clone()));
                }
            }
            let everywhere = ("http-prom".to_owned(), json!([{ "namespaceSelector": {} }]));
            let own = ("http".to_owned(), json!([{ "podSelector": {} }]));
            let expected = if app == "source-controller" {
                vec![own, everywhere]
            } else {
                vec![everywhere]
            };
            assert_eq!(opened, expected, "{name}: {app}");
        }
    }
}

/// Returns the verbs of a role on a resource.
fn verbs<'a>(objects: &'a [Value], role: &str, resource: &str) -> BTreeSet<&'a str> {
    let rules = find(objects, role)["rules"].as_array().unwrap();
    let about = |rule: &&Value| rule["resources"].as_array().unwrap().contains(&json!(resource));
    let verbs = rules
        .iter()
        .filter(about)
        .flat_map(|rule| rule["verbs"].as_array().unwrap());
    verbs.filter_map(Value::as_str).collect()
}

#[test]
fn controllers_have_minimal_permissions_and_users_may_read_by_default() {
    let objects = overlay("standalone");
    let set = |verbs: &[&'static str]| verbs.iter().copied().collect::<BTreeSet<_>>();
    let (sources, stacks) = (
        "ClusterRole sluice-source-controller",
        "ClusterRole sluice-tf-controller",
    );
    assert_eq!(
        verbs(&objects, sources, "gitrepositories"),
        set(&["get", "list", "patch", "watch"])
    );
    assert_eq!(
        verbs(&objects, stacks, "terraforms"),
        set(&["get", "list", "patch", "watch"])
    );
    assert_eq!(verbs(&objects, stacks, "pods"), set(&[]));
    assert_eq!(
        verbs(&objects, "Role sluice-tf-controller", "pods"),
        set(&["get"])
    );
    assert!(!verbs(&objects, stacks, "secrets").contains("deletecollection"));

    let read = set(&["get", "list", "watch"]);
    for resource in ["terraforms", "terraformruns", "gitrepositories"] {
        assert_eq!(verbs(&objects, "ClusterRole sluice-view", resource), read);
    }
    assert!(verbs(&objects, "ClusterRole sluice-edit", "terraforms").contains("patch"));
    assert_eq!(verbs(&objects, "ClusterRole sluice-edit", "terraformruns"), read);
    let labels = |role: &str| {
        find(&objects, role)["metadata"]["labels"]
            .as_object()
            .map_or(0, serde_json::Map::len)
    };
    assert_eq!(
        labels("ClusterRole sluice-view"),
        3,
        "aggregated to view, edit and admin"
    );
    assert_eq!(labels("ClusterRole sluice-edit"), 0, "not aggregated");
}
