//! The spec of a run, which is immutable.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TerraformRunStatus;
use crate::interval::Interval;
use crate::serialization::{api_enum, is_false, is_zero};

/// The work of one run; immutable.
#[expect(
    clippy::duplicated_attributes,
    reason = "printer columns repeat the same attributes"
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
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Changes", type_ = "string", json_path = ".status.changes"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message"),
    printcolumn(name = "Reason", type_ = "string", priority = 1, json_path = ".status.reason"),
    printcolumn(
        name = "Revision",
        type_ = "string",
        priority = 1,
        json_path = ".spec.source.revision"
    ),
    printcolumn(name = "Plan", type_ = "string", priority = 1, json_path = ".status.planId"),
    printcolumn(
        name = "Approved By",
        type_ = "string",
        priority = 1,
        json_path = ".spec.approvedBy"
    ),
    printcolumn(
        name = "Started",
        type_ = "string",
        priority = 1,
        json_path = ".status.startedAt"
    ),
    printcolumn(
        name = "Finished",
        type_ = "string",
        priority = 1,
        json_path = ".status.finishedAt"
    ),
    printcolumn(
        name = "Subject",
        type_ = "string",
        priority = 1,
        json_path = ".spec.source.subject"
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{ "message": "spec is immutable", "rule": "self == oldSelf" }]))]
pub struct TerraformRunSpec {
    /// Action of the run.
    pub action: Action,
    /// Who approved the plan, if known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub approved_by: String,
    /// Number of the attempt, from 1.
    pub attempt: i32,
    /// SHA-256 of the run's bundle; the runner rejects any other bundle.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub bundle_digest: String,
    /// Number of Secrets that contain the bundle; absent if the controller passes it to the runner directly.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bundle_secrets: i64,
    /// Timeout of the run from its start.
    pub deadline: Interval,
    /// Whether the run destroys the resources.
    #[serde(default, skip_serializing_if = "is_false")]
    pub destroy: bool,
    /// Digest of all inputs of the run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub inputs_digest: String,
    /// Number of runs in a row before this one that were interrupted before their work began.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub interruptions: i64,
    /// Id of the state lock that an Unlock run releases.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub lock_identifier: String,
    /// The stored plan to apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanSource>,
    /// ServiceAccount of the pod, if it is not that of the Terraform object, whose ServiceAccount did not exist.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub service_account_name: String,
    /// The artifact of the run.
    pub source: RunSource,
    /// The Terraform object of the run.
    pub terraform: TerraformIdentity,
    /// Why the run was started.
    pub trigger: Trigger,
}

api_enum! {
    /// The action of a run.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    #[schemars(inline)]
    Action {
        /// Creates a plan and stores it.
        Plan = "Plan",
        /// Applies a stored plan.
        Apply = "Apply",
        /// Creates a plan, stores it, and applies it if the policy allows.
        PlanAndApply = "PlanAndApply",
        /// Releases a state lock by force.
        Unlock = "Unlock",
        /// Opens a break-glass session in the working directory.
        BreakTheGlass = "BreakTheGlass",
    }
}

impl Action {
    /// Returns whether the run may change resources.
    #[must_use]
    pub const fn applies(self) -> bool {
        matches!(self, Self::Apply | Self::PlanAndApply)
    }
}

api_enum! {
    /// Why a run was started.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    #[schemars(inline)]
    Trigger {
        /// The source has a new revision that the stack reads.
        Revision = "Revision",
        /// The Terraform object or one of its inputs changed.
        Spec = "Spec",
        /// The interval elapsed: drift detection.
        Interval = "Interval",
        /// Drift was detected.
        Drift = "Drift",
        /// A plan was approved.
        Approval = "Approval",
        /// A reconciliation was requested.
        Request = "Request",
        /// The Terraform object is being deleted.
        Deletion = "Deletion",
        /// The previous run failed.
        Retry = "Retry",
        /// The outputs Secret was deleted.
        Repair = "Repair",
    }
}

/// The Terraform object that a run belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TerraformIdentity {
    /// Its generation when the run was created.
    pub generation: i64,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// The artifact of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunSource {
    /// Author of the commit, as `Name <address>`. Empty: the source does not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub author: String,
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
    /// Size of the artifact in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// Subject of the commit, at most 256 bytes. Empty: the source does not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// URL of the artifact.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
}

/// A plan that an earlier run stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanSource {
    /// Digest of its Secrets, as recorded by the run that created it; no other plan is applied.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// Id of the plan.
    pub id: String,
    /// Name of the run that created it.
    pub run: String,
    /// Creation of the first run in a row that planned this effect. A PlanApproval from before does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}
