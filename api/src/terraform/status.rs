//! The observed state of a Terraform object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::run::PlanEffects;
use crate::shape::{is_false, is_zero};

/// The observed state of a Terraform object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TerraformStatus {
    /// Names of the outputs, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub available_outputs: Vec<String>,
    /// What is true of the object now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// What the newest plan says has drifted, by class; absent while nothing has. Sluice's addition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<PlanEffects>,
    /// The resources that the state holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inventory: Option<ResourceInventory>,
    /// When a plan that drift detection asked for was applied last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_applied_by_drift_detection_at: Option<Time>,
    /// The revision that was applied last.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_applied_revision: String,
    /// The revision that was tried last.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_attempted_revision: String,
    /// When drift was found last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_drift_detected_at: Option<Time>,
    /// The reconcile request that was handled last.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_handled_reconcile_at: String,
    /// When a plan was made last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_plan_at: Option<Time>,
    /// The generation that was planned last.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub last_planned_generation: i64,
    /// The revision that was planned last.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_planned_revision: String,
    /// When a pass ended without error last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_successful_reconcile_at: Option<Time>,
    /// The state's lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<LockStatus>,
    /// The generation that was handled last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The reconcile request that was answered while the stack could not run, and is still to be carried out. Sluice's addition.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owed_reconcile_at: String,
    /// The plan that waits, and the one applied last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanStatus>,
    /// Number of failed passes since the last success.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reconciliation_failures: i64,
}

/// Plans of a Terraform object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanStatus {
    /// Whether the plan destroys.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_destroy_plan: bool,
    /// Whether the plan was made because of drift.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_drift_detection_plan: bool,
    /// Id of the plan that was applied last.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_applied: String,
    /// Id of the plan that waits to be applied; empty for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pending: String,
}

/// The resources that the state holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceInventory {
    /// One entry a resource.
    pub entries: Vec<InventoryEntry>,
}

/// One resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InventoryEntry {
    /// Its identifier.
    #[serde(rename = "id")]
    pub identifier: String,
    /// Its name.
    #[serde(rename = "n")]
    pub name: String,
    /// Its type.
    #[serde(rename = "t")]
    pub kind: String,
}

/// Locks of the state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LockStatus {
    /// The lock that was broken last.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_applied: String,
    /// The lock that is in the way.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pending: String,
}
