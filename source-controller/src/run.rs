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
use sluice_runtime::args::proxies;
use sluice_runtime::blocking::Pool;
use sluice_runtime::clock::{Clock, SystemClock};
use sluice_runtime::event::{Poster, PosterError, Recorder, Reporter};
use sluice_runtime::http::{EnvironmentError, Route};
use sluice_runtime::leader::{self, BadTimes, Turn};
use sluice_runtime::metrics::Metrics;
use sluice_runtime::random::{Generator, Random};
use sluice_runtime::schedule::Schedule;
use sluice_runtime::shutdown::Token;
use sluice_runtime::watch::{Objects, Scope, Settings};
use tokio::task::JoinSet;

use crate::git::{Mirrors, Room, Transport, TransportError};
use crate::identity::{Environment, TokenSettings, Tokens};
use crate::options::{Gate, Options, StorageOptions};
use crate::reconcile::{Bounds, Context, GitRepositories, Memory, Network, Places, watch};
use crate::server;
use crate::storage::{AddressError, AdvertisedAddress, LocalDirectory, Retention, StorageError, is_full};
use crate::sweep::Sweep;

use listeners::{Around, Artifacts};

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
    Times(#[from] BadTimes),
    /// Stopped while another instance led: no fault.
    #[error("stopped before it led")]
    Stopped,
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

/// How the controller ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was stopped, and has finished.
    Stopped,
    /// Another instance may lead by now: it was dropped as it was, and the process must end at once.
    LeaseLost,
}

impl Running {
    /// Waits for the end of all parts. A part that ends on its own stops the others.
    pub async fn ended(mut self) -> End {
        loop {
            let ended = tokio::select! {
                // The part that keeps the Lease says so before it ends.
                biased;
                () = self.lost.cancelled() => {
                    self.tasks.abort_all();
                    return End::LeaseLost;
                }
                ended = self.tasks.join_next() => ended,
            };
            match ended {
                None => return End::Stopped,
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
    let shared = Shared::new(&options, &client, &metrics)?;
    let tokens = tokens(&options, &client, &shared.clock, &metrics)?;
    let around = Around::open(&options.common.addresses).await?;
    let (metrics_address, health) = around.addresses()?;
    let mut tasks = around.serve(&metrics, &stop);
    let turn = turn(&options, &client, &shared, &metrics, &stop).await?;
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
    let settings = settings(&options, &metrics, &shared);
    let watch = watch(client.clone(), settings);
    let seen = watch.objects();
    let context = context(&options, &client, &shared, tokens, &disk, seen, &stop)?;
    let sweep = Sweep {
        client: client.clone(),
        storage: disk.storage.clone(),
        mirrors: disk.mirrors,
    };
    tasks.spawn(server::serve(listener.0, disk.storage, admission, stop.clone()));
    tasks.spawn(sweep.run(stop.clone()));
    let (done, lost) = (Token::new(), Token::new());
    tasks.spawn(keep(turn, done.clone(), lost.clone()));
    let watch = watch.resume(context.places.granted());
    let passes = watch.run(GitRepositories::new(Arc::new(context)), stop.clone());
    tasks.spawn(async move {
        passes.await;
        done.cancel();
        shared.recorder.close(LAST_EVENTS).await;
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

/// What the parts of the program share.
struct Shared {
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    recorder: Recorder,
}

impl Shared {
    fn new(options: &Options, client: &Client, metrics: &Metrics) -> Result<Self, PosterError> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        Ok(Self {
            recorder: recorder(options, client, &clock, metrics)?,
            random: Arc::new(Generator::from_system()),
            clock,
        })
    }
}

/// Waits until this instance may work.
async fn turn(
    options: &Options,
    client: &Client,
    shared: &Shared,
    metrics: &Metrics,
    stop: &Token,
) -> Result<Turn, StartError> {
    let program = leader::Program {
        lease: LEASE,
        flags: &options.common.leader_election,
        scope: &options.common.scope,
        host: &hostname(&options.storage),
        client,
        clock: &shared.clock,
        random: &shared.random,
        metrics,
    };
    match program.turn(stop).await? {
        Turn::Never => Err(StartError::Stopped),
        turn => Ok(turn),
    }
}

/// Keeps the turn until the work is done, or says that it is lost.
async fn keep(turn: Turn, done: Token, lost: Token) {
    if turn.keep(&done).await == leader::Ended::Lost {
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
    client: &Client,
    shared: &Shared,
    tokens: Arc<Tokens>,
    disk: &Disk,
    seen: Objects<GitRepository>,
    stop: &Token,
) -> Result<Context, StartError> {
    let concurrent = options.common.concurrency.concurrent;
    let workers = usize::from(concurrent.saturating_mul(PASSES_PER_WORKER));
    Ok(Context {
        client: client.clone(),
        clock: Arc::clone(&shared.clock),
        repositories: Arc::new(seen),
        dependency_wait: options.common.retry.requeue_dependency,
        origin: Arc::new(Network::new(Arc::clone(&disk.mirrors), Arc::clone(&shared.clock))),
        storage: Arc::new(disk.storage.clone()),
        recorder: shared.recorder.clone(),
        schedule: Schedule::new(
            options.common.retry.interval_jitter_percentage,
            Arc::clone(&shared.random),
        ),
        transport: Transport::on(Route::Environment(Arc::new(proxies()?)), options.ssh.algorithms())?,
        tokens,
        limits: options.git.limits(),
        times: options.times.times(),
        retention: Retention {
            ttl: options.storage.artifact_retention_ttl,
            records: usize::try_from(options.storage.artifact_retention_records).unwrap_or(usize::MAX),
        },
        algorithm: options.storage.artifact_digest_algo,
        looks: Pool::new(workers),
        // As many again for namespaces that would wait for another one.
        packing: Pool::new(usize::from(concurrent).saturating_mul(2)),
        places: Places::new(Bounds::of(workers, usize::from(concurrent))),
        memory: Memory::default(),
        stop: stop.clone(),
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
fn mirrors(options: &StorageOptions, room: Room) -> Result<Mirrors, StartError> {
    let beside = options.storage_path.join(MIRRORS);
    match Mirrors::within(&beside, room) {
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
            Mirrors::within(&temporary, room).map_err(StartError::Mirrors)
        }
        opened => opened.map_err(StartError::Mirrors),
    }
}

fn settings(options: &Options, metrics: &Metrics, shared: &Shared) -> Settings {
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
        recorder: shared.recorder.clone(),
        random: Arc::clone(&shared.random),
    }
}

/// Who lends credentials.
fn tokens(
    options: &Options,
    client: &Client,
    clock: &Arc<dyn Clock>,
    metrics: &Metrics,
) -> Result<Arc<Tokens>, StartError> {
    let settings = TokenSettings {
        client: client.clone(),
        clock: Arc::clone(clock),
        environment: Environment::of_process(),
        rules: options
            .identity
            .rules(&options.gates)
            .map_err(StartError::Flags)?,
        cache: options.identity.cache(),
    };
    let tokens = Tokens::new(settings, metrics).map_err(TransportError::from)?;
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
    if !options.hostname.is_empty() {
        return options.hostname.clone();
    }
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
