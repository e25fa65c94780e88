//! The group `infra.contrib.fluxcd.io`: the Terraform kind in its stored version v1alpha2, its served predecessor,
//! and the pure rules of plan ids, approval and run names.

pub mod approval;
pub mod guard;
mod inputs;
pub mod name;
mod outcome;
pub mod pattern;
pub mod plan_id;
mod policy;
mod runner;
mod spec;
mod status;
pub mod v1alpha1;

pub use inputs::{
    BackendConfig, Cloud, CloudWorkspaces, ConfigSource, FileLocation, FileMapping, FileSecret, InputSecret,
    KeySource, Variable, VariablesSource,
};
pub use name::{is_label_value, label_value, run_name, run_sequence, workspace_label, workspace_part};
pub use outcome::{
    BranchPlanner, HealthCheck, HealthCheckKind, OutputsSecret, PlanOptions, ReadablePlan, Remediation,
    StateOptions, Unlock, Webhook, WebhookStage,
};
pub use policy::{
    AutoApply, ChangeKind, ContradictingDeletion, DeletionPolicy, IgnoredDrift, ToolName, ToolSelection,
};
pub use runner::{RunnerPodMetadata, RunnerPodSpec, RunnerPodTemplate};
pub use spec::{
    Dependency, NamespacedReference, RetryStrategy, SourceKind, SourceReference, Terraform, TerraformSpec,
};
pub use status::{InventoryEntry, LockStatus, PlanStatus, ResourceInventory, TerraformStatus};

/// The API group of the Terraform kind.
pub const GROUP: &str = "infra.contrib.fluxcd.io";

/// The finalizer that the apply controller puts on its objects.
pub const FINALIZER: &str = "finalizers.tf.contrib.fluxcd.io";

/// Beginning of the finalizers that a stack puts on those it depends on; its own name follows.
pub const DEPENDANT_FINALIZER: &str = "tf.dependency.of.";
