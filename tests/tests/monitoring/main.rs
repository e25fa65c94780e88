//! Checks `config/monitoring` with the real promtool: the alerts fire when they should and not otherwise, each has a runbook, and
//! alerts and dashboard use only metrics that are documented and exist.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking; clippy exempts only the test functions themselves"
)]

mod dashboard;
mod expression;
mod rules;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize as _;
use serde_json::{Value, json};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Reads a file of the repository.
fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the objects that `kubectl kustomize` builds.
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

/// Returns the object of this kind in `config/monitoring`.
fn object(kind: &str) -> Value {
    let objects = build(&root().join("config/monitoring"));
    let found = objects.into_iter().find(|object| object["kind"] == kind);
    found.unwrap_or_else(|| panic!("no {kind}"))
}

/// Runs promtool in a folder; returns its output and whether it succeeded.
fn promtool(folder: &Path, args: &[&str]) -> (bool, String) {
    let promtool = sluice_harness::cli::promtool().unwrap();
    let output = Command::new(promtool)
        .args(args)
        .current_dir(folder)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

/// Builds the overlay `standalone` with the optional repo-controller.
fn with_repo_controller() -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    symlink(root().join("config"), folder.path().join("config")).unwrap();
    let own = folder.path().join("own");
    fs::create_dir(&own).unwrap();
    let kustomization = json!({ "namespace": "sluice-system", "resources": ["../config/overlays/standalone"],
        "components": ["../config/components/repo-controller"] });
    fs::write(own.join("kustomization.yaml"), kustomization.to_string()).unwrap();
    build(&own)
}

/// The labels of the pods and the names of their ports are those that the `PodMonitor` selects.
#[test]
fn the_pod_monitor_selects_all_controllers() {
    let monitor = object("PodMonitor");
    let selector = &monitor["spec"]["selector"]["matchExpressions"][0];
    let port = &monitor["spec"]["podMetricsEndpoints"][0]["port"];
    let replace_flux = build(&root().join("config/overlays/replace-flux"));
    for (overlay, objects, count) in [
        ("standalone", with_repo_controller(), 3),
        ("replace-flux", replace_flux, 2),
    ] {
        let pods: Vec<_> = objects
            .iter()
            .filter(|object| object["kind"] == "Deployment")
            .collect();
        assert_eq!(pods.len(), count, "{overlay}");
        for deployment in pods {
            // In place of Flux's source-controller, they are in the namespace of Flux.
            if overlay == "standalone" {
                let of_monitor = &monitor["metadata"]["namespace"];
                assert_eq!(&deployment["metadata"]["namespace"], of_monitor);
            }
            let template = &deployment["spec"]["template"];
            let label = &template["metadata"]["labels"][selector["key"].as_str().unwrap()];
            assert!(selector["values"].as_array().unwrap().contains(label), "{label}");
            // The alerts name the controllers by this label.
            assert_eq!(monitor["spec"]["jobLabel"], selector["key"]);
            let ports = template["spec"]["containers"][0]["ports"].as_array().unwrap();
            assert!(ports.iter().any(|declared| declared["name"] == *port), "{port}");
        }
    }
}

/// The metrics of rules and dashboard are in the reference. `control::metrics` finds them on the page of a controller.
#[test]
fn metrics_of_alerts_and_dashboard_are_documented() {
    let reference = read("docs/reference/metrics.md");
    let mut names = BTreeSet::new();
    for (place, text) in rules::expressions().into_iter().chain(dashboard::expressions()) {
        let found = expression::metric_names(&text);
        assert!(!found.is_empty(), "{place}: {text} has no metric");
        names.extend(found);
    }
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        // Histograms are documented without the suffixes of their series.
        let family = ["_bucket", "_count", "_sum"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix))
            .unwrap_or(&name);
        assert!(
            reference.contains(&format!("`{family}`")),
            "{family} is not documented"
        );
    }
}
