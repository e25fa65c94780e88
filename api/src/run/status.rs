//! The status of a run.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::state::StateIdentity;
use super::{PlanEffects, PlanRejection, RecordedApproval};
use crate::serialization::{api_enum, is_false, is_zero};
use crate::terraform::ResourceInventory;

/// Limits of a run's status, which keep the object small enough to be stored.
#[derive(Clone, Copy, Debug)]
pub struct RunStatusLimit;

impl RunStatusLimit {
    /// Entries of `approvals`.
    pub const APPROVALS: usize = 16;
    /// Entries of `changeEntries`; further ones are counted in `changesOmitted`.
    pub const CHANGES: usize = 200;
    /// Bytes of `humanPlan`.
    pub const HUMAN_PLAN: usize = 64 * 1024;
    /// Entries of `inventory`.
    pub const INVENTORY: usize = 1000;
    /// Characters of a name, a type or an identifier in `inventory`.
    pub const INVENTORY_TEXT: usize = 256;
    /// Entries of `steps`.
    pub const STEPS: usize = 32;
    /// Bytes of `logTail` of a run that did not succeed.
    pub const LOG_TAIL: usize = 16 * 1024;
    /// Bytes of `logTail` of a run that succeeded.
    pub const LOG_TAIL_OF_SUCCESS: usize = 4 * 1024;
    /// Entries of `possibleLockWindows`; if there are more, none is recorded.
    pub const LOCK_WINDOWS: usize = 32;
}

/// The observed state of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TerraformRunStatus {
    /// Whether the CLI's apply succeeded, regardless of later steps.
    #[serde(default, skip_serializing_if = "is_false")]
    pub applied: bool,
    /// The approvals by users that the apply counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<RecordedApproval>,
    /// Digest of the Secrets with the files that this run applied, for a destroy without a source.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub applied_digest: String,
    /// Whether the CLI's apply was started, so that resources may have changed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub attempted_apply: bool,
    /// Changes of the plan by address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub change_entries: Vec<Change>,
    /// Summary of the counts, e.g. +2 ~1 -0.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub changes: String,
    /// Number of changes beyond those listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub changes_omitted: i64,
    /// The runner that executes the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
    /// Digest of the plan's effect: 40 hex digits.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub effect_digest: String,
    /// Effects of the plan by class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effects: Option<PlanEffects>,
    /// States that the CLI could not write and that this run stored in Secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errored_states: Vec<ErroredState>,
    /// Exit code of the CLI's last command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// When the run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// Whether the plan has changes. Absent: there is no plan yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_changes: Option<bool>,
    /// Result of the health checks. Absent: none were executed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// Last heartbeat of the runner, which renews it every few seconds until the run ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_at: Option<MicroTime>,
    /// Why the plan is held (autoApply, or another state), so that it needs an approval although plans are applied automatically.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub auto_apply_hold: String,
    /// The plan as text, without sensitive values.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub human_plan: String,
    /// Resources in the state, if requested. Absent: they were not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inventory: Option<ResourceInventory>,
    /// Name of the Job that executes the run. Absent: a process does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub job_name: String,
    /// The state lock that was encountered or acquired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<LockInfo>,
    /// `user@host` as the CLI of this run writes it into a state lock. Absent: as `claim.process` has it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub lock_holder: String,
    /// Why the log is not stored, or not all of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub log_error: String,
    /// Directory of the log on the machine of the runner.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub log_path: String,
    /// The Secret with the log, compressed (data key log.gz), or with its first part; then those with the suffixes -1, -2 and so on have the others. Absent: logTail is all of it, or it is only in the directory logPath.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub log_secret: String,
    /// The last lines of the CLI's output, redacted. Of an active run: those of the last command that has succeeded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub log_tail: String,
    /// Times when commands ran that may have left the state locked. Absent: not recorded; any time of the run counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub possible_lock_windows: Option<Vec<LockWindow>>,
    /// Memory that the container may use: its limit, or else the allocatable memory of its node. Absent: the run is a process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<i64>,
    /// Memory that the container requests if the controller requests none: that of the pod template, or the default of the namespace. Absent: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_memory_request_bytes: Option<i64>,
    /// Message about the result, or what an active run waits for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// What the downloaded modules may read of the artifact. Absent: init has not succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module_reads: Option<ModuleReads>,
    /// Names of the outputs, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<String>,
    /// Whether the outputs Secret was changed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub outputs_written: bool,
    /// Peak memory of the CLI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<i64>,
    /// Phase of the run.
    #[serde(default)]
    pub phase: Phase,
    /// Digest of the Secrets with the plan, if it has changes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub plan_digest: String,
    /// Id of the plan, if it has changes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub plan_id: String,
    /// The state lock that this run released, because the run that left it behind has ended. Absent: it released none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_lock: Option<ReleasedLock>,
    /// Reason of the result, e.g. TFExecPlanFailed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The rejection of the plan, which is then never applied. Absent if the plan was not rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejection: Option<PlanRejection>,
    /// When the run was claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// The phases of the run, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<RunStep>,
    /// The state after the apply, or of a plan without changes. Absent: it was not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<StateIdentity>,
    /// How the state that the plan is made from differs from the one that the last apply left. Empty: it does not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state_mismatch: String,
    /// Name of the Secrets with the copy of the state before the apply, without the number at their end. Empty: there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state_copy: String,
    /// Why there is no copy of the state, if it was not copied.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state_copy_error: String,
    /// The plan's counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<ChangeSummary>,
    /// The CLI that was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<Tool>,
    /// The CLI workspace of the plan. Empty: planning did not start.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub workspace: String,
}

/// A state that the CLI could not write to its backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErroredState {
    /// `sha256:` and hex digits, over the packed state, its workspace and its backend.
    pub digest: String,
    /// The CLI workspace of the state.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub workspace: String,
}

/// What downloaded modules may read of the artifact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModuleReads {
    /// The module, its file and the expression.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// They may read files outside the stack's directory, so that each commit affects the stack.
    #[serde(default)]
    pub whole_artifact: bool,
}

api_enum! {
    /// How far a run is.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    #[schemars(inline)]
    Phase {
        /// No runner has claimed the run.
        #[default]
        Pending = "Pending",
        /// A runner has claimed the run.
        Claimed = "Claimed",
        /// The runner fetches the artifact and writes the inputs.
        Preparing = "Preparing",
        /// The CLI runs init.
        Initializing = "Initializing",
        /// The CLI runs plan.
        Planning = "Planning",
        /// The CLI runs apply.
        Applying = "Applying",
        /// The runner writes the outputs.
        WritingOutputs = "WritingOutputs",
        /// The runner executes the health checks.
        CheckingHealth = "CheckingHealth",
        /// A break-glass session is open.
        BreakingTheGlass = "BreakingTheGlass",
        /// The run succeeded.
        Succeeded = "Succeeded",
        /// The run failed.
        Failed = "Failed",
        /// The inputs changed before the run began.
        Superseded = "Superseded",
        /// The runner disappeared without a report.
        Lost = "Lost",
    }
}

impl Phase {
    /// Returns whether the run has ended.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(
            self,
            Self::Succeeded | Self::Failed | Self::Superseded | Self::Lost
        )
    }
}

/// A phase of a run with its start; it ends with the start of the next phase or with the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunStep {
    /// The phase.
    pub phase: Phase,
    /// When it began.
    pub since: MicroTime,
}

/// A time span in which a command may have left the state locked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LockWindow {
    /// When it began.
    pub from: MicroTime,
    /// When it ended.
    pub to: MicroTime,
}

/// Result of the health checks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// Digest of the executed checks.
    pub checks: String,
    /// Whether all passed.
    #[serde(default)]
    pub passed: bool,
}

/// The runner that executes a run. Written once by compare-and-swap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// Unique to one start of the runner.
    pub holder: String,
    /// Name of the pod.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pod: String,
    /// Namespace of the pod.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pod_namespace: String,
    /// Uid of the pod.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pod_uid: String,
    /// Host and id of the process.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub process: String,
    /// The directory and the machine whose file locks show whether the process is alive.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub lock_domain: String,
}

/// The CLI that a run used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tool {
    /// terraform or tofu.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// Counts of a plan's changes. A replacement counts as one added and one destroyed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangeSummary {
    /// Resources that are created.
    pub add: i64,
    /// Resources that are changed in place.
    pub change: i64,
    /// Resources that are destroyed.
    pub destroy: i64,
    /// Resources that are imported.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub import: i64,
    /// Resources that get another address.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub moved: i64,
}

impl ChangeSummary {
    /// Formats the printer column: `+2 ~1 -0`, with `>n` for imports and `=n` for moves if there are any.
    #[must_use]
    pub fn short(&self) -> String {
        let more = |sign: char, count: i64| match count {
            0 => String::new(),
            count => format!(" {sign}{count}"),
        };
        let (imports, moves) = (more('>', self.import), more('=', self.moved));
        format!("+{} ~{} -{}{imports}{moves}", self.add, self.change, self.destroy)
    }
}

/// One change of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// Action: create, update, delete, replace, import, move or forget.
    pub action: String,
    /// Address of the resource.
    pub address: String,
}

/// A state lock, as the CLI reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LockInfo {
    /// When it was acquired, as written by the CLI.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub created: String,
    /// Its id.
    pub id: String,
    /// The operation that acquired it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub operation: String,
    /// The holder, as written by the CLI.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub who: String,
}

/// A state lock that was released because its holder has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleasedLock {
    /// The id of the lock.
    pub id: String,
    /// What proves that its holder has ended.
    pub proof: String,
    /// The run that left it behind.
    pub run: String,
}
