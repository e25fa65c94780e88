//! `Terraform` v1alpha2: field for field the schema of tofu-controller 0.16, with Sluice's additions marked.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    AutoApply, BackendConfig, BranchPlanner, Cloud, ConfigSource, DeletionPolicy, FileMapping, HealthCheck,
    IgnoredDrift, InputSecret, OutputsSecret, PlanOptions, ReadablePlan, Remediation, RunnerPodTemplate,
    StateOptions, TerraformStatus, ToolSelection, Variable, VariablesSource, Webhook,
};
use crate::interval::Interval;
use crate::shape::{any_json, is_false, yes};

/// The desired state of a stack: its source, its inputs, and what is done with its plans.
#[expect(clippy::struct_excessive_bools, reason = "the fields are the API's")]
#[expect(
    clippy::duplicated_attributes,
    reason = "each printer column repeats the words of the one before"
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
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "message": "deletionPolicy Orphan and Retain keep what destroyResourcesOnDeletion: true destroys; remove one of the two",
    "rule": "!has(self.deletionPolicy) || self.deletionPolicy == 'Destroy' || !has(self.destroyResourcesOnDeletion) || !self.destroyResourcesOnDeletion"
}]))]
pub struct TerraformSpec {
    /// Whether the runner's pod is deleted after each run.
    #[serde(default = "yes")]
    pub always_cleanup_runner_pod: bool,
    /// Empty: each plan waits. auto: each plan is applied. disable: only drift is reported. A plan id: that plan is applied.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub approve_plan: String,
    /// What auto may apply without a person. Absent: every plan. Sluice's addition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_apply: Option<AutoApply>,
    /// The backend that is generated. Absent: the kubernetes backend with the object's name as suffix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend_config: Option<BackendConfig>,
    /// Secrets and ConfigMaps whose pairs become -backend-config arguments of init.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backend_configs_from: Vec<ConfigSource>,
    /// Options of the branch planner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_planner: Option<BranchPlanner>,
    /// Whether a debugging session is opened in the runner.
    #[serde(default, skip_serializing_if = "is_false")]
    pub break_the_glass: bool,
    /// Secret with the CLI's configuration: exactly one key, whose name ends in .tfrc.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cli_config_secret_ref: Option<NamespacedReference>,
    /// HCP Terraform or Terraform Enterprise instead of a generated backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud: Option<Cloud>,
    /// What becomes of resources and state with the object. Absent: destroyResourcesOnDeletion tells. Sluice's addition.
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
    /// No looking for drift at the interval.
    #[serde(default)]
    pub disable_drift_detection: bool,
    /// Whether an inventory of the state's resources is kept in status.
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
    /// Checks that are made after an apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health_checks: Vec<HealthCheck>,
    /// Differences that are not called drift. Sluice's addition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore_drift: Vec<IgnoredDrift>,
    /// How often the stack is looked at when nothing changes.
    pub interval: Interval,
    /// Upper bound of the exponential back-off. Absent: a day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_retry_interval: Option<Interval>,
    /// Number of operations that apply runs at once; 0 means the CLI's ten.
    #[serde(default)]
    pub parallelism: i32,
    /// Directory of the module in the artifact. Empty: its root.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Options of planning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanOptions>,
    /// Plans are made, but never applied.
    #[serde(default, skip_serializing_if = "is_false")]
    pub plan_only: bool,
    /// Secrets of which the values can be used in spec.values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read_inputs_from_secrets: Vec<InputSecret>,
    /// Kept for compatibility; the CLI refreshes in any case.
    #[serde(default)]
    pub refresh_before_apply: bool,
    /// What is done when runs keep failing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remediation: Option<Remediation>,
    /// Pause after a failure. Absent: 15 seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_interval: Option<Interval>,
    /// How the pause after failures grows.
    #[serde(default)]
    pub retry_strategy: RetryStrategy,
    /// Bound on one run, after which it is stopped. Absent: the controller's default. Sluice's addition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_deadline: Option<Interval>,
    /// Metadata and settings of the runner's pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner_pod_template: Option<RunnerPodTemplate>,
    /// Seconds that the runner has to stop.
    #[serde(default = "thirty")]
    pub runner_termination_grace_period_seconds: i64,
    /// ServiceAccount of the runner.
    #[serde(default = "tf_runner")]
    pub service_account_name: String,
    /// The source that holds the module.
    pub source_ref: SourceReference,
    /// The form in which plans are kept for people to read.
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
    /// Handling of the state's lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tfstate: Option<StateOptions>,
    /// The program that runs the stack. Absent: terraform, else tofu, and then the same one always. Sluice's addition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolSelection>,
    /// Whether init looks for newer providers and modules.
    #[serde(default = "yes")]
    pub upgrade_on_init: bool,
    /// Becomes the variable named values; texts may be templates over readInputsFromSecrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_json")]
    pub values: Option<serde_json::Value>,
    /// Input variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vars: Vec<Variable>,
    /// Secrets and ConfigMaps whose pairs become input variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vars_from: Vec<VariablesSource>,
    /// Services that are asked whether a plan may go on.
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
    /// The workspace; an empty one means the default.
    #[must_use]
    pub fn workspace_name(&self) -> &str {
        if self.workspace.is_empty() {
            "default"
        } else {
            &self.workspace
        }
    }
}

/// How the pause after failures grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum RetryStrategy {
    /// It does not.
    #[default]
    StaticInterval,
    /// It doubles, up to maxRetryInterval.
    ExponentialBackoff,
}

/// The kinds of source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum SourceKind {
    /// A Git repository.
    GitRepository,
    /// A bucket of an object store.
    Bucket,
    /// An OCI repository.
    OCIRepository,
}

impl SourceKind {
    /// The kind's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GitRepository => "GitRepository",
            Self::Bucket => "Bucket",
            Self::OCIRepository => "OCIRepository",
        }
    }
}

/// The source that holds the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceReference {
    /// Version of the source's API; not looked at.
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

/// Names an object, in the same namespace unless said otherwise.
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
