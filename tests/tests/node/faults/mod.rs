//! Faults during runs: each trial breaks one thing at one moment of a stack's first apply, and checks what is left.
//!
//! A commit and a day select a sample of the trials. `make chaos` runs each of them at least once, but of those that take minutes only some;
//! `SLUICE_SEED` repeats a sample. One trial at a time is between the creation of its stack and the end of its fault, so the seed decides too
//! which faults meet: that of a trial and the recovery of the one before it.

mod artifacts;
mod cause;
mod components;
mod controller;
mod fault;
mod hold;
mod ledger;
mod leftovers;
mod manifests;
mod moment;
mod outcome;
pub(crate) mod pods;
mod progress;
mod runs;
mod stack;
mod stage;
mod status;

use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use fault::Fault;
use futures::{StreamExt as _, future, stream};
use ledger::Orphan;
use moment::{Moment, Release};
use sluice_harness::node::Node;
use sluice_harness::sample::Rng;
use sluice_harness::skip::without_cluster;
use stack::Stack;
use stage::Stage;

/// The number of trials; `SLUICE_TRIALS` requests another, or `all`.
const TRIALS: usize = 7;
/// Trials of minutes among the others, each time that all others are chosen.
const LONG_TRIALS: usize = 4;
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
    /// When the run goes on that waits for the fault.
    release: Release,
}

impl Trial {
    /// Returns `count` trials of these pairs of fault and moment, in a random order: each once before any is repeated. Of those that take
    /// minutes there are only `long` among the others, other ones each time.
    fn sample(rng: &mut Rng, pairs: &[(Fault, Moment)], count: usize, long: usize) -> Vec<Self> {
        let is_long = |(fault, _): &(Fault, Moment)| fault.takes_minutes();
        let (all_long, short): (Vec<_>, Vec<_>) = pairs.iter().copied().partition(is_long);
        let long = if short.is_empty() { all_long.len() } else { long };
        let (mut trials, mut left, mut left_long) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..count {
            if left.is_empty() {
                left.clone_from(&short);
                for _ in 0..long.min(all_long.len()) {
                    if left_long.is_empty() {
                        left_long.clone_from(&all_long);
                    }
                    left.push(left_long.swap_remove(rng.below(left_long.len())));
                }
            }
            let (fault, moment) = left.swap_remove(rng.below(left.len()));
            trials.push(Self::random(rng, number, fault, moment));
        }
        trials
    }

    /// Returns a trial of this pair whose other properties are random.
    fn random(rng: &mut Rng, number: usize, fault: Fault, moment: Moment) -> Self {
        let is_manual = rng.below(2) == 0;
        let delay = Duration::from_millis(rng.next_u64() % 8000);
        let release = if rng.below(2) == 0 || fault.needs_release() {
            Release::During
        } else {
            Release::After
        };
        Self {
            number,
            fault,
            moment,
            is_manual,
            delay,
            release,
        }
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
        let result = Box::pin(self.break_and_recover(stage, &stack)).await;
        let later = stage.faults_after(self);
        let result = result
            .map(|what| format!("{what}; later faults: {later:?}"))
            .map_err(|error| format!("{error}; later faults: {later:?}"));
        match (result, stack.delete().await) {
            (Err(error), Err(also)) => Err(format!("{error}\n{also}")),
            (result, deleted) => deleted.and(result),
        }
    }

    /// Breaks something at the moment, and waits until the stack has recovered. Returns what it took.
    async fn break_and_recover(self, stage: &Stage<'_>, stack: &Stack) -> Result<String, String> {
        let no_other_fault = stage.fault.lock().await;
        let (hits, active) = Box::pin(self.break_at_moment(stage, stack)).await?;
        let _no_other_fault = self.fault.adds_no_run().then_some(no_other_fault);
        let what = Box::pin(self.recover(stack, active.as_deref())).await?;
        Ok(format!("{hits} hits, {what}"))
    }

    /// Creates the stack, and causes and ends its fault at the moment. Returns how many processes or objects it hit, and the run that was active
    /// when it began.
    async fn break_at_moment(
        self,
        stage: &Stage<'_>,
        stack: &Stack,
    ) -> Result<(usize, Option<String>), String> {
        controller::end_restart_delay(stage).await?;
        if self.fault.adds_no_run() {
            stage.wait_until_available().await?;
        }
        stack.start(stage).await?;
        let deadline = Instant::now() + LIMIT;
        while !stack.has_reached_moment().await? {
            sleep_before(deadline, "did not reach the moment", stack).await?;
            stack.approve(&stack.read().await?).await?;
        }
        stage.record(self);
        let active = stack.active_run().await?;
        let hits = Box::pin(self.fault.cause(stage, stack)).await?;
        stack.check_held().await?;
        stack.release()?;
        stack.reset_deadline().await?;
        Ok((hits, active))
    }

    /// Acts as a user until the stack is applied, or its namespace deleted, and checks what is left. Returns what it took.
    async fn recover(self, stack: &Stack, active: Option<&str>) -> Result<String, String> {
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
        let (seconds, runs) = (since.elapsed().as_secs(), stack.runs().await?.len());
        Box::pin(stack.check_outcome(active, &orphans)).await?;
        Ok(format!("{seconds} s, {runs} runs, {} orphans", orphans.len()))
    }

    /// Acts as a user until the stack is applied. Returns the resources that no state had.
    async fn wait_until_applied(self, stack: &Stack, deadline: Instant) -> Result<Vec<Orphan>, String> {
        let mut orphans = Vec::new();
        loop {
            sleep_before(deadline, "was not applied", stack).await?;
            let status = stack.read().await?;
            stack.approve(&status).await?;
            if self.fault.may_lose_state() {
                orphans.extend(stack.remove_orphans(&status)?);
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
    let (count, long) = match variable("SLUICE_TRIALS").as_deref() {
        Some("all") => (pairs.len(), pairs.len()),
        Some(count) => (count.parse().unwrap(), LONG_TRIALS),
        None => (TRIALS, 0),
    };
    let mut rng = Rng::from_environment("faults during runs");
    let trials = Trial::sample(&mut rng, &pairs, count, long);
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
    let trials = Trial::sample(&mut Rng::from_seed(7), &known, all + 3, all);
    let mut pairs: Vec<_> = trials
        .iter()
        .take(all)
        .map(|trial| (trial.fault, trial.moment))
        .collect();
    pairs.sort();
    pairs.dedup();
    assert_eq!((pairs.len(), trials.len()), (all, all + 3));
    assert!(pairs.iter().any(|(fault, _)| *fault == Fault::KillRunner));
    // A trial of each kind exists, except that a run goes on during a fault that waits for its end.
    for release in [Release::During, Release::After] {
        assert!(trials.iter().any(|trial| trial.release == release));
    }
    let mut waiting = trials.iter().filter(|trial| trial.fault.needs_release());
    assert!(waiting.all(|trial| trial.release == Release::During));
}

#[test]
fn a_sample_has_some_trials_of_minutes_and_they_are_at_any_moment() {
    let known = fault::pairs();
    let short = known.iter().filter(|(fault, _)| !fault.takes_minutes()).count();
    let round = short + LONG_TRIALS;
    let trials = Trial::sample(&mut Rng::from_seed(7), &known, 5 * round, LONG_TRIALS);
    let long = |trials: &[Trial]| {
        let long = trials.iter().filter(|trial| trial.fault.takes_minutes());
        long.map(|trial| (trial.fault, trial.moment)).collect::<Vec<_>>()
    };
    assert!(trials.chunks(round).all(|round| long(round).len() == LONG_TRIALS));
    let mut pairs = long(&trials);
    pairs.sort();
    pairs.dedup();
    assert_eq!(pairs.len(), known.len() - short, "each of them in five rounds");
    let only = [(Fault::StopRuntimeUntilEviction, Moment::Plan)];
    assert_eq!(Trial::sample(&mut Rng::from_seed(7), &only, 2, 0).len(), 2);
}

#[test]
fn pairs_are_selected_by_their_names_and_a_sample_has_none_that_takes_minutes() {
    let minutes = |pairs: &[(Fault, Moment)]| pairs.iter().filter(|(fault, _)| fault.takes_minutes()).count();
    assert_eq!((minutes(&select("", true)), minutes(&select("", false))), (18, 0));
    assert_eq!(select("StopEtcd Plan", false), [(Fault::StopEtcd, Moment::Plan)]);
    assert_eq!(select("PauseLeader", false).len(), 9);
    // It can end only a run that has its artifact.
    assert_eq!(select("StopSourceControllerUntilEnd", false).len(), 5);
}

#[test]
fn the_provider_holds_or_breaks_the_step_of_each_moment_that_has_one() {
    let pairs = fault::pairs();
    // As docs/reliability.md says.
    assert_eq!(pairs.len(), 278);
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

#[test]
fn a_fault_that_ends_no_cli_lets_nothing_be_created_again() {
    use ledger::Creations;
    for fault in [
        Fault::RestartController,
        Fault::ChangeVersion,
        Fault::TakeLease,
        Fault::SlowApiServer,
        Fault::ThrottleApiServer,
        Fault::ExpireWatches,
        Fault::KillSourceController,
        Fault::StopSourceController,
        Fault::CollectArtifact,
    ] {
        assert_eq!(fault.creations(), Creations::Once, "{fault:?}");
    }
    for (fault, _) in fault::pairs() {
        let may_lose_state = fault.creations() == Creations::AfterOrphans;
        assert_eq!(may_lose_state, fault.may_lose_state(), "{fault:?}");
        assert!(
            !fault.adds_no_run() || fault.creations() == Creations::Once,
            "{fault:?}"
        );
    }
}
