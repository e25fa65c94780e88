//! The program `tf-controller`: the executor, leadership and shutdown.

mod options;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use options::{
    check_flags, is_in_pod, job_options, options, process_options, uses_jobs, warn_about_flags_without_effect,
};
use sluice_runtime::manager::{self, Endpoints, Instance, ProgramError};
use sluice_runtime::metrics::Metrics;
use sluice_runtime::probes::Readiness;
use sluice_runtime::shutdown::{self, Token};
use sluice_runtime::{client, leader};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::args::Args;
use crate::executor::{Executor, JobExecutor, ProcessExecutor, RunRef};
use crate::{definitions, run};

/// Time for queued events and spans at shutdown.
const FLUSH_GRACE: Duration = Duration::from_secs(5);
/// The Lease of an instance that watches all objects: tofu-controller's.
const LEASE: &str = "1953de50.contrib.fluxcd.io";

/// Runs until a signal, or until leadership is lost.
///
/// # Errors
/// Flags contradict each other, the API is not available, or a port cannot be bound.
pub async fn run_program(args: Args) -> Result<leader::LeadershipEnd, ProgramError> {
    check_flags(&args)?;
    warn_about_flags_without_effect(&args);
    let signals = shutdown::on_signals()?;
    let stop = signals.token();
    let metrics = Metrics::new();
    let settings = client::Settings {
        kubeconfig: args.kubeconfig.clone(),
        metrics: metrics.clone(),
        user_agent: crate::USER_AGENT,
        ..client::Settings::default()
    };
    let client = client::build(&settings).await?;
    let ready = Readiness::default();
    let endpoints = Endpoints::open(&args.common.addresses).await?;
    // Stops when dropped.
    let _server = endpoints.serve(&metrics, &ready, &stop);
    // Before the election: an instance that is not ready must not lead.
    definitions::wait(&client, &ready, &stop).await;
    let names = ("tf-controller", LEASE);
    let instance = Instance::new(names, &args.common, manager::hostname(), client.clone(), metrics);
    let leadership = instance.acquire_leadership(&stop).await?;
    if matches!(leadership, leader::Leadership::Stopped) {
        return Ok(leader::LeadershipEnd::Released);
    }
    // After the election: an instance that does not lead must not watch what it does not handle.
    let Runners {
        executor,
        ended,
        processes,
    } = Runners::start(&args, &client, &stop)?;
    let recorder = instance.recorder()?;
    let options = options(&args, &instance, recorder.clone(), ready)?;
    let tracer = options.tracer.clone();
    let (done, stopped_at) = (Token::new(), stop_time(&stop));
    let grace = || remaining_grace(args.graceful_shutdown_timeout, &stopped_at);
    // In its own task: a long reconciliation must not delay the renewal of the Lease.
    let leadership = tokio::spawn({
        let done = done.clone();
        async move { leadership.hold(&done).await }
    });
    let work = async {
        run(options, (executor, ended), client, stop).await?;
        tokio::join!(recorder.close(FLUSH_GRACE), tracer.close(FLUSH_GRACE));
        if let Some(processes) = &processes {
            processes.finish(grace(), signals.reached(2)).await;
        }
        done.cancel();
        // The leadership task releases the Lease.
        std::future::pending::<Result<leader::LeadershipEnd, ProgramError>>().await
    };
    let ended = tokio::select! {
        failed = work => return failed,
        ended = leadership => ended?,
    };
    if ended == leader::LeadershipEnd::Lost
        && let Some(processes) = &processes
    {
        // This instance starts no runs any more, but its active runs must be able to write their state.
        processes.finish(grace(), signals.reached(2)).await;
    }
    Ok(ended)
}

/// The executor of this instance.
struct Runners {
    executor: Arc<dyn Executor>,
    /// Yields each run whose runner has ended or cannot begin.
    ended: UnboundedReceiver<RunRef>,
    /// The same executor, if its runners end with this process: they get time to finish.
    processes: Option<Arc<ProcessExecutor>>,
}

impl Runners {
    fn start(args: &Args, client: &kube::Client, stop: &Token) -> Result<Self, ProgramError> {
        if uses_jobs(args) {
            let namespace = args.common.scope.namespace();
            let (executor, ended) =
                JobExecutor::new(client.clone(), namespace, job_options(args), stop.clone());
            return Ok(Self {
                executor: Arc::new(executor),
                ended,
                processes: None,
            });
        }
        let (executor, ended) = ProcessExecutor::new(process_options(args)?)?;
        let executor = Arc::new(executor);
        Ok(Self {
            processes: is_in_pod(args).then(|| Arc::clone(&executor)),
            executor,
            ended,
        })
    }
}

/// Returns the time of the request to stop, set when it arrives.
fn stop_time(stop: &Token) -> Arc<OnceLock<Instant>> {
    let (stopped_at, stop) = (Arc::<OnceLock<_>>::default(), stop.clone());
    let set = Arc::clone(&stopped_at);
    tokio::spawn(async move {
        stop.cancelled().await;
        set.get_or_init(Instant::now);
    });
    stopped_at
}

/// Returns the rest of the grace period of runs.
fn remaining_grace(grace: Duration, stopped_at: &OnceLock<Instant>) -> Duration {
    grace.saturating_sub(stopped_at.get().map(Instant::elapsed).unwrap_or_default())
}
