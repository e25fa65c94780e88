//! The program `repo-controller`: its flags, leadership and shutdown.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use sluice_runtime::args::Common;
use sluice_runtime::manager::{self, Endpoints, Instance, ProgramError};
use sluice_runtime::metrics::Metrics;
use sluice_runtime::probes::Readiness;
use sluice_runtime::shutdown::{self, Token};
use sluice_runtime::{client, leader};

use crate::{CONTROLLER, definition, run};

/// Default of `--concurrent`.
const CONCURRENT: u16 = 4;
/// The Lease of an instance that watches all objects.
const LEASE: &str = "repo-controller-leader-election";
/// Time for queued events at shutdown.
const EVENT_GRACE: Duration = Duration::from_secs(5);

/// Turns each Repo into a GitRepository and a Terraform object.
#[derive(Parser, Clone, Debug)]
#[command(name = "repo-controller", version)]
pub struct Args {
    /// The flags of all controllers.
    #[command(flatten)]
    pub common: Common<CONCURRENT>,
    /// Kubeconfig; default: KUBECONFIG, then the pod's ServiceAccount.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
}

/// Runs until a signal, or until leadership is lost.
///
/// # Errors
/// Flags contradict each other, the API is not available, or a port cannot be bound.
pub async fn run_program(args: Args) -> Result<leader::LeadershipEnd, ProgramError> {
    let stop = shutdown::on_signals()?.token();
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
    definition::wait(&client, args.common.scope.namespace(), &ready, &stop).await;
    let names = ("repo-controller", LEASE);
    let instance = Instance::new(names, &args.common, manager::hostname(), client.clone(), metrics);
    let leadership = instance.acquire_leadership(&stop).await?;
    if matches!(leadership, leader::Leadership::Stopped) {
        return Ok(leader::LeadershipEnd::Released);
    }
    let recorder = instance.recorder()?;
    let concurrent = args.common.concurrency.concurrent;
    let settings = instance.watch_settings(CONTROLLER, concurrent, recorder.clone());
    let done = Token::new();
    // In its own task: a long reconciliation must not delay the renewal of the Lease.
    let leadership = tokio::spawn({
        let done = done.clone();
        async move { leadership.hold(&done).await }
    });
    let work = async {
        run(settings, client, stop).await;
        recorder.close(EVENT_GRACE).await;
        done.cancel();
        // The leadership task releases the Lease.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = work => Ok(leader::LeadershipEnd::Released),
        ended = leadership => Ok(ended?),
    }
}
