//! `sluice up`: the API, both controllers and the process executor in one program.

mod access;
mod logs;
mod place;
mod storage;
mod wind_down;

use crate::{apply, manifests, view};
use access::RunAccess;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
pub(crate) use place::Place;
pub use place::PlaceError;
use sluice_api::{interval::Interval, reference::CrossNamespace};
use sluice_embedded::{BuildError, Embedded, ServeError, Server, Serving, Store, StoreError};
use sluice_runtime::{
    args,
    clock::SystemClock,
    event::{Recorder, Reporter},
    metrics::Metrics,
    probes::Readiness,
    random::Generator,
    schedule::Backoff,
    shutdown::{self, Token},
    telemetry::Encoding,
    watch::{Scope, Settings},
};
use sluice_tf_controller::args::PROVIDER_CACHE_MAX_BYTES;
use sluice_tf_controller::executor::{ExecutorError, ProcessExecutor, ProcessOptions, provider_cache};
use std::{ffi::OsString, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

/// Passes over stacks at once; they never wait for runs.
const PASSES: u16 = 16;
/// What keeps its port in the state directory.
const API: &str = "api";
/// See [`API`].
const ARTIFACTS: &str = "artifacts";

/// Arguments of `sluice up`.
#[derive(clap::Args, Clone, Debug)]
pub struct UpArgs {
    /// Manifests to apply: a file, or a directory that is read with its folders.
    #[arg(short = 'f', long = "file", value_name = "DIR")]
    pub file: Option<PathBuf>,
    /// Where everything is kept. Without it objects, plans and Terraform state live in memory only.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Also write the kubeconfig here (mode 0600).
    #[arg(long, value_name = "FILE")]
    pub kubeconfig_out: Option<PathBuf>,
    /// Loopback address of the API.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Runs at once.
    #[arg(long, default_value_t = 4)]
    pub concurrent: u16,
    /// Directory of the installed versions of the CLI, for stacks with spec.tool: <DIR>/<name>/<version>/<name>.
    #[arg(long, value_name = "DIR")]
    pub tools_dir: Option<PathBuf>,
    /// Form of the log. Where the story is on a terminal the log is a file in the state directory, or, without --state,
    /// lines of errors on the screen; otherwise it goes to standard error.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub log_format: Option<Encoding>,
    /// Do not tell what happens.
    #[arg(long)]
    pub quiet: bool,
}

/// Why `sluice up` ended before its time.
#[derive(Debug, thiserror::Error)]
pub enum UpError {
    /// The manifests cannot be read.
    #[error("cannot read the manifests at {path}: {source}")]
    Manifests {
        /// What was given.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The state directory cannot be used.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The store cannot be opened.
    #[error("{error}{}", advice(error))]
    Store {
        /// Why.
        error: StoreError,
    },
    /// The API cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The API cannot be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The address is not on this machine only.
    #[error("--listen {0}: only a loopback address is served; whoever reaches the API can run commands here")]
    NotLoopback(SocketAddr),
    /// The source controller could not start.
    #[error("source controller: {0}")]
    Source(#[from] sluice_source_controller::StartError),
    /// The tf-controller could not start.
    #[error("tf-controller: {0}")]
    Terraform(#[from] sluice_tf_controller::RunError),
    /// Runs cannot be started.
    #[error(transparent)]
    Executor(#[from] ExecutorError),
    /// The directory of installed programs has no path.
    #[error("--tools-dir: {0}")]
    Tools(std::io::Error),
    /// Signals cannot be heard.
    #[error("cannot listen for signals: {0}")]
    Signals(std::io::Error),
    /// The flags of a controller do not parse; a fault of this program.
    #[error("internal flags: {0}")]
    Flags(#[from] clap::Error),
}

/// The way out, where there is one.
const fn advice(error: &StoreError) -> &'static str {
    match error {
        StoreError::Damaged { .. } | StoreError::Corrupt { .. } => {
            ". Restore a copy of the state directory; `sluice state check` says more, `sluice state export` saves what can be read"
        }
        _ => "",
    }
}

/// Runs until a signal; then lets running runs finish.
///
/// # Errors
/// [`UpError`], when it cannot start.
pub async fn up(args: UpArgs) -> Result<(), UpError> {
    if !args.listen.ip().is_loopback() {
        return Err(UpError::NotLoopback(args.listen));
    }
    let screen = Arc::new(view::Screen::new());
    let loaded = load(&args)?;
    let place = Place::open(args.state.as_deref())?;
    logs::start(args.log_format, &place, args.state.is_some(), &screen)?;
    raise_descriptor_limit();
    let signals = shutdown::on_signals().map_err(UpError::Signals)?;
    let (embedded, serving) = serve_api(&args, &place).await?;
    let client = embedded.client();
    let kubeconfig = place::publish(&serving.kubeconfig_path, args.kubeconfig_out.as_deref())?;
    announce(&screen, serving.addr, &kubeconfig, args.state.is_some());
    let stop = signals.token();
    let view_stop = Token::new();
    let view = (!args.quiet).then(|| {
        tokio::spawn(view::follow(
            client.clone(),
            Arc::clone(&screen),
            view_stop.clone(),
        ))
    });
    tokio::spawn(storage::follow(
        embedded.storage(),
        Arc::clone(&screen),
        view_stop.clone(),
    ));
    let problems = apply::apply(&client, loaded.manifests).await;
    for problem in loaded.problems.iter().chain(&problems) {
        screen.say(&format!("Bad manifest: {problem}"));
    }
    let sources = start_sources(&place, &client, &stop).await?;
    let tools = args.tools_dir.as_ref().map(std::path::absolute).transpose();
    let tools = tools.map_err(UpError::Tools)?;
    let (executor, ended) = ProcessExecutor::new(process(
        &place,
        RunAccess::new(client.clone(), serving.lender()),
        tools.clone(),
    ))?;
    let executor = Arc::new(executor);
    let options = terraform_options(&args, &place, &client, tools);
    let stacks = sluice_tf_controller::run(
        options,
        (Arc::clone(&executor), ended),
        client.clone(),
        stop.clone(),
    );
    stacks.await?;
    wind_down::runs(&client, &executor, &signals, &screen).await;
    sources.ended().await;
    view_stop.cancel();
    if let Some(view) = view {
        drop(view.await); // a view that failed must not spoil the end
    }
    serving.stop().await;
    embedded.stop();
    Ok(())
}

fn announce(screen: &view::Screen, addr: SocketAddr, kubeconfig: &std::path::Path, kept: bool) {
    screen.say(&format!(
        "The API serves on {addr}. export KUBECONFIG={}",
        kubeconfig.display()
    ));
    if !kept {
        screen.say("Warning: without --state objects, plans and Terraform state are in memory only and end with this program.");
    }
}

/// Connections and runs take descriptors, and the usual soft limit is far below the hard one.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of open files stays");
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

async fn serve_api(args: &UpArgs, place: &Place) -> Result<(Embedded, Serving), UpError> {
    let store = if args.state.is_some() {
        Store::file(place.store()).map_err(|error| UpError::Store { error })?
    } else {
        Store::memory()
    };
    let crds: Vec<CustomResourceDefinition> = sluice_api::crds();
    let embedded = Server::builder().crds(crds).store(store).build()?;
    let mut listen = args.listen;
    if listen.port() == 0 {
        listen.set_port(place.port(API));
    }
    let serving = embedded.serve(listen, &place.api()).await?;
    place.keep_port(API, serving.addr.port())?;
    Ok((embedded, serving))
}

async fn start_sources(
    place: &Place,
    client: &Client,
    stop: &Token,
) -> Result<sluice_source_controller::Running, UpError> {
    let storage = place.artifacts();
    let flags: [OsString; 6] = [
        "source-controller".into(),
        "--storage-path".into(),
        storage.into_os_string(),
        format!("--storage-addr=127.0.0.1:{}", place.port(ARTIFACTS)).into(),
        "--metrics-addr=0".into(),
        "--health-addr=0".into(),
    ];
    // Variables that steer a controller on a cluster do not steer this one.
    let mut options: sluice_source_controller::Options = args::parse(flags, |_| None)?;
    options.storage.artifact_token = Some(place.artifact_token(&Generator::from_system())?.into());
    let running = sluice_source_controller::run(options, client.clone(), stop.clone()).await?;
    place.keep_port(ARTIFACTS, running.artifacts.port())?;
    Ok(running)
}

/// Runs get the user's own environment, since `AWS_PROFILE` and `KUBECONFIG` must work; the runner drops what would steer the
/// CLI. Nothing in it leads to this API: the runner and the CLI's backend are given ways there that are good for what they need.
fn process(place: &Place, access: RunAccess, tools: Option<PathBuf>) -> ProcessOptions {
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("sluice"));
    let own = std::env::vars().filter(|(name, _)| !name.starts_with("KUBERNETES_"));
    let providers = place.runs().join("providers");
    let mut command = vec![program.display().to_string(), "tf-runner".to_owned()];
    command.extend(provider_cache(&providers, PROVIDER_CACHE_MAX_BYTES));
    ProcessOptions {
        command,
        root: place.runs(),
        tools,
        environment: own.collect(),
        credentials: Some(Arc::new(access)),
        pod: None,
        artifact_host: None,
    }
}

fn terraform_options(
    args: &UpArgs,
    place: &Place,
    client: &Client,
    tools: Option<PathBuf>,
) -> sluice_tf_controller::Options {
    let reporter = Reporter {
        component: "tf-controller".to_owned(),
        instance: "sluice".to_owned(),
        trace: false,
    };
    let recorder = Recorder::start(client.clone(), reporter, Arc::new(SystemClock));
    sluice_tf_controller::Options {
        settings: Settings {
            controller: "terraform",
            scope: Scope::default(),
            concurrent: PASSES,
            backoff: Arc::new(Backoff::default()),
            metrics: Metrics::new(),
            recorder,
            random: Arc::new(Generator::from_system()),
        },
        scratch: place.scratch(),
        tools,
        runs: args.concurrent,
        runs_per_namespace: 0,
        cross_namespace: CrossNamespace::Denied,
        // There are no ServiceAccounts whose rights a run could have.
        ignore_account: true,
        run_deadline: Interval::from_secs(2 * 60 * 60),
        destroy_files_limit: sluice_tf_controller::args::DESTROY_FILES_LIMIT,
        run_silence: Duration::from_secs(60),
        plan_encryption: None,
        // Whoever runs it is the user of this machine.
        glass: Some(Interval::from_secs(60 * 60)),
        http_retry: 9,
        place: sluice_tf_controller::inputs::Place::Outside,
        default_backend: sluice_tf_controller::inputs::DefaultBackend::Kubernetes,
        artifact_host: None,
        ready: Readiness::default(), // nobody asks for it: there is no probe
    }
}
