//! Faults during runs: each trial breaks one thing at one moment of a stack's first apply, and checks what is left.
//!
//! A commit and a day select a sample of the trials ([`sample`]). One trial at a time is between the creation of its stack and the end of its
//! fault, so the seed decides too which faults meet: that of a trial and the recovery of the one before it.

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
mod results;
mod runs;
mod sample;
mod stack;
mod stage;
mod status;

use std::time::{Duration, Instant};

use fault::Fault;
use futures::{StreamExt as _, future, stream};
use ledger::Orphan;
use moment::{Moment, Release};
use results::{Row, TrialResult};
use sluice_harness::node::Node;
use sluice_harness::skip::without_cluster;
use stack::Stack;
use stage::Stage;

/// Trials at the same time: one is at its moment or its fault, the other one recovers. A fault of the whole node disturbs the other one too.
const CONCURRENT_TRIALS: usize = 2;
/// Time limit of a trial until its moment, and from the end of its fault until its stack is applied. A fault of the other trial can be in
/// it: the longest takes 75 s, and the lock of a dead runner some more.
const LIMIT: Duration = Duration::from_mins(5);
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
    /// When the run that waits for the fault continues.
    release: Release,
}

impl Trial {
    /// Carries out the trial, and deletes what is left of it. Returns its result.
    async fn carry_out(self, stage: &Stage<'_>) -> Result<TrialResult, String> {
        // A fault that takes minutes would exceed the time limits of the other trials.
        let (_shared, _alone) = if self.fault.takes_minutes() {
            (None, Some(stage.trials.write().await))
        } else {
            (Some(stage.trials.read().await), None)
        };
        let stack = Stack::new(stage, self).await?;
        let result = Box::pin(self.break_and_recover(stage, &stack)).await;
        match (result, Box::pin(stack.delete()).await) {
            (Err(error), Err(also)) => Err(format!("{error}\n{also}")),
            (result, deleted) => deleted.and(result),
        }
    }

    /// Causes the fault at the moment, and waits until the stack has recovered. Returns the result.
    async fn break_and_recover(self, stage: &Stage<'_>, stack: &Stack) -> Result<TrialResult, String> {
        let no_other_fault = stage.fault.lock().await;
        let (hits, active) = Box::pin(self.break_at_moment(stage, stack)).await?;
        let _no_other_fault = self.fault.adds_no_run().then_some(no_other_fault);
        let took = Box::pin(self.recover(stack, active.as_deref())).await?;
        Ok(TrialResult { hits, ..took })
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

    /// Acts as a user until the stack is applied, or its namespace deleted, and checks what is left. Returns the result without the hits.
    async fn recover(self, stack: &Stack, active: Option<&str>) -> Result<TrialResult, String> {
        let since = Instant::now();
        let deadline = since + LIMIT;
        if self.fault == Fault::DeleteNamespace {
            while !stack.is_gone().await? {
                sleep_before(deadline, "was not deleted", stack).await?;
            }
            let seconds = since.elapsed().as_secs();
            stack.check_deleted().await?;
            return Ok(TrialResult {
                seconds,
                ..TrialResult::default()
            });
        }
        let orphans = self.wait_until_applied(stack, deadline).await?;
        let (seconds, runs) = (since.elapsed().as_secs(), stack.runs().await?.len());
        Box::pin(stack.check_outcome(active, &orphans)).await?;
        // A plan, and the apply of it after the approval; or both at once.
        let undisturbed = if self.is_manual { 2 } else { 1 };
        Ok(TrialResult {
            seconds,
            more_runs: Some(runs.saturating_sub(undisturbed)),
            orphans: orphans.len(),
            ..TrialResult::default()
        })
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
    let trials = sample::requested();
    let nodes = (0..sample::node_count()).map(|_| Node::start());
    let nodes = future::try_join_all(nodes).await.unwrap();
    let stages = future::join_all(nodes.iter().map(Stage::start)).await;
    let count = stages.len();
    let of_nodes = stages.iter().enumerate().map(|(index, stage)| {
        let own = trials.iter().skip(index).step_by(count);
        stream::iter(own)
            .map(async |trial| {
                let result = trial.carry_out(stage).await;
                let row = Row::new(*trial, stage.faults_after(*trial), result);
                eprintln!("{row:?}");
                row.record().unwrap();
                row
            })
            .buffer_unordered(CONCURRENT_TRIALS)
            .collect::<Vec<_>>()
    });
    let rows = future::join_all(of_nodes).await.concat();
    eprintln!("{}", results::table_of_all_shards(&rows).unwrap());
    let failures: Vec<_> = rows.iter().filter_map(Row::failure).collect();
    assert!(
        failures.is_empty(),
        "{}\n{}",
        failures.join("\n"),
        future::join_all(stages.iter().map(|stage| stage.installation.describe_pods()))
            .await
            .concat()
    );
}

#[test]
fn the_provider_holds_or_breaks_the_step_of_each_moment_that_has_one() {
    let pairs = fault::pairs();
    // As docs/reliability.md says.
    assert_eq!(pairs.len(), 281);
    for (fault, moment) in pairs {
        let orders = manifests::behaviour(fault, moment);
        let order = moment.held_step().map(|step| &orders["steps"][step]);
        let holds = order.is_some_and(|order| order["hold"] == true);
        let breaks = order.is_some_and(|order| order.is_object() && !holds);
        let has_step = moment.held_step().is_some();
        let expected = (has_step && !fault.is_of_provider(), fault.is_of_provider());
        assert_eq!((holds, breaks), expected, "{fault:?} {moment:?}: {orders}");
        // Its check expects what the provider was told.
        assert!(holds || !has_step || !fault.ends_no_cli(), "{fault:?} {moment:?}");
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
