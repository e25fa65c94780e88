//! Options of plans and applies: state locks, readable plans, webhooks, outputs, health checks, retries.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::interval::Interval;
use crate::serialization::{is_false, yes};

/// Handling of the state lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StateOptions {
    /// Whether to release an existing lock by force; yes requires lockIdentifier.
    #[serde(default)]
    pub force_unlock: ForceUnlockMode,
    /// Id of the lock that may be released.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub lock_identifier: String,
    /// How long a run waits for the lock.
    #[serde(default = "no_time")]
    pub lock_timeout: Interval,
}

/// The schema's default of `tfstate.lockTimeout`.
fn no_time() -> Interval {
    Interval::from_secs(0)
}

impl Default for StateOptions {
    fn default() -> Self {
        Self {
            force_unlock: ForceUnlockMode::No,
            lock_identifier: String::new(),
            lock_timeout: no_time(),
        }
    }
}

/// Whether to release an existing state lock by force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ForceUnlockMode {
    /// Releases the lock lockIdentifier.
    Yes,
    /// Releases no lock.
    #[default]
    No,
    /// Releases a lock if that is safe.
    Auto,
}

/// Format of the stored readable plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ReadablePlan {
    /// None.
    #[default]
    None,
    /// JSON, in a Secret.
    Json,
    /// Text, in a ConfigMap.
    Human,
}

/// Options of planning.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanOptions {
    /// Whether planning takes the state lock. Absent: it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<bool>,
}

/// A stage at which a webhook is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum WebhookStage {
    /// After planning, before the plan is stored.
    #[default]
    PostPlanning,
}

/// A service that accepts or rejects plans.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    /// Whether the webhook is called.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Template of the message when the test fails.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error_message_template: String,
    /// Payload: SpecAndPlan, SpecOnly or PlanOnly.
    #[serde(default = "spec_and_plan")]
    pub payload_type: String,
    /// Stage at which the webhook is called.
    #[serde(default)]
    pub stage: WebhookStage,
    /// Template over the response that must evaluate to true or yes.
    pub test_expression: String,
    /// Address of the service.
    pub url: String,
}

/// The schema's default of `webhooks[].payloadType`.
fn spec_and_plan() -> String {
    "SpecAndPlan".to_owned()
}

/// The Secret that outputs are written to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutputsSecret {
    /// Annotations on the Secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Labels on the Secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Name of the Secret.
    pub name: String,
    /// Outputs to write, each as output or output:key. Absent: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<String>,
}

/// Kind of a health check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum HealthCheckKind {
    /// A TCP connection to the address.
    Tcp,
    /// An HTTP GET of the URL.
    Http,
}

/// A check after an apply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthCheck {
    /// Host and port of a tcp check; may be a template over outputs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// Name of the check.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Timeout of the check.
    #[serde(default = "twenty_seconds")]
    pub timeout: Interval,
    /// Kind of the check.
    #[serde(rename = "type")]
    pub kind: HealthCheckKind,
    /// Address of an http check; may be a template over outputs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
}

/// The schema's default of `healthChecks[].timeout`.
fn twenty_seconds() -> Interval {
    Interval::from_secs(20)
}

/// Options of the branch planner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BranchPlanner {
    /// Only changes below spec.path are planned.
    #[serde(default, skip_serializing_if = "is_false")]
    pub enable_path_scope: bool,
}

/// Retries of failed runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Remediation {
    /// Maximum number of retries of a failed run. Absent: no retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<i64>,
}
