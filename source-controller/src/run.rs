//! Start and end of the controller. Metrics and probes are served from the start. The watch starts with the leadership, which without
//! leader election is immediate. With local storage the file server starts with it: only the leader listens for consumers, so a Service
//! with several replicas routes to the leader. With a bucket every replica serves from the start, and the leader alone publishes.

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
use sluice_runtime::manager::{Endpoints, Instance, ListenError, ProgramError};
use sluice_runtime::metrics::Metrics;
use sluice_runtime::probes::Readiness;
use sluice_runtime::schedule::Schedule;
use sluice_runtime::shutdown::{self, Token};
use sluice_runtime::trace::{TraceError, Tracer};
use sluice_runtime::watch::{ObjectCache, ShownVersions};
use tokio::task::JoinSet;

use crate::archive::Capacity;
use crate::garbage::GarbageCollector;
use crate::git::{DiskLimits, Mirrors, Transport, TransportError};
use crate::identity::{Environment, TokenSettings, Tokens};
use crate::options::{CONCURRENT, Gate, Options, StorageOptions};
use crate::reconcile::{Context, GitRepositories, Network, ObjectTracker, Secrets, SlotLimits, Slots, watch};
use crate::running::{Running, Stop};
use crate::serving::{FileServer, Served, hostname};
use crate::storage::bucket::ConnectError;
use crate::storage::{AddressError, Retention, Storage, StorageError, is_full};

/// The Lease of an instance that watches all objects.
const LEASE: &str = "source-controller-leader-election";

/// Directory of mirrors below the storage path. The file server does not serve names that begin with a dot.
const MIRRORS: &str = ".mirrors";
/// How long the start waits for a process that is ending and still uses the mirrors.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// Concurrent reconciliations for each of `--concurrent`: most wait for a remote, and only packing needs CPU time.
const RECONCILIATIONS_PER_WORKER: u16 = 8;
/// How long a reconciliation runs before it writes its progress. Most reconciliations are faster, and write their status once.
const PROGRESS_DELAY: Duration = Duration::from_secs(1);
/// Time limit for the delivery of queued events and spans on shutdown.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// The controller cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The flags conflict.
    #[error("{0}")]
    Flags(String),
    /// The durations of leader election conflict.
    #[error(transparent)]
    Times(#[from] ElectionTimingError),
    /// The program was stopped while another instance led, which is not a failure.
    #[error("stopped before it became the leader")]
    Stopped,
    /// An address cannot be bound.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The advertised address cannot be derived.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The storage directory cannot be used.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The bucket of the flags cannot be opened.
    #[error(transparent)]
    Bucket(#[from] ConnectError),
    /// The directory of mirrors cannot be used.
    #[error("cannot use the mirrors below --storage-path")]
    Mirrors(#[source] io::Error),
    /// Events cannot be posted.
    #[error(transparent)]
    Events(#[from] PosterError),
    /// Traces cannot be exported.
    #[error(transparent)]
    Traces(#[from] TraceError),
    /// The environment has an invalid proxy.
    #[error(transparent)]
    Proxies(#[from] EnvironmentError),
    /// The client for remotes cannot be created.
    #[error("cannot create a client for remotes")]
    Transport(#[from] TransportError),
}

/// Runs the program `source-controller` until a signal, with the default client configuration.
///
/// # Errors
/// The API cannot be reached, or as [`run_with`].
pub async fn run_program(options: Options) -> Result<leader::LeadershipEnd, ProgramError> {
    let signals = shutdown::on_signals()?;
    let metrics = Metrics::new();
    let settings = client::Settings {
        metrics: metrics.clone(),
        user_agent: crate::USER_AGENT,
        ..client::Settings::default()
    };
    let client = client::build(&settings).await?;
    let running = match run_with(options, client, metrics, signals.token()).await {
        Err(StartError::Stopped) => return Ok(leader::LeadershipEnd::Released),
        running => running?,
    };
    tracing::info!(artifacts = %running.artifacts, "source-controller started");
    Ok(running.wait().await)
}

/// Starts the controller with an existing client. It runs in the background until `stop`.
///
/// # Errors
/// As [`run_with`].
pub async fn run(options: Options, client: Client, stop: impl Into<Stop>) -> Result<Running, StartError> {
    run_with(options, client, Metrics::new(), stop).await
}

/// As [`run()`], with these metrics. With leader election, it waits for the leadership.
///
/// # Errors
/// The flags conflict, a port cannot be bound, the storage directory cannot be used, or `stop` came before the leadership.
pub async fn run_with(
    options: Options,
    client: Client,
    metrics: Metrics,
    stop: impl Into<Stop>,
) -> Result<Running, StartError> {
    let stop: Stop = stop.into();
    log_ineffective_flags(&options);
    let names = ("source-controller", LEASE);
    let host = hostname(&options.storage);
    let instance = Instance::new(names, &options.common, host, client.clone(), metrics);
    let reports = Reports::start(&options, &instance)?;
    let tokens = tokens(&options, &instance)?;
    let endpoints = Endpoints::open(&options.common.addresses).await?;
    let (metrics_address, health) = endpoints.addresses();
    let readiness = Readiness::default();
    // As in Flux, every replica is ready. Only the leader opens the file server, except with a bucket.
    readiness.set();
    let mut tasks = endpoints.serve(&instance.metrics, &readiness, &stop.work);
    let server = FileServer::of_bucket(&options, &mut tasks, &stop.server).await?;
    let leadership = match instance.acquire_leadership(&stop.work).await? {
        Leadership::Stopped => return Err(stopped(tasks, &stop.server).await),
        leadership => leadership,
    };
    let serving = (&mut tasks, &stop.server);
    let (leadership, opened) = open_as_leader(&options, server, leadership, serving).await?;
    let (artifacts, disk) = opened;
    let workers = options.common.concurrency.concurrent;
    let concurrency = workers.saturating_mul(RECONCILIATIONS_PER_WORKER);
    let settings = instance.watch_settings("gitrepository", concurrency, reports.recorder.clone());
    let secrets = Secrets::new(client.clone(), ShownVersions::default());
    let watch = watch(client.clone(), settings, secrets.shown());
    let context = context(
        &options,
        &instance,
        reports.clone(),
        tokens,
        &disk,
        (watch.objects(), secrets),
        &stop.work,
    )?;
    let garbage_collector = GarbageCollector {
        client: client.clone(),
        storage: disk.storage,
        mirrors: disk.mirrors,
    };
    tasks.spawn(garbage_collector.run(stop.work.clone()));
    let (completed, lost) = (Token::new(), Token::new());
    tasks.spawn(hold_leadership(leadership, completed.clone(), lost.clone()));
    let watch = watch.resume(context.slots.granted());
    let watch = watch.resume(context.origin.changed());
    let reconciliations = watch.run(GitRepositories::new(Arc::new(context)), stop.work.clone());
    tasks.spawn(async move {
        reconciliations.await;
        completed.cancel();
        reports.close().await;
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

/// The address that consumers reach, and the data of the leader.
type Opened = (SocketAddr, Disk);

/// Ends a replica that never led: running downloads end before. Its file server does not last longer than its work: the other replicas
/// serve the same bucket.
async fn stopped(mut tasks: JoinSet<()>, server: &Token) -> StartError {
    server.cancel();
    while tasks.join_next().await.is_some() {}
    StartError::Stopped
}

/// Opens what the leader needs, and serves artifacts unless they are served already. A failure releases the Lease, or the next start
/// would wait until it expires.
async fn open_as_leader(
    options: &Options,
    server: Option<FileServer>,
    leadership: Leadership,
    tasks: (&mut JoinSet<()>, &Token),
) -> Result<(Leadership, Opened), StartError> {
    match open_disk(options, server, tasks).await {
        Ok(opened) => Ok((leadership, opened)),
        Err(error) => {
            let ended = Token::new();
            ended.cancel();
            leadership.hold(&ended).await;
            Err(error)
        }
    }
}

async fn open_disk(
    options: &Options,
    server: Option<FileServer>,
    (tasks, stop): (&mut JoinSet<()>, &Token),
) -> Result<Opened, StartError> {
    let server = match server {
        Some(server) => server,
        None => FileServer::open(options, None, stop).await?,
    };
    let (directories, limits) = (options.storage.clone(), options.git.disk_limits());
    let opened = tokio::task::spawn_blocking(move || mirrors(&directories, limits)).await;
    let mirrors = Arc::new(opened.map_err(|error| StartError::Mirrors(error.into()))??);
    let Served { address, storage, .. } = server.start_as_leader(&mirrors, tasks, stop);
    Ok((address, Disk { storage, mirrors }))
}

/// Holds the leadership until the work is completed, or reports its loss.
async fn hold_leadership(leadership: Leadership, completed: Token, lost: Token) {
    if leadership.hold(&completed).await == leader::LeadershipEnd::Lost {
        lost.cancel();
    }
}

/// Where reconciliations report besides the status.
#[derive(Clone)]
struct Reports {
    recorder: Recorder,
    tracer: Tracer,
}

impl Reports {
    fn start(options: &Options, instance: &Instance<'_, CONCURRENT>) -> Result<Self, StartError> {
        Ok(Self {
            recorder: instance.recorder()?,
            tracer: instance.tracer(&options.tracing)?,
        })
    }

    /// Delivers what is queued.
    async fn close(&self) {
        tokio::join!(
            self.recorder.close(FLUSH_TIMEOUT),
            self.tracer.close(FLUSH_TIMEOUT)
        );
    }
}

/// The data of the leader.
struct Disk {
    storage: Arc<dyn Storage>,
    mirrors: Arc<Mirrors>,
}

fn context(
    options: &Options,
    instance: &Instance<'_, CONCURRENT>,
    reports: Reports,
    tokens: Arc<Tokens>,
    disk: &Disk,
    (repositories, secrets): (ObjectCache<GitRepository>, Secrets),
    stop: &Token,
) -> Result<Context, StartError> {
    let concurrent = options.common.concurrency.concurrent;
    let workers = usize::from(concurrent.saturating_mul(RECONCILIATIONS_PER_WORKER));
    Ok(Context {
        client: instance.client.clone(),
        secrets,
        clock: Arc::clone(&instance.clock),
        repositories: Arc::new(repositories),
        dependency_wait: options.common.retry.requeue_dependency,
        progress_delay: PROGRESS_DELAY,
        origin: Arc::new(Network::new(
            Arc::clone(&disk.mirrors),
            Arc::clone(&instance.clock),
        )),
        storage: Arc::clone(&disk.storage),
        recorder: reports.recorder,
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
        // Twice as many, for namespaces that would otherwise wait for another one.
        packing: Pool::new(usize::from(concurrent).saturating_mul(2)),
        capacity: Capacity::of_machine(),
        slots: Slots::new(SlotLimits::of(workers, usize::from(concurrent))),
        tracker: ObjectTracker::default(),
        tracer: reports.tracer,
        stop: stop.clone(),
    })
}

/// Opens the mirrors in the storage directory or, if that is read-only or full, in a temporary directory: stored artifacts are still
/// served then, and remotes are still polled.
fn mirrors(options: &StorageOptions, limits: DiskLimits) -> Result<Mirrors, StartError> {
    let directory = options.storage_path.join(MIRRORS);
    match Mirrors::with_limits(&directory, limits, LOCK_TIMEOUT) {
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem || is_full(&error) => {
            // A new directory, so that no other process has prepared its contents.
            let temporary = tempfile::Builder::new()
                .prefix("source-controller-mirrors-")
                .tempdir();
            let temporary = temporary.map_err(StartError::Mirrors)?.keep();
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                directory = %temporary.display(),
                "--storage-path is not writable: mirrors use a temporary directory, new artifacts cannot be stored"
            );
            Mirrors::with_limits(&temporary, limits, Duration::ZERO).map_err(StartError::Mirrors)
        }
        opened => opened.map_err(StartError::Mirrors),
    }
}

/// Creates the token exchange for workload identity.
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

/// Logs flags without effect.
fn log_ineffective_flags(options: &Options) {
    if options.gates.is_open(Gate::CacheSecretsAndConfigMaps) {
        tracing::info!(
            "the feature gate CacheSecretsAndConfigMaps has no effect: a Secret is read once for each of its versions"
        );
    }
}
