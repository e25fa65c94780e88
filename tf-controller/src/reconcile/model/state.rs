//! The state of the model: the objects in the API, the processes and the history; small enough to compare and hash.

use sluice_api::run::{Action, Trigger};

/// What a plan depends on: the code that the stack reads, and its variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Inputs {
    pub(super) code: u8,
    pub(super) vars: u8,
}

/// What a plan does and depends on; the end of its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Effect {
    pub(super) inputs: Inputs,
    /// What it starts from.
    pub(super) from: Infrastructure,
    pub(super) destroy: bool,
    /// The number of the last started apply.
    pub(super) last_apply: u8,
}

/// The resources as a plan sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Infrastructure {
    pub(super) applied_inputs: Option<Inputs>,
    /// They were changed outside the CLI, or an apply failed halfway.
    pub(super) drifted: bool,
}

/// `approvePlan`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Approve {
    Nothing,
    Auto,
    Plan(Effect),
}

/// The Terraform object.
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the spec")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Stack {
    pub(super) generation: u8,
    pub(super) vars: u8,
    pub(super) approve: Approve,
    pub(super) plan_only: bool,
    pub(super) suspend: bool,
    pub(super) destroy: bool,
    pub(super) destroy_on_deletion: bool,
    pub(super) retries: Option<u8>,
    pub(super) deleting: bool,
    /// The reconcile request; 0: none.
    pub(super) request: u8,
    pub(super) handled: u8,
}

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Stage {
    Pending,
    Claimed,
    Planned,
    Applying,
    Succeeded,
    Failed,
    Stale,
    Superseded,
    Lost,
}

impl Stage {
    pub(super) const fn is_final(self) -> bool {
        matches!(
            self,
            Self::Succeeded | Self::Failed | Self::Stale | Self::Superseded | Self::Lost
        )
    }
}

/// A stored plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Stored {
    pub(super) effect: Effect,
    /// The state's serial at the plan.
    pub(super) serial: u8,
}

/// A TerraformRun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Run {
    pub(super) number: u8,
    pub(super) action: Action,
    pub(super) trigger: Trigger,
    pub(super) destroy: bool,
    pub(super) generation: u8,
    pub(super) inputs: Inputs,
    /// The plan that it applies, and the run that made it.
    pub(super) plan: Option<(Effect, u8)>,
    pub(super) attempt: u8,
    pub(super) request: u8,
    pub(super) stage: Stage,
    /// Whether its plan has changes; `None` without a plan.
    pub(super) has_changes: Option<bool>,
    pub(super) stored: Option<Stored>,
    pub(super) attempted: bool,
    /// How many runs had ended before; its time.
    pub(super) ended: u8,
}

/// The progress of a runner's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum ProcessStage {
    Started,
    Claimed,
    Planned,
    Admitted,
    Recorded,
    Applied,
    Failed,
    Stale,
    Outdated,
}

/// A runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Process {
    pub(super) run: u8,
    /// The last started apply, as the bundle says.
    pub(super) last_apply: u8,
    pub(super) stage: ProcessStage,
}

/// The next write of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Intent {
    Nothing,
    Create {
        run: Run,
        last_apply: u8,
    },
    Launch {
        run: u8,
        last_apply: u8,
    },
    Inspect {
        observed: Run,
        now: Option<Inputs>,
        last_apply: u8,
    },
    End {
        observed: Run,
        stage: Stage,
    },
    Handle {
        token: u8,
    },
    Release,
}

/// A controller: its cache and its next write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Controller {
    pub(super) cache: Option<Stack>,
    pub(super) intent: Intent,
}

/// The remaining number of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    /// Edits, approvals and requests.
    pub(super) user: u8,
    /// Commits that touch the stack's inputs.
    pub(super) commits: u8,
    /// Other commits.
    pub(super) others: u8,
    /// Changes outside the CLI.
    pub(super) drifts: u8,
    /// Killed runners and controllers, failures of the CLI.
    pub(super) faults: u8,
    /// Intervals that elapse.
    pub(super) ticks: u8,
    /// Reconciliations of a second controller, which has lost its leadership.
    pub(super) second_reconciles: u8,
}

/// The past, as far as the properties need it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Trace {
    /// Effects that a user approved.
    pub(super) approved: Vec<Effect>,
    /// Generations with `auto`.
    pub(super) auto: Vec<u8>,
    /// Effects that were applied.
    pub(super) applied: Vec<Effect>,
    /// Reasons for runs, counted.
    pub(super) reasons: u8,
    /// The first violation.
    pub(super) violation: Option<&'static str>,
}

/// The whole state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SystemState {
    /// `None`: deleted.
    pub(super) stack: Option<Stack>,
    /// The revision, and the code of it that the stack reads.
    pub(super) revision: u8,
    pub(super) code: u8,
    pub(super) runs: Vec<Run>,
    pub(super) infrastructure: Infrastructure,
    pub(super) serial: u8,
    pub(super) processes: Vec<Process>,
    pub(super) controllers: [Controller; 2],
    /// Every timer has expired.
    pub(super) timers_expired: bool,
    pub(super) remaining: Budget,
    pub(super) trace: Trace,
}

impl SystemState {
    pub(super) fn run(&self, number: u8) -> Option<&Run> {
        self.runs.iter().find(|run| run.number == number)
    }

    pub(super) fn run_mut(&mut self, number: u8) -> Option<&mut Run> {
        self.runs.iter_mut().find(|run| run.number == number)
    }

    /// Returns the current inputs.
    pub(super) fn inputs(&self, stack: &Stack) -> Inputs {
        Inputs {
            code: self.code,
            vars: stack.vars,
        }
    }

    /// Returns whether a process carries out this run.
    pub(super) fn is_alive(&self, run: u8) -> bool {
        self.processes.iter().any(|process| process.run == run)
    }

    pub(super) fn violation(&mut self, what: &'static str) {
        self.trace.violation.get_or_insert(what);
    }

    /// Ends a run: timers start again.
    pub(super) fn end(&mut self, number: u8, stage: Stage) {
        let ended = self.runs.iter().map(|run| run.ended).max().unwrap_or(0) + 1;
        self.timers_expired = false;
        if stage == Stage::Superseded {
            // A watch catches up before a superseded run ends, or runs would be created again and again.
            self.controllers[0].cache = self.stack;
        }
        if let Some(run) = self.run_mut(number) {
            run.stage = stage;
            run.ended = ended;
        }
    }
}
