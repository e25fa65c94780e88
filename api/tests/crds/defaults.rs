//! The defaults of the schemas and of the types.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_api::source::GitRepository;
use sluice_api::terraform::Terraform;

use super::{every, version};

fn defaults(version: &Value) -> BTreeMap<String, Value> {
    every(version)
        .into_iter()
        .filter_map(|(path, schema)| Some((path, schema.get("default")?.clone())))
        .collect()
}

fn terraform_defaults() -> BTreeMap<String, Value> {
    [
        ("spec.alwaysCleanupRunnerPod", json!(true)),
        ("spec.destroyResourcesOnDeletion", json!(false)),
        ("spec.disableDriftDetection", json!(false)),
        ("spec.force", json!(false)),
        ("spec.parallelism", json!(0)),
        ("spec.refreshBeforeApply", json!(false)),
        ("spec.retryStrategy", json!("StaticInterval")),
        ("spec.runnerTerminationGracePeriodSeconds", json!(30)),
        ("spec.serviceAccountName", json!("tf-runner")),
        ("spec.storeReadablePlan", json!("none")),
        ("spec.upgradeOnInit", json!(true)),
        ("spec.workspace", json!("default")),
        ("spec.healthChecks[].timeout", json!("20s")),
        ("spec.tfstate.forceUnlock", json!("no")),
        ("spec.tfstate.lockTimeout", json!("0s")),
        ("spec.webhooks[].enabled", json!(true)),
        ("spec.webhooks[].payloadType", json!("SpecAndPlan")),
        ("spec.webhooks[].stage", json!("post-planning")),
        ("status", json!({ "observedGeneration": -1 })),
    ]
    .map(|(path, value)| (path.to_owned(), value))
    .into()
}

#[test]
fn a_git_repository_has_these_defaults_and_no_others() {
    let wanted = [
        ("spec.timeout", json!("60s")),
        ("spec.verify.mode", json!("HEAD")),
        ("status", json!({ "observedGeneration": -1 })),
    ];
    let wanted: BTreeMap<_, _> = wanted.map(|(path, value)| (path.to_owned(), value)).into();
    assert_eq!(defaults(&version("GitRepository", "v1")), wanted);
}

#[test]
fn a_terraform_has_these_defaults_and_no_others() {
    assert_eq!(defaults(&version("Terraform", "v1alpha2")), terraform_defaults());
    let mut older = terraform_defaults();
    for later in [
        "spec.retryStrategy",
        "spec.upgradeOnInit",
        "spec.tfstate.lockTimeout",
        "status",
    ] {
        older.remove(later);
    }
    assert_eq!(defaults(&version("Terraform", "v1alpha1")), older);
}

#[test]
fn the_types_have_the_same_defaults_as_the_schema() {
    let object = json!({
        "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform", "metadata": { "name": "x" },
        "spec": {
            "interval": "5m0s", "sourceRef": { "kind": "GitRepository", "name": "x" }, "tfstate": {},
            "healthChecks": [{ "name": "x", "type": "tcp" }], "webhooks": [{ "testExpression": "x", "url": "x" }],
        },
    });
    let read: Terraform = serde_json::from_value(object).unwrap();
    let written = serde_json::to_value(&read).unwrap();
    assert_eq!(written["spec"]["interval"], "5m0s");
    for (path, value) in terraform_defaults()
        .iter()
        .filter(|(path, _)| path.starts_with("spec"))
    {
        let pointer = format!("/{}", path.replace("[]", ".0").replace('.', "/"));
        assert_eq!(written.pointer(&pointer), Some(value), "{path}");
    }
    let repository = json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": { "name": "x" },
        "spec": { "interval": "1m", "url": "https://x", "verify": { "secretRef": { "name": "x" } } },
    });
    let read: GitRepository = serde_json::from_value(repository).unwrap();
    let written = serde_json::to_value(&read).unwrap();
    assert_eq!(
        (&written["spec"]["timeout"], &written["spec"]["verify"]["mode"]),
        (&json!("60s"), &json!("HEAD"))
    );
    assert_eq!(
        written["spec"].as_object().unwrap().len(),
        4,
        "{written}: nothing that is unset is written"
    );
}
