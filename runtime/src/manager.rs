//! Shared wiring of the controller programs: logs, exit codes, probes, metrics, events and leader election.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use kube::Client;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::args::{Addresses, Common, Logging, Tracing};
use crate::clock::{Clock, SystemClock};
use crate::event::{Poster, PosterError, Recorder, Reporter};
use crate::leader::{Candidate, ElectionTimingError, Leadership, LeadershipEnd, Settings, lease_name};
use crate::metrics::{self, Metrics};
use crate::probes::{self, Readiness};
use crate::random::{Generator, Random};
use crate::serve::{ListenAddress, listen};
use crate::shutdown::Token;
use crate::trace::{TraceError, Tracer};
use crate::{failure, http, telemetry, watch};

/// Error of a controller program.
pub type ProgramError = Box<dyn std::error::Error + Send + Sync>;

/// Runs a controller program: installs the TLS provider and the log, and converts the result to an exit code.
///
/// Exits immediately with code 1 when leadership is lost: another instance may lead, so background work must stop.
pub async fn run(
    program: &str,
    logging: Logging,
    work: impl Future<Output = Result<LeadershipEnd, ProgramError>>,
) -> ExitCode {
    http::install_crypto();
    let log = telemetry::install(logging.log_encoding, logging.log_level);
    if let Err(error) = &log {
        eprintln!("{program}: no log: {error}");
    }
    match work.await {
        Ok(LeadershipEnd::Released) => ExitCode::SUCCESS,
        Ok(LeadershipEnd::Lost) => std::process::exit(1),
        Err(error) => {
            tracing::error!(error = failure::chain(&*error), "{program} cannot run");
            if log.is_err() {
                eprintln!("{program}: {}", failure::chain(&*error));
            }
            ExitCode::FAILURE
        }
    }
}

/// Returns the host name for events and Lease identities: `HOSTNAME`, which in a pod is the pod's name, else the node name of `uname`.
#[must_use]
pub fn hostname() -> String {
    let variable = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
    variable.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned())
}

/// One instance of a controller: its names, its flags and shared parts.
pub struct Instance<'a, const CONCURRENT: u16> {
    /// Name of the program in events, e.g. `source-controller`.
    pub component: &'static str,
    /// Name of the Lease of an instance without a label selector.
    pub lease: &'static str,
    /// The flags that all controllers have.
    pub flags: &'a Common<CONCURRENT>,
    /// Host name for events and the Lease identity.
    pub hostname: String,
    /// Client of the API.
    pub client: Client,
    /// Registry of the program's metrics.
    pub metrics: Metrics,
    /// Clock of the machine.
    pub clock: Arc<dyn Clock>,
    /// Random numbers of the operating system.
    pub random: Arc<dyn Random>,
}

impl<'a, const CONCURRENT: u16> Instance<'a, CONCURRENT> {
    /// Creates an instance with the clock and the random numbers of the system.
    #[must_use]
    pub fn new(
        (component, lease): (&'static str, &'static str),
        flags: &'a Common<CONCURRENT>,
        hostname: String,
        client: Client,
        metrics: Metrics,
    ) -> Self {
        Self {
            component,
            lease,
            flags,
            hostname,
            client,
            metrics,
            clock: Arc::new(SystemClock),
            random: Arc::new(Generator::from_system()),
        }
    }

    /// Starts the event recorder, which writes to Kubernetes and to the receiver of `--events-addr`, if set.
    ///
    /// # Errors
    /// The address of the receiver is invalid.
    pub fn recorder(&self) -> Result<Recorder, PosterError> {
        let addresses = &self.flags.addresses;
        let reporter = Reporter {
            component: self.component.to_owned(),
            instance: self.hostname.clone(),
            trace: addresses.trace_events,
        };
        let clock = Arc::clone(&self.clock);
        let poster = Poster::for_address(&addresses.events_addr, reporter.clone(), clock, &self.metrics)?;
        let recorder = Recorder::start(self.client.clone(), reporter, Arc::clone(&self.clock));
        Ok(recorder.with_poster(poster))
    }

    /// Starts the export of traces, if `--otlp-endpoint` is set.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn tracer(&self, flags: &Tracing) -> Result<Tracer, TraceError> {
        Tracer::start(&flags.otlp_endpoint, self.component, &self.metrics)
    }

    /// Returns the settings of the controller's watch from the flags.
    #[must_use]
    pub fn watch_settings(
        &self,
        controller: &'static str,
        concurrent: u16,
        recorder: Recorder,
    ) -> watch::Settings {
        let scope = &self.flags.scope;
        watch::Settings {
            controller,
            scope: watch::Scope {
                namespace: scope.namespace().map(str::to_owned),
                labels: scope.labels().map(str::to_owned),
            },
            concurrent,
            backoff: Arc::new(self.flags.retry.backoff()),
            metrics: self.metrics.clone(),
            recorder,
            random: Arc::clone(&self.random),
        }
    }

    /// Waits until this instance leads; returns immediately without `--enable-leader-election`. The Lease is in the namespace
    /// `RUNTIME_NAMESPACE`, or else in that of the client, which in a pod is the pod's.
    ///
    /// # Errors
    /// The durations of the flags are inconsistent.
    pub async fn acquire_leadership(&self, stop: &Token) -> Result<Leadership, ElectionTimingError> {
        let scope = &self.flags.scope;
        let name = lease_name(self.lease, scope.labels());
        let namespace = match &*scope.runtime_namespace {
            "" => self.client.default_namespace(),
            namespace => namespace,
        };
        let election = &self.flags.leader_election;
        let (host, random) = (&self.hostname, &*self.random);
        let Some(settings) = Settings::from_flags(election, name, namespace.to_owned(), host, random)? else {
            return Ok(Leadership::Disabled);
        };
        let (client, clock, random) = (
            self.client.clone(),
            Arc::clone(&self.clock),
            Arc::clone(&self.random),
        );
        let candidate = Candidate::new(client, settings, clock, random, &self.metrics);
        let lead = candidate.acquire(stop).await;
        Ok(lead.map_or(Leadership::Stopped, |lead| Leadership::Held(Box::new(lead))))
    }
}

/// The address of a flag cannot be bound: the port is in use, or the address is not local.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} ({flag})")]
pub struct ListenError {
    /// The flag.
    pub flag: &'static str,
    /// The address.
    pub address: String,
    /// Error of the operating system.
    #[source]
    pub source: io::Error,
}

/// Binds the address of a flag; `None` for `0`.
///
/// # Errors
/// [`ListenError`].
pub async fn bind(flag: &'static str, address: &ListenAddress) -> Result<Option<TcpListener>, ListenError> {
    listen(address).await.map_err(|source| ListenError {
        flag,
        address: format!("{address:?}"),
        source,
    })
}

/// Listeners of metrics and probes, which every instance serves, whether it leads or not.
pub struct Endpoints {
    metrics: Option<TcpListener>,
    health: Option<TcpListener>,
}

impl Endpoints {
    /// Binds the addresses of `--metrics-addr` and `--health-addr`.
    ///
    /// # Errors
    /// [`ListenError`].
    pub async fn open(addresses: &Addresses) -> Result<Self, ListenError> {
        Ok(Self {
            metrics: bind("--metrics-addr", &addresses.metrics_addr).await?,
            health: bind("--health-addr", &addresses.health_addr).await?,
        })
    }

    /// Returns the bound addresses of metrics and probes.
    #[must_use]
    pub fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        let bound = |listener: &Option<TcpListener>| listener.as_ref()?.local_addr().ok();
        (bound(&self.metrics), bound(&self.health))
    }

    /// Serves both until `stop`.
    #[must_use = "the servers end when the set is dropped"]
    pub fn serve(self, metrics: &Metrics, readiness: &Readiness, stop: &Token) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        if let Some(listener) = self.metrics {
            tasks.spawn(metrics::run(listener, metrics.clone(), stop.clone()));
        }
        if let Some(listener) = self.health {
            tasks.spawn(probes::run(listener, readiness.clone(), stop.clone()));
        }
        tasks
    }
}
