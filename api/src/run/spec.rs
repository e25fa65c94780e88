//! What a run is to do. Nothing of it changes after creation.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TerraformRunStatus;
use crate::interval::Interval;
use crate::shape::{is_false, is_zero};

/// What one run is to do, fixed at its creation.
#[expect(
    clippy::duplicated_attributes,
    reason = "each printer column repeats the words of the one before"
)]
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infra.sluice.dev",
    version = "v1alpha1",
    kind = "TerraformRun",
    plural = "terraformruns",
    namespaced,
    status = "TerraformRunStatus",
    shortname = "tfrun",
    doc = "TerraformRun records one run of Terraform or OpenTofu, from its reason to its outcome.",
    derive = "PartialEq",
    printcolumn(name = "Terraform", type_ = "string", json_path = ".spec.terraform.name"),
    printcolumn(name = "Action", type_ = "string", json_path = ".spec.action"),
    printcolumn(name = "Trigger", type_ = "string", json_path = ".spec.trigger"),
    printcolumn(name = "Revision", type_ = "string", json_path = ".spec.source.revision"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Changes", type_ = "string", json_path = ".status.changes"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{ "message": "spec is immutable", "rule": "self == oldSelf" }]))]
pub struct TerraformRunSpec {
    /// What is done.
    pub action: Action,
    /// Who approved the plan, as far as it is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub approved_by: String,
    /// Which try this is, counted from 1.
    pub attempt: i32,
    /// SHA-256 of the run's bundle: the runner takes no other.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub bundle_digest: String,
    /// How many Secrets the bundle lies in; left out where the controller hands it to the runner.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bundle_secrets: i64,
    /// Bound on the run, counted from its start.
    pub deadline: Interval,
    /// Whether the plan destroys.
    #[serde(default, skip_serializing_if = "is_false")]
    pub destroy: bool,
    /// Digest of everything that the run reads.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub inputs_digest: String,
    /// The state lock that an Unlock releases.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub lock_identifier: String,
    /// The stored plan that is applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanSource>,
    /// The artifact that is run.
    pub source: RunSource,
    /// The object that this run belongs to.
    pub terraform: TerraformIdentity,
    /// Why the run was started.
    pub trigger: Trigger,
}

/// What a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum Action {
    /// Makes a plan and stores it.
    Plan,
    /// Applies a stored plan.
    Apply,
    /// Makes a plan, stores it, and applies it where the policy allows.
    PlanAndApply,
    /// Breaks a lock of the state.
    Unlock,
    /// Prepares the directory for a person to work in.
    BreakTheGlass,
}

impl Action {
    /// The spelling in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Plan => "Plan",
            Self::Apply => "Apply",
            Self::PlanAndApply => "PlanAndApply",
            Self::Unlock => "Unlock",
            Self::BreakTheGlass => "BreakTheGlass",
        }
    }

    /// Whether such a run may change the stack's resources.
    #[must_use]
    pub const fn applies(self) -> bool {
        matches!(self, Self::Apply | Self::PlanAndApply)
    }
}

/// Why a run was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum Trigger {
    /// The source has a new revision that the stack reads.
    Revision,
    /// The Terraform object or one of its inputs changed.
    Spec,
    /// The interval is over: a look for drift.
    Interval,
    /// Drift was found.
    Drift,
    /// A plan was approved.
    Approval,
    /// Somebody asked for it.
    Request,
    /// The Terraform object is being deleted.
    Deletion,
    /// The run before failed.
    Retry,
    /// The Secret that outputs are written to is gone.
    Repair,
}

impl Trigger {
    /// The spelling in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Revision => "Revision",
            Self::Spec => "Spec",
            Self::Interval => "Interval",
            Self::Drift => "Drift",
            Self::Approval => "Approval",
            Self::Request => "Request",
            Self::Deletion => "Deletion",
            Self::Retry => "Retry",
            Self::Repair => "Repair",
        }
    }
}

/// The Terraform object that a run belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TerraformIdentity {
    /// Its generation when the run was decided.
    pub generation: i64,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// The artifact that a run works on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunSource {
    /// Digest of the artifact.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// Kind of the source.
    pub kind: String,
    /// Name of the source.
    pub name: String,
    /// Namespace of the source.
    pub namespace: String,
    /// Revision of the artifact.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub revision: String,
    /// Bytes of the artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// Address of the artifact.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
}

/// A plan that an earlier run stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanSource {
    /// Digest of its Secrets, as the run that made it recorded it: no other plan is applied.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// Id of the plan.
    pub id: String,
    /// Name of the run that made it.
    pub run: String,
}
