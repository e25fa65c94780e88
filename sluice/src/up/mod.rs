//! `sluice up`: the API, all controllers and the process executor in one program.

mod access;
mod definitions;
mod descriptor_limit;
mod ending;
mod logs;
mod own_approvals;
mod state_dir;
mod storage_health;
mod store_location;
mod view;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use access::RunAccess;
pub use definitions::DefinitionsError;
use kube::Client;
use sluice_api::interval::Interval;
use sluice_api::reference::CrossNamespace;
use sluice_embedded::{ApiServer, BuildError, ServeError, StoreError, TlsServer};
use sluice_runtime::args::{self, Tracing};
use sluice_runtime::client;
use sluice_runtime::clock::SystemClock;
use sluice_runtime::event::{Recorder, Reporter};
use sluice_runtime::metrics::Metrics;
use sluice_runtime::probes::Readiness;
use sluice_runtime::random::Generator;
use sluice_runtime::schedule::Backoff;
use sluice_runtime::shutdown::{self, Signals, Token};
use sluice_runtime::telemetry::Encoding;
use sluice_runtime::trace::{TraceError, Tracer};
use sluice_runtime::watch::{Scope, Settings};
use sluice_tf_controller::args::PROVIDER_CACHE_MAX_BYTES;
use sluice_tf_controller::executor::{
    Executor, ExecutorError, ProcessExecutor, ProcessOptions, provider_cache,
};
pub(crate) use state_dir::StateDir;
pub use state_dir::StateDirError;
pub use store_location::{ShareKind, StatusPlace, StoreArgs, StoreLocation};
use tokio::task::JoinHandle;
use view::View;

use crate::screen::Setup;
use crate::view::{Lines, has_colours};
use crate::{apply, manifests};

/// Concurrent reconciliations of a controller; they never wait for runs.
const CONCURRENT_RECONCILIATIONS: u16 = 16;
/// Time for queued spans at the end.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// Name of the API in the files of saved ports.
const API: &str = "api";
/// Name of the artifact server, as [`API`].
const ARTIFACTS: &str = "artifacts";

/// Arguments of `sluice up`.
#[derive(clap::Args, Clone, Debug)]
pub struct UpArgs {
    /// Manifests to apply: a file, or a directory that is read recursively.
    #[arg(short = 'f', long = "file", value_name = "DIR")]
    pub file: Option<PathBuf>,
    /// Directory for all data. Without it, plans, Terraform state and, without --store, all other objects are lost at the end.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Where the objects are.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Directory with YAML files of CustomResourceDefinitions, whose kinds are served; repeatable. They are read at the start.
    #[arg(long = "crd-dir", value_name = "DIR")]
    pub crd_dirs: Vec<PathBuf>,
    /// Also write the kubeconfig here (mode 0600).
    #[arg(long, value_name = "FILE")]
    pub kubeconfig_out: Option<PathBuf>,
    /// Loopback address of the API.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Maximum number of concurrent runs.
    #[arg(long, default_value_t = 4)]
    pub concurrent: u16,
    /// Directory of the installed versions of the CLI, for stacks with spec.tool: DIR/NAME/VERSION/NAME.
    #[arg(long, value_name = "DIR")]
    pub tools_dir: Option<PathBuf>,
    /// Traces.
    #[command(flatten)]
    pub tracing: Tracing,
    /// Format of the log. While a terminal shows the screen, the log is a file in the state directory. If lines are printed to a
    /// terminal, it is that file with --state, and error lines without; otherwise it is written to standard error.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub log_format: Option<Encoding>,
    /// Do not print progress, and do not show the screen.
    #[arg(long)]
    pub quiet: bool,
    /// On a terminal, print lines instead of the screen, as without a terminal or with TERM=dumb.
    #[arg(long)]
    pub plain: bool,
}

/// Why `sluice up` failed.
#[derive(Debug, thiserror::Error)]
pub enum UpError {
    /// The manifests cannot be read.
    #[error("cannot read the manifests at {path}: {source}")]
    Manifests {
        /// The path.
        path: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The state directory cannot be used.
    #[error(transparent)]
    StateDir(#[from] StateDirError),
    /// A definition of a directory cannot be served.
    #[error(transparent)]
    Definitions(#[from] DefinitionsError),
    /// The store cannot be opened.
    #[error("{error}{}", store_location::advice(error))]
    Store {
        /// The error of the store.
        error: StoreError,
    },
    /// The API cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The API cannot be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The address is not a loopback address.
    #[error(
        "--listen {0}: must be a loopback address, because a client of the API can run commands on this machine"
    )]
    NotLoopback(SocketAddr),
    /// The source controller could not start.
    #[error("source controller: {0}")]
    Source(#[from] sluice_source_controller::StartError),
    /// The tf-controller could not start.
    #[error("tf-controller: {0}")]
    Terraform(#[from] sluice_tf_controller::RunError),
    /// Traces cannot be exported.
    #[error(transparent)]
    Traces(#[from] TraceError),
    /// The process executor could not start.
    #[error(transparent)]
    Executor(#[from] ExecutorError),
    /// The directory of installed CLIs is not a valid path.
    #[error("--tools-dir: {0}")]
    Tools(std::io::Error),
    /// Signal handlers could not be installed.
    #[error("cannot listen for signals: {0}")]
    Signals(std::io::Error),
    /// The flags of a controller do not parse: a bug in this program.
    #[error("internal flags: {0}")]
    Flags(#[from] clap::Error),
}

/// Runs until a signal, then lets active runs finish.
///
/// # Errors
/// [`UpError`], if it cannot start.
pub async fn up(args: UpArgs) -> Result<(), UpError> {
    if !args.listen.ip().is_loopback() {
        return Err(UpError::NotLoopback(args.listen));
    }
    let lines = Arc::new(Lines::new());
    let loaded = load(&args)?;
    let state_dir = StateDir::open(args.state.as_deref())?;
    let log = logs::start(&args, &state_dir, &lines)?;
    descriptor_limit::raise();
    let signals = shutdown::on_signals().map_err(UpError::Signals)?;
    let (embedded, serving) = serve_api(&args, &state_dir).await?;
    let client = client::with_user_agent(&embedded.client(), client::USER_AGENT);
    let kubeconfig = state_dir::write_kubeconfig(&serving.kubeconfig_path, args.kubeconfig_out.as_deref())?;
    view::announce(&lines, serving.addr, &kubeconfig, &args);
    let setup = Setup {
        kubeconfig: kubeconfig.display().to_string(),
        log: log.map(|path| path.display().to_string()).unwrap_or_default(),
        in_memory: args.state.is_none(),
        colours: has_colours(),
    };
    let view = View::start(&args, &client, &lines, &signals, setup);
    let health_stop = Token::new();
    tokio::spawn(storage_health::follow(
        embedded.storage_health(),
        Arc::clone(&lines),
        health_stop.clone(),
    ));
    let started = Started {
        state_dir: &state_dir,
        embedded: &embedded,
        client: &client,
        signals: &signals,
        lines: &lines,
    };
    let access = RunAccess::new(client.clone(), serving.credential_issuer());
    let result = Box::pin(started.run_controllers(&args, loaded, access)).await;
    health_stop.cancel();
    // Also after an error, which is printed on the terminal that the user had before.
    view.close(&lines).await;
    result?;
    serving.stop().await;
    embedded.stop();
    Ok(())
}

/// What the controllers need and what lives as long as the program.
struct Started<'a> {
    state_dir: &'a StateDir,
    embedded: &'a ApiServer,
    client: &'a Client,
    signals: &'a Signals,
    lines: &'a Lines,
}

impl Started<'_> {
    /// Returns a client for the controller with this user agent.
    fn client_of(&self, user_agent: &'static str) -> Client {
        client::with_user_agent(&self.embedded.client(), user_agent)
    }

    /// Applies the manifests and runs the controllers until a signal and until active runs have finished.
    async fn run_controllers(
        &self,
        args: &UpArgs,
        loaded: manifests::Loaded,
        access: RunAccess,
    ) -> Result<(), UpError> {
        let (state_dir, client, stop) = (self.state_dir, self.client, self.signals.token());
        let problems = apply::apply(client, loaded.manifests).await;
        for problem in loaded.problems.iter().chain(&problems) {
            self.lines.print(&format!("Bad manifest: {problem}"));
        }
        let controller = self.client_of(sluice_source_controller::USER_AGENT);
        let serving = Token::new();
        let stop_sources = sluice_source_controller::Stop {
            work: stop.clone(),
            server: serving.clone(),
        };
        let sources = start_sources(&args.tracing, state_dir, &controller, stop_sources).await?;
        let repos = start_repos(&self.client_of(sluice_repo_controller::USER_AGENT), &stop);
        let tools = args.tools_dir.as_ref().map(std::path::absolute).transpose();
        let tools = tools.map_err(UpError::Tools)?;
        let (executor, ended) = ProcessExecutor::new(process(state_dir, access, tools.clone()))?;
        let executor = Arc::new(executor);
        let controller = self.client_of(sluice_tf_controller::USER_AGENT);
        let options = terraform_options(args, state_dir, &controller, tools)?;
        let tracer = options.tracer.clone();
        let executing: (Arc<dyn Executor>, _) = (Arc::clone(&executor) as _, ended);
        sluice_tf_controller::run(options, executing, controller, stop.clone()).await?;
        ending::wait_for_runs(client, &executor, self.signals, self.lines).await;
        // No run can need an artifact any more.
        serving.cancel();
        tokio::join!(sources.wait(), tracer.close(FLUSH_TIMEOUT));
        drop(repos.await); // a panic of the controller must not fail the shutdown
        Ok(())
    }
}

fn load(args: &UpArgs) -> Result<manifests::Loaded, UpError> {
    let Some(path) = &args.file else {
        return Ok(manifests::Loaded::default());
    };
    manifests::load(path).map_err(|source| UpError::Manifests {
        path: path.display().to_string(),
        source,
    })
}

async fn serve_api(args: &UpArgs, state_dir: &StateDir) -> Result<(ApiServer, TlsServer), UpError> {
    let own = definitions::own(args.store.store.is_some());
    let crds = definitions::load(own, &args.crd_dirs)?;
    let opening = store_location::open(
        args.store.clone(),
        args.state.is_some(),
        state_dir.store_path(),
        crds.clone(),
    );
    let store = opening.await.map_err(|error| UpError::Store { error })?;
    let embedded = ApiServer::builder()
        .crds(crds)
        .store(store)
        .user_fields(own_approvals::user_fields())
        .build()?;
    let mut listen = args.listen;
    if listen.port() == 0 {
        listen.set_port(state_dir.saved_port(API));
    }
    let serving = embedded.serve(listen, &state_dir.api()).await?;
    state_dir.save_port(API, serving.addr.port())?;
    Ok((embedded, serving))
}

async fn start_sources(
    tracing: &Tracing,
    state_dir: &StateDir,
    client: &Client,
    stop: sluice_source_controller::Stop,
) -> Result<sluice_source_controller::Running, UpError> {
    let storage = state_dir.artifacts();
    let flags: [OsString; 7] = [
        "source-controller".into(),
        "--storage-path".into(),
        storage.into_os_string(),
        format!("--storage-addr=127.0.0.1:{}", state_dir.saved_port(ARTIFACTS)).into(),
        "--metrics-addr=0".into(),
        "--health-addr=0".into(),
        format!("--otlp-endpoint={}", tracing.otlp_endpoint).into(),
    ];
    // Environment variables for a controller on a cluster do not apply to this one.
    let mut options: sluice_source_controller::Options = args::parse(flags, |_| None)?;
    options.storage.artifact_token = Some(state_dir.artifact_token(&Generator::from_system())?.into());
    let running = sluice_source_controller::run(options, client.clone(), stop).await?;
    state_dir.save_port(ARTIFACTS, running.artifacts.port())?;
    Ok(running)
}

fn start_repos(client: &Client, stop: &Token) -> JoinHandle<()> {
    let settings = watch_settings(client, "repo-controller", sluice_repo_controller::CONTROLLER);
    tokio::spawn(sluice_repo_controller::run(
        settings,
        client.clone(),
        stop.clone(),
    ))
}

/// Returns the settings of a controller with the name `controller` in its metrics and `component` in its events.
fn watch_settings(client: &Client, component: &str, controller: &'static str) -> Settings {
    let reporter = Reporter {
        component: component.to_owned(),
        instance: "sluice".to_owned(),
        trace: false,
    };
    Settings {
        controller,
        scope: Scope::default(),
        concurrent: CONCURRENT_RECONCILIATIONS,
        backoff: Arc::new(Backoff::default()),
        metrics: Metrics::new(),
        recorder: Recorder::start(client.clone(), reporter, Arc::new(SystemClock)),
        random: Arc::new(Generator::from_system()),
    }
}

/// Runs get the user's environment, since `AWS_PROFILE` and `KUBECONFIG` must work; the runner drops variables that would
/// control the CLI. None of them gives access to this API: runner and CLI backend get credentials with their own permissions.
fn process(state_dir: &StateDir, access: RunAccess, tools: Option<PathBuf>) -> ProcessOptions {
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("sluice"));
    let own = std::env::vars().filter(|(name, _)| !name.starts_with("KUBERNETES_"));
    let providers = state_dir.runs().join("providers");
    let mut command = vec![program.display().to_string(), "tf-runner".to_owned()];
    command.extend(provider_cache(&providers, PROVIDER_CACHE_MAX_BYTES));
    ProcessOptions {
        command,
        root: state_dir.runs(),
        tools,
        environment: own.collect(),
        credentials: Some(Arc::new(access)),
        pod: None,
        artifact_host: None,
    }
}

fn terraform_options(
    args: &UpArgs,
    state_dir: &StateDir,
    client: &Client,
    tools: Option<PathBuf>,
) -> Result<sluice_tf_controller::Options, TraceError> {
    let settings = watch_settings(client, "tf-controller", "terraform");
    Ok(sluice_tf_controller::Options {
        tracer: Tracer::start(&args.tracing.otlp_endpoint, "tf-controller", &settings.metrics)?,
        settings,
        scratch: state_dir.scratch(),
        tools,
        limits: sluice_tf_controller::RunLimits::of_runs(args.concurrent),
        cross_namespace: CrossNamespace::Denied,
        // There are no ServiceAccounts whose permissions a run could have.
        ignore_account: true,
        default_account: None,
        destroy_account: None,
        run_deadline: Interval::from_secs(2 * 60 * 60),
        destroy_files_limit: sluice_tf_controller::args::DESTROY_FILES_LIMIT,
        state_copies: sluice_tf_controller::args::STATE_COPIES,
        run_silence: Duration::from_mins(1),
        plan_encryption: None,
        // The user of `sluice up` owns this machine.
        break_glass_limit: Some(Interval::from_secs(60 * 60)),
        http_retry: 9,
        cli_location: sluice_tf_controller::inputs::CliLocation::Outside,
        default_backend: sluice_tf_controller::inputs::DefaultBackend::Kubernetes,
        artifact_host: None,
        ready: Readiness::default(), // unused: there is no probe
    })
}
