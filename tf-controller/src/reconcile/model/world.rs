//! The state of the model: what stands in the API, what lives, what was done; small enough to be compared and hashed.

use sluice_api::run::{Action, Trigger};

/// What a plan depends on: the code that the stack reads, and its variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Inputs {
    pub(super) code: u8,
    pub(super) vars: u8,
}

/// What a plan does and depends on: what its id ends in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Effect {
    pub(super) inputs: Inputs,
    /// What it starts from.
    pub(super) from: Reality,
    pub(super) destroy: bool,
    /// The number of the last started apply.
    pub(super) last_apply: u8,
}

/// What is in place, so far as a plan sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Reality {
    pub(super) made: Option<Inputs>,
    /// Somebody changed it behind our back, or an apply ended halfway.
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

/// How far a run is.
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

/// A plan that a run stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Stored {
    pub(super) effect: Effect,
    /// The state's serial that it was made on.
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
    /// There is a plan, and whether it changes anything.
    pub(super) has_changes: Option<bool>,
    pub(super) stored: Option<Stored>,
    pub(super) attempted: bool,
    /// How many runs had ended when it did: its time.
    pub(super) ended: u8,
}

/// How far a runner's process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Place {
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
    pub(super) place: Place,
}

/// What a controller is about to do.
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
        seen: Run,
        now: Option<Inputs>,
        last_apply: u8,
    },
    End {
        seen: Run,
        stage: Stage,
    },
    Handle {
        token: u8,
    },
    Release,
}

/// A controller: what its watch has told it, and what it is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Controller {
    pub(super) cache: Option<Stack>,
    pub(super) intent: Intent,
}

/// How much of what may happen is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    /// Edits, approvals and requests.
    pub(super) user: u8,
    /// Commits that the stack reads.
    pub(super) commits: u8,
    /// Commits that it does not read.
    pub(super) others: u8,
    /// Changes behind our back.
    pub(super) drifts: u8,
    /// Killed runners and controllers, failures of the CLI.
    pub(super) faults: u8,
    /// Intervals that pass.
    pub(super) ticks: u8,
    /// Passes that a second controller begins: one that believes that it leads.
    pub(super) looks: u8,
}

/// What the properties need to know of the past.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Past {
    /// Effects that a person approved.
    pub(super) approved: Vec<Effect>,
    /// Generations that said `auto` to a plan to apply.
    pub(super) auto: Vec<u8>,
    /// Effects that were applied.
    pub(super) applied: Vec<Effect>,
    /// Reasons for runs, counted.
    pub(super) reasons: u8,
    /// The first thing that must never be.
    pub(super) wrong: Option<&'static str>,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    /// `None`: gone.
    pub(super) stack: Option<Stack>,
    /// The commit, and of it what the stack reads.
    pub(super) revision: u8,
    pub(super) code: u8,
    pub(super) runs: Vec<Run>,
    pub(super) reality: Reality,
    pub(super) serial: u8,
    pub(super) processes: Vec<Process>,
    pub(super) controllers: [Controller; 2],
    /// Every wait is over.
    pub(super) late: bool,
    pub(super) left: Budget,
    pub(super) past: Past,
}

impl World {
    pub(super) fn run(&self, number: u8) -> Option<&Run> {
        self.runs.iter().find(|run| run.number == number)
    }

    pub(super) fn run_mut(&mut self, number: u8) -> Option<&mut Run> {
        self.runs.iter_mut().find(|run| run.number == number)
    }

    /// The inputs as they are now.
    pub(super) fn inputs(&self, stack: &Stack) -> Inputs {
        Inputs {
            code: self.code,
            vars: stack.vars,
        }
    }

    /// Whether a process carries this run out.
    pub(super) fn is_alive(&self, run: u8) -> bool {
        self.processes.iter().any(|process| process.run == run)
    }

    pub(super) fn wrong(&mut self, what: &'static str) {
        self.past.wrong.get_or_insert(what);
    }

    /// A run has ended: waits begin anew.
    pub(super) fn end(&mut self, number: u8, stage: Stage) {
        let ended = self.runs.iter().map(|run| run.ended).max().unwrap_or(0) + 1;
        self.late = false;
        if stage == Stage::Superseded {
            // A watch catches up before a run that was withheld has come to its end, or it would be made again and again.
            self.controllers[0].cache = self.stack;
        }
        if let Some(run) = self.run_mut(number) {
            run.stage = stage;
            run.ended = ended;
        }
    }
}
