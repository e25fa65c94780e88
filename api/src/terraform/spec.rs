//! `Terraform` v1alpha2: the schema of tofu-controller 0.16, with Sluice's additions marked.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    AutoApply, BackendConfig, BranchPlanner, Cloud, ConfigSource, DeletionPolicy, FileMapping, HealthCheck,
    IgnoredDrift, InputSecret, OutputsSecret, PlanOptions, ReadablePlan, Remediation, RequiredApprovals,
    RunnerPodTemplate, StateOptions, TerraformStatus, ToolSelection, Variable, VariablesSource, Webhook,
};
use crate::interval::Interval;
use crate::serialization::{any_json, api_enum, is_false, yes};

/// The desired state of a stack: its source, its inputs, and the handling of its plans.
#[expect(clippy::struct_excessive_bools, reason = "the fields are the API's")]
#[expect(
    clippy::duplicated_attributes,
    reason = "printer columns repeat the same attributes"
)]
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infra.contrib.fluxcd.io",
    version = "v1alpha2",
    kind = "Terraform",
    plural = "terraforms",
    namespaced,
    status = "TerraformStatus",
    shortname = "tf",
    doc = "Terraform plans and applies the module at a path of a source.",
    derive = "PartialEq",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].message"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        priority = 1,
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#
    ),
    printcolumn(
        name = "Plan",
        type_ = "string",
        priority = 1,
        json_path = ".status.plan.pending"
    ),
    printcolumn(
        name = "Lock",
        type_ = "string",
        priority = 1,
        json_path = ".status.lock.pending"
    ),
    printcolumn(
        name = "Suspended",
        type_ = "boolean",
        priority = 1,
        json_path = ".spec.suspend"
    ),
    printcolumn(
        name = "Applied",
        type_ = "string",
        priority = 1,
        json_path = ".status.lastAppliedRevision"
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "message": "deletionPolicy Orphan and Retain contradict destroyResourcesOnDeletion: true; remove one of the two",
    "rule": "!has(self.deletionPolicy) || self.deletionPolicy == 'Destroy' || !has(self.destroyResourcesOnDeletion) || !self.destroyResourcesOnDeletion"
}]))]
pub struct TerraformSpec {
    /// Whether the runner's pod is deleted after each run.
    #[serde(default = "yes")]
    pub always_cleanup_runner_pod: bool,
    /// How many users must approve a plan by a PlanApproval, and which. approvePlan and force then apply nothing. Absent: approvePlan, or one PlanApproval, approves a plan. Sluice's addition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<RequiredApprovals>,
    /// Empty: plans need an approval. auto: plans are applied. disable: only drift is reported. A plan id: this plan is applied.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub approve_plan: String,
    /// What auto may apply without an approval. Absent: every plan. Sluice's addition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_apply: Option<AutoApply>,
    /// The generated backend. Absent: the kubernetes backend with the object's name as suffix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend_config: Option<BackendConfig>,
    /// Secrets and ConfigMaps whose pairs become -backend-config arguments of init.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backend_configs_from: Vec<ConfigSource>,
    /// Options of the branch planner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_planner: Option<BranchPlanner>,
    /// Whether to open a break-glass session in the runner.
    #[serde(default, skip_serializing_if = "is_false")]
    pub break_the_glass: bool,
    /// Secret with the CLI's configuration: exactly one key, whose name ends in .tfrc.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cli_config_secret_ref: Option<NamespacedReference>,
    /// HCP Terraform or Terraform Enterprise instead of a generated backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud: Option<Cloud>,
    /// What happens to resources and state when the object is deleted. Absent: destroyResourcesOnDeletion decides. Sluice's addition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,
    /// Other Terraform objects that must be ready first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<Dependency>,
    /// Every plan is a plan to destroy.
    #[serde(default, skip_serializing_if = "is_false")]
    pub destroy: bool,
    /// Whether the deletion of the object destroys its resources first.
    #[serde(default)]
    pub destroy_resources_on_deletion: bool,
    /// Disables drift detection at the interval.
    #[serde(default)]
    pub disable_drift_detection: bool,
    /// Whether status contains an inventory of the state's resources.
    #[serde(default, skip_serializing_if = "is_false")]
    pub enable_inventory: bool,
    /// Kept for compatibility; has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_json")]
    pub enterprise: Option<serde_json::Value>,
    /// Keys of Secrets that are written to files before init.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub file_mappings: Vec<FileMapping>,
    /// Plan and apply again without waiting for approval.
    #[serde(default)]
    pub force: bool,
    /// Checks after an apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health_checks: Vec<HealthCheck>,
    /// Differences that do not count as drift. Sluice's addition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore_drift: Vec<IgnoredDrift>,
    /// Interval of reconciliations without changes.
    pub interval: Interval,
    /// Maximum of the exponential back-off. Absent: one day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_retry_interval: Option<Interval>,
    /// Number of concurrent operations of an apply; 0 means the CLI's default of ten.
    #[serde(default)]
    pub parallelism: i32,
    /// Directory of the module in the artifact. Empty: its root.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Options of planning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanOptions>,
    /// Creates plans but never applies them.
    #[serde(default, skip_serializing_if = "is_false")]
    pub plan_only: bool,
    /// Secrets whose values can be used in spec.values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read_inputs_from_secrets: Vec<InputSecret>,
    /// Kept for compatibility; the CLI refreshes in any case.
    #[serde(default)]
    pub refresh_before_apply: bool,
    /// Retries of failed runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remediation: Option<Remediation>,
    /// Delay after a failure. Absent: 15 seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_interval: Option<Interval>,
    /// How the delay after failures grows.
    #[serde(default)]
    pub retry_strategy: RetryStrategy,
    /// Timeout of one run. Absent: the controller's default. Sluice's addition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_deadline: Option<Interval>,
    /// Metadata and settings of the runner's pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner_pod_template: Option<RunnerPodTemplate>,
    /// Grace period for the runner to stop, in seconds.
    #[serde(default = "thirty")]
    pub runner_termination_grace_period_seconds: i64,
    /// ServiceAccount of the runner.
    #[serde(default = "tf_runner")]
    pub service_account_name: String,
    /// The source with the module.
    pub source_ref: SourceReference,
    /// Format of the stored readable plan.
    #[serde(default)]
    pub store_readable_plan: ReadablePlan,
    /// While true, the object is not reconciled.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
    /// Addresses that plan and apply are limited to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// Variable files, as paths from the root of the artifact.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tf_vars_files: Vec<String>,
    /// Handling of the state lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tfstate: Option<StateOptions>,
    /// The CLI of the stack. Absent: terraform, or else tofu; the first choice is kept. Sluice's addition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolSelection>,
    /// Whether init upgrades providers and modules.
    #[serde(default = "yes")]
    pub upgrade_on_init: bool,
    /// Value of the variable values; texts may be templates over readInputsFromSecrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_json")]
    pub values: Option<serde_json::Value>,
    /// Input variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vars: Vec<Variable>,
    /// Secrets and ConfigMaps whose pairs become input variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vars_from: Vec<VariablesSource>,
    /// Services that accept or reject plans.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub webhooks: Vec<Webhook>,
    /// The CLI's workspace.
    #[serde(default = "default_workspace")]
    pub workspace: String,
    /// The Secret that outputs are written to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_outputs_to_secret: Option<OutputsSecret>,
}

/// The schema's default of `runnerTerminationGracePeriodSeconds`.
const fn thirty() -> i64 {
    30
}

/// The schema's default of `serviceAccountName`.
fn tf_runner() -> String {
    "tf-runner".to_owned()
}

/// The schema's default of `workspace`.
fn default_workspace() -> String {
    "default".to_owned()
}

impl TerraformSpec {
    /// Returns the workspace; default if empty.
    #[must_use]
    pub fn workspace_name(&self) -> &str {
        if self.workspace.is_empty() {
            "default"
        } else {
            &self.workspace
        }
    }
}

/// How the delay after failures grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum RetryStrategy {
    /// The delay is constant.
    #[default]
    StaticInterval,
    /// The delay doubles up to maxRetryInterval.
    ExponentialBackoff,
}

api_enum! {
    /// The kinds of source.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    #[schemars(inline)]
    SourceKind {
        /// A Git repository.
        GitRepository = "GitRepository",
        /// A bucket of an object store.
        Bucket = "Bucket",
        /// An OCI repository.
        OCIRepository = "OCIRepository",
    }
}

/// The source with the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceReference {
    /// Version of the source's API; ignored.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// Kind of the source.
    pub kind: SourceKind,
    /// Name of the source.
    pub name: String,
    /// Namespace of the source. Absent: the object's own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

/// A reference to an object, by default in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespacedReference {
    /// Name of the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Namespace of the object. Absent: the same.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

/// Another Terraform object that must be ready first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Dependency {
    /// Name of the object.
    pub name: String,
    /// Namespace of the object. Absent: the same.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}
