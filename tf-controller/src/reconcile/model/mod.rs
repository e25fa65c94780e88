//! The model: the controller's own decision, composed with an API server whose watch is late, two controllers, runners that
//! die, people, commits and time, explored exhaustively within bounds (crate `stateright`).
//!
//! What is real: `history`, `gather`, `decide`, `upkeep`, `after_rest`, the approval and the runner's gate, all called with
//! the objects that the API would hold. What is modelled: the order of reads and writes around them.

mod around;
mod checks;
mod controller;
mod mutants;
mod objects;
mod property;
mod rest;
mod runner;
mod world;

use crate::decide::{Guard, without};
use around::Deed;
use runner::Luck;
use stateright::{Model, Property};
use world::{Approve, Budget, Controller, Inputs, Intent, Past, Reality, Stack, World};

/// More runs than any exploration gets to: beyond it nothing would be looked at.
const MOST_RUNS: usize = 20;

/// A step of somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Turn {
    /// The watch of this controller catches up.
    Deliver(usize),
    /// It begins a pass.
    Look(usize),
    /// It writes.
    Act(usize),
    /// It is killed, and another starts in its place.
    Crash(usize),
    /// The next step of this process.
    Run(usize, Luck),
    Kill(usize),
    Person(Deed),
    Commit {
        relevant: bool,
    },
    Drift,
    Tick,
}

/// Something that is wrong around the decision, to show that the properties notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    /// The process is looked at before its run is read, and not after.
    LivenessBeforeRead,
    /// A runner takes a run that somebody else has.
    BlindClaim,
    /// A run applies what it planned without asking.
    NoGate,
    /// A run applies a stored plan without asking whether its approval stands.
    NoStanding,
}

/// The system within these bounds.
#[derive(Clone, Debug)]
struct Sluice {
    /// The object as it is created.
    stack: Stack,
    /// What is in place at the beginning.
    made: Option<Inputs>,
    budget: Budget,
    left_out: Option<Guard>,
    flaw: Option<Flaw>,
}

impl Sluice {
    /// A stack of this mode, nothing in place, nothing that happens.
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
            made: None,
            budget: Budget::default(),
            left_out: None,
            flaw: None,
        }
    }

    fn turn(&self, world: &World, turn: Turn) -> Option<World> {
        match turn {
            Turn::Deliver(who) => {
                let mut next = world.clone();
                next.controllers[who].cache = world.stack;
                (next != *world).then_some(next)
            }
            Turn::Look(0) => controller::look(self, world, 0),
            Turn::Look(who) => {
                let mut next = controller::look(self, world, who)?;
                next.left.looks = next.left.looks.checked_sub(1)?;
                Some(next)
            }
            Turn::Act(who) => controller::act(self, world, who),
            Turn::Crash(who) => {
                let mut next = world.clone();
                next.left.faults = next.left.faults.checked_sub(1)?;
                next.controllers[who] = Controller {
                    cache: world.stack,
                    intent: Intent::Nothing,
                };
                Some(next)
            }
            Turn::Run(index, luck) => runner::step(self, world, index, luck),
            Turn::Kill(index) => runner::kill(world, index),
            Turn::Person(deed) => around::person(world, deed),
            Turn::Commit { relevant } => around::commit(world, relevant),
            Turn::Drift => around::drift(world),
            Turn::Tick => around::tick(world),
        }
    }
}

impl Model for Sluice {
    type State = World;
    type Action = Turn;

    fn init_states(&self) -> Vec<World> {
        let controller = Controller {
            cache: Some(self.stack),
            intent: Intent::Nothing,
        };
        let mut world = World {
            stack: Some(self.stack),
            revision: 0,
            code: 0,
            runs: Vec::new(),
            reality: Reality {
                made: self.made,
                drifted: false,
            },
            serial: 0,
            processes: Vec::new(),
            controllers: [controller; 2],
            late: false,
            left: self.budget,
            past: Past {
                // A second controller that sees an older stack may make a run for what is no more.
                reasons: 2 + 2 * self.budget.looks,
                ..Past::default()
            },
        };
        around::remember(&mut world);
        vec![world]
    }

    fn actions(&self, world: &World, turns: &mut Vec<Turn>) {
        if world.past.wrong.is_some() {
            return; // what comes after says nothing more
        }
        for (who, controller) in world.controllers.iter().enumerate() {
            let watches = who == 0 || world.left.looks > 0;
            if watches && controller.cache != world.stack {
                turns.push(Turn::Deliver(who));
            }
            if controller.intent != Intent::Nothing {
                turns.push(Turn::Act(who));
            } else if watches {
                turns.push(Turn::Look(who));
            }
        }
        turns.extend((0..world.processes.len()).map(|index| Turn::Run(index, Luck::Good)));
        if world.left.faults > 0 {
            let works = |who: &usize| world.controllers[*who].intent != Intent::Nothing;
            turns.extend((0..2).filter(works).map(Turn::Crash));
            for index in 0..world.processes.len() {
                let bad = [Luck::Bad, Luck::Halfway].map(|luck| Turn::Run(index, luck));
                turns.extend(bad);
                turns.push(Turn::Kill(index));
            }
        }
        if world.left.user > 0 {
            turns.extend(Deed::all(world).into_iter().map(Turn::Person));
        }
        turns.extend([
            Turn::Commit { relevant: true },
            Turn::Commit { relevant: false },
            Turn::Drift,
            Turn::Tick,
        ]);
    }

    fn next_state(&self, world: &World, turn: Turn) -> Option<World> {
        without(self.left_out, || self.turn(world, turn))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        property::all()
    }

    fn within_boundary(&self, world: &World) -> bool {
        world.runs.len() <= MOST_RUNS
    }
}
