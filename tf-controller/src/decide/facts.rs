//! The input of the decision: plain values, gathered by `reconcile::observe` and `reconcile::resolve`.

use super::{InputRunStreak, IntervalOffset, RetryPolicy};
use jiff::{SignedDuration, Timestamp};
pub use sluice_api::run::{Action as RunAction, Health, Trigger};

/// A field with a value that this version does not support.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsupportedField {
    /// The reason in `Ready`.
    pub reason: &'static str,
    /// Public message: the field and the reason.
    pub text: String,
}

/// Everything that the decision uses of one stack except its dependents. Built once (`reconcile::facts`) and never changed.
#[derive(Clone, Debug)]
pub struct Facts {
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// `spec.suspend`.
    pub suspended: bool,
    /// A field with an unsupported value.
    pub unsupported_field: Option<UnsupportedField>,
    /// Public message about two fields that contradict each other: nothing is done, not even a deletion.
    pub contradiction: Option<String>,
    /// `metadata.generation`.
    pub generation: i64,
    /// What the spec allows.
    pub policy: Policy,
    /// What `approvePlan` means for the pending plan.
    pub approval: Approval,
    /// The stacks that this one depends on.
    pub dependencies: Dependencies,
    /// The source.
    pub source: SourceFact,
    /// The inputs.
    pub inputs: Inputs,
    /// The runs so far.
    pub history: History,
    /// Token of a reconcile request that no run has handled yet.
    pub request: Option<String>,
    /// `spec.interval`.
    pub interval: SignedDuration,
    /// Offset of drift detections in the interval; `None`: one interval after the last one.
    pub interval_offset: Option<IntervalOffset>,
    /// When and how often a failure is retried.
    pub retry: RetryPolicy,
    /// Now.
    pub now: Timestamp,
}

impl Facts {
    /// When the next drift detection is due after one that ended at `last`. Never with an interval of 0.
    #[must_use]
    pub fn due(&self, last: Timestamp) -> Timestamp {
        if !self.interval.is_positive() {
            return Timestamp::MAX;
        }
        match self.interval_offset {
            Some(offset) => offset.due(last, self.interval),
            None => last.saturating_add(self.interval).unwrap_or(Timestamp::MAX),
        }
    }
}

/// The switches of the spec.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the spec, and any may be on with any other"
)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// `planOnly`, where `force` does not override it.
    pub plan_only: bool,
    /// `force`: plans are applied whatever `approvePlan` says.
    pub forced: bool,
    /// `destroy`: every plan is a destroy plan.
    pub destroy: bool,
    /// `destroyResourcesOnDeletion`.
    pub destroy_on_deletion: bool,
    /// Whether to release the state lock that the last run met.
    pub force_unlock: ForceUnlock,
    /// `breakTheGlass`, or the annotation that asks for one session.
    pub break_glass: BreakGlass,
}

/// Whether to release a state lock whose holder is not proved dead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForceUnlock {
    /// The lock stays.
    #[default]
    No,
    /// `tfstate.forceUnlock: yes` names the lock that the last run met.
    Yes,
}

/// State of a break-glass session: a user works in the stack's directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BreakGlass {
    /// No session is requested.
    #[default]
    NotRequested,
    /// A session is requested, and the controller does not allow it.
    Denied,
    /// A session is requested.
    Requested,
    /// The session has ended, and its field is still set.
    Completed,
}

/// State of the stacks in `dependsOn`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Dependencies {
    /// All are ready.
    #[default]
    Ready,
    /// One is not ready; the public message.
    Waiting(String),
    /// One is in another namespace and that is not allowed; the public message.
    Denied(String),
    /// They form a cycle with this stack; the public message names them all.
    Cycle(String),
}

/// What `approvePlan` means for the pending plan, from `sluice_api::terraform::approval`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Approval {
    /// No approval.
    None,
    /// `auto`.
    Auto,
    /// The id of the pending plan.
    Given {
        /// The approver, as far as Kubernetes records one.
        by: String,
    },
    /// `replan-` and the start of the pending plan's id: a new plan is requested in its place.
    Replan,
    /// `disable`: drift is reported, nothing is applied.
    Disabled,
}

/// The state of `sourceRef`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceFact {
    /// It has an artifact.
    Found {
        /// The artifact's revision.
        revision: String,
        /// The artifact's digest.
        digest: String,
    },
    /// The source exists and has no artifact yet.
    NoArtifact,
    /// The source does not exist; the API server's message.
    NotFound(String),
    /// The source is in another namespace and that is not allowed.
    Denied(String),
    /// The API server did not answer.
    Unreachable(String),
    /// Not read: an active run is supervised independently of its source.
    NotRead,
}

/// The digest of everything a plan depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inputs {
    /// Resolved.
    Known(String),
    /// Not available (missing Secret, artifact that cannot be fetched, …); the public message.
    Failed {
        /// The public reason.
        reason: &'static str,
        /// The text.
        message: String,
    },
    /// Not resolved, because an earlier rule decides.
    Unresolved,
}

/// Summary of a stack's runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The run that has not ended.
    pub active: Option<RunFact>,
    /// The newest run that has ended and counts (a superseded one does not).
    pub last: Option<RunFact>,
    /// The stored plan with changes that no apply has used.
    pub pending: Option<Pending>,
    /// The newest ended run was a drift check of a stack in sync, with the same inputs.
    pub checked: bool,
    /// The end of the newest run that succeeded.
    pub last_success: Option<Timestamp>,
    /// The name of the newest run whose apply was started (part of the effect digest: makes ids single-use).
    pub last_started_apply: Option<String>,
    /// The CLI of the last run (`terraform` or `tofu`): the other one never gets the state silently.
    pub tool: Option<String>,
    /// The state lock that the newest ended run met.
    pub lock: Option<String>,
    /// Result of the newest health checks.
    pub health: Option<Health>,
    /// The streak of runs whose only cause was changed inputs.
    pub input_runs: Option<InputRunStreak>,
    /// Whether modules that the newest run downloaded may read the whole artifact.
    pub reads_artifact: bool,
    /// Whether the Secret of the outputs has disappeared.
    pub outputs_gone: bool,
    /// One more than the highest sequence in any run's name.
    pub next_sequence: u64,
}

/// A stored plan with changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The plan id.
    pub plan_id: String,
    /// The run that stored it.
    pub run: String,
    /// Whether a drift detection of a stack in sync found it.
    pub drift: bool,
    /// Whether `autoApply` holds it: `auto` and `force` do not apply it, an approval by its id does.
    pub held: bool,
    /// When the run ended.
    pub planned: Timestamp,
}

/// The facts of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFact {
    /// Its name.
    pub name: String,
    /// What it does.
    pub action: RunAction,
    /// Its trigger.
    pub trigger: Trigger,
    /// Whether its plan is a destroy plan.
    pub destroy: bool,
    /// The generation of the stack that it was created for.
    pub generation: i64,
    /// Its inputs digest.
    pub inputs: String,
    /// The digest of its artifact.
    pub source: String,
    /// Number of this attempt, from 1.
    pub attempt: u32,
    /// Its outcome.
    pub outcome: Outcome,
    /// Whether the CLI refused its plan as stale: nothing was applied.
    pub stale: bool,
    /// When it ended; while it is active, when it was created.
    pub finished: Timestamp,
}

/// Outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Not ended.
    Active,
    /// Ended without an error.
    Succeeded,
    /// Ended with an error.
    Failed,
    /// Its runner ended without a report.
    Lost,
}

/// A run to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRun {
    /// What it does.
    pub action: RunAction,
    /// Its trigger.
    pub trigger: Trigger,
    /// Whether its plan is a destroy plan.
    pub destroy: bool,
    /// The plan to apply: its id and the run that stored it.
    pub plan: Option<(String, String)>,
    /// Who approved it.
    pub approved_by: Option<String>,
    /// 1, or one more than the failed attempt that it follows.
    pub attempt: u32,
}
