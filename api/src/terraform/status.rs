//! The observed state of a Terraform object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::run::PlanEffects;
use crate::serialization::{is_false, is_zero};

/// The observed state of a Terraform object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TerraformStatus {
    /// Names of the outputs, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub available_outputs: Vec<String>,
    /// Conditions of the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Drift in the latest plan by class; absent without drift. Sluice's addition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<PlanEffects>,
    /// Resources in the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inventory: Option<ResourceInventory>,
    /// Time of the last apply that corrected drift.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_applied_by_drift_detection_at: Option<Time>,
    /// The last applied revision.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_applied_revision: String,
    /// The last attempted revision.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_attempted_revision: String,
    /// Time when drift was last detected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_drift_detected_at: Option<Time>,
    /// The last reconcile request that was handled.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_handled_reconcile_at: String,
    /// Time of the last plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_plan_at: Option<Time>,
    /// The last planned generation.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub last_planned_generation: i64,
    /// The last planned revision.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_planned_revision: String,
    /// Time of the last reconciliation without an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_successful_reconcile_at: Option<Time>,
    /// The state's lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<LockStatus>,
    /// The last generation that was reconciled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// A reconcile request that was handled while the stack could not run, and is still pending. Sluice's addition.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pending_reconcile_request: String,
    /// The pending plan and the last applied one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanStatus>,
    /// Number of failed reconciliations since the last success.
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
    /// Whether drift detection created the plan.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_drift_detection_plan: bool,
    /// Id of the last applied plan.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_applied: String,
    /// Id of the pending plan; empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pending: String,
}

/// Resources in the state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceInventory {
    /// One entry per resource.
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

/// State locks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LockStatus {
    /// The last lock that was released by force.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_applied: String,
    /// The lock that blocks runs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pending: String,
}
