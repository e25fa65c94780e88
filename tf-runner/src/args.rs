//! The command line of the runner, and a whole run from it: the program `tf-runner` and the all-in-one program share it.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

use sluice_runtime::artifact::Fetcher;
use sluice_runtime::{client, http, shutdown};
use sluice_tf_core::run_input::PodRef;
use sluice_tf_core::run_input::RunInput;

use crate::run::{ClaimError, Context, Ending, Identity, ProviderCacheSettings, Settings, execute};

/// Arguments of one run.
#[derive(clap::Args, Clone, Debug)]
pub struct RunnerArgs {
    /// Namespace of the run.
    #[arg(long)]
    pub namespace: String,
    /// Name of the TerraformRun.
    #[arg(long)]
    pub run: String,
    /// Directory for the working directories of the stacks; without it, /tmp/<namespace>-<name> of a pod.
    #[arg(long)]
    pub work_root: Option<PathBuf>,
    /// File whose lock tells that this run lives.
    #[arg(long)]
    pub lock_file: Option<PathBuf>,
    /// Directory of the installed versions of the CLI: <name>/<version>/<name>.
    #[arg(long)]
    pub tools_dir: Option<PathBuf>,
    /// Directory of the packages of providers that runs share; without it each run downloads its own.
    #[arg(long)]
    pub provider_cache_dir: Option<PathBuf>,
    /// Most bytes of them; beyond that the least recently used go. 0: none are kept.
    #[arg(long, default_value_t = 0)]
    pub provider_cache_max_bytes: u64,
    /// Run in a session of its own, as a child process of a controller that may end before.
    #[arg(long)]
    pub process: bool,
    /// The pod that the run works in, as `namespace/name/uid`. Default: `POD_NAME` and `POD_UID`, in the run's namespace.
    #[arg(long)]
    pub pod: Option<PodRef>,
    /// Read the run's bundle and its access to the API from standard input, as JSON.
    #[arg(long)]
    pub input_stdin: bool,
    /// Where the file locks of this run are seen.
    #[arg(long, default_value = "")]
    pub site: String,
    /// Seconds between two signs of life in the run's status.
    #[arg(long, default_value_t = 10)]
    pub heartbeat_seconds: u64,
    /// Seconds that a step lasts before the run's status says so by a write of its own.
    #[arg(long, default_value_t = 1)]
    pub step_seconds: u64,
    /// Seconds from the interrupt of the CLI to its kill.
    #[arg(long, default_value_t = 60)]
    pub grace_seconds: u64,
    /// Seconds that the API may be away before the run gives up on it.
    #[arg(long, default_value_t = 600)]
    pub patience_seconds: u64,
    /// Host and port that replace those of artifact URLs.
    #[arg(long)]
    pub source_controller_localhost: Option<String>,
    /// Retries of the artifact's download.
    #[arg(long, default_value_t = 9)]
    pub http_retry: u32,
}

/// Most bytes that are read from standard input: JSON in JSON doubles at most, and the access has its own place.
const INPUT_LIMIT: u64 = 2 * sluice_tf_core::bundle::LIMIT as u64 + 1024 * 1024;

fn input_of_stdin() -> Result<RunInput, StartError> {
    let text = std::io::read_to_string(std::io::stdin().take(INPUT_LIMIT));
    let text = text.map_err(StartError::Input)?;
    // What does not parse may hold a token: the error does not say where it fails.
    serde_json::from_str(&text).map_err(|_| StartError::Malformed)
}

/// Why a run could not even begin.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The API cannot be reached with the configuration at hand.
    #[error(transparent)]
    Client(#[from] client::ClientError),
    /// Standard input cannot be read.
    #[error("cannot read standard input: {0}")]
    Input(#[source] std::io::Error),
    /// It is not a [`RunInput`].
    #[error("standard input is not the JSON that --input-stdin asks for")]
    Malformed,
    /// No HTTP client can be made.
    #[error(transparent)]
    Http(#[from] http::TlsError),
    /// No signal handler can be set.
    #[error("cannot listen for signals: {0}")]
    Signals(#[source] std::io::Error),
    /// The run was not taken.
    #[error(transparent)]
    Claim(#[from] ClaimError),
}

/// Carries out the run that the arguments name, in this process, until its end or a signal.
///
/// # Errors
/// When it could not begin.
pub async fn run(args: &RunnerArgs) -> Result<Ending, StartError> {
    if args.process {
        // Fails when the process leads its group already: then it is out of the terminal's reach as it is.
        let _ = rustix::process::setsid();
    }
    let signals = shutdown::on_signals().map_err(StartError::Signals)?;
    let context = context(args).await?;
    Ok(Box::pin(execute(&context, signals.token())).await?)
}

fn provider_cache(args: &RunnerArgs) -> Option<ProviderCacheSettings> {
    let directory = args.provider_cache_dir.clone()?;
    (args.provider_cache_max_bytes > 0).then_some(ProviderCacheSettings {
        directory,
        max_bytes: args.provider_cache_max_bytes,
    })
}

async fn context(args: &RunnerArgs) -> Result<Context, StartError> {
    let environment: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let given = |name: &str| environment.get(name).filter(|value| !value.is_empty()).cloned();
    let named = given("KUBECONFIG").and_then(|paths| std::env::split_paths(&paths).next());
    let usual = || {
        given("HOME")
            .map(|home| PathBuf::from(home).join(".kube/config"))
            .filter(|path| path.is_file())
    };
    let in_pod = given("KUBERNETES_SERVICE_HOST").is_some();
    let input = args.input_stdin.then(input_of_stdin).transpose()?;
    let RunInput { access, bundle } = input.unwrap_or_default();
    let kubeconfig = match access {
        Some(_) => None,
        None => named.or_else(|| if in_pod { None } else { usual() }),
    };
    let settings = client::Settings {
        kubeconfig: kubeconfig.clone(),
        kubeconfig_text: access.as_ref().map(|access| access.run.clone()),
        ..client::Settings::default()
    };
    let own_pod = given("POD_NAME").zip(given("POD_UID")).map(|(name, uid)| PodRef {
        namespace: args.namespace.clone(),
        name,
        uid,
    });
    let pod = args.pod.clone().or(own_pod);
    let mut fetcher = Fetcher::new(http::client(&http::Settings::default())?);
    fetcher.retries = args.http_retry;
    fetcher.host.clone_from(&args.source_controller_localhost);
    Ok(Context {
        client: client::build(&settings).await?,
        fetcher,
        kubeconfig,
        backend_kubeconfig: access.map(|access| access.backend),
        bundle,
        identity: Identity {
            site: args.site.clone(),
            ..Identity::of_this_process(pod, &environment)
        },
        settings: Settings {
            work_root: args.work_root.clone(),
            lock_file: args.lock_file.clone(),
            tools: args.tools_dir.clone(),
            providers: provider_cache(args),
            grace: Duration::from_secs(args.grace_seconds),
            patience: Duration::from_secs(args.patience_seconds),
            heartbeat: Duration::from_secs(args.heartbeat_seconds.max(1)),
            step: Duration::from_secs(args.step_seconds),
            ..Settings::new(&args.namespace, &args.run)
        },
        environment,
    })
}
