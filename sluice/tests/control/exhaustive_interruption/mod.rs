//! Exhaustive interruption. Each scenario first runs without faults to record its steps: writes of the controller, of the runners
//! and of the CLI, commands, watch events. Then it is repeated with one fault at one step: the program dies before or after it, the
//! machine stops, the response is lost, an event is late or lost. In each case the scenario must end in the same state without
//! violating an invariant.
//!
//! Controller, runners and CLI are processes, killed by SIGKILL; the provider is that of the suites. A run tests a sample of all faults,
//! selected by a printed seed of commit and day: `SLUICE_SEED=number` selects another sample, `SLUICE_STOPS=number` a larger one,
//! `SLUICE_STOPS=all` all faults (hours), `SLUICE_STOPS=2/5` the second of five parts of all, `SLUICE_STOP=text` those whose printed name
//! contains the text; `SLUICE_AT_ONCE=number` sets the number of concurrent executions.

mod cli_wrapper;
pub(crate) mod controller;
mod fault_proxy;
mod fault_state;
pub(crate) mod invariants;
mod outcome;
mod scenarios;
mod stage;

use std::time::Duration;

use fault_state::{Fault, Injection};
use futures::{StreamExt as _, stream};
use scenarios::Scenario;
use sluice_harness::sample::Rng;
use stage::ScenarioEnvironment;

use crate::environment::TIMEOUT;

/// Default number of interruptions per scenario.
const SAMPLE: usize = 6;
/// Maximum number of executions per interruption: two writes may be combined, and then the step does not occur.
const MAX_EXECUTIONS: usize = 3;
/// Default number of concurrent executions, which mostly wait.
const CONCURRENT: u64 = 3;

/// The result of an execution.
struct Execution {
    steps: Vec<String>,
    outcome: String,
    is_injected: bool,
    /// Violated invariants, and differences in the outcome.
    wrong: Vec<String>,
}

/// Runs a scenario; `expected` is its expected outcome.
async fn run(scenario: Scenario, injection: Option<Injection>, expected: Option<&str>) -> Execution {
    let stage = ScenarioEnvironment::new(injection.clone()).await;
    Box::pin(scenario.run(&stage)).await;
    let steps = stage.fault_state.steps();
    scenario.check(&stage).await;
    let outcome = settled_outcome(&stage, expected).await;
    let is_injected = stage.fault_state.is_injected();
    let (log, extra_calls) = (stage.log(), scenario.extra_calls(&stage));
    let violations = [stage.close().await, extra_calls].concat();
    let mut wrong = violations;
    if let Some(expected) = expected {
        wrong.extend(differences(expected, &outcome));
    }
    if !wrong.is_empty() {
        eprintln!("{scenario:?} {injection:?}\n{}\n{log}", steps.join("\n"));
    }
    Execution {
        steps,
        outcome,
        is_injected,
        wrong,
    }
}

/// Returns the lines that occur more often in one text than in the other.
fn differences(expected: &str, found: &str) -> Vec<String> {
    let more = |sign: char, here: &str, there: &str| {
        let mut rest: Vec<_> = there.lines().map(str::to_owned).collect();
        let mut more = Vec::new();
        for line in here.lines() {
            match rest.iter().position(|other| other == line) {
                Some(at) => drop(rest.swap_remove(at)),
                None => more.push(format!("{sign} {line}")),
            }
        }
        more
    };
    [more('-', expected, found), more('+', found, expected)].concat()
}

#[test]
fn a_second_object_of_a_kind_is_a_difference() {
    assert_eq!(differences("a\nb\nb", "b\na\nb"), Vec::<String>::new());
    assert_eq!(differences("a\nb", "a\nb\nb"), ["+ b"]);
    assert_eq!(differences("a\na\nb", "a\nc"), ["- a", "- b", "+ c"]);
}

/// Returns the outcome once it is the expected one or no longer changes.
async fn settled_outcome(stage: &ScenarioEnvironment, expected: Option<&str>) -> String {
    let mut last = stage.outcome().await;
    let mut same = 0;
    let timeout = if expected.is_some() { TIMEOUT / 4 } else { TIMEOUT };
    let settling = async {
        loop {
            if expected.is_some_and(|expected| expected == last) || expected.is_none() && same == 10 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
            let now = stage.outcome().await;
            same = if now == last { same + 1 } else { 0 };
            last = now;
        }
    };
    // The caller reports the differences.
    drop(tokio::time::timeout(timeout, settling).await);
    last
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Returns the number of the requested part, from 1, and the number of parts.
fn part() -> Option<(usize, usize)> {
    let requested = std::env::var("SLUICE_STOPS").ok()?;
    if requested == "all" {
        return Some((1, 1));
    }
    let (part, parts) = requested.split_once('/')?;
    let (part, parts) = (part.parse().ok()?, parts.parse().ok()?);
    assert!((1..=parts).contains(&part), "SLUICE_STOPS={requested}");
    Some((part, parts))
}

/// Returns all faults of a scenario, or a sample and as many more, which replace those whose step does not occur again.
fn injections(steps: &[String]) -> (Vec<Injection>, Vec<Injection>) {
    let mut all: Vec<_> = steps
        .iter()
        .flat_map(|step| {
            Fault::of(step).iter().map(|fault| Injection {
                step: step.clone(),
                fault: *fault,
            })
        })
        .collect();
    if let Ok(step) = std::env::var("SLUICE_STOP") {
        all.retain(|injection| format!("{injection:?}").contains(&step));
        return (all, Vec::new());
    }
    if let Some((part, parts)) = part() {
        let mut part_numbers = (1..=parts).cycle();
        all.retain(|_| part_numbers.next() == Some(part));
        // Kills first, so that a partial run has tested them.
        all.sort_by_key(|injection| matches!(injection.fault, Fault::Late | Fault::Lost));
        return (all, Vec::new());
    }
    let mut rng = Rng::from_environment("interruptions");
    let expected = number("SLUICE_STOPS").map_or(SAMPLE, |requested| usize::try_from(requested).unwrap());
    let mut draw = |all: &mut Vec<Injection>| {
        let count = expected.min(all.len());
        let drawn = (0..count).map(|_| all.swap_remove(rng.below(all.len())));
        drawn.collect()
    };
    (draw(&mut all), draw(&mut all))
}

async fn run_without_faults(scenario: Scenario) -> Execution {
    let execution = Box::pin(run(scenario, None, None)).await;
    assert!(
        execution.outcome.contains(scenario.ends_with()),
        "{}",
        execution.outcome
    );
    assert_eq!(execution.wrong, Vec::<String>::new());
    eprintln!("{}\n{}", execution.steps.join("\n"), execution.outcome);
    execution
}

/// Runs the scenario until the fault has been injected, at most [`MAX_EXECUTIONS`] times. Problems of every execution count.
async fn interrupt(scenario: Scenario, injection: &Injection, expected: &str) -> Execution {
    let mut executions = 0;
    loop {
        executions += 1;
        let execution = Box::pin(run(scenario, Some(injection.clone()), Some(expected))).await;
        eprintln!(
            "{scenario:?} {injection:?} injected: {} {:#?}",
            execution.is_injected, execution.wrong
        );
        if execution.is_injected || !execution.wrong.is_empty() || executions == MAX_EXECUTIONS {
            return execution;
        }
    }
}

/// Injects each fault in an execution of its own.
async fn interrupt_each(
    scenario: Scenario,
    injections: Vec<Injection>,
    expected: &str,
) -> Vec<(Injection, Execution)> {
    let concurrent = number("SLUICE_AT_ONCE").unwrap_or(CONCURRENT);
    stream::iter(injections)
        .map(|injection| async move {
            let execution = interrupt(scenario, &injection, expected).await;
            (injection, execution)
        })
        .buffer_unordered(usize::try_from(concurrent).unwrap())
        .collect()
        .await
}

async fn test_interruptions(scenario: Scenario) {
    let reference = run_without_faults(scenario).await;
    let (mut next, mut more) = injections(&reference.steps);
    let (count, mut executions) = (next.len(), Vec::new());
    while !next.is_empty() {
        let executed = interrupt_each(scenario, next, &reference.outcome).await;
        let missed = executed
            .iter()
            .filter(|(_, execution)| !execution.is_injected)
            .count();
        next = more.drain(..missed.min(more.len())).collect();
        executions.extend(executed);
    }
    let (injected, missed): (Vec<_>, Vec<_>) = executions
        .iter()
        .partition(|(_, execution)| execution.is_injected);
    let missed: Vec<_> = missed.iter().map(|(injection, _)| injection).collect();
    eprintln!(
        "{scenario:?}: {} interruptions, not reached: {missed:?}",
        injected.len()
    );
    let wrong: Vec<_> = executions
        .iter()
        .filter(|(_, execution)| !execution.wrong.is_empty())
        .map(|(injection, execution)| (injection, &execution.wrong))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(
        injected.len() * 10 >= count * 9,
        "less than nine tenths of {count} were injected; not: {missed:#?}"
    );
}

/// A lock that an apply took without receiving the response is its own: it is released, and the apply is repeated.
#[tokio::test(flavor = "multi_thread")]
async fn an_apply_that_loses_the_response_to_its_lock_request_is_repeated() {
    let reference = run_without_faults(Scenario::FirstApply).await;
    let mut steps = reference.steps.iter();
    assert!(steps.any(|step| step == "command apply #1"));
    let step = steps.find(|step| step.starts_with("cli PUT leases")).unwrap();
    let injection = Injection {
        step: step.clone(),
        fault: Fault::CutAfter,
    };
    let execution = Box::pin(run(
        Scenario::FirstApply,
        Some(injection),
        Some(&reference.outcome),
    ))
    .await;
    assert!(execution.is_injected, "{step}");
    assert_eq!(execution.wrong, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_apply_interrupted_anywhere_ends_the_same() {
    test_interruptions(Scenario::FirstApply).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn approvals_interrupted_anywhere_end_the_same() {
    test_interruptions(Scenario::Approve).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_interrupted_anywhere_is_corrected() {
    test_interruptions(Scenario::Drift).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_that_needs_an_approval_interrupted_anywhere_is_corrected_by_it() {
    test_interruptions(Scenario::DriftApproved).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_apply_interrupted_anywhere_is_finished() {
    test_interruptions(Scenario::FailedApply).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_lock_interrupted_anywhere_is_released_when_named() {
    test_interruptions(Scenario::LockHeld).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destroy_interrupted_anywhere_ends_the_same() {
    test_interruptions(Scenario::Destroy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_with_dependants_interrupted_anywhere_ends_the_same() {
    test_interruptions(Scenario::DeleteWithDependants).await;
}
