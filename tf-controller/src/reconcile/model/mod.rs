//! The model: the controller's own decision, composed with an API server whose watch lags, two controllers, runners
//! that die, users, commits and time, explored exhaustively within bounds (crate `stateright`).
//!
//! Real are `facts::Outline` and `facts::build_facts` with the history, `decide::decide`, `supervision::decide_supervision`,
//! `execute::next_after`, the approval and the runner's gate, all called with the objects that the API would hold. Modelled is the
//! order of reads and writes around them.
#![expect(clippy::similar_names, reason = "a stage is the state of one process")]

mod checks;
mod controller;
mod environment;
mod liveness;
mod mutants;
mod objects;
mod property;
mod runner;
mod state;

use environment::UserAction;
use runner::StepOutcome;
use state::{Approve, Budget, Controller, Infrastructure, Inputs, Intent, Stack, SystemState, Trace};
use stateright::{Model, Property};

use crate::decide::{MutationPoint, with_disabled};

/// More runs than any exploration reaches.
const MOST_RUNS: usize = 20;

/// One step of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Transition {
    /// The watch of this controller catches up.
    Deliver(usize),
    /// It starts a reconciliation.
    Reconcile(usize),
    /// It makes its next write.
    Write(usize),
    /// It is killed and restarted.
    Crash(usize),
    /// The next step of this process.
    Run(usize, StepOutcome),
    Kill(usize),
    User(UserAction),
    Commit {
        relevant: bool,
    },
    Drift,
    Tick,
}

/// A fault outside the decision, to show that the properties detect it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    /// Liveness is checked before the run is read, and not after.
    LivenessBeforeRead,
    /// A runner claims a run that another runner has.
    BlindClaim,
    /// A run applies its plan without a check.
    NoGate,
    /// A run applies a stored plan without a check of its approval.
    NoApprovalCheck,
}

/// The system within these bounds.
#[derive(Clone, Debug)]
struct Sluice {
    /// The object as it is created.
    stack: Stack,
    /// The inputs that are applied at the start.
    applied_inputs: Option<Inputs>,
    budget: Budget,
    disabled_point: Option<MutationPoint>,
    flaw: Option<Flaw>,
}

impl Sluice {
    /// Returns a stack with this approval, without resources and events.
    fn of(approve: Approve) -> Self {
        Self {
            stack: Stack {
                generation: 1,
                vars: 0,
                approve,
                plan_only: false,
                suspend: false,
                destroy: false,
                destroy_on_deletion: true,
                retries: None,
                deleting: false,
                request: 0,
                handled: 0,
            },
            applied_inputs: None,
            budget: Budget::default(),
            disabled_point: None,
            flaw: None,
        }
    }

    fn apply(&self, state: &SystemState, transition: Transition) -> Option<SystemState> {
        match transition {
            Transition::Deliver(index) => {
                let mut next = state.clone();
                next.controllers[index].cache = state.stack;
                (next != *state).then_some(next)
            }
            Transition::Reconcile(0) => controller::reconcile(self, state, 0),
            Transition::Reconcile(index) => {
                let mut next = controller::reconcile(self, state, index)?;
                next.remaining.second_reconciles = next.remaining.second_reconciles.checked_sub(1)?;
                Some(next)
            }
            Transition::Write(index) => controller::write(self, state, index),
            Transition::Crash(index) => {
                let mut next = state.clone();
                next.remaining.faults = next.remaining.faults.checked_sub(1)?;
                next.controllers[index] = Controller {
                    cache: state.stack,
                    intent: Intent::Nothing,
                };
                Some(next)
            }
            Transition::Run(index, outcome) => runner::step(self, state, index, outcome),
            Transition::Kill(index) => runner::kill(state, index),
            Transition::User(action) => environment::user(state, action),
            Transition::Commit { relevant } => environment::commit(state, relevant),
            Transition::Drift => environment::drift(state),
            Transition::Tick => environment::tick(state),
        }
    }
}

impl Model for Sluice {
    type State = SystemState;
    type Action = Transition;

    fn init_states(&self) -> Vec<SystemState> {
        let controller = Controller {
            cache: Some(self.stack),
            intent: Intent::Nothing,
        };
        let mut state = SystemState {
            stack: Some(self.stack),
            revision: 0,
            code: 0,
            runs: Vec::new(),
            infrastructure: Infrastructure {
                applied_inputs: self.applied_inputs,
                drifted: false,
            },
            serial: 0,
            processes: Vec::new(),
            controllers: [controller; 2],
            timers_expired: false,
            remaining: self.budget,
            trace: Trace {
                // A second controller with an older cache may create a run for a cause that no longer holds.
                reasons: 2 + 2 * self.budget.second_reconciles,
                ..Trace::default()
            },
        };
        environment::record_approval(&mut state);
        vec![state]
    }

    fn actions(&self, state: &SystemState, transitions: &mut Vec<Transition>) {
        if state.trace.violation.is_some() {
            return; // later states are irrelevant
        }
        for (index, controller) in state.controllers.iter().enumerate() {
            let watches = index == 0 || state.remaining.second_reconciles > 0;
            if watches && controller.cache != state.stack {
                transitions.push(Transition::Deliver(index));
            }
            if controller.intent != Intent::Nothing {
                transitions.push(Transition::Write(index));
            } else if watches {
                transitions.push(Transition::Reconcile(index));
            }
        }
        transitions
            .extend((0..state.processes.len()).map(|index| Transition::Run(index, StepOutcome::Success)));
        if state.remaining.faults > 0 {
            let has_intent = |index: &usize| state.controllers[*index].intent != Intent::Nothing;
            transitions.extend((0..2).filter(has_intent).map(Transition::Crash));
            for index in 0..state.processes.len() {
                let failures = [StepOutcome::Failure, StepOutcome::PartialFailure]
                    .map(|outcome| Transition::Run(index, outcome));
                transitions.extend(failures);
                transitions.push(Transition::Kill(index));
            }
        }
        if state.remaining.user > 0 {
            transitions.extend(UserAction::all(state).into_iter().map(Transition::User));
        }
        transitions.extend([
            Transition::Commit { relevant: true },
            Transition::Commit { relevant: false },
            Transition::Drift,
            Transition::Tick,
        ]);
    }

    fn next_state(&self, state: &SystemState, transition: Transition) -> Option<SystemState> {
        with_disabled(self.disabled_point, || self.apply(state, transition))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        property::all()
    }

    fn within_boundary(&self, state: &SystemState) -> bool {
        state.runs.len() <= MOST_RUNS
    }
}
