//! The bounds of the explorations, and their size.

use std::io::Write as _;
use std::time::{Duration, Instant};

use stateright::{Checker as _, HasDiscoveries, Model as _};

use super::Sluice;
use super::state::{Approve, Budget, Inputs};

/// The result of an exploration.
pub(super) struct Exploration {
    /// The violated property, and the path to the violation.
    pub(super) violation: Option<(String, String)>,
    pub(super) states: usize,
    pub(super) depth: usize,
    /// Something was applied; otherwise the absence of violations proves nothing.
    applied: bool,
}

/// Explores all states, or until a property is violated. Deterministic with one thread.
pub(super) fn explore(model: Sluice, threads: usize) -> Exploration {
    let checker = model
        .checker()
        .threads(threads)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let mut discoveries: Vec<_> = checker.discoveries().into_iter().collect();
    let all = discoveries.len();
    discoveries.retain(|(name, _)| *name != "something is applied");
    let applied = discoveries.len() < all;
    discoveries.sort_by_cached_key(|(name, path)| (path.clone().into_actions().len(), *name));
    let violation = discoveries.into_iter().next();
    let violation = violation.map(|(name, path)| {
        let name = path.last_state().trace.violation.unwrap_or(name);
        let transitions = path.into_actions();
        let transitions: Vec<_> = transitions
            .iter()
            .map(|transition| format!("{transition:?}"))
            .collect();
        (name.to_owned(), transitions.join("\n"))
    });
    Exploration {
        violation,
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        applied,
    }
}

/// Returns the requested bounds: `SLUICE_MODEL=deep` selects the deep ones, which take an hour; seven numbers with
/// commas are the budget itself.
fn configured_budget(normal: Budget, deep: Budget) -> Budget {
    match std::env::var("SLUICE_MODEL") {
        Ok(value) if value == "deep" => deep,
        Ok(value) => {
            let numbers: Vec<u8> = value.split(',').map(|number| number.parse().unwrap()).collect();
            budget(numbers.try_into().unwrap())
        }
        Err(_) => normal,
    }
}

/// Prints the size of the exploration, past the capture of test output.
pub(super) fn print_summary(name: &str, budget: Budget, exploration: &Exploration, duration: Duration) {
    let (states, depth) = (exploration.states, exploration.depth);
    let line = format!("model, {name}, {budget:?}: {states} states, depth {depth}, {duration:.1?}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

fn assert_properties(name: &str, model: &Sluice, deep: Budget) {
    let budget = configured_budget(model.budget, deep);
    let started = Instant::now();
    let exploration = explore(
        Sluice {
            budget,
            ..model.clone()
        },
        2,
    );
    if let Some((property, path)) = exploration.violation {
        panic!("{name}: {property}\n{path}");
    }
    assert!(exploration.applied, "{name}: nothing is ever applied");
    print_summary(name, budget, &exploration, started.elapsed());
}

const fn budget([user, commits, others, drifts, faults, ticks, second_reconciles]: [u8; 7]) -> Budget {
    Budget {
        user,
        commits,
        others,
        drifts,
        faults,
        ticks,
        second_reconciles,
    }
}

/// A stack whose first apply was long ago.
const APPLIED: Option<Inputs> = Some(Inputs { code: 0, vars: 0 });

/// Small bounds in every mode, used by the mutants.
pub(super) fn small() -> Vec<(&'static str, Sluice)> {
    let auto = Sluice::of(Approve::Auto);
    let manual = Sluice::of(Approve::Nothing);
    let applied = |model: &Sluice, budget| Sluice {
        applied_inputs: APPLIED,
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
        ("drift, auto", applied(&auto, budget([1, 0, 0, 1, 0, 1, 0]))),
        ("drift, manual", applied(&manual, budget([1, 0, 0, 1, 0, 1, 0]))),
        ("retries", with(&limited, budget([1, 0, 0, 0, 2, 0, 0]))),
        ("two controllers", with(&manual, budget([1, 0, 0, 0, 0, 0, 2]))),
    ]
}

pub(super) fn model_of(name: &str) -> Sluice {
    let named = small().into_iter().find(|(found, _)| *found == name);
    named.unwrap().1
}

#[test]
fn a_first_apply_in_auto_among_edits_commits_and_faults() {
    let mut model = model_of("first apply, auto");
    model.budget = budget([1, 1, 1, 0, 1, 0, 0]);
    assert_properties("first apply, auto", &model, budget([2, 1, 1, 1, 2, 1, 0]));
}

#[test]
fn approvals_that_race_commits() {
    let mut model = model_of("first apply, approved");
    model.budget = budget([2, 1, 0, 0, 0, 0, 0]);
    assert_properties("first apply, approved", &model, budget([3, 2, 1, 0, 1, 0, 0]));
}

#[test]
fn drift_that_is_corrected() {
    let mut model = model_of("drift, auto");
    model.budget = budget([1, 0, 0, 1, 1, 1, 0]);
    assert_properties("drift, auto", &model, budget([2, 1, 1, 2, 1, 2, 0]));
}

#[test]
fn drift_that_waits_for_approval() {
    let mut model = model_of("drift, manual");
    model.budget = budget([2, 0, 0, 1, 0, 1, 0]);
    assert_properties("drift, manual", &model, budget([3, 1, 0, 2, 1, 2, 0]));
}

#[test]
fn failures_up_to_the_limit() {
    let mut model = model_of("retries");
    model.budget = budget([1, 0, 0, 0, 2, 0, 0]);
    assert_properties("retries", &model, budget([2, 1, 0, 0, 3, 1, 0]));
}

#[test]
fn two_controllers_of_one_stack() {
    let mut model = model_of("two controllers");
    model.stack.approve = Approve::Auto;
    model.budget = budget([1, 0, 0, 0, 1, 0, 1]);
    assert_properties("two controllers", &model, budget([2, 1, 0, 0, 1, 0, 3]));
}
