//! The parameters of a run.

use std::path::PathBuf;

use kube::ResourceExt as _;
use serde_json::{Value, json};
use sluice_api::run::TerraformRun;

use super::TestEnvironment;

/// The module of [`RunSetup::slow`].
const SLOW: &str = r#"
variable "marker" {}
resource "terraform_data" "slow" {
  provisioner "local-exec" { command = "touch ${var.marker}; until [ -e ${var.marker}.go ]; do sleep 0.05; done" }
}
"#;

/// The parameters of a run.
#[derive(Clone)]
pub(crate) struct RunSetup {
    pub(crate) action: &'static str,
    pub(crate) destroy: bool,
    /// Id of the plan, the run that created it, and the digest that the run recorded.
    pub(crate) plan: Option<(String, String, String)>,
    pub(crate) trigger: &'static str,
    /// Members that replace those of the bundle.
    pub(crate) bundle: Value,
}

impl RunSetup {
    pub(crate) fn plan() -> Self {
        Self {
            action: "Plan",
            destroy: false,
            plan: None,
            trigger: "Revision",
            bundle: json!({}),
        }
    }

    pub(crate) fn plan_and_apply() -> Self {
        Self {
            action: "PlanAndApply",
            ..Self::plan()
        }
    }

    pub(crate) fn apply(planned: &TerraformRun) -> Self {
        let created = planned.status.as_ref().unwrap();
        let (id, digest) = (created.plan_id.clone(), created.plan_digest.clone());
        Self {
            action: "Apply",
            plan: Some((id, planned.name_any(), digest)),
            trigger: "Approval",
            ..Self::plan()
        }
    }

    /// Commits a module with one resource, whose creation writes a file and waits for that file with the extension `go`. Returns the
    /// file and the run that creates the resource.
    pub(crate) fn slow(env: &TestEnvironment) -> (PathBuf, Self) {
        env.commit(&[("main.tf", SLOW)]);
        let marker = env.dir.path().join("marker");
        let variables = json!({ "marker": marker }).to_string();
        let bundle = json!({ "variables": variables });
        (marker, Self::plan_and_apply().with(bundle))
    }

    pub(crate) fn with(mut self, bundle: Value) -> Self {
        self.bundle = bundle;
        self
    }
}
