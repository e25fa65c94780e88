//! The rules of the schemas.

use serde_json::{Value, json};

use super::{schema, version};

/// Asserts one keyword of the schema at each path.
fn says(version: &Value, table: &[(&str, &str, Value)]) {
    for (path, key, wanted) in table {
        let found = schema(version, path).and_then(|found| found.get(key));
        assert_eq!(found, Some(wanted), "{path}");
    }
}

#[test]
fn a_git_repository_is_bounded_by_upstreams_rules() {
    let git = version("GitRepository", "v1");
    let table = [
        ("spec.url", "pattern", json!("^(http|https|ssh)://.*$")),
        (
            "spec.interval",
            "pattern",
            json!(r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"),
        ),
        (
            "spec.timeout",
            "pattern",
            json!(r"^([0-9]+(\.[0-9]+)?(ms|s|m))+$"),
        ),
        (
            "spec.provider",
            "enum",
            json!(["generic", "aws", "azure", "github"]),
        ),
        (
            "spec.verify.mode",
            "enum",
            json!(["head", "HEAD", "Tag", "TagAndHEAD"]),
        ),
        ("spec", "required", json!(["interval", "url"])),
        ("spec.include[]", "required", json!(["repository"])),
        (
            "status.conditions[].status",
            "enum",
            json!(["True", "False", "Unknown"]),
        ),
    ];
    says(&git, &table);
    let rule = "!has(self.serviceAccountName) || (has(self.provider) && (self.provider == 'azure' || self.provider == 'aws'))";
    let message = "serviceAccountName can only be set when provider is 'azure' or 'aws'";
    let rules = json!([{ "message": message, "rule": rule }]);
    says(&git, &[("spec", "x-kubernetes-validations", rules)]);
}

#[test]
fn a_terraform_is_bounded_by_upstreams_rules() {
    let table = [
        ("spec", "required", json!(["interval", "sourceRef"])),
        ("spec.sourceRef", "required", json!(["kind", "name"])),
        (
            "spec.sourceRef.kind",
            "enum",
            json!(["GitRepository", "Bucket", "OCIRepository"]),
        ),
        ("spec.varsFrom[].name", "maxLength", json!(253)),
        (
            "spec.fileMappings[].path",
            "pattern",
            json!("^(.?[/_a-zA-Z0-9]{1,})*$"),
        ),
        ("spec.tfstate.forceUnlock", "enum", json!(["yes", "no", "auto"])),
        ("spec.values", "x-kubernetes-preserve-unknown-fields", json!(true)),
        ("spec.runnerPodTemplate.spec.env[].name", "type", json!("string")),
        ("spec.cloud", "required", json!(["organization", "workspaces"])),
    ];
    for name in ["v1alpha1", "v1alpha2"] {
        says(&version("Terraform", name), &table);
    }
}

#[test]
fn the_spec_of_a_run_or_an_approval_cannot_be_changed() {
    let rules = json!([{ "message": "spec is immutable", "rule": "self == oldSelf" }]);
    for kind in ["TerraformRun", "PlanApproval"] {
        says(
            &version(kind, "v1alpha1"),
            &[("spec", "x-kubernetes-validations", rules.clone())],
        );
    }
}
