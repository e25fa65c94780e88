//! Faults during runs: each trial breaks one thing at one moment of a stack's first apply, and checks what is left.
//!
//! A commit and a day select a sample of the trials. `make chaos` runs all of them, `SLUICE_SEED` repeats a sample.

mod cause;
mod fault;
mod outcome;
mod stack;
mod stage;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use fault::{Fault, Moment};
use futures::{StreamExt as _, stream};
use sluice_harness::sample::Rng;
use sluice_harness::skip::without_cluster;
use stack::Stack;
use stage::Stage;

/// The number of trials; `SLUICE_TRIALS` requests another, or `all`.
const TRIALS: usize = 8;
/// Trials at the same time. A fault of the whole node disturbs the other one too.
const LANES: usize = 2;
/// Time limit of a trial. The longest fault takes 75 s, and the lock of a dead runner some more.
const LIMIT: Duration = Duration::from_secs(300);
/// Interval of the requests of a trial.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// One trial.
#[derive(Clone, Copy, Debug)]
struct Trial {
    number: usize,
    fault: Fault,
    moment: Moment,
    /// Whether each plan needs an approval.
    is_manual: bool,
    /// For [`Moment::Any`]: how long after the start of the pod.
    delay: Duration,
}

impl Trial {
    /// Returns `count` trials: each pair of fault and moment once before any is repeated, in a random order.
    fn sample(rng: &mut Rng, count: usize) -> Vec<Self> {
        let mut trials = Vec::new();
        let mut left = Vec::new();
        for number in 0..count {
            if left.is_empty() {
                left = fault::pairs();
            }
            let (fault, moment) = left.swap_remove(rng.below(left.len()));
            trials.push(Self {
                number,
                fault,
                moment,
                is_manual: rng.below(2) == 0,
                delay: Duration::from_millis(rng.next_u64() % 8000),
            });
        }
        trials
    }

    /// Carries out the trial. Returns what it took.
    async fn carry_out(self, stage: &Stage) -> Result<String, String> {
        let stack = Stack::create(stage, self).await?;
        let deadline = Instant::now() + LIMIT;
        while !stack.has_reached(self.moment, self.delay).await? {
            sleep_before(deadline, "did not reach the moment", &stack).await?;
            stack.approve(&stack.read().await?).await?;
        }
        self.fault.cause(stage, &stack).await?;
        stack.behave_well();
        let since = Instant::now();
        if self.fault == Fault::DeleteNamespace {
            while !stack.is_gone().await? {
                sleep_before(deadline, "was not deleted", &stack).await?;
            }
            stack.check_deleted().await?;
            return Ok(format!("{} s until it was deleted", since.elapsed().as_secs()));
        }
        let orphans = self.wait_until_applied(&stack, deadline).await?;
        stack.check_outcome().await?;
        let runs = stack.runs().await?.len();
        Ok(format!(
            "{} s, {runs} runs, {orphans} orphans",
            since.elapsed().as_secs()
        ))
    }

    /// Acts as a user until the stack is applied. Returns how many resources no state had.
    async fn wait_until_applied(self, stack: &Stack, deadline: Instant) -> Result<usize, String> {
        let mut orphans = 0;
        loop {
            sleep_before(deadline, "was not applied", stack).await?;
            let status = stack.read().await?;
            stack.approve(&status).await?;
            if self.fault.kills_cli() {
                orphans += stack.remove_orphan(&status);
            }
            if status.is_applied() {
                return Ok(orphans);
            }
        }
    }
}

/// Sleeps until the next request of a trial, unless its time is over.
async fn sleep_before(deadline: Instant, what: &str, stack: &Stack) -> Result<(), String> {
    if Instant::now() > deadline {
        return Err(format!("{what} in time: {}", stack.describe().await));
    }
    tokio::time::sleep(POLL_INTERVAL).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_fault_repeats_or_loses_what_a_run_did() {
    if without_cluster().unwrap() {
        return;
    }
    let stage = Stage::start().await;
    let count = match std::env::var("SLUICE_TRIALS").as_deref() {
        Ok("all") => fault::pairs().len(),
        Ok(count) => count.parse().unwrap(),
        Err(_) => TRIALS,
    };
    let trials = Trial::sample(&mut Rng::from_environment("faults during runs"), count);
    let results: Vec<_> = stream::iter(trials)
        .map(|trial| {
            let stage = &stage;
            async move {
                let result = trial.carry_out(stage).await;
                eprintln!("{trial:?}: {result:?}");
                (trial, result)
            }
        })
        .buffer_unordered(LANES)
        .collect()
        .await;
    let mut failures = String::new();
    for (trial, result) in &results {
        if let Err(error) = result {
            let _ = write!(failures, "\n{trial:?}: {error}");
        }
    }
    assert!(
        failures.is_empty(),
        "{failures}\n{}",
        stage.installation.describe_pods().await
    );
}

#[test]
fn a_sample_repeats_no_pair_before_each_was_chosen() {
    let all = fault::pairs().len();
    let trials = Trial::sample(&mut Rng::from_seed(7), all + 3);
    let mut pairs: Vec<_> = trials
        .iter()
        .take(all)
        .map(|trial| (trial.fault, trial.moment))
        .collect();
    pairs.sort();
    pairs.dedup();
    assert_eq!((pairs.len(), trials.len()), (all, all + 3));
    assert!(pairs.iter().any(|(fault, _)| *fault == Fault::KillRunner));
}
