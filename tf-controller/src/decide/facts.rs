//! The input of the decision: plain values, gathered by `reconcile::observe` and `reconcile::resolve`.

use jiff::{SignedDuration, Timestamp};
use sluice_api::run::PlanRejection;
use sluice_api::run::state::KnownState;
pub(crate) use sluice_api::run::{Action as RunAction, Health, Trigger};

use super::{InputRunStreak, IntervalOffset, RetryPolicy};
use crate::memory::MeasuredMemory;

/// A field with a value that this version does not support.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnsupportedField {
    /// The reason in `Ready`.
    pub(crate) reason: &'static str,
    /// Public message: the field and the reason.
    pub(crate) text: String,
}

/// Everything that the decision uses of one stack except its dependents. Built once (`reconcile::facts`) and never changed.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// `metadata.deletionTimestamp` is set.
    pub(crate) deleting: bool,
    /// `spec.suspend`.
    pub(crate) suspended: bool,
    /// A field with an unsupported value.
    pub(crate) unsupported_field: Option<UnsupportedField>,
    /// Public message about two fields that contradict each other: nothing is done, not even a deletion.
    pub(crate) contradiction: Option<String>,
    /// `metadata.generation`.
    pub(crate) generation: i64,
    /// What the spec allows.
    pub(crate) policy: Policy,
    /// What `approvePlan` and approvals of users mean for the pending plan.
    pub(crate) approval: Approval,
    /// The stacks that this one depends on.
    pub(crate) dependencies: Dependencies,
    /// The source.
    pub(crate) source: SourceFact,
    /// The inputs.
    pub(crate) inputs: Inputs,
    /// The runs so far.
    pub(crate) history: History,
    /// Token of a reconcile request that no run has handled yet.
    pub(crate) request: Option<String>,
    /// `spec.interval`.
    pub(crate) interval: SignedDuration,
    /// Offset of drift detections in the interval; `None`: one interval after the last one.
    pub(crate) interval_offset: Option<IntervalOffset>,
    /// When and how often a failure is retried.
    pub(crate) retry: RetryPolicy,
    /// Now.
    pub(crate) now: Timestamp,
}

impl Facts {
    /// When the next drift detection is due after one that ended at `last`. Never with an interval of 0.
    pub(crate) fn due(&self, last: Timestamp) -> Timestamp {
        if !self.interval.is_positive() {
            return Timestamp::MAX;
        }
        match self.interval_offset {
            Some(offset) => offset.due(last, self.interval),
            None => last.saturating_add(self.interval).unwrap_or(Timestamp::MAX),
        }
    }

    /// When a failed run is retried: after the retry delay, or at the next interval if only a change helps.
    pub(crate) fn retry_at(&self, run: &RunFact) -> Timestamp {
        if run.needs_change {
            self.retry_without_change_at(run)
        } else {
            after(run.finished, self.retry_delay(run))
        }
    }

    /// When the pending plan is applied after a run that refused to, if that is later than now. The runner of an older image does not know each
    /// way to approve, and may refuse each time.
    pub(crate) fn apply_pause_until(&self) -> Option<Timestamp> {
        let until = after(self.history.refused_apply?, self.retry.delay(1));
        (self.now < until).then_some(until)
    }

    fn retry_delay(&self, last: &RunFact) -> SignedDuration {
        self.retry.delay(self.history.delay_step(last))
    }

    /// When a run is repeated after which only a change helps, and each attempt is a pod: at the next interval, or with an interval of 0
    /// after the longest retry delay. An edit since may be that change: then at once.
    pub(crate) fn retry_without_change_at(&self, run: &RunFact) -> Timestamp {
        if run.generation != self.generation {
            return run.finished;
        }
        let at = after(run.finished, self.retry_delay(run));
        let next = if self.interval.is_positive() {
            self.due(run.finished)
        } else {
            after(run.finished, self.retry.longest)
        };
        at.max(next)
    }
}

/// The switches of the spec.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the spec, and any may be on with any other"
)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Policy {
    /// `planOnly`, where `force` does not override it.
    pub(crate) plan_only: bool,
    /// `force`: plans are applied without regard to `approvePlan`.
    pub(crate) forced: bool,
    /// `destroy`: every plan is a destroy plan.
    pub(crate) destroy: bool,
    /// `destroyResourcesOnDeletion`.
    pub(crate) destroy_on_deletion: bool,
    /// Whether to release the state lock that the last run met.
    pub(crate) force_unlock: ForceUnlock,
    /// `breakTheGlass`, or the annotation that requests one session.
    pub(crate) break_glass: BreakGlass,
}

/// Whether to release a state lock whose holder is not proved dead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ForceUnlock {
    /// The lock stays.
    #[default]
    No,
    /// `tfstate.forceUnlock: yes` names the lock that the last run met.
    Yes,
}

/// State of a break-glass session: a user works in the stack's directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum BreakGlass {
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
pub(crate) enum Dependencies {
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
pub(crate) enum Approval {
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
pub(crate) enum SourceFact {
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
pub(crate) enum Inputs {
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
pub(crate) struct History {
    /// The run that has not ended.
    pub(crate) active: Option<RunFact>,
    /// The newest run that has ended and counts (a superseded one does not).
    pub(crate) last: Option<RunFact>,
    /// The stored plan with changes that no apply has used.
    pub(crate) pending: Option<Pending>,
    /// When the newest run ended, if its runner refused to apply the pending plan of this spec.
    pub(crate) refused_apply: Option<Timestamp>,
    /// The effect of the newest stored plan. Not part of the decision: only shown.
    pub(crate) planned_effect: Option<PlannedEffect>,
    /// How many of the newest ended runs in a row were disrupted (`disruptions_in_row`); 0: the last one was not.
    pub(crate) disruptions: u32,
    /// How many of the newest runs in a row were interrupted before their work began, at most `INTERRUPTION_LIMIT`. A run that was disrupted
    /// later does not end the row. Not part of the decision: the next run records it, and its runner compares it with the limit.
    pub(crate) interruptions: i64,
    /// The newest ended run was a drift check of a stack in sync, with the same inputs.
    pub(crate) checked: bool,
    /// The end of the newest run that succeeded.
    pub(crate) last_success: Option<Timestamp>,
    /// The name of the newest run whose apply was started (part of the effect digest: makes ids single-use).
    pub(crate) last_started_apply: Option<String>,
    /// The name of the newest run whose plan was rejected since then. Not part of the decision: it uses up the id of that plan, too.
    pub(crate) last_rejected: Option<String>,
    /// The CLI of the last run (`terraform` or `tofu`): the other one never gets the state silently.
    pub(crate) tool: Option<String>,
    /// The state lock that the newest ended run met.
    pub(crate) lock: Option<String>,
    /// Result of the newest health checks.
    pub(crate) health: Option<Health>,
    /// The state that the last apply left, if it was read.
    pub(crate) state: Option<KnownState>,
    /// The streak of runs whose only cause was changed inputs.
    pub(crate) input_runs: Option<InputRunStreak>,
    /// Whether modules that the newest run downloaded may read the whole artifact.
    pub(crate) reads_artifact: bool,
    /// Whether the Secret of the outputs has disappeared.
    pub(crate) outputs_gone: bool,
    /// The measured memory of the runs. Not part of the decision: the next run uses it.
    pub(crate) memory: MeasuredMemory,
    /// One more than the highest sequence in any run's name.
    pub(crate) next_sequence: u64,
}

/// A stored plan with changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    /// The plan id.
    pub(crate) plan_id: String,
    /// The run that stored it.
    pub(crate) run: String,
    /// Whether a drift detection of a stack in sync found it.
    pub(crate) drift: bool,
    /// Whether it is held (`autoApply`, or another state): `auto` and `force` do not apply it, an approval by its id does.
    pub(crate) held: bool,
    /// By whom it was rejected, and when and why. A rejected plan is never applied.
    pub(crate) rejection: Option<PlanRejection>,
    /// When the run ended.
    pub(crate) planned: Timestamp,
}

/// The effect of stored plans in a row, with no other plan and no apply among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedEffect {
    /// Its digest.
    pub(crate) digest: String,
    /// When the first of their runs ended.
    pub(crate) since: Timestamp,
}

/// The facts of one run.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunFact {
    /// Its name.
    pub(crate) name: String,
    /// What it does.
    pub(crate) action: RunAction,
    /// Its trigger.
    pub(crate) trigger: Trigger,
    /// Whether its plan is a destroy plan.
    pub(crate) destroy: bool,
    /// The generation of the stack that it was created for.
    pub(crate) generation: i64,
    /// Its inputs digest.
    pub(crate) inputs: String,
    /// The digest of its artifact.
    pub(crate) source: String,
    /// Number of this attempt, from 1.
    pub(crate) attempt: u32,
    /// Its outcome.
    pub(crate) outcome: Outcome,
    /// Whether the CLI refused its plan as stale: nothing was applied.
    pub(crate) stale: bool,
    /// Whether it fails again until something else changes: the image of its pod does not have the CLI that the spec selects, or the
    /// state is not the one whose resources it should destroy.
    pub(crate) needs_change: bool,
    /// Whether Kubernetes ended its pod for a reason of its own: an eviction, a preemption, a lost node.
    pub(crate) disrupted: bool,
    /// When it ended; while it is active, when it was created.
    pub(crate) finished: Timestamp,
}

/// Outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
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
pub(crate) struct NewRun {
    /// What it does.
    pub(crate) action: RunAction,
    /// Its trigger.
    pub(crate) trigger: Trigger,
    /// Whether its plan is a destroy plan.
    pub(crate) destroy: bool,
    /// The plan to apply: its id and the run that stored it.
    pub(crate) plan: Option<(String, String)>,
    /// Who approved it.
    pub(crate) approved_by: Option<String>,
    /// 1, or one more than the failed attempt that it follows. The attempt after a disrupted one may have its number.
    pub(crate) attempt: u32,
}

/// Returns the time after this wait.
pub(super) fn after(since: Timestamp, wait: SignedDuration) -> Timestamp {
    since.saturating_add(wait).unwrap_or(Timestamp::MAX)
}
