//! Writes the status of a run as merge patches, in a background task: the run continues while the API is unavailable, and the
//! changes are written when it is back. Without changes the task writes heartbeats.
//!
//! Each write serves a reader. What has to be recorded before an effect is written at once ([`StatusWriter::write`],
//! [`StatusWriter::flush`]), a step after it has lasted for a while ([`StatusWriter::write_soon`]), and details with the next
//! write ([`StatusWriter::buffer`]).
//!
//! Each write names the resourceVersion that it changes, so a run that the controller ended as lost is never overwritten. The
//! next write of the runner then fails, no apply starts, and the run is stopped.
//!
//! Each write also reads the run: the annotation [`sluice_api::annotation::CANCEL`] stops the run, at the latest with the next heartbeat.

mod patcher;
pub(crate) mod size_limit;

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::Api;
use patcher::{StatusPatcher, StatusWriteError, is_conflict};
use sluice_api::run::{RunStatusLimit, RunStep, TerraformRun, TerraformRunStatus};
use sluice_runtime::sync::lock;
use sluice_tf_core::redaction::Redactor;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::run::lifecycle::api_retry::{MAX_BACKOFF, MIN_BACKOFF, RetryRule};
use crate::run::status::size_limit::{can_shrink, is_too_large, shrink};

/// Conflicts in a row that are retried without a delay.
const MAX_IMMEDIATE_CONFLICTS: u32 = 5;

/// Delays of writes that are not urgent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteIntervals {
    /// Time between two heartbeats.
    pub(crate) heartbeat: Duration,
    /// Time that a step lasts before it is written.
    pub(crate) step: Duration,
}

/// The desired status, with the sequence numbers of its changes.
#[derive(Clone, Debug)]
struct DesiredStatus {
    sequence: u64,
    /// The newest change that is written at once.
    immediate: u64,
    /// The newest change that is written soon.
    soon: u64,
    status: TerraformRunStatus,
}

impl DesiredStatus {
    /// Makes a change and returns its sequence number.
    fn change(&mut self, change: impl FnOnce(&mut TerraformRunStatus), secrets: &Redactor) -> u64 {
        self.sequence += 1;
        change(&mut self.status);
        record_step(&mut self.status);
        redact(secrets, &mut self.status);
        self.sequence
    }
}

/// The progress of the background task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    WrittenUpTo(u64),
    /// The run object is gone, another process has ended the run, or the API refuses the status for good.
    Failed,
}

/// The reason why a change is not known to be written.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum FlushError {
    #[error("the status was not stored within {0:?}")]
    Timeout(Duration),
    #[error("the status cannot be written")]
    Refused,
}

/// The writer of the status of one run.
#[derive(Debug)]
pub(crate) struct StatusWriter {
    desired: watch::Sender<DesiredStatus>,
    progress: watch::Receiver<Progress>,
    secrets: Mutex<Redactor>,
    is_cancelled: Arc<AtomicBool>,
}

impl StatusWriter {
    /// Starts to write the status of a claimed run. Cancels `stop` when another process has ended the run, or a user cancels it.
    pub(crate) fn start(
        api: Api<TerraformRun>,
        run: &TerraformRun,
        intervals: WriteIntervals,
        stop: CancellationToken,
    ) -> Self {
        let status = run.status.clone().unwrap_or_default();
        let (desired, changes) = watch::channel(DesiredStatus {
            sequence: 0,
            immediate: 0,
            soon: 0,
            status,
        });
        let (progress_sender, progress) = watch::channel(Progress::WrittenUpTo(0));
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let patcher = StatusPatcher::new(api, run, stop.clone(), Arc::clone(&is_cancelled));
        tokio::spawn(write_changes(patcher, changes, progress_sender, intervals, stop));
        Self {
            desired,
            progress,
            secrets: Mutex::default(),
            is_cancelled,
        }
    }

    /// Whether a user has cancelled the run.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    /// The values that are redacted in every text.
    pub(crate) fn secrets(&self) -> MutexGuard<'_, Redactor> {
        lock(&self.secrets)
    }

    /// Changes the status, and writes it at once.
    pub(crate) fn write(&self, change: impl FnOnce(&mut TerraformRunStatus)) {
        self.desired
            .send_modify(|desired| desired.immediate = desired.change(change, &self.secrets()));
    }

    /// Changes the status, and writes it with the next write, at the latest after [`WriteIntervals::step`].
    pub(crate) fn write_soon(&self, change: impl FnOnce(&mut TerraformRunStatus)) {
        self.desired
            .send_modify(|desired| desired.soon = desired.change(change, &self.secrets()));
    }

    /// Changes the status, and writes it with the next write, at the latest with the next heartbeat.
    pub(crate) fn buffer(&self, change: impl FnOnce(&mut TerraformRunStatus)) {
        self.desired.send_modify(|desired| {
            desired.change(change, &self.secrets());
        });
    }

    /// The status with all changes, written or not.
    pub(crate) fn snapshot(&self) -> TerraformRunStatus {
        self.desired.borrow().status.clone()
    }

    /// Writes all changes, and waits until they are written.
    ///
    /// # Errors
    /// When they are not written in time, or cannot be written.
    pub(crate) async fn flush(&self, timeout: Duration) -> Result<(), FlushError> {
        self.desired
            .send_modify(|desired| desired.immediate = desired.sequence);
        let sequence = self.desired.borrow().sequence;
        let mut progress = self.progress.clone();
        let is_done = |progress: &Progress| match progress {
            Progress::WrittenUpTo(written) => *written >= sequence,
            Progress::Failed => true,
        };
        match tokio::time::timeout(timeout, progress.wait_for(is_done)).await {
            Err(_) => Err(FlushError::Timeout(timeout)),
            Ok(Ok(progress)) if matches!(*progress, Progress::WrittenUpTo(_)) => Ok(()),
            Ok(_) => Err(FlushError::Refused),
        }
    }
}

/// Redacts every text that is not our own. Resource keys and identifiers come from values.
fn redact(secrets: &Redactor, status: &mut TerraformRunStatus) {
    let addresses = status.change_entries.iter_mut().map(|change| &mut change.address);
    let entries = status.inventory.iter_mut().flat_map(|listed| &mut listed.entries);
    let lock = status.lock.iter_mut();
    let holders = lock.flat_map(|lock| [&mut lock.who, &mut lock.operation]);
    let texts = [
        &mut status.message,
        &mut status.human_plan,
        &mut status.auto_apply_hold,
        &mut status.state_mismatch,
        &mut status.lock_holder,
        &mut status.log_tail,
    ];
    for text in texts
        .into_iter()
        .chain(holders)
        .chain(addresses)
        .chain(entries.map(|entry| &mut entry.identifier))
    {
        if let Cow::Owned(redacted) = secrets.redact(text) {
            *text = redacted;
        }
    }
}

/// Records the current phase as a step, unless it is the newest step.
fn record_step(status: &mut TerraformRunStatus) {
    let is_recorded = status.steps.last().is_some_and(|step| step.phase == status.phase);
    if !is_recorded && !status.phase.is_final() && status.steps.len() < RunStatusLimit::STEPS {
        status.steps.push(RunStep {
            phase: status.phase,
            since: MicroTime(jiff::Timestamp::now()),
        });
    }
}

/// Writes changes and heartbeats until the [`StatusWriter`] is dropped or a write fails for good.
async fn write_changes(
    mut patcher: StatusPatcher,
    mut changes: watch::Receiver<DesiredStatus>,
    progress: watch::Sender<Progress>,
    intervals: WriteIntervals,
    stop: CancellationToken,
) {
    let mut written = 0;
    while let Some(is_heartbeat) = next_write(&patcher, &mut changes, written, intervals).await {
        match write_with_retries(&mut patcher, &mut changes, is_heartbeat).await {
            Ok(sequence) => {
                written = sequence;
                progress.send_replace(Progress::WrittenUpTo(sequence));
            }
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "the status cannot be written"
                );
                progress.send_replace(Progress::Failed);
                if matches!(error, StatusWriteError::RunEnded(_)) {
                    stop.cancel();
                }
                return;
            }
        }
    }
}

/// Waits until a write is due, and returns whether it is a heartbeat; `None` when the [`StatusWriter`] is dropped.
async fn next_write(
    patcher: &StatusPatcher,
    changes: &mut watch::Receiver<DesiredStatus>,
    written: u64,
    intervals: WriteIntervals,
) -> Option<bool> {
    let has_ended = patcher.stored.phase.is_final();
    let heartbeat = Instant::now() + intervals.heartbeat;
    let mut step = None;
    loop {
        {
            let desired = changes.borrow_and_update();
            if desired.immediate > written {
                return Some(false);
            }
            if desired.soon > written {
                step.get_or_insert_with(|| Instant::now() + intervals.step);
            }
        }
        let is_step = step.is_some_and(|step| step <= heartbeat);
        let due = step.unwrap_or(heartbeat).min(heartbeat);
        tokio::select! {
            result = changes.changed() => result.ok()?,
            () = tokio::time::sleep_until(due), if !has_ended || step.is_some() => return Some(!is_step),
        }
    }
}

/// Writes the newest desired status, with retries, and returns its sequence number.
async fn write_with_retries(
    patcher: &mut StatusPatcher,
    changes: &mut watch::Receiver<DesiredStatus>,
    is_heartbeat: bool,
) -> Result<u64, StatusWriteError> {
    let (mut delay, mut conflicts) = (MIN_BACKOFF, 0);
    // The claim of the run has shown that the runner may write.
    let mut rule = RetryRule::WITH_REFUSALS;
    loop {
        let mut desired = changes.borrow_and_update().clone();
        desired.status = shrink(desired.status, patcher.size_refusals);
        let error = match patcher.patch(&desired.status, is_heartbeat).await {
            Ok(()) => return Ok(desired.sequence),
            Err(error) => error,
        };
        if is_too_large(&error) && can_shrink(patcher.size_refusals) {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the status is too large and is shortened"
            );
            patcher.size_refusals += 1;
        } else if is_conflict(&error) && conflicts < MAX_IMMEDIATE_CONFLICTS {
            conflicts += 1;
        } else if is_conflict(&error) || rule.permits(&error, Instant::now()) {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the status will be written later"
            );
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(MAX_BACKOFF);
        } else {
            return Err(error.into());
        }
        if is_conflict(&error) {
            match patcher.reload(&desired.status).await {
                Ok(()) => {}
                Err(StatusWriteError::Api(error)) if rule.permits(&error, Instant::now()) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests;
