//! What became of a run.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PlanEffects;
use crate::shape::{is_false, is_zero};
use crate::terraform::ResourceInventory;

/// Bounds on the parts of a run's status, so that no run makes its object too large to be stored.
#[derive(Clone, Copy, Debug)]
pub struct RunStatusLimit;

impl RunStatusLimit {
    /// Entries of `changeEntries`; the rest is counted in `changesOmitted`.
    pub const CHANGES: usize = 200;
    /// Bytes of `humanPlan`.
    pub const HUMAN_PLAN: usize = 64 * 1024;
    /// Entries of `inventory`.
    pub const INVENTORY: usize = 1000;
    /// Characters of a name, a type or an identifier in `inventory`.
    pub const INVENTORY_TEXT: usize = 256;
    /// Entries of `steps`.
    pub const STEPS: usize = 32;
    /// Entries of `mayHaveLocked`; where there are more, none is on record.
    pub const MAY_HAVE_LOCKED: usize = 32;
}

/// The observed state of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TerraformRunStatus {
    /// Whether the CLI's apply ended well, whatever came after it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub applied: bool,
    /// Digest of the Secrets that keep what this run applied, for a destroy without its source.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub applied_digest: String,
    /// Whether the CLI's apply was started: from then on resources may have changed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub attempted_apply: bool,
    /// What the plan changes, address by address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub change_entries: Vec<Change>,
    /// The counts in short, e.g. +2 ~1 -0.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub changes: String,
    /// Number of changes beyond those listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub changes_omitted: i64,
    /// Who carries the run out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
    /// Digest of the plan's effect: 40 hex digits.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub effect_digest: String,
    /// What the plan does, by class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effects: Option<PlanEffects>,
    /// Digests of the states that the CLI could not write and that this run kept in Secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errored_state_digests: Vec<String>,
    /// Exit code of the CLI's last command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// When the run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// Whether the plan changes anything. Absent: there is no plan yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_changes: Option<bool>,
    /// What the health checks came to. Absent: none were made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// When the runner last said that it lives. It says so every few seconds until the run has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_at: Option<MicroTime>,
    /// Why the plan waits for an approval although plans are applied by themselves: what autoApply holds of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub held: String,
    /// The plan as text, without sensitive values.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub human_plan: String,
    /// The resources in the state, where they are wanted. Absent: they were not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inventory: Option<ResourceInventory>,
    /// The state lock that was met or taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<LockInfo>,
    /// `user@host` as the CLI of this run writes it into a state lock. Absent: as `claim.process` has it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub lock_holder: String,
    /// Where the log is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub log_path: String,
    /// When commands went that may have left the state lock behind. Absent: not on record, any time of the run counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may_have_locked: Option<Vec<RunSpan>>,
    /// The outcome in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// What the modules that init downloaded may read of the artifact. Absent: init has not ended well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module_reads: Option<ModuleReads>,
    /// Names of the outputs, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<String>,
    /// Whether the Secret of the outputs was changed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub outputs_written: bool,
    /// Most memory that the CLI held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<i64>,
    /// How far the run is.
    #[serde(default)]
    pub phase: Phase,
    /// Digest of the Secrets that hold the plan, when it has changes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub plan_digest: String,
    /// Id of the plan, when it has changes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub plan_id: String,
    /// The outcome in one word, e.g. TFExecPlanFailed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// When the run was claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// The phases that the run went through, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<RunStep>,
    /// The plan's counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<ChangeSummary>,
    /// The CLI that was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<Tool>,
}

/// What downloaded modules may read of the artifact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModuleReads {
    /// The module, its file and what stands there.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// They may read files outside of the stack's directory: each commit counts for the stack.
    #[serde(default)]
    pub whole_artifact: bool,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum Phase {
    /// Nobody has taken it.
    #[default]
    Pending,
    /// A runner has taken it.
    Claimed,
    /// The artifact is fetched and the inputs are written.
    Preparing,
    /// The CLI initialises.
    Initializing,
    /// The CLI plans.
    Planning,
    /// The CLI applies.
    Applying,
    /// The outputs are written.
    WritingOutputs,
    /// The health checks are made.
    CheckingHealth,
    /// A person may work in the directory.
    BreakingTheGlass,
    /// Ended well.
    Succeeded,
    /// Ended in an error.
    Failed,
    /// Not carried out, because its inputs changed before it began.
    Superseded,
    /// Its runner is gone without a report.
    Lost,
}

impl Phase {
    /// Whether the run has ended.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(
            self,
            Self::Succeeded | Self::Failed | Self::Superseded | Self::Lost
        )
    }

    /// The spelling in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Claimed => "Claimed",
            Self::Preparing => "Preparing",
            Self::Initializing => "Initializing",
            Self::Planning => "Planning",
            Self::Applying => "Applying",
            Self::WritingOutputs => "WritingOutputs",
            Self::CheckingHealth => "CheckingHealth",
            Self::BreakingTheGlass => "BreakingTheGlass",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Superseded => "Superseded",
            Self::Lost => "Lost",
        }
    }
}

/// A phase of a run and its beginning; it ends where the next one begins, the last one with the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunStep {
    /// The phase.
    pub phase: Phase,
    /// When it began.
    pub since: MicroTime,
}

/// A part of a run's time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunSpan {
    /// When it began.
    pub from: MicroTime,
    /// When it ended.
    pub to: MicroTime,
}

/// What health checks came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// Digest of the checks that were made.
    pub checks: String,
    /// Whether all passed.
    #[serde(default)]
    pub passed: bool,
}

/// Who carries a run out. Written once, by compare-and-swap.
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
    /// The directory and the machine whose file locks tell whether the process lives.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub site: String,
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
    /// The text of the printer column: `+2 ~1 -0`, with `>n` for imports and `=n` for moves where there are any.
    #[must_use]
    pub fn short(&self) -> String {
        let Self {
            add,
            change,
            destroy,
            import,
            moved,
        } = self;
        let imports = if *import == 0 {
            String::new()
        } else {
            format!(" >{import}")
        };
        let moves = if *moved == 0 {
            String::new()
        } else {
            format!(" ={moved}")
        };
        format!("+{add} ~{change} -{destroy}{imports}{moves}")
    }
}

/// One change of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// What is done: create, update, delete, replace, import, move or forget.
    pub action: String,
    /// Address of the resource.
    pub address: String,
}

/// A lock of the state, as the CLI tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LockInfo {
    /// When it was taken, as the CLI wrote it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub created: String,
    /// Its id.
    pub id: String,
    /// The operation that took it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub operation: String,
    /// The holder, as the CLI wrote it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub who: String,
}
