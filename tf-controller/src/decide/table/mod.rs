//! The decision over all combinations of spec, status, revision, inputs and run results: all [`Facts`] within the bounds below are
//! decided, and each step is checked against the laws.
//!
//! Each struct is built field by field, so that a new field does not compile until its values are enumerated here.

mod law;

use std::ops::ControlFlow;
use std::time::Instant;

use jiff::{SignedDuration, Timestamp};
use law::broken;
use sluice_api::run::PlanRejection;

use super::mutation_point::with_disabled;
use super::{
    Approval, Dependencies, Facts, History, InputRunStreak, Inputs, MutationPoint, Outcome, Pending, Policy,
    RetryPolicy, RunAction, RunFact, SourceFact, Strategy, Trigger, decide,
};

/// Seconds of "now".
const NOW: i64 = 1_000_000;
/// `spec.interval`, in seconds.
const INTERVAL: i64 = 600;
/// `spec.retryInterval`, in seconds.
const RETRY: i64 = 15;
/// The inputs of the last run.
const SAME: &str = "i1";
/// Before the retry is due; after it and before the interval is over; after both.
const AGES: [i64; 3] = [5, 60, 6000];
const BOTH: [bool; 2] = [false, true];

fn ago(seconds: i64) -> Timestamp {
    Timestamp::from_second(NOW - seconds).unwrap()
}

fn run(outcome: Outcome, age: i64) -> RunFact {
    RunFact {
        name: "app-1234-1".into(),
        action: RunAction::Plan,
        trigger: Trigger::Revision,
        destroy: false,
        generation: 1,
        inputs: SAME.into(),
        source: "sha256:bb".into(),
        attempt: 1,
        outcome,
        stale: false,
        needs_change: false,
        disrupted: false,
        finished: ago(age),
    }
}

/// All distinguishable last runs.
fn last_runs() -> Vec<RunFact> {
    let mut runs = Vec::new();
    for (outcome, stale, disrupted, attempt, age) in [
        (Outcome::Succeeded, false, false, 1, AGES[1]),
        (Outcome::Succeeded, false, false, 1, AGES[2]),
        (Outcome::Failed, false, false, 1, AGES[0]),
        (Outcome::Failed, false, false, 1, AGES[1]),
        (Outcome::Failed, false, false, 5, AGES[1]),
        (Outcome::Failed, true, false, 1, AGES[0]),
        (Outcome::Failed, true, false, 5, AGES[0]),
        (Outcome::Lost, false, false, 1, AGES[0]),
        (Outcome::Lost, false, false, 5, AGES[1]),
        // Few disruptions in a row, and too many (`disruptions`).
        (Outcome::Lost, false, true, 3, AGES[1]),
        (Outcome::Failed, false, true, 6, AGES[1]),
    ] {
        for trigger in [Trigger::Revision, Trigger::Deletion] {
            for generation in [1, 2] {
                for destroy in BOTH {
                    runs.push(RunFact {
                        trigger,
                        destroy,
                        generation,
                        attempt,
                        stale,
                        disrupted,
                        ..run(outcome, age)
                    });
                }
            }
        }
    }
    runs
}

/// The disrupted runs in a row up to this one: as if each attempt was disrupted.
fn disruptions(last: Option<&RunFact>) -> u32 {
    last.filter(|run| run.disrupted).map_or(0, |run| run.attempt)
}

/// The plans that can wait after this run: whether each is drift, whether it is held, and whether it was rejected.
fn plans_after(last: Option<&RunFact>) -> &'static [Option<[bool; 3]>] {
    let may_leave_plan = last.is_some_and(|run| match run.outcome {
        Outcome::Succeeded => true,
        // An apply whose node ended its pod before it began.
        Outcome::Lost => run.disrupted && run.trigger != Trigger::Deletion,
        Outcome::Active | Outcome::Failed => false,
    });
    if may_leave_plan {
        &[
            None,
            Some([false, false, false]),
            Some([false, true, false]),
            Some([true, false, false]),
            Some([true, true, false]),
            Some([false, false, true]),
            Some([true, false, true]),
        ]
    } else {
        &[None]
    }
}

/// All distinguishable histories.
fn histories() -> Vec<History> {
    let mut histories = Vec::new();
    let lasts = last_runs().into_iter().map(Some).chain([None]);
    for (last, active) in lasts.flat_map(|last| BOTH.map(|active| (last.clone(), active))) {
        let succeeded = last.as_ref().is_some_and(|run| run.outcome == Outcome::Succeeded);
        for plan in plans_after(last.as_ref()) {
            histories.push(History {
                active: active.then(|| run(Outcome::Active, 1)),
                pending: last
                    .as_ref()
                    .zip(*plan)
                    .map(|(run, [drift, held, rejected])| Pending {
                        plan_id: "plan-main-aa-ee".into(),
                        run: run.name.clone(),
                        drift,
                        held,
                        rejection: rejected.then(PlanRejection::default),
                        planned: run.finished,
                    }),
                checked: plan.is_some_and(|[drift, ..]| drift),
                last_success: last.as_ref().filter(|_| succeeded).map(|run| run.finished),
                last_started_apply: None, // not part of the decision
                last_rejected: None,      // not part of the decision
                tool: None,               // not part of the decision
                next_sequence: 2,
                disruptions: disruptions(last.as_ref()),
                last: last.clone(),
                input_runs: None,      // below
                reads_artifact: false, // part of the inputs
                ..History::default()   // locks, sessions and lost outputs have their own tests
            });
        }
        if let Some(run) = last.filter(|_| succeeded && !active) {
            // For one of the ages the pause is over.
            let ended = run.finished;
            histories.push(History {
                input_runs: Some(InputRunStreak { count: 4, ended }),
                last_success: Some(ended),
                next_sequence: 2,
                last: Some(run),
                ..History::default()
            });
        }
    }
    histories
}

/// The switches of the spec.
struct Switches {
    deleting: bool,
    suspended: bool,
    policy: Policy,
    retries: Option<u32>,
}

fn switches() -> Vec<Switches> {
    let mut all = Vec::new();
    for bits in 0_u8..32 {
        let bit = |n: u8| bits >> n & 1 == 1;
        for retries in [None, Some(0), Some(3)] {
            all.push(Switches {
                deleting: bit(0),
                suspended: bit(1),
                policy: Policy {
                    plan_only: bit(2),
                    forced: false, // only recorded
                    destroy: bit(3),
                    destroy_on_deletion: bit(4),
                    ..Policy::default()
                },
                retries,
            });
        }
    }
    all
}

fn sources() -> [SourceFact; 3] {
    let found = SourceFact::Found {
        revision: "main@sha1:aa".into(),
        digest: "sha256:bb".into(),
    };
    [
        found,
        SourceFact::NoArtifact,
        SourceFact::Unreachable("gone away".into()),
    ]
}

fn inputs() -> [Inputs; 4] {
    let failed = Inputs::Failed {
        reason: "VarsGenerationFailed",
        message: String::new(),
    };
    [
        Inputs::Known(SAME.into()),
        Inputs::Known("i2".into()),
        failed,
        Inputs::Unresolved,
    ]
}

/// Every source with all inputs; without an artifact only those that a destroy can have.
fn sources_and_inputs() -> Vec<(SourceFact, Inputs)> {
    let mut pairs = Vec::new();
    for source in sources() {
        let found = matches!(source, SourceFact::Found { .. });
        let is_possible =
            |inputs: &Inputs| found || *inputs == Inputs::Known(SAME.into()) || *inputs == Inputs::Unresolved;
        let inputs = inputs().into_iter().filter(is_possible);
        pairs.extend(inputs.map(|inputs| (source.clone(), inputs)));
    }
    pairs
}

fn approvals() -> [Approval; 5] {
    let given = Approval::Given { by: "kubectl".into() };
    [
        Approval::None,
        Approval::Auto,
        given,
        Approval::Replan,
        Approval::Disabled,
    ]
}

/// Visits every combination with its dependents until `visit` breaks.
fn every(mut visit: impl FnMut(&Facts, &[String]) -> ControlFlow<()>) -> ControlFlow<()> {
    let switches = switches();
    for history in histories() {
        for (source, inputs) in sources_and_inputs() {
            for approval in approvals() {
                let mut facts = Facts {
                    deleting: false,
                    suspended: false,
                    unsupported_field: None,
                    contradiction: None,
                    generation: 1,
                    policy: Policy::default(),
                    approval,
                    dependencies: Dependencies::Ready,
                    source: source.clone(),
                    inputs: inputs.clone(),
                    history: history.clone(),
                    request: None,
                    interval: SignedDuration::from_secs(INTERVAL),
                    interval_offset: None,
                    retry: RetryPolicy {
                        interval: SignedDuration::from_secs(RETRY),
                        strategy: Strategy::Static,
                        longest: SignedDuration::from_hours(24),
                        retries: None,
                    },
                    now: ago(0),
                };
                visit_switches(&mut facts, &switches, &mut visit)?;
            }
        }
    }
    ControlFlow::Continue(())
}

/// What else can prevent a run, one at a time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Obstacle {
    Nothing,
    UnsupportedField,
    Contradiction,
    Waiting,
    Cycle,
    Dependents,
}

impl Obstacle {
    const ALL: [Self; 6] = [
        Self::Nothing,
        Self::UnsupportedField,
        Self::Contradiction,
        Self::Waiting,
        Self::Cycle,
        Self::Dependents,
    ];

    /// Sets it in the facts and returns the dependents.
    fn set(self, facts: &mut Facts) -> Vec<String> {
        let text = |which: Self| (self == which).then(|| "x".to_owned());
        facts.unsupported_field = text(Self::UnsupportedField).map(|text| crate::decide::UnsupportedField {
            reason: "InvalidToolVersion",
            text,
        });
        facts.contradiction = text(Self::Contradiction);
        facts.dependencies = match self {
            Self::Waiting => Dependencies::Waiting(String::new()),
            Self::Cycle => Dependencies::Cycle(String::new()),
            _ => Dependencies::Ready,
        };
        text(Self::Dependents).into_iter().collect()
    }
}

fn visit_switches(
    facts: &mut Facts,
    switches: &[Switches],
    visit: &mut impl FnMut(&Facts, &[String]) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let without = BOTH.map(|requested| (Obstacle::Nothing, requested));
    let with = Obstacle::ALL
        .map(|obstacle| (obstacle, false))
        .into_iter()
        .skip(1);
    for (obstacle, requested) in without.into_iter().chain(with) {
        let dependents = obstacle.set(facts);
        facts.request = requested.then(|| "token".to_owned());
        for switch in switches {
            facts.deleting = switch.deleting;
            facts.suspended = switch.suspended;
            facts.policy = switch.policy;
            facts.retry.retries = switch.retries;
            visit(facts, &dependents)?;
        }
    }
    ControlFlow::Continue(())
}

/// Returns the first broken law with this point disabled, and the facts that break it.
pub(crate) fn first_broken(point: Option<MutationPoint>) -> Option<(&'static str, Facts)> {
    let mut found = None;
    let _ = with_disabled(point, || {
        every(
            |facts, dependents| match broken(facts, dependents, &decide(facts, dependents)) {
                None => ControlFlow::Continue(()),
                Some(law) => {
                    found = Some((law, facts.clone()));
                    ControlFlow::Break(())
                }
            },
        )
    });
    found
}

#[test]
fn every_combination_keeps_every_law() {
    let started = Instant::now();
    let mut combinations = 0_u64;
    let _ = every(|_, _| {
        combinations += 1;
        ControlFlow::Continue(())
    });
    let broken = first_broken(None);
    assert!(broken.is_none(), "{broken:#?}");
    println!(
        "decision table: {combinations} combinations in {:?}",
        started.elapsed()
    );
    assert!(combinations > 1_000_000);
}
