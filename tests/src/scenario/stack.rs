//! The stack of the scenario: it needs no provider download.

use serde_json::{Value, json};
use sluice_harness::git::Repository;

use super::ScenarioError;

/// The namespace of both objects.
pub const NAMESPACE: &str = "default";
/// The name of both objects.
pub const NAME: &str = "app";

const MAIN: &str = r#"variable "replicas" {
  type    = number
  default = 1
}

locals {
  service = "shop"
  names   = [for i in range(var.replicas) : "${local.service}-${i}"]
}

resource "terraform_data" "instance" {
  for_each = toset(local.names)
  input    = { name = each.value, version = local.version }
}

output "instances" {
  value = [for name in local.names : terraform_data.instance[name].output.name]
}

output "version" {
  value = local.version
}
"#;

/// The commits of the scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// Creates the stack.
    First,
    /// Changes the stack's resources.
    NewVersion,
    /// Changes only files that the stack does not read.
    Docs,
}

impl Commit {
    /// Creates the commit; returns its hash.
    ///
    /// # Errors
    /// When git fails.
    pub fn create(self, repository: &Repository) -> Result<String, ScenarioError> {
        let version = |number: &str| format!("locals {{\n  version = \"{number}\"\n}}\n");
        let hash = match self {
            Self::First => repository.commit_files(
                &[
                    ("stack/main.tf", MAIN.to_owned()),
                    ("stack/version.tf", version("1.0.0")),
                    ("README.md", "# The shop\n".to_owned()),
                ],
                "The shop, version 1.0.0",
            )?,
            Self::NewVersion => repository.commit_files(
                &[("stack/version.tf", version("1.1.0"))],
                "The shop, version 1.1.0",
            )?,
            Self::Docs => repository.commit_files(
                &[("README.md", "# The shop\n\nSells things.\n")],
                "Describe the shop",
            )?,
        };
        Ok(hash)
    }
}

/// Returns the manifests: the source at `url`, and the stack, which requires approvals.
#[must_use]
pub fn manifests(url: &str) -> [Value; 2] {
    [
        json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": { "name": NAME, "namespace": NAMESPACE },
            "spec": { "url": url, "interval": "2s", "ref": { "branch": "main" } },
        }),
        json!({
            "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
            "metadata": { "name": NAME, "namespace": NAMESPACE },
            "spec": {
                "interval": "10m", "path": "./stack", "approvePlan": "",
                "sourceRef": { "kind": "GitRepository", "name": NAME },
                "vars": [{ "name": "replicas", "value": 2 }],
                "writeOutputsToSecret": { "name": "app-outputs" },
                "destroyResourcesOnDeletion": true,
            },
        }),
    ]
}

/// As [`manifests`], with a retry interval of 1 s instead of 15 s for scenarios with faults.
#[must_use]
pub fn manifests_with_fast_retry(url: &str) -> [Value; 2] {
    let [source, mut stack] = manifests(url);
    stack["spec"]["retryInterval"] = json!("1s");
    [source, stack]
}
