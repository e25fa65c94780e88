//! What the decision is given: plain values, gathered by `reconcile::observe` and `reconcile::resolve`.

use super::{InputRuns, Phase, RetryPolicy};
use jiff::{SignedDuration, Timestamp};
pub use sluice_api::run::{Action as RunAction, Health, Trigger};

/// A field with a value that cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The reason in `Ready`.
    pub reason: &'static str,
    /// Which field, and why.
    pub text: String,
}

/// All that the decision sees of one stack.
#[derive(Clone, Debug)]
pub struct Facts {
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// `spec.suspend`.
    pub suspended: bool,
    /// A field with a value that cannot be carried out, and why.
    pub refused: Option<Refused>,
    /// Two fields that say opposite things, and which: nothing is done, not even a deletion.
    pub contradiction: Option<String>,
    /// `metadata.generation`.
    pub generation: i64,
    /// What the spec allows.
    pub policy: Policy,
    /// What `approvePlan` says of the waiting plan.
    pub approval: Approval,
    /// The stacks that this one builds on.
    pub dependencies: Dependencies,
    /// The stacks that build on this one and still hold something: with a deletion or `destroy` they go first. Not looked
    /// at otherwise.
    pub dependants: Vec<String>,
    /// The source.
    pub source: SourceFact,
    /// The inputs.
    pub inputs: Inputs,
    /// The runs so far.
    pub history: History,
    /// A reconcile request that no run has taken up yet.
    pub request: Option<String>,
    /// `spec.interval`.
    pub interval: SignedDuration,
    /// Where in its interval the stack is looked at; `None`: one interval after the last time.
    pub phase: Option<Phase>,
    /// When and how often a failure is retried.
    pub retry: RetryPolicy,
    /// Now.
    pub now: Timestamp,
}

impl Facts {
    /// When the stack is looked at again after a look that ended at `last`; with an interval of nothing never by the clock.
    #[must_use]
    pub fn due(&self, last: Timestamp) -> Timestamp {
        if !self.interval.is_positive() {
            return Timestamp::MAX;
        }
        match self.phase {
            Some(phase) => phase.due(last, self.interval),
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
    /// What becomes of a state lock that the last run met.
    pub lock: LockWish,
    /// `breakTheGlass`, or the annotation that asks for one session.
    pub glass: Glass,
}

/// What becomes of a state lock that is not provably dead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockWish {
    /// It stays.
    #[default]
    Stays,
    /// `tfstate.forceUnlock: yes` names the very lock that the last run met: it is released.
    Released,
}

/// How it stands with a session in which a person works in the stack's directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Glass {
    /// Nobody asks for one.
    #[default]
    Whole,
    /// It is asked for, and the controller does not allow it.
    Refused,
    /// It is asked for.
    Wanted,
    /// It was held, and the field that asked for it is still set.
    Over,
}

/// What `dependsOn` says of a stack that wants to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Dependencies {
    /// Nothing stands in the way.
    #[default]
    Ready,
    /// One is not as far; the public text.
    Waiting(String),
    /// One lies in another namespace and that is not allowed; the public text.
    Denied(String),
    /// They lead back to this stack; the public text names them all.
    Cycle(String),
}

/// What `approvePlan` says, held against the waiting plan by `sluice_api::terraform::approval`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Approval {
    /// Nothing that approves.
    None,
    /// `auto`.
    Auto,
    /// Names the waiting plan's effect.
    Given {
        /// Who gave it, as far as Kubernetes tells.
        by: String,
    },
    /// `replan-` and the beginning of the waiting plan's id: another plan is asked for in its place.
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
    /// It exists and has no artifact yet.
    NoArtifact,
    /// It does not exist (the text of the API server).
    NotFound(String),
    /// It lies in another namespace and that is not allowed.
    Denied(String),
    /// The API server did not answer.
    Unreachable(String),
    /// Not looked at: a run in progress is followed, whatever becomes of its source.
    NotRead,
}

/// The digest of everything a plan depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inputs {
    /// Resolved.
    Known(String),
    /// Not to be had now (missing Secret, artifact that cannot be fetched, …); the public text.
    Failed {
        /// The public reason.
        reason: &'static str,
        /// The text.
        message: String,
    },
    /// Not looked at, because an earlier rule decides.
    Unresolved,
}

/// What the runs of a stack amount to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The run that has not ended.
    pub active: Option<RunFact>,
    /// The newest run that has ended and counts (a superseded one does not).
    pub last: Option<RunFact>,
    /// The stored plan with changes that no apply has used.
    pub pending: Option<Pending>,
    /// The newest ended run was a check of a stack that had been as wanted, with the same inputs.
    pub checked: bool,
    /// The end of the newest run that succeeded.
    pub last_success: Option<Timestamp>,
    /// The name of the newest run whose apply was started (part of the effect digest: makes ids single-use).
    pub last_started_apply: Option<String>,
    /// The program that the stack was last run with (`terraform` or `tofu`): its state is never given to the other one
    /// silently.
    pub tool: Option<String>,
    /// The state lock that the newest ended run met.
    pub lock: Option<String>,
    /// What the newest health checks came to.
    pub health: Option<Health>,
    /// The runs in a row that nothing but changed inputs caused.
    pub input_runs: Option<InputRuns>,
    /// Modules that the newest run downloaded may read the whole artifact.
    pub reads_artifact: bool,
    /// Outputs were written to a Secret that is not there any more.
    pub outputs_gone: bool,
    /// One more than the highest sequence in any run's name.
    pub next_sequence: u64,
}

/// A stored plan with changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The plan id.
    pub plan_id: String,
    /// The run that made it.
    pub run: String,
    /// It was found by a check of a stack that had been as wanted.
    pub drift: bool,
    /// `autoApply` holds it: `auto` and `force` do not apply it, an approval by its id does.
    pub held: bool,
    /// When the run ended.
    pub planned: Timestamp,
}

/// What counts of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFact {
    /// Its name.
    pub name: String,
    /// What it does.
    pub action: RunAction,
    /// What caused it.
    pub trigger: Trigger,
    /// Whether its plan is a destroy plan.
    pub destroy: bool,
    /// The generation of the Terraform that it was made for.
    pub generation: i64,
    /// Its inputs digest.
    pub inputs: String,
    /// The digest of the artifact that it was made of.
    pub source: String,
    /// How often the same was tried, this one counted.
    pub attempt: u32,
    /// How it ended, or that it has not.
    pub outcome: Outcome,
    /// The CLI refused its plan as stale: nothing was applied.
    pub stale: bool,
    /// When it ended; the time it was made, while it has not.
    pub finished: Timestamp,
}

/// How a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Not ended.
    Active,
    /// Ended well.
    Succeeded,
    /// Ended with an error.
    Failed,
    /// Its process is gone and it never said how it ended.
    Lost,
}

/// A run to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRun {
    /// What it does.
    pub action: RunAction,
    /// What causes it.
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
