//! Faults during runs: each trial breaks one thing at one moment of a stack's first apply, and checks what is left.
//!
//! A commit and a day select a sample of the trials. `make chaos` runs each of them more than once, `SLUICE_SEED` repeats a sample. One trial
//! at a time is between the creation of its stack and the end of its fault, so the seed decides too which faults meet: that of a trial and the
//! recovery of the one before it.

mod cause;
mod components;
mod controller;
mod fault;
mod manifests;
mod outcome;
pub(crate) mod pods;
mod stack;
mod stage;

use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use fault::{Fault, Moment};
use futures::{StreamExt as _, future, stream};
use sluice_harness::node::Node;
use sluice_harness::sample::Rng;
use sluice_harness::skip::without_cluster;
use stack::Stack;
use stage::Stage;

/// The number of trials; `SLUICE_TRIALS` requests another, or `all`.
const TRIALS: usize = 8;
/// Trials at the same time: one is at its moment or its fault, the other one recovers. A fault of the whole node disturbs the other one too.
const LANES: usize = 2;
/// Time limit of a trial until its moment, and from the end of its fault until its stack is applied. A fault of the other trial can be in
/// it: the longest takes 75 s, and the lock of a dead runner some more.
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
    /// Returns `count` trials of these pairs of fault and moment: each once before any is repeated, in a random order.
    fn sample(rng: &mut Rng, pairs: &[(Fault, Moment)], count: usize) -> Vec<Self> {
        let mut trials = Vec::new();
        let mut left = Vec::new();
        for number in 0..count {
            if left.is_empty() {
                left = pairs.to_vec();
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

    /// Carries out the trial, and deletes what is left of it. Returns what it took.
    async fn carry_out(self, stage: &Stage<'_>) -> Result<String, String> {
        // A fault that takes minutes would exceed the time limits of the other trials.
        let (_shared, _alone) = if self.fault.takes_minutes() {
            (None, Some(stage.trials.write().await))
        } else {
            (Some(stage.trials.read().await), None)
        };
        let stack = Stack::new(stage, self).await?;
        let result = match self.break_at_moment(stage, &stack).await {
            Ok(hits) => self
                .recover(&stack)
                .await
                .map(|what| format!("{hits} hits, {what}")),
            Err(error) => Err(error),
        };
        let later = stage.faults_after(self);
        let result = result
            .map(|what| format!("{what}; later faults: {later:?}"))
            .map_err(|error| format!("{error}; later faults: {later:?}"));
        match (result, stack.delete().await) {
            (Err(error), Err(also)) => Err(format!("{error}\n{also}")),
            (result, deleted) => deleted.and(result),
        }
    }

    /// Creates the stack, and causes and ends its fault at the moment. Returns how many processes or objects it hit.
    async fn break_at_moment(self, stage: &Stage<'_>, stack: &Stack) -> Result<usize, String> {
        let _no_other_fault = stage.fault.lock().await;
        controller::end_restart_delay(stage).await?;
        stack.start(stage).await?;
        let deadline = Instant::now() + LIMIT;
        while !stack.has_reached_moment().await? {
            sleep_before(deadline, "did not reach the moment", stack).await?;
            stack.approve(&stack.read().await?).await?;
        }
        stage.record(self);
        let hits = self.fault.cause(stage, stack).await?;
        stack.release()?;
        stack.reset_deadline().await?;
        Ok(hits)
    }

    /// Acts as a user until the stack is applied, or its namespace deleted, and checks what is left. Returns what it took.
    async fn recover(self, stack: &Stack) -> Result<String, String> {
        let since = Instant::now();
        let deadline = since + LIMIT;
        if self.fault == Fault::DeleteNamespace {
            while !stack.is_gone().await? {
                sleep_before(deadline, "was not deleted", stack).await?;
            }
            stack.check_deleted().await?;
            return Ok(format!("{} s until it was deleted", since.elapsed().as_secs()));
        }
        let orphans = self.wait_until_applied(stack, deadline).await?;
        let seconds = since.elapsed().as_secs();
        stack.check_outcome().await?;
        let runs = stack.runs().await?.len();
        Ok(format!("{seconds} s, {runs} runs, {orphans} orphans"))
    }

    /// Acts as a user until the stack is applied. Returns how many resources no state had.
    async fn wait_until_applied(self, stack: &Stack, deadline: Instant) -> Result<usize, String> {
        let mut orphans = 0;
        loop {
            sleep_before(deadline, "was not applied", stack).await?;
            let status = stack.read().await?;
            stack.approve(&status).await?;
            if self.fault.may_lose_state() {
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
    let variable = |name: &str| std::env::var(name).ok();
    let pairs = select(
        &variable("SLUICE_FAULT").unwrap_or_default(),
        variable("SLUICE_TRIALS").is_some(),
    );
    let count = match variable("SLUICE_TRIALS").as_deref() {
        Some("all") => pairs.len(),
        Some(count) => count.parse().unwrap(),
        None => TRIALS,
    };
    let mut rng = Rng::from_environment("faults during runs");
    let trials = Trial::sample(&mut rng, &pairs, count);
    let nodes = (0..node_count()).map(|_| Node::start());
    let nodes = future::try_join_all(nodes).await.unwrap();
    let stages = future::join_all(nodes.iter().map(Stage::start)).await;
    let count = stages.len();
    let results = stages.iter().enumerate().map(|(index, stage)| {
        let own = trials.iter().filter(move |trial| trial.number % count == index);
        stream::iter(own)
            .map(async |trial| {
                let result = trial.carry_out(stage).await;
                eprintln!("{trial:?}: {result:?}");
                (trial, result)
            })
            .buffer_unordered(LANES)
            .collect::<Vec<_>>()
    });
    let results = future::join_all(results).await.concat();
    let mut failures = String::new();
    for (trial, result) in &results {
        if let Err(error) = result {
            let _ = write!(failures, "\n{trial:?}: {error}");
        }
    }
    assert!(
        failures.is_empty(),
        "{failures}\n{}",
        future::join_all(stages.iter().map(|stage| stage.installation.describe_pods()))
            .await
            .concat()
    );
}

/// Returns the pairs of fault and moment whose names contain a text; without `is_complete` none that takes minutes.
fn select(text: &str, is_complete: bool) -> Vec<(Fault, Moment)> {
    let mut pairs = fault::pairs();
    pairs.retain(|(fault, _)| is_complete || !fault.takes_minutes());
    pairs.retain(|(fault, moment)| format!("{fault:?} {moment:?}").contains(text));
    assert!(
        !pairs.is_empty(),
        "SLUICE_FAULT={text} selects nothing: set it to a part of a name such as `StopEtcd Plan`, and SLUICE_TRIALS for a fault of minutes"
    );
    pairs
}

/// Returns the number of nodes among which the trials are divided.
fn node_count() -> usize {
    let count = std::env::var("SLUICE_NODES").unwrap_or_else(|_| "1".to_owned());
    let count = count.parse::<NonZeroUsize>();
    count.expect("SLUICE_NODES is a number from 1").get()
}

#[test]
fn a_sample_repeats_no_pair_before_each_was_chosen() {
    let known = fault::pairs();
    let all = known.len();
    let trials = Trial::sample(&mut Rng::from_seed(7), &known, all + 3);
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

#[test]
fn pairs_are_selected_by_their_names_and_a_sample_has_none_that_takes_minutes() {
    let minutes = |pairs: &[(Fault, Moment)]| pairs.iter().filter(|(fault, _)| fault.takes_minutes()).count();
    assert_eq!((minutes(&select("", true)), minutes(&select("", false))), (2, 0));
    assert_eq!(select("StopEtcd Plan", false), [(Fault::StopEtcd, Moment::Plan)]);
    assert_eq!(select("PauseLeader", false).len(), 7);
}

#[test]
fn the_provider_holds_or_breaks_the_step_of_each_moment_that_has_one() {
    let pairs = fault::pairs();
    // As docs/reliability.md says.
    assert_eq!(pairs.len(), 198);
    for (fault, moment) in pairs {
        let orders = manifests::behaviour(fault, moment);
        let order = moment.held_step().map(|step| &orders["steps"][step]);
        let holds = order.is_some_and(|order| order["hold"] == true);
        let breaks = order.is_some_and(|order| order.is_object() && !holds);
        let has_step = moment.held_step().is_some();
        let expected = (has_step && !fault.is_of_provider(), fault.is_of_provider());
        assert_eq!((holds, breaks), expected, "{fault:?} {moment:?}: {orders}");
    }
}
