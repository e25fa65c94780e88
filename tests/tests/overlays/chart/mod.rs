//! The Helm chart has the same objects as the overlays.

mod values;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};
use sluice_harness::cli;
use sluice_harness::skip::without_cluster;

use super::{OVERLAYS, config, documents, name, names, objects, text, user_overlay};

fn chart() -> PathBuf {
    config().join("../charts/sluice")
}

/// Runs `helm template` with further arguments.
fn template(namespace: &str, arguments: &[&str]) -> Output {
    let home = tempfile::tempdir().unwrap();
    Command::new(cli::helm().unwrap())
        .arg("template")
        .arg("sluice")
        .arg(chart())
        .args(["--namespace", namespace])
        .args(arguments)
        .env("HOME", home.path())
        .output()
        .unwrap()
}

/// Returns the objects that the chart renders.
fn render(namespace: &str, arguments: &[&str]) -> Vec<Value> {
    let output = template(namespace, arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    documents(&output.stdout)
}

/// Returns why the chart renders nothing.
fn refusal(arguments: &[&str]) -> String {
    let output = template("sluice-system", arguments);
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Asserts that both have the same objects, in any order.
fn assert_same(chart: &[Value], overlay: &[Value], case: &str) {
    let by_name = |objects: &[Value]| -> BTreeMap<String, Value> {
        let entry = |object: &Value| {
            let mut object = object.clone();
            // Kustomize does not know that these have no namespace; the API server ignores it.
            if text(&object, "/kind").starts_with("ValidatingAdmissionPolicy") {
                object["metadata"].as_object_mut().unwrap().remove("namespace");
            }
            let key = format!("{} {}", name(&object), text(&object, "/metadata/namespace"));
            (key, object)
        };
        let map: BTreeMap<_, _> = objects.iter().map(entry).collect();
        assert_eq!(map.len(), objects.len(), "{case}: two objects have one name");
        map
    };
    let (chart, overlay) = (by_name(chart), by_name(overlay));
    let keys = |objects: &BTreeMap<String, Value>| objects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&chart), keys(&overlay), "{case}");
    for (key, object) in &chart {
        assert_eq!(object, &overlay[key], "{case}: {key}");
    }
}

#[test]
fn the_chart_has_the_objects_of_each_overlay() {
    if without_cluster().unwrap() {
        return;
    }
    for overlay in OVERLAYS {
        let values = chart().join("overlays").join(format!("{}.yaml", overlay.name));
        let values = values.display().to_string();
        let rendered = render(overlay.namespace, &["--values", &values]);
        assert_same(&rendered, &overlay.objects(), overlay.name);
    }
    let default = render("sluice-system", &[]);
    assert_same(&default, &objects("overlays/standalone"), "default values");
    let other =
        user_overlay(&json!({ "namespace": "other", "resources": ["../config/overlays/standalone"] }));
    assert_same(&render("other", &[]), &other, "another namespace");
}

#[test]
fn the_values_of_components_have_their_objects() {
    if without_cluster().unwrap() {
        return;
    }
    for (component, value) in [
        ("process-executor", "executor=process"),
        ("workload-identity", "sourceController.workloadIdentity=true"),
        ("repo-controller", "repoController.enabled=true"),
        ("source-storage", "sourceController.persistence.enabled=true"),
        ("object-storage", "sourceController.objectStorage.enabled=true"),
        ("approval-admission", "approvalAdmission=true"),
        ("edit-aggregation", "editAggregation=true"),
    ] {
        let overlay = user_overlay(&json!({ "namespace": "sluice-system",
            "resources": ["../config/overlays/standalone"], "components": [format!("../config/components/{component}")] }));
        assert_same(&render("sluice-system", &["--set", value]), &overlay, component);
    }
    let beside_flux = user_overlay(
        &json!({ "namespace": "flux-system", "resources": ["../config/overlays/with-flux"],
        "components": ["../config/components/flux-network-policy"] }),
    );
    let values = chart().join("overlays/with-flux.yaml").display().to_string();
    let open = [
        "--values",
        &values,
        "--set",
        "networkPolicy.fluxSourceController=true",
    ];
    assert_same(&render("flux-system", &open), &beside_flux, "flux-network-policy");
}

/// Its component differs in the overlay without cluster-wide roles, and `ha` has two replicas of it.
#[test]
fn the_repo_controller_of_other_overlays_is_that_of_their_components() {
    if without_cluster().unwrap() {
        return;
    }
    for (overlay, base, components) in [
        (
            "single-namespace",
            "single-namespace",
            ["repo-controller-single-namespace"].as_slice(),
        ),
        ("ha", "standalone", &["repo-controller", "ha"]),
        ("multi-tenant", "multi-tenant", &["repo-controller"]),
    ] {
        let paths: Vec<_> = components
            .iter()
            .map(|name| format!("../config/components/{name}"))
            .collect();
        let expected = user_overlay(&json!({ "namespace": "sluice-system",
            "resources": [format!("../config/overlays/{base}")], "components": paths }));
        let values = chart().join("overlays").join(format!("{overlay}.yaml"));
        let values = values.display().to_string();
        let rendered = render(
            "sluice-system",
            &["--values", &values, "--set", "repoController.enabled=true"],
        );
        assert_same(&rendered, &expected, overlay);
    }
}

#[test]
fn the_objects_of_a_tenant_are_those_of_the_sample() {
    if without_cluster().unwrap() {
        return;
    }
    let values = chart().join("overlays/multi-tenant.yaml").display().to_string();
    let namespaces = "runner.serviceAccount.allowedNamespaces={team-a}";
    let of_tenant = |objects: Vec<Value>| -> Vec<Value> {
        let is_of_tenant = |object: &Value| text(object, "/metadata/namespace") == "team-a";
        objects.into_iter().filter(is_of_tenant).collect()
    };
    let rendered = of_tenant(render(
        "sluice-system",
        &["--values", &values, "--set", namespaces],
    ));
    assert_eq!(rendered.len(), 4, "{rendered:#?}");
    assert_same(&rendered, &of_tenant(objects("samples/tenant")), "tenant");
}

#[test]
fn values_without_effect_or_sense_are_refused() {
    if without_cluster().unwrap() {
        return;
    }
    for (value, word) in [
        ("nonsense=1", "nonsense"),
        ("tfController.replica=2", "replica"),
        ("repoController.image.tag=2", "image"),
        ("executor=thread", "executor"),
        ("runner.image.digest=latest", "digest"),
    ] {
        let text = refusal(&["--set", value]);
        assert!(text.contains(word), "{value}: {text}");
    }
    for (values, reason) in [
        ("executor=process,tfController.replicas=2", "needs executor: job"),
        (
            "executor=process,multiTenant=true",
            "multiTenant: needs executor: job",
        ),
        (
            "watchAllNamespaces=false,multiTenant=true",
            "multiTenant: needs watchAllNamespaces: true",
        ),
        (
            "watchAllNamespaces=false,editAggregation=true",
            "editAggregation: has no effect",
        ),
        (
            "watchAllNamespaces=false,runner.serviceAccount.allowedNamespaces={team-a}",
            "team-a is not watched",
        ),
        (
            "sourceController.enabled=false,sourceController.workloadIdentity=true",
            "workloadIdentity: has no effect",
        ),
        (
            "sourceController.objectStorage.enabled=true,sourceController.persistence.enabled=true",
            "not with persistence or storage",
        ),
        (
            "sourceController.enabled=false,sourceController.objectStorage.enabled=true",
            "objectStorage: has no effect",
        ),
        (
            "sourceController.enabled=false,sourceController.persistence.enabled=true",
            "have no effect",
        ),
        (
            "sourceController.enabled=false,sourceController.storage.emptyDir.sizeLimit=1Gi",
            "have no effect",
        ),
        (
            "networkPolicy.fluxSourceController=true",
            "fluxSourceController: has no effect",
        ),
    ] {
        let text = refusal(&["--set", values]);
        assert!(text.contains(reason), "{values}: {text}");
    }
}

#[test]
fn old_clusters_are_refused() {
    if without_cluster().unwrap() {
        return;
    }
    let text = refusal(&["--kube-version", "1.28.9"]);
    assert!(text.contains("kubeVersion"), "{text}");
    let tenants = ["--set", "multiTenant=true", "--kube-version"];
    let text = refusal(&[&tenants[..], &["1.29.14"]].concat());
    assert!(text.contains("needs Kubernetes 1.30"), "{text}");
    let approvals = ["--set", "approvalAdmission=true", "--kube-version", "1.29.14"];
    let text = refusal(&approvals);
    assert!(
        text.contains("approvalAdmission: needs Kubernetes 1.30"),
        "{text}"
    );
    assert!(!render("sluice-system", &[&tenants[..], &["1.30.0"]].concat()).is_empty());
    assert!(!render("sluice-system", &["--kube-version", "1.29.0"]).is_empty());
}

/// Helm installs definitions from the chart's own folder.
#[test]
fn the_definitions_of_the_chart_are_those_of_config() {
    let files = |folder: PathBuf| -> BTreeMap<_, _> {
        std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name(), std::fs::read_to_string(entry.path()).unwrap()))
            .collect()
    };
    let generated = files(config().join("crd/bases"));
    assert_eq!(generated.len(), 4);
    let own = files(chart().join("crds"));
    let of_sources = files(chart().join("charts/gitrepositories/crds"));
    assert_eq!(of_sources.len(), 1);
    let all: BTreeMap<_, _> = own.into_iter().chain(of_sources).collect();
    assert!(all == generated, "run make manifests");
}

/// Flux and Argo CD apply the definitions of a chart at each upgrade.
#[test]
fn the_chart_leaves_the_definition_of_flux_alone() {
    if without_cluster().unwrap() {
        return;
    }
    for overlay in OVERLAYS {
        let values = chart().join("overlays").join(format!("{}.yaml", overlay.name));
        let values = values.display().to_string();
        let is_definition = |object: &&Value| text(object, "/kind") == "CustomResourceDefinition";
        let rendered = render(overlay.namespace, &["--include-crds", "--values", &values]);
        let of_setup = overlay.setup();
        let [chart, setup] = [&rendered, &of_setup]
            .map(|objects| names(&objects.iter().filter(is_definition).cloned().collect::<Vec<_>>()));
        assert_eq!(chart, setup, "{}", overlay.name);
    }
}
