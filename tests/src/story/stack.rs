//! The stack of the story: no provider has to be downloaded for it.

use super::StoryError;
use serde_json::{Value, json};
use sluice_harness::git::Repository;

/// The namespace of the story's objects.
pub const NAMESPACE: &str = "default";
/// The name of both its objects.
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

/// The commits of the story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// The stack as it begins.
    First,
    /// Changes what the stack is made of.
    NewVersion,
    /// Changes nothing that the stack reads.
    Docs,
}

impl Commit {
    /// Makes the commit; returns its hash.
    ///
    /// # Errors
    /// When git fails.
    pub fn make(self, repository: &Repository) -> Result<String, StoryError> {
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
                "Say what it does",
            )?,
        };
        Ok(hash)
    }
}

/// The two manifests: the source at `url`, and the stack that waits for approvals.
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

/// The same, for a story with faults: a run that failed is tried again at once instead of after a quarter of a minute.
#[must_use]
pub fn impatient_manifests(url: &str) -> [Value; 2] {
    let [source, mut stack] = manifests(url);
    stack["spec"]["retryInterval"] = json!("1s");
    [source, stack]
}
