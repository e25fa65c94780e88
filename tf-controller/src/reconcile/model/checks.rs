//! The bounds within which everything is explored, and the count of what that was.

use super::{
    Sluice,
    world::{Approve, Budget, Inputs},
};
use stateright::{Checker as _, HasDiscoveries, Model as _};
use std::{
    io::Write as _,
    time::{Duration, Instant},
};

/// What an exploration found.
pub(super) struct Found {
    /// The property that does not hold, and the way to where it does not.
    pub(super) wrong: Option<(String, String)>,
    pub(super) states: usize,
    pub(super) depth: usize,
    /// Something was applied on the way: where nothing ever is, nothing wrong is either.
    applied: bool,
}

/// Explores all of it, or until a property does not hold: with one thread always the same one.
pub(super) fn explore(model: Sluice, threads: usize) -> Found {
    let checker = model
        .checker()
        .threads(threads)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let mut found: Vec<_> = checker.discoveries().into_iter().collect();
    let reached = found.len();
    found.retain(|(name, _)| *name != "something is applied");
    let applied = found.len() < reached;
    found.sort_by_cached_key(|(name, path)| (path.clone().into_actions().len(), *name));
    let wrong = found.into_iter().next();
    let wrong = wrong.map(|(name, path)| {
        let name = path.last_state().past.wrong.unwrap_or(name);
        let turns = path.into_actions();
        let turns: Vec<_> = turns.iter().map(|turn| format!("{turn:?}")).collect();
        (name.to_owned(), turns.join("\n"))
    });
    Found {
        wrong,
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        applied,
    }
}

/// The bounds that are asked for: `SLUICE_MODEL=deep` takes the deeper ones, which take an hour, and seven numbers with commas
/// between them are the budget itself.
fn asked(usual: Budget, deeper: Budget) -> Budget {
    match std::env::var("SLUICE_MODEL") {
        Ok(wish) if wish == "deep" => deeper,
        Ok(wish) => {
            let numbers: Vec<u8> = wish.split(',').map(|number| number.parse().unwrap()).collect();
            budget(numbers.try_into().unwrap())
        }
        Err(_) => usual,
    }
}

/// Says how much was explored, past the capture of what tests print.
pub(super) fn told(name: &str, budget: Budget, found: &Found, took: Duration) {
    let (states, depth) = (found.states, found.depth);
    let line = format!("model, {name}, {budget:?}: {states} states, depth {depth}, {took:.1?}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

fn holds(name: &str, model: &Sluice, deeper: Budget) {
    let budget = asked(model.budget, deeper);
    let begun = Instant::now();
    let found = explore(
        Sluice {
            budget,
            ..model.clone()
        },
        2,
    );
    if let Some((property, way)) = found.wrong {
        panic!("{name}: {property}\n{way}");
    }
    assert!(found.applied, "{name}: nothing is ever applied");
    told(name, budget, &found, begun.elapsed());
}

const fn budget([user, commits, others, drifts, faults, ticks, looks]: [u8; 7]) -> Budget {
    Budget {
        user,
        commits,
        others,
        drifts,
        faults,
        ticks,
        looks,
    }
}

/// A stack whose first apply was long ago.
const IN_PLACE: Option<Inputs> = Some(Inputs { code: 0, vars: 0 });

/// Everything small that may happen, in every mode: what the mutants meet.
pub(super) fn small() -> Vec<(&'static str, Sluice)> {
    let auto = Sluice::of(Approve::Auto);
    let manual = Sluice::of(Approve::Nothing);
    let in_place = |model: &Sluice, budget| Sluice {
        made: IN_PLACE,
        budget,
        ..model.clone()
    };
    let mut limited = auto.clone();
    limited.stack.retries = Some(2);
    let with = |model: &Sluice, budget| Sluice {
        budget,
        ..model.clone()
    };
    vec![
        ("first apply, auto", with(&auto, budget([1, 0, 0, 0, 1, 0, 0]))),
        (
            "first apply, approved",
            with(&manual, budget([2, 1, 0, 0, 0, 0, 0])),
        ),
        ("drift, auto", in_place(&auto, budget([1, 0, 0, 1, 0, 1, 0]))),
        ("drift, manual", in_place(&manual, budget([1, 0, 0, 1, 0, 1, 0]))),
        ("retries", with(&limited, budget([1, 0, 0, 0, 2, 0, 0]))),
        ("two controllers", with(&manual, budget([1, 0, 0, 0, 0, 0, 2]))),
    ]
}

pub(super) fn of(name: &str) -> Sluice {
    let named = small().into_iter().find(|(found, _)| *found == name);
    named.unwrap().1
}

#[test]
fn a_first_apply_in_auto_among_edits_commits_and_faults() {
    let mut model = of("first apply, auto");
    model.budget = budget([1, 1, 1, 0, 1, 0, 0]);
    holds("first apply, auto", &model, budget([2, 1, 1, 1, 2, 1, 0]));
}

#[test]
fn approvals_that_race_commits() {
    let mut model = of("first apply, approved");
    model.budget = budget([2, 1, 0, 0, 0, 0, 0]);
    holds("first apply, approved", &model, budget([3, 2, 1, 0, 1, 0, 0]));
}

#[test]
fn drift_that_is_mended() {
    let mut model = of("drift, auto");
    model.budget = budget([1, 0, 0, 1, 1, 1, 0]);
    holds("drift, auto", &model, budget([2, 1, 1, 2, 1, 2, 0]));
}

#[test]
fn drift_that_waits() {
    let mut model = of("drift, manual");
    model.budget = budget([2, 0, 0, 1, 0, 1, 0]);
    holds("drift, manual", &model, budget([3, 1, 0, 2, 1, 2, 0]));
}

#[test]
fn failures_up_to_the_limit() {
    let mut model = of("retries");
    model.budget = budget([1, 0, 0, 0, 2, 0, 0]);
    holds("retries", &model, budget([2, 1, 0, 0, 3, 1, 0]));
}

#[test]
fn two_controllers_of_one_stack() {
    let mut model = of("two controllers");
    model.stack.approve = Approve::Auto;
    model.budget = budget([1, 0, 0, 0, 1, 0, 1]);
    holds("two controllers", &model, budget([2, 1, 0, 0, 1, 0, 3]));
}
