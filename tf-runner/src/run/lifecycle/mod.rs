//! A run from its claim to its end. Every outcome is reported with a reason and a message.

pub(crate) mod api_retry;
pub(crate) mod approval;
pub(crate) mod break_glass;
pub(crate) mod claim;
pub(crate) mod context;
pub(crate) mod error;
pub(crate) mod identity;
pub(crate) mod prepare;
pub(crate) mod session;
pub(crate) mod steps;
pub(crate) mod stop;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use claim::{ClaimError, claim};
use context::Context;
use error::RunError;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use kube::api::Api;
use prepare::{RunInputs, prepare_session};
use session::{StepsOutcome, Success};
use sluice_api::annotation::is_cancelled;
use sluice_api::run::{Phase, TerraformRun};
use sluice_runtime::failure::{Failure, chain};
use sluice_tf_core::cli::process::Limits;
use sluice_tf_core::cli::text::{TEXT_LIMIT, truncate};
use sluice_tf_core::disruption::is_repeated;
use sluice_tf_core::process_lock::{Holder, ProcessLock};
use steps::run_steps;
use stop::RunStop;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::provider_cache::{LockedProvider, ProviderCache};
use crate::run::cli::state_secrets::redact_state_secrets;
use crate::run::log::{self, RunLog};
use crate::run::status::{StatusWriter, WriteIntervals};
use crate::run::workdir::{WorkDirectory, directory_error, providers};

/// Timeout for the process lock of the run: a controller that checks whether the run is alive holds it for a moment.
const RUN_LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeout for each read that tells why a run was stopped.
const CAUSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// The run succeeded.
    Succeeded,
    /// The run failed with an error, which is reported.
    Failed,
    /// The run was not carried out: its inputs changed, or it was asked to end, before it began.
    Superseded,
}

/// Claims and carries out the run that the settings name, until its end or a request to end.
///
/// # Errors
/// When the run was not claimed. Later errors are reported in its status.
pub async fn execute(context: &Context, stop: impl Into<RunStop>) -> Result<RunOutcome, ClaimError> {
    let stop: RunStop = stop.into();
    let run_lock = lock_run(context, stop.token()).await?;
    let api: Api<TerraformRun> = context.api();
    // Also after a request to end: a run whose runner ended without a claim counts as failed in a pod.
    let run = claim(&api, context, stop.token()).await?;
    let intervals = WriteIntervals {
        heartbeat: context.settings.heartbeat,
        step: context.settings.step,
    };
    // It cancels the token when another process ends the run.
    let status = StatusWriter::start(api, &run, intervals, stop.token().clone());
    let limits = Limits {
        stop: stop.token().clone(),
        deadline: Instant::now() + run.spec.deadline.to_duration(),
        grace: context.settings.grace,
    };
    let log = RunLog::new(context.pod_log.clone());
    let steps = carry_out(context, &run, &status, limits, &stop, &log, run_lock.clone());
    let completed = Box::pin(steps).await;
    let not_stored = log
        .conclude(context, &run, &status, completed.result.is_ok())
        .await;
    let result = explain_disk(completed.result, completed.used_directory.as_ref());
    let may_repeat = is_repeated(run.spec.interruptions);
    let result = explain_stop(context, &status, &stop, may_repeat, result).await;
    let outcome = report_end(&status, result);
    let is_reported = flush_end(context, &status).await;
    // The report may have waited until the API was back.
    if is_reported && !not_stored.is_empty() {
        log::store_parts(context, &status, not_stored).await;
        flush_end(context, &status).await;
    }
    if let Some(used) = completed.used_directory {
        used.clean_up(providers::cache(context)).await;
    }
    drop(run_lock);
    Ok(outcome)
}

/// Adds to the error of a run that the disk of its directory is full, if it is. The output of commands is a file there, so that they cannot
/// say it.
fn explain_disk(
    result: Result<Success, RunError>,
    used: Option<&UsedDirectory>,
) -> Result<Success, RunError> {
    let is_stopped = |error: &RunError| matches!(error, RunError::Stopped { .. } | RunError::Superseded(_));
    match result {
        Err(error) if !is_stopped(&error) && used.is_some_and(|used| used.directory.is_full()) => {
            Err(RunError::DiskFull {
                error: Box::new(error),
            })
        }
        result => result,
    }
}

/// Adds to the error of a run that was stopped that a user cancelled it, why Kubernetes ends its pod, if it does, or that its work had
/// not begun: whatever failed then is repeated, with a limit (`may_repeat`) if Kubernetes ends the pod.
async fn explain_stop(
    context: &Context,
    status: &StatusWriter,
    stop: &RunStop,
    may_repeat: bool,
    result: Result<Success, RunError>,
) -> Result<Success, RunError> {
    let is_before_work = stop.is_before_work();
    let stopped = match result {
        Err(stopped @ RunError::Stopped { .. }) => stopped,
        Err(error) if is_before_work && error.phase() != Phase::Superseded => error,
        result => return result,
    };
    if status.is_cancelled() || is_before_work && is_cancelled_by_user(context).await {
        return Err(RunError::Cancelled(Box::new(stopped)));
    }
    let pod = own_pod(context).await;
    // Only a runner beside others has a process lock.
    let is_shared = context.settings.lock_file.is_some();
    Err(stop::explain(
        stopped,
        pod.as_ref(),
        is_shared,
        is_before_work,
        may_repeat,
    ))
}

/// Reads whether a user has cancelled the run since the last write of its status: a cancelled run must not be repeated. Without an answer:
/// no.
async fn is_cancelled_by_user(context: &Context) -> bool {
    let api: Api<TerraformRun> = context.api();
    let read = tokio::time::timeout(CAUSE_TIMEOUT, api.get_metadata_opt(&context.settings.run)).await;
    let run = read.ok().and_then(Result::ok).flatten();
    run.is_some_and(|run| is_cancelled(run.annotations()))
}

/// Returns the pod of the runner. `None`: it has none, or it cannot be read.
async fn own_pod(context: &Context) -> Option<Pod> {
    let own = context.identity.pod.as_ref()?;
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &own.namespace);
    match tokio::time::timeout(CAUSE_TIMEOUT, api.get(&own.name)).await {
        Ok(Ok(pod)) => Some(pod),
        Ok(Err(error)) => {
            tracing::warn!(%error, "the pod of the run cannot be read");
            None
        }
        Err(_) => None,
    }
}

/// Writes the status of the ended run. Returns whether it is written.
async fn flush_end(context: &Context, status: &StatusWriter) -> bool {
    let flushed = status.flush(context.settings.api_timeout).await;
    if let Err(error) = &flushed {
        tracing::error!(
            error = error as &dyn std::error::Error,
            "the end of the run is not recorded"
        );
    }
    flushed.is_ok()
}

/// Takes the process lock that tells the controller that this run is alive. If another process holds it, the run is claimed.
async fn lock_run(
    context: &Context,
    stop: &CancellationToken,
) -> Result<Option<Arc<ProcessLock>>, ClaimError> {
    let Some(path) = &context.settings.lock_file else {
        return Ok(None);
    };
    let error = match ProcessLock::wait(path, RUN_LOCK_TIMEOUT, stop).await {
        Ok(Some(lock)) => {
            lock.record_holder(&context.settings.run);
            return Ok(Some(Arc::new(lock)));
        }
        Ok(None) => RunError::Busy {
            holder: Holder::read(path),
            waited: RUN_LOCK_TIMEOUT,
        },
        Err(source) => directory_error("take the lock", source),
    };
    Err(ClaimError::Taken {
        run: context.settings.run.clone(),
        phase: "running",
        holder: chain(&error),
    })
}

/// Records the phase, reason and message of the end.
fn report_end(status: &StatusWriter, result: Result<Success, RunError>) -> RunOutcome {
    let finished = Some(Time(jiff::Timestamp::now()));
    match result {
        Ok(success) => {
            // The message may contain resource addresses, whose keys come from values.
            let message = status.secrets().redact(&success.message).into_owned();
            tracing::info!(reason = success.reason.as_str(), message, "run succeeded");
            status.write(|status| {
                status.phase = Phase::Succeeded;
                status.reason = success.reason.into();
                status.message = message;
                status.finished_at = finished;
            });
            RunOutcome::Succeeded
        }
        Err(error) => {
            let message = truncate(&status.secrets().redact(&chain(&error)), TEXT_LIMIT);
            tracing::error!(reason = error.reason(), message, "run failed");
            status.write(|status| {
                status.phase = error.phase();
                error.reason().clone_into(&mut status.reason);
                status.message = message;
                status.finished_at = finished;
            });
            if error.phase() == Phase::Superseded {
                RunOutcome::Superseded
            } else {
                RunOutcome::Failed
            }
        }
    }
}

/// The result of a run, and its directory if the run got as far as that.
struct CompletedRun {
    result: Result<Success, RunError>,
    used_directory: Option<UsedDirectory>,
}

/// The working directory after a run. It is cleaned up after the end of the run is recorded, so that no reader waits for it.
struct UsedDirectory {
    directory: WorkDirectory,
    /// The directory stays as it is.
    is_kept: bool,
    /// Packages of providers and their paths, for the cache.
    packages: Vec<(LockedProvider, PathBuf)>,
}

impl UsedDirectory {
    async fn clean_up(self, cache: Option<ProviderCache>) {
        let work = tokio::task::spawn_blocking(move || {
            if let Some(cache) = cache {
                providers::store(&cache, &self.packages);
            }
            if self.is_kept {
                return Ok(());
            }
            self.directory.discard_files()
        });
        // The next run clears the directory, or fails because it cannot. The outcome of this run stands.
        match work.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the working directory cannot be cleaned up"
            ),
            Err(error) => tracing::warn!(%error, "the working directory cannot be cleaned up"),
        }
    }
}

/// Carries out a claimed run.
async fn carry_out(
    context: &Context,
    run: &TerraformRun,
    status: &StatusWriter,
    limits: Limits,
    stop: &RunStop,
    log: &RunLog,
    run_lock: Option<Arc<ProcessLock>>,
) -> CompletedRun {
    let loading = Box::pin(RunInputs::load(context, run, status, limits, run_lock));
    let loaded = match loading.await {
        Ok(loaded) => loaded,
        Err(error) => {
            return CompletedRun {
                result: Err(error),
                used_directory: None,
            };
        }
    };
    let RunInputs {
        bundle,
        stored,
        directory,
        limits,
    } = loaded;
    let mut packages = Vec::new();
    let outcome = match prepare_session(context, run, bundle, &directory, limits, status, log).await {
        Ok(session) => {
            let mut outcome = run_steps(&session, stored.as_ref(), stop).await;
            if let Err(error) = outcome.result {
                outcome.result = Err(redact_state_secrets(&session.cli, error).await);
            }
            // A caller that stops a run waits for its end: no time to fill the cache.
            if !stop.token().is_cancelled() {
                packages = providers::installed(&session.cli);
            }
            outcome
        }
        // The directory is cleared too: what was written before the failure may be sensitive.
        Err(error) => StepsOutcome::from(Err(error)),
    };
    CompletedRun {
        result: outcome.result,
        used_directory: Some(UsedDirectory {
            directory,
            is_kept: outcome.keeps_directory,
            packages,
        }),
    }
}
