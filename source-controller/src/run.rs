//! Start and end of the controller: listeners first, so that a taken port is an error at once; then watch and servers.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use sluice_runtime::blocking::Pool;
use sluice_runtime::clock::{Clock, SystemClock};
use sluice_runtime::event::{Poster, PosterError, Recorder, Reporter};
use sluice_runtime::metrics::{self, Metrics};
use sluice_runtime::probes::{self, Readiness};
use sluice_runtime::random::{Generator, Random};
use sluice_runtime::schedule::Schedule;
use sluice_runtime::serve::{Address, listen};
use sluice_runtime::shutdown::Token;
use sluice_runtime::watch::{Scope, Settings};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::git::{Mirrors, Transport, TransportError};
use crate::options::{Options, StorageOptions};
use crate::reconcile::{Context, GitRepositories, Network, Places, watch};
use crate::server;
use crate::storage::{AddressError, LocalDirectory, Retention, StorageError, advertised, is_full};
use crate::sweep::Sweep;

/// Directory of mirrors below the storage path. The file server shows nothing whose name begins with a dot.
const MIRRORS: &str = ".mirrors";
/// Passes at once for each of `--concurrent`: most of them wait for a remote, and only packing needs the machine.
const PASSES_PER_WORKER: u16 = 8;
/// How long the last events may take to be delivered once the program stops.
const LAST_EVENTS: Duration = Duration::from_secs(5);

/// Why the controller could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Flags that do not go together.
    #[error("{0}")]
    Flags(String),
    /// A port is taken, or an address not this machine's.
    #[error("cannot listen on {address} ({flag})")]
    Listen {
        /// The flag that names the address.
        flag: &'static str,
        /// The address.
        address: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The advertised address cannot be derived.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The storage directory is not usable.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The mirrors' directory is not usable.
    #[error("cannot use the mirrors below --storage-path")]
    Mirrors(#[source] io::Error),
    /// Events cannot be posted.
    #[error(transparent)]
    Events(#[from] PosterError),
    /// No TLS client can be made.
    #[error("cannot make a client for remotes")]
    Transport(#[from] TransportError),
}

/// A controller that runs until its stop token is cancelled.
#[derive(Debug)]
pub struct Running {
    /// Where artifacts are served.
    pub artifacts: SocketAddr,
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
    /// Where probes are answered.
    pub health: Option<SocketAddr>,
    tasks: JoinSet<()>,
    stop: Token,
}

impl Running {
    /// Waits for the end of all parts. A part that ends on its own stops the others.
    pub async fn ended(mut self) {
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "a part of the controller failed"
                );
            }
            self.stop.cancel();
        }
    }
}

/// Starts the controller with a client that exists already. It runs in the background until `stop`.
///
/// # Errors
/// Flags do not go together, a port cannot be bound, or the storage directory cannot be used.
pub async fn run(options: Options, client: Client, stop: Token) -> Result<Running, StartError> {
    options.accepted.check().map_err(StartError::Flags)?;
    let listeners = Listeners::open(&options).await?;
    let storage = LocalDirectory::open(
        &options.storage.storage_path,
        listeners.advertised(&options.storage)?,
    )?;
    let mirrors = Arc::new(mirrors(&options.storage)?);
    say_what_has_no_effect(&options);
    let metrics = Metrics::new();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let random: Arc<dyn Random> = Arc::new(Generator::from_system());
    let recorder = recorder(&options, &client, &clock, &metrics)?;
    let settings = settings(&options, &metrics, &recorder, &random);
    let workers = usize::from(settings.concurrent);
    let context = Context {
        client: client.clone(),
        clock,
        origin: Arc::new(Network::new(Arc::clone(&mirrors))),
        storage: Arc::new(storage.clone()),
        recorder: recorder.clone(),
        schedule: Schedule::new(options.common.retry.interval_jitter_percentage, random),
        transport: Transport::new()?,
        limits: options.git.limits(),
        retention: Retention {
            ttl: options.storage.artifact_retention_ttl,
            records: usize::try_from(options.storage.artifact_retention_records).unwrap_or(usize::MAX),
        },
        algorithm: options.storage.artifact_digest_algo,
        looks: Pool::new(workers),
        packing: Pool::new(usize::from(options.common.concurrency.concurrent)),
        places: Places::new((workers / 4).max(1)),
        stop: stop.clone(),
    };
    let sweep = Sweep {
        client: client.clone(),
        storage: storage.clone(),
        mirrors,
    };
    let watch = watch(client, settings);
    let (artifacts, metrics_address, health) = listeners.addresses()?;
    let mut tasks = listeners.serve(storage, metrics, &stop);
    tasks.spawn(sweep.run(stop.clone()));
    let passes = watch.run(GitRepositories::new(Arc::new(context)), stop.clone());
    tasks.spawn(async move {
        passes.await;
        recorder.close(LAST_EVENTS).await;
    });
    Ok(Running {
        artifacts,
        metrics: metrics_address,
        health,
        tasks,
        stop,
    })
}

/// Takes the events of all passes: for Kubernetes, and for a receiver where there is one.
fn recorder(
    options: &Options,
    client: &Client,
    clock: &Arc<dyn Clock>,
    metrics: &Metrics,
) -> Result<Recorder, PosterError> {
    let reporter = Reporter {
        component: "source-controller".to_owned(),
        instance: hostname(&options.storage),
        trace: options.common.addresses.trace_events,
    };
    let address = &options.common.addresses.events_addr;
    let poster = Poster::for_address(address, reporter.clone(), Arc::clone(clock), metrics)?;
    Ok(Recorder::start(client.clone(), reporter, Arc::clone(clock)).posting(poster))
}

/// Opens the mirrors beside the artifacts; where that cannot be written (a volume that is read-only, or full), in the
/// system's directory for temporary files: what is stored can then be served on, and remotes be watched.
fn mirrors(options: &StorageOptions) -> Result<Mirrors, StartError> {
    let beside = options.storage_path.join(MIRRORS);
    match Mirrors::new(&beside) {
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem || is_full(&error) => {
            let temporary =
                std::env::temp_dir().join(format!("source-controller-mirrors-{}", std::process::id()));
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                directory = %temporary.display(),
                "--storage-path cannot be written: mirrors are kept elsewhere, new artifacts cannot be stored"
            );
            Mirrors::new(&temporary).map_err(StartError::Mirrors)
        }
        opened => opened.map_err(StartError::Mirrors),
    }
}

fn settings(options: &Options, metrics: &Metrics, recorder: &Recorder, random: &Arc<dyn Random>) -> Settings {
    let scope = &options.common.scope;
    Settings {
        controller: "gitrepository",
        scope: Scope {
            namespace: scope.namespace().map(str::to_owned),
            labels: scope.labels().map(str::to_owned),
        },
        concurrent: options
            .common
            .concurrency
            .concurrent
            .saturating_mul(PASSES_PER_WORKER),
        backoff: Arc::new(options.common.retry.backoff()),
        metrics: metrics.clone(),
        recorder: recorder.clone(),
        random: Arc::clone(random),
    }
}

/// Accepted is not silent: what somebody asked for and does not get is named once.
fn say_what_has_no_effect(options: &Options) {
    if options.common.leader_election.enable_leader_election {
        tracing::warn!("--enable-leader-election has no effect yet: run one replica");
    }
    if !options.accepted.feature_gates.is_empty() {
        tracing::warn!("--feature-gates have no effect yet");
    }
}

/// The sockets of the program.
struct Listeners {
    artifacts: TcpListener,
    metrics: Option<TcpListener>,
    health: Option<TcpListener>,
}

impl Listeners {
    async fn open(options: &Options) -> Result<Self, StartError> {
        let text = &options.storage.storage_addr;
        let missing = || StartError::Address(AddressError(text.clone()));
        let address = text.parse::<Address>().map_err(|_| missing())?;
        let common = &options.common.addresses;
        Ok(Self {
            artifacts: bind("--storage-addr", &address).await?.ok_or_else(missing)?,
            metrics: bind("--metrics-addr", &common.metrics_addr).await?,
            health: bind("--health-addr", &common.health_addr).await?,
        })
    }

    fn addresses(&self) -> Result<(SocketAddr, Option<SocketAddr>, Option<SocketAddr>), StartError> {
        let of = |listener: &TcpListener| {
            listener.local_addr().map_err(|source| StartError::Listen {
                flag: "local address",
                address: String::new(),
                source,
            })
        };
        let other = |listener: &Option<TcpListener>| listener.as_ref().map(of).transpose();
        Ok((of(&self.artifacts)?, other(&self.metrics)?, other(&self.health)?))
    }

    /// Serves on all of them. The program is ready as soon as it can hand out what it has.
    fn serve(self, storage: LocalDirectory, metrics: Metrics, stop: &Token) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        tasks.spawn(server::serve(self.artifacts, storage, stop.clone()));
        if let Some(listener) = self.metrics {
            tasks.spawn(metrics::run(listener, metrics, stop.clone()));
        }
        if let Some(listener) = self.health {
            let readiness = Readiness::default();
            readiness.set(true);
            tasks.spawn(probes::run(listener, readiness, stop.clone()));
        }
        tasks
    }

    /// The address for consumers; a port that the system chose is filled in.
    fn advertised(&self, options: &StorageOptions) -> Result<String, StartError> {
        let bound = self.addresses()?.0.port();
        let bind = match options.storage_addr.rsplit_once(':') {
            Some((host, _)) => format!("{host}:{bound}"),
            None => options.storage_addr.clone(),
        };
        Ok(advertised(&options.storage_adv_addr, &bind, &hostname(options))?)
    }
}

async fn bind(flag: &'static str, address: &Address) -> Result<Option<TcpListener>, StartError> {
    listen(address).await.map_err(|source| StartError::Listen {
        flag,
        address: format!("{address:?}"),
        source,
    })
}

fn hostname(options: &StorageOptions) -> String {
    if !options.hostname.is_empty() {
        return options.hostname.clone();
    }
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
