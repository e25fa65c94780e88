//! This project's own definitions: their schemas compile, and each of their rules accepts and rejects.

use serde_json::{Value, json};

use super::Schema;

const DEFINITIONS: [&str; 3] = [
    include_str!("../../../config/crd/bases/source.toolkit.fluxcd.io_gitrepositories.yaml"),
    include_str!("../../../config/crd/bases/infra.contrib.fluxcd.io_terraforms.yaml"),
    include_str!("../../../config/crd/bases/infra.sluice.dev_terraformruns.yaml"),
];

/// Returns the schema of `kind` in `version`, and the number of its rules.
fn schema_of(kind: &str, version: &str) -> Option<(Schema, usize)> {
    let definitions = DEFINITIONS
        .iter()
        .map(|text| serde_yaml_ng::from_str::<Value>(text).ok());
    let definition = definitions
        .flatten()
        .find(|definition| definition["spec"]["names"]["kind"] == kind)?;
    let versions = definition["spec"]["versions"].as_array()?;
    let found = versions.iter().find(|candidate| candidate["name"] == version)?;
    let schema = &found["schema"]["openAPIV3Schema"];
    let rules = schema.to_string().matches("\"rule\":").count();
    Some((Schema::compile(schema).ok()?, rules))
}

#[test]
fn every_version_compiles_and_no_rule_is_untested() {
    let expected = [
        ("GitRepository", "v1", 1),
        ("Terraform", "v1alpha1", 0),
        ("Terraform", "v1alpha2", 1),
        ("TerraformRun", "v1alpha1", 1),
    ];
    for (kind, version, rules) in expected {
        let found = schema_of(kind, version).map(|(_, rules)| rules);
        assert_eq!(
            found,
            Some(rules),
            "{kind} {version}: rules were added or removed, adapt the tests below"
        );
    }
}

fn errors(kind: &str, object: &Value, old: Option<&Value>) -> Vec<String> {
    let version = match kind {
        "GitRepository" => "v1",
        "Terraform" => "v1alpha2",
        _ => "v1alpha1",
    };
    let Some((schema, _)) = schema_of(kind, version) else {
        return vec!["no such kind".to_owned()];
    };
    let admit = |object: &Value| {
        let mut object = object.clone();
        schema.prune(&mut object);
        schema.apply_defaults(&mut object);
        object
    };
    let old = old.map(admit);
    schema
        .validate(&admit(object), old.as_ref(), false)
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn repository(extra: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1",
        "kind": "GitRepository",
        "metadata": {"name": "a", "namespace": "b"},
        "spec": {"url": "https://example.org/a", "interval": "1m"},
    });
    for (name, value) in extra.as_object().into_iter().flatten() {
        object["spec"][name] = value.clone();
    }
    object
}

#[test]
fn a_service_account_needs_a_provider_that_uses_it() {
    let rule = "spec: Invalid value: \"object\": serviceAccountName can only be set when provider is 'azure' or 'aws'";
    let table = [
        (json!({}), vec![]),
        (json!({"serviceAccountName": "x"}), vec![rule]),
        (
            json!({"serviceAccountName": "x", "provider": "github"}),
            vec![rule],
        ),
        (json!({"serviceAccountName": "x", "provider": "azure"}), vec![]),
    ];
    for (extra, expected) in table {
        assert_eq!(
            errors("GitRepository", &repository(&extra), None),
            expected,
            "{extra}"
        );
    }
}

#[test]
fn invalid_fields_are_named() {
    let table = [
        (
            json!({"interval": "soon"}),
            "spec.interval: Invalid value: \"soon\": spec.interval in body should match",
        ),
        (
            json!({"url": "x"}),
            "spec.url: Invalid value: \"x\": spec.url in body should match",
        ),
        (
            json!({"provider": "z"}),
            "spec.provider: Unsupported value: \"z\": supported values: ",
        ),
        (
            json!({"suspend": "yes"}),
            "spec.suspend: Invalid value: \"string\": spec.suspend in body must be of type boolean: \"string\"",
        ),
    ];
    for (extra, expected) in table {
        let found = errors("GitRepository", &repository(&extra), None);
        assert!(
            found.iter().any(|error| error.starts_with(expected)),
            "{extra}: {found:?}"
        );
    }
}

#[test]
fn a_stack_cannot_keep_and_destroy_its_resources() {
    let rule = "deletionPolicy Orphan and Retain contradict destroyResourcesOnDeletion: true";
    let table = [
        (json!({}), false),
        (json!({ "destroyResourcesOnDeletion": true }), false),
        (json!({ "deletionPolicy": "Orphan" }), false),
        (
            json!({ "deletionPolicy": "Destroy", "destroyResourcesOnDeletion": true }),
            false,
        ),
        (
            json!({ "deletionPolicy": "Orphan", "destroyResourcesOnDeletion": true }),
            true,
        ),
        (
            json!({ "deletionPolicy": "Retain", "destroyResourcesOnDeletion": true }),
            true,
        ),
    ];
    for (extra, rejected) in table {
        let mut object = json!({
            "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform", "metadata": {"name": "a", "namespace": "b"},
            "spec": {"interval": "1m", "sourceRef": {"kind": "GitRepository", "name": "s"}},
        });
        for (name, value) in extra.as_object().into_iter().flatten() {
            object["spec"][name] = value.clone();
        }
        let found = errors("Terraform", &object, None);
        assert_eq!(
            found.iter().any(|error| error.contains(rule)),
            rejected,
            "{extra}: {found:?}"
        );
        assert_eq!(found.is_empty(), !rejected, "{extra}: {found:?}");
    }
}

fn run(action: &str) -> Value {
    json!({
        "apiVersion": "infra.sluice.dev/v1alpha1",
        "kind": "TerraformRun",
        "metadata": {"name": "a", "namespace": "b"},
        "spec": {
            "terraform": {"name": "a", "uid": "u", "generation": 1},
            "action": action, "trigger": "Revision", "inputsDigest": "sha256:0", "attempt": 1, "deadline": "2h",
            "source": {"kind": "GitRepository", "namespace": "b", "name": "a", "revision": "main@sha1:0", "digest": "sha256:0", "url": "http://x/y", "size": 1},
        },
    })
}

#[test]
fn the_spec_of_a_run_is_immutable() {
    let (plan, apply) = (run("Plan"), run("Apply"));
    assert_eq!(errors("TerraformRun", &plan, None), Vec::<String>::new());
    assert_eq!(errors("TerraformRun", &plan, Some(&plan)), Vec::<String>::new());
    let rejected = ["spec: Invalid value: \"object\": spec is immutable"];
    assert_eq!(errors("TerraformRun", &apply, Some(&plan)), rejected);
}

/// The expected messages are those of kube-apiserver 1.34 for this write of the status subresource.
#[test]
fn an_invalid_status_is_rejected_field_by_field() {
    let stored = repository(&json!({}));
    let mut written = stored.clone();
    written["status"] =
        json!({"observedGeneration": "x", "conditions": [{"type": "a"}], "artifact": {"path": 1}});
    let found = schema_of("GitRepository", "v1").map(|(schema, _)| schema.validate_status(&written, &stored));
    let mut found: Vec<String> = found
        .into_iter()
        .flatten()
        .map(|error| error.to_string())
        .collect();
    found.sort();
    let expected = [
        "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
        "status.artifact.digest: Required value",
        "status.artifact.lastUpdateTime: Required value",
        "status.artifact.path: Invalid value: \"integer\": artifact.path in body must be of type string: \"integer\"",
        "status.artifact.revision: Required value",
        "status.artifact.url: Required value",
        "status.conditions[0].lastTransitionTime: Required value",
        "status.conditions[0].message: Required value",
        "status.conditions[0].reason: Required value",
        "status.conditions[0].status: Required value",
        "status.observedGeneration: Invalid value: \"string\": observedGeneration in body must be of type integer: \"string\"",
    ];
    assert_eq!(found, expected);
    written["status"] = json!(5);
    let found = schema_of("GitRepository", "v1").map(|(schema, _)| schema.validate_status(&written, &stored));
    let first = found.into_iter().flatten().next().map(|error| error.to_string());
    let expected = "status: Invalid value: \"integer\":  in body must be of type object: \"integer\"";
    assert_eq!(first.as_deref(), Some(expected));
}
