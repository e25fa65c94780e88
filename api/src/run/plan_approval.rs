//! `PlanApproval`: the approval of one plan by one user. An object of its own, so that the right to approve is a verb of RBAC. One suffices,
//! unless `spec.approval` of the stack requires more (`crate::terraform::approval`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::source::LocalReference;

/// What is approved, and by whom; immutable.
#[expect(
    clippy::duplicated_attributes,
    reason = "printer columns repeat the same attributes"
)]
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infra.sluice.dev",
    version = "v1alpha1",
    kind = "PlanApproval",
    plural = "planapprovals",
    namespaced,
    status = "PlanApprovalStatus",
    shortname = "tfapproval",
    doc = "PlanApproval records that a user approves one plan of a Terraform object.",
    derive = "PartialEq",
    printcolumn(name = "Terraform", type_ = "string", json_path = ".spec.terraformRef.name"),
    printcolumn(name = "Approver", type_ = "string", json_path = ".spec.approver"),
    printcolumn(name = "Accepted", type_ = "boolean", json_path = ".status.accepted"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Comment", type_ = "string", json_path = ".spec.comment"),
    printcolumn(name = "Plan", type_ = "string", priority = 1, json_path = ".spec.planID"),
    printcolumn(
        name = "Message",
        type_ = "string",
        priority = 1,
        json_path = ".status.message"
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{ "message": "spec is immutable", "rule": "self == oldSelf" }]))]
pub struct PlanApprovalSpec {
    /// Name of the user who approves, as the API server knows it. The admission policy admits no other than that of the request.
    #[schemars(extend("minLength" = 1, "maxLength" = 1024))]
    pub approver: String,
    /// Why the user approves.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("maxLength" = 1024))]
    pub comment: String,
    /// Groups of the user that the approval names. The admission policy admits only groups of the request's user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("maxItems" = 50))]
    pub groups: Vec<String>,
    /// The whole id of the plan, or its effect digest, as in approvePlan.
    #[serde(rename = "planID")]
    #[schemars(extend("minLength" = 1, "maxLength" = 512))]
    pub plan_id: String,
    /// The Terraform object, in the same namespace.
    pub terraform_ref: LocalReference,
}

/// Whether the approval counts for the pending plan. What rules refused does not count after they are removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanApprovalStatus {
    /// Whether it counts, or has counted for a plan that is no longer pending.
    #[serde(default)]
    pub accepted: bool,
    /// Why, as a text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Why, as one word, e.g. OtherPlan.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// An approval that an apply counted, in the status of its run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordedApproval {
    /// When it was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved_at: Option<Time>,
    /// Name of the user.
    pub approver: String,
    /// The comment.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub comment: String,
    /// The groups that the approval names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Name of the PlanApproval.
    pub name: String,
}

impl From<&PlanApproval> for RecordedApproval {
    fn from(approval: &PlanApproval) -> Self {
        let spec = &approval.spec;
        Self {
            approved_at: approval.metadata.creation_timestamp.clone(),
            approver: spec.approver.clone(),
            comment: spec.comment.clone(),
            groups: spec.groups.clone(),
            name: approval.metadata.name.clone().unwrap_or_default(),
        }
    }
}

/// Returns the approvals that name the Terraform object of this name, from those of its namespace.
#[must_use]
pub fn approvals_of(stack: &str, approvals: Vec<PlanApproval>) -> Vec<PlanApproval> {
    let names_stack = |approval: &PlanApproval| approval.spec.terraform_ref.name == stack;
    approvals.into_iter().filter(names_stack).collect()
}
