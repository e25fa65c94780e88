//! Start and end of the controller. What it tells about itself is served from the start; the rest begins when it leads,
//! which without leader election is at once: the file server's listener first, so that a taken port is an error, then the
//! watch. Only who leads listens for consumers, so that a Service in front of several replicas reaches that one.

mod listeners;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use sluice_api::source::GitRepository;
use sluice_runtime::args::proxy_environment;
use sluice_runtime::blocking::Pool;
use sluice_runtime::client;
use sluice_runtime::event::{PosterError, Recorder};
use sluice_runtime::http::{EnvironmentError, Route};
use sluice_runtime::leader::{self, ElectionTimingError, Leadership};
use sluice_runtime::manager::{self, Endpoints, Instance, ListenError, ProgramError};
use sluice_runtime::metrics::Metrics;
use sluice_runtime::probes::Readiness;
use sluice_runtime::schedule::Schedule;
use sluice_runtime::shutdown::{self, Token};
use sluice_runtime::watch::ObjectCache;
use tokio::task::JoinSet;

use crate::garbage::GarbageCollector;
use crate::git::{DiskBudget, Mirrors, Transport, TransportError};
use crate::identity::{Environment, TokenSettings, Tokens};
use crate::options::{CONCURRENT, Gate, Options, StorageOptions};
use crate::reconcile::{Context, GitRepositories, Network, ObjectTracker, SlotLimits, Slots, watch};
use crate::server;
use crate::storage::{AddressError, AdvertisedAddress, LocalDirectory, Retention, StorageError, is_full};

use listeners::Artifacts;

/// The Lease of an instance that watches all objects.
const LEASE: &str = "source-controller-leader-election";

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
    /// Times of leader election that do not go together.
    #[error(transparent)]
    Times(#[from] ElectionTimingError),
    /// Stopped while another instance led: no fault.
    #[error("stopped before it led")]
    Stopped,
    /// A port is taken, or an address not this machine's.
    #[error(transparent)]
    Listen(#[from] ListenError),
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
    /// The environment names a proxy that is none.
    #[error(transparent)]
    Proxies(#[from] EnvironmentError),
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
    lost: Token,
}

impl Running {
    /// Waits for the end of all parts. A part that ends on its own stops the others.
    pub async fn ended(mut self) -> leader::LeadershipEnd {
        loop {
            let ended = tokio::select! {
                // The part that keeps the Lease says so before it ends.
                biased;
                () = self.lost.cancelled() => {
                    self.tasks.abort_all();
                    return leader::LeadershipEnd::Lost;
                }
                ended = self.tasks.join_next() => ended,
            };
            match ended {
                None => return leader::LeadershipEnd::Released,
                Some(Ok(())) => {}
                Some(Err(error)) => tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "a part of the controller failed"
                ),
            }
            self.stop.cancel();
        }
    }
}

/// The program `source-controller`: runs until a signal, with the API of the usual configuration.
///
/// # Errors
/// The API cannot be reached, or as [`run_with`].
pub async fn run_program(options: Options) -> Result<leader::LeadershipEnd, ProgramError> {
    let signals = shutdown::on_signals()?;
    let metrics = Metrics::new();
    let settings = client::Settings {
        metrics: metrics.clone(),
        ..client::Settings::default()
    };
    let client = client::build(&settings).await?;
    let running = match run_with(options, client, metrics, signals.token()).await {
        Err(StartError::Stopped) => return Ok(leader::LeadershipEnd::Released),
        running => running?,
    };
    tracing::info!(artifacts = %running.artifacts, "source-controller started");
    Ok(running.ended().await)
}

/// Starts the controller with a client that exists already. It runs in the background until `stop`.
///
/// # Errors
/// As [`run_with`].
pub async fn run(options: Options, client: Client, stop: Token) -> Result<Running, StartError> {
    run_with(options, client, Metrics::new(), stop).await
}

/// As [`run()`], counted in these metrics. With leader election it waits until it leads.
///
/// # Errors
/// Flags do not go together, a port cannot be bound, the storage directory cannot be used, or `stop` came before it led.
pub async fn run_with(
    options: Options,
    client: Client,
    metrics: Metrics,
    stop: Token,
) -> Result<Running, StartError> {
    say_what_has_no_effect(&options);
    let names = ("source-controller", LEASE);
    let host = hostname(&options.storage);
    let instance = Instance::new(names, &options.common, host, client.clone(), metrics);
    let recorder = instance.recorder()?;
    let tokens = tokens(&options, &instance)?;
    let endpoints = Endpoints::open(&options.common.addresses).await?;
    let (metrics_address, health) = endpoints.addresses();
    let readiness = Readiness::default();
    // As Flux: who may have traffic is told by the file server, which only the leader opens.
    readiness.set();
    let mut tasks = endpoints.serve(&instance.metrics, &readiness, &stop);
    let turn = match instance.acquire_leadership(&stop).await? {
        Leadership::Stopped => return Err(StartError::Stopped),
        turn => turn,
    };
    let listener = Artifacts::open(&options.storage).await?;
    let artifacts = listener.address()?;
    let advertised = listener.advertised(&options.storage)?;
    let admission = listener.admission(&options.storage, &advertised)?;
    let advertised = AdvertisedAddress::new(advertised, options.storage.artifact_token.clone());
    let storage = LocalDirectory::open(&options.storage.storage_path, advertised)?;
    let disk = Disk {
        storage,
        mirrors: Arc::new(mirrors(&options.storage, options.git.room())?),
    };
    let passes = options
        .common
        .concurrency
        .concurrent
        .saturating_mul(PASSES_PER_WORKER);
    let settings = instance.watch_settings("gitrepository", passes, recorder.clone());
    let watch = watch(client.clone(), settings);
    let seen = watch.objects();
    let context = context(&options, &instance, recorder.clone(), tokens, &disk, seen, &stop)?;
    let garbage_collector = GarbageCollector {
        client: client.clone(),
        storage: disk.storage.clone(),
        mirrors: disk.mirrors,
    };
    tasks.spawn(server::serve(listener.0, disk.storage, admission, stop.clone()));
    tasks.spawn(garbage_collector.run(stop.clone()));
    let (done, lost) = (Token::new(), Token::new());
    tasks.spawn(keep(turn, done.clone(), lost.clone()));
    let watch = watch.resume(context.slots.granted());
    let passes = watch.run(GitRepositories::new(Arc::new(context)), stop.clone());
    tasks.spawn(async move {
        passes.await;
        done.cancel();
        recorder.close(LAST_EVENTS).await;
    });
    Ok(Running {
        artifacts,
        metrics: metrics_address,
        health,
        tasks,
        stop,
        lost,
    })
}

/// Keeps the turn until the work is done, or says that it is lost.
async fn keep(turn: Leadership, done: Token, lost: Token) {
    if turn.hold(&done).await == leader::LeadershipEnd::Lost {
        lost.cancel();
    }
}

/// What is kept on disk.
struct Disk {
    storage: LocalDirectory,
    mirrors: Arc<Mirrors>,
}

fn context(
    options: &Options,
    instance: &Instance<'_, CONCURRENT>,
    recorder: Recorder,
    tokens: Arc<Tokens>,
    disk: &Disk,
    seen: ObjectCache<GitRepository>,
    stop: &Token,
) -> Result<Context, StartError> {
    let concurrent = options.common.concurrency.concurrent;
    let workers = usize::from(concurrent.saturating_mul(PASSES_PER_WORKER));
    Ok(Context {
        client: instance.client.clone(),
        clock: Arc::clone(&instance.clock),
        repositories: Arc::new(seen),
        dependency_wait: options.common.retry.requeue_dependency,
        origin: Arc::new(Network::new(
            Arc::clone(&disk.mirrors),
            Arc::clone(&instance.clock),
        )),
        storage: Arc::new(disk.storage.clone()),
        recorder,
        schedule: Schedule::new(
            options.common.retry.interval_jitter_percentage,
            Arc::clone(&instance.random),
        ),
        transport: Transport::with_route(
            Route::Environment(Arc::new(proxy_environment()?)),
            options.ssh.algorithms(),
        )?,
        tokens,
        limits: options.git.limits(),
        durations: options.durations.durations(),
        retention: Retention {
            ttl: options.storage.artifact_retention_ttl,
            records: usize::try_from(options.storage.artifact_retention_records).unwrap_or(usize::MAX),
        },
        algorithm: options.storage.artifact_digest_algo,
        blocking_pool: Pool::new(workers),
        // As many again for namespaces that would wait for another one.
        packing: Pool::new(usize::from(concurrent).saturating_mul(2)),
        slots: Slots::new(SlotLimits::of(workers, usize::from(concurrent))),
        tracker: ObjectTracker::default(),
        stop: stop.clone(),
    })
}

/// Opens the mirrors beside the artifacts; where that cannot be written (a volume that is read-only, or full), in the
/// system's directory for temporary files: what is stored can then be served on, and remotes be watched.
fn mirrors(options: &StorageOptions, room: DiskBudget) -> Result<Mirrors, StartError> {
    let beside = options.storage_path.join(MIRRORS);
    match Mirrors::with_budget(&beside, room) {
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem || is_full(&error) => {
            // A directory of its own, which nobody else can have prepared.
            let temporary = tempfile::Builder::new()
                .prefix("source-controller-mirrors-")
                .tempdir();
            let temporary = temporary.map_err(StartError::Mirrors)?.keep();
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                directory = %temporary.display(),
                "--storage-path cannot be written: mirrors are kept elsewhere, new artifacts cannot be stored"
            );
            Mirrors::with_budget(&temporary, room).map_err(StartError::Mirrors)
        }
        opened => opened.map_err(StartError::Mirrors),
    }
}

/// Who lends credentials.
fn tokens(options: &Options, instance: &Instance<'_, CONCURRENT>) -> Result<Arc<Tokens>, StartError> {
    let settings = TokenSettings {
        client: instance.client.clone(),
        clock: Arc::clone(&instance.clock),
        environment: Environment::from_process(),
        policy: options
            .identity
            .policy(&options.gates)
            .map_err(StartError::Flags)?,
        cache: options.identity.cache(),
    };
    let tokens = Tokens::new(settings, &instance.metrics).map_err(TransportError::from)?;
    Ok(Arc::new(tokens))
}

/// Accepted is not silent: what somebody asked for and does not get is named once.
fn say_what_has_no_effect(options: &Options) {
    if options.gates.is_open(Gate::CacheSecretsAndConfigMaps) {
        tracing::info!(
            "the feature gate CacheSecretsAndConfigMaps has no effect: each pass reads its Secret afresh"
        );
    }
}

fn hostname(options: &StorageOptions) -> String {
    if options.hostname.is_empty() {
        manager::hostname()
    } else {
        options.hostname.clone()
    }
}
