//! The API group `infra.contrib.fluxcd.io`: the Terraform kind in its stored version v1alpha2 and its served version
//! v1alpha1, and the pure rules of plan ids, approvals and names of runs.

pub mod approval;
pub mod guard;
mod inputs;
pub mod name;
mod outcome;
pub mod outputs_secret;
pub mod pattern;
pub mod plan_id;
mod policy;
mod reason;
pub mod required_approvals;
mod runner;
mod spec;
mod status;
pub mod v1alpha1;

pub use inputs::{
    BackendConfig, Cloud, CloudWorkspaces, ConfigSource, FileLocation, FileMapping, FileSecret, InputSecret,
    KeySource, Variable, VariablesSource,
};
pub use name::{
    is_label_value, label_value, name_with_digest, run_name, run_sequence, workspace_label, workspace_part,
};
pub use outcome::{
    BranchPlanner, ForceUnlockMode, HealthCheck, HealthCheckKind, OutputsSecret, PlanOptions, ReadablePlan,
    Remediation, StateOptions, Webhook, WebhookStage,
};
pub use policy::{
    AutoApply, ChangeKind, DeletionPolicy, DeletionPolicyConflict, IgnoredDrift, ToolName, ToolSelection,
};
pub use reason::{Reason, UnknownReason};
pub use required_approvals::{ApprovalHours, RequiredApprovals, Weekday};
pub use runner::{RunnerPodMetadata, RunnerPodSpec, RunnerPodTemplate};
pub use spec::{
    Dependency, NamespacedReference, RetryStrategy, SourceKind, SourceReference, Terraform, TerraformSpec,
};
pub use status::{InventoryEntry, LockStatus, PlanStatus, ResourceInventory, TerraformStatus};

/// The API group of the Terraform kind.
pub const GROUP: &str = "infra.contrib.fluxcd.io";

/// The finalizer that the Terraform controller adds to its objects.
pub const FINALIZER: &str = "finalizers.tf.contrib.fluxcd.io";

/// Prefix of the finalizers that a stack adds to its dependencies; the stack's name follows.
pub const DEPENDENT_FINALIZER_PREFIX: &str = "tf.dependency.of.";
