//! The group `infra.sluice.dev`: `TerraformRun`, the durable record of one run. Its spec is written once, by the
//! Terraform reconciler; its status is the runner's report and the history that users read. And `PlanApproval`, by which a user approves
//! a plan, and the annotation by which a user rejects one.

mod effects;
pub mod gate;
mod plan_approval;
mod plan_rejection;
mod spec;
pub mod state;
mod status;

pub use effects::PlanEffects;
pub use plan_approval::{PlanApproval, PlanApprovalSpec, PlanApprovalStatus, RecordedApproval, approvals_of};
pub use plan_rejection::{PlanRejection, rejection_of, rejection_request};
pub use spec::{Action, PlanSource, RunSource, TerraformIdentity, TerraformRun, TerraformRunSpec, Trigger};
pub use status::{
    Change, ChangeSummary, Claim, ErroredState, Health, LockInfo, LockWindow, ModuleReads, Phase,
    ReleasedLock, RunStatusLimit, RunStep, TerraformRunStatus, Tool,
};

/// The API group of runs.
pub const GROUP: &str = "infra.sluice.dev";
