//! The command line of the runner, and a run from it. `tf-runner` and the all-in-one program share it.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

use sluice_runtime::artifact::Fetcher;
use sluice_runtime::{client, http, shutdown};
use sluice_tf_core::bundle::MIN_CLI_GRACE_SECONDS;
use sluice_tf_core::run_input::{PodRef, RunInput};
use tokio::signal::unix::{SignalKind, signal};

use crate::run::{
    ClaimError, Context, Identity, PodLog, ProviderCacheSettings, RunOutcome, RunStop, Settings, execute,
};

/// Arguments of one run.
#[derive(clap::Args, Clone, Debug)]
pub struct RunnerArgs {
    /// Namespace of the run.
    #[arg(long)]
    pub namespace: String,
    /// Name of the TerraformRun.
    #[arg(long)]
    pub run: String,
    /// Directory for the working directories of the stacks. Default: /tmp/NAMESPACE-NAME of a pod.
    #[arg(long)]
    pub work_root: Option<PathBuf>,
    /// Path of the process lock that the runner holds while it lives.
    #[arg(long)]
    pub lock_file: Option<PathBuf>,
    /// Directory of the installed versions of the CLI: NAME/VERSION/NAME.
    #[arg(long)]
    pub tools_dir: Option<PathBuf>,
    /// Directory of the provider cache that runs share. Without it each run downloads its own providers.
    #[arg(long)]
    pub provider_cache_dir: Option<PathBuf>,
    /// Capacity of the provider cache in bytes. The least recently used are evicted. 0: no cache.
    #[arg(long, default_value_t = 0)]
    pub provider_cache_max_bytes: u64,
    /// Run in a new process session, as a child process of a controller that may end earlier. The output of the CLI stays in files;
    /// otherwise it is printed, and a long log is stored in a Secret.
    #[arg(long)]
    pub process: bool,
    /// The pod of the run, as `namespace/name/uid`. Default: `POD_NAME` and `POD_UID`, in the run's namespace.
    #[arg(long)]
    pub pod: Option<PodRef>,
    /// Read the run's bundle and its access to the API from standard input, as JSON.
    #[arg(long)]
    pub input_stdin: bool,
    /// The lock domain of the run: the same for processes that see each other's process locks.
    #[arg(long, default_value = "")]
    pub lock_domain: String,
    /// Seconds between two heartbeats in the run's status.
    #[arg(long, default_value_t = 10)]
    pub heartbeat_seconds: u64,
    /// Seconds that a step lasts before the run's status is written for it.
    #[arg(long, default_value_t = 1)]
    pub step_seconds: u64,
    /// Seconds between the interrupt of the CLI and its kill.
    #[arg(long, default_value_t = MIN_CLI_GRACE_SECONDS)]
    pub grace_seconds: u64,
    /// Timeout in seconds for calls while the API is unavailable.
    #[arg(long, default_value_t = 600)]
    pub api_timeout_seconds: u64,
    /// Host and port that replace those of artifact URLs.
    #[arg(long)]
    pub source_controller_localhost: Option<String>,
    /// Retries of the download of the artifact.
    #[arg(long, default_value_t = 9)]
    pub http_retry: u32,
}

/// Maximum number of bytes of standard input. JSON in JSON has at most twice the size; the access to the API has a mebibyte.
const INPUT_LIMIT: u64 = 2 * sluice_tf_core::bundle::LIMIT as u64 + 1024 * 1024;

fn read_stdin() -> Result<RunInput, StartError> {
    let text = std::io::read_to_string(std::io::stdin().take(INPUT_LIMIT));
    let text = text.map_err(StartError::Input)?;
    // The input may contain a token, so the error does not quote it.
    serde_json::from_str(&text).map_err(|_| StartError::Malformed)
}

/// The reason why a run could not begin.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration of the API client is invalid.
    #[error(transparent)]
    Client(#[from] client::ClientError),
    /// Standard input cannot be read.
    #[error("cannot read standard input: {0}")]
    Input(#[source] std::io::Error),
    /// Standard input is not a [`RunInput`].
    #[error("standard input is not the JSON that --input-stdin requires")]
    Malformed,
    /// The HTTP client cannot be created.
    #[error(transparent)]
    Http(#[from] http::TlsError),
    /// The signal handler cannot be installed.
    #[error("cannot listen for signals: {0}")]
    Signals(#[source] std::io::Error),
    /// The run was not claimed.
    #[error(transparent)]
    Claim(#[from] ClaimError),
}

/// Carries out the run that the arguments name, until its end or a signal. SIGTERM and SIGINT interrupt it; SIGUSR1 ends it unless its
/// plan or apply has begun. SIGUSR1 before it is handled ends the process, which has not claimed the run then.
///
/// # Errors
/// When the run could not begin.
pub async fn run(args: &RunnerArgs) -> Result<RunOutcome, StartError> {
    if args.process {
        // It fails only if the process leads a group already, which the terminal does not signal.
        let _ = rustix::process::setsid();
    }
    let signals = shutdown::on_signals().map_err(StartError::Signals)?;
    let stop = RunStop::from(signals.token());
    stop_early_on_signal(stop.clone()).map_err(StartError::Signals)?;
    let context = context(args).await?;
    Ok(Box::pin(execute(&context, stop)).await?)
}

/// At each SIGUSR1, ends the run unless its work has begun.
fn stop_early_on_signal(stop: RunStop) -> std::io::Result<()> {
    let mut asked = signal(SignalKind::user_defined1())?;
    tokio::spawn(async move {
        while asked.recv().await.is_some() {
            tracing::info!("asked to end before the plan or apply begins");
            stop.stop_unless_begun();
        }
    });
    Ok(())
}

fn provider_cache(args: &RunnerArgs) -> Option<ProviderCacheSettings> {
    let directory = args.provider_cache_dir.clone()?;
    (args.provider_cache_max_bytes > 0).then_some(ProviderCacheSettings {
        directory,
        max_bytes: args.provider_cache_max_bytes,
    })
}

/// Returns the settings of the client that downloads the artifact. To read the system's authorities takes several milliseconds, and a
/// plain URL, as that of a source-controller, needs none: the download follows no redirects and uses no proxy.
fn artifact_client(bundle: Option<&str>) -> http::Settings {
    http::Settings {
        system_roots: !bundle.is_some_and(has_plain_artifact),
        ..http::Settings::default()
    }
}

/// Whether the URL of a bundle's artifact has no TLS.
fn has_plain_artifact(bundle: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct Located {
        artifact: Artifact,
    }
    #[derive(serde::Deserialize)]
    struct Artifact {
        url: String,
    }

    let found = serde_json::from_str::<Located>(bundle);
    found.is_ok_and(|found| found.artifact.url.starts_with("http://"))
}

fn fetcher(args: &RunnerArgs, bundle: Option<&str>) -> Result<Fetcher, StartError> {
    let mut fetcher = Fetcher::new(http::client(&artifact_client(bundle))?);
    fetcher.retries = args.http_retry;
    fetcher.host.clone_from(&args.source_controller_localhost);
    Ok(fetcher)
}

async fn context(args: &RunnerArgs) -> Result<Context, StartError> {
    let environment: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let variable = |name: &str| environment.get(name).filter(|value| !value.is_empty()).cloned();
    let configured = variable("KUBECONFIG").and_then(|paths| std::env::split_paths(&paths).next());
    let default = || {
        variable("HOME")
            .map(|home| PathBuf::from(home).join(".kube/config"))
            .filter(|path| path.is_file())
    };
    let in_pod = variable("KUBERNETES_SERVICE_HOST").is_some();
    let input = args.input_stdin.then(read_stdin).transpose()?;
    let RunInput { access, bundle, run } = input.unwrap_or_default();
    let kubeconfig = match access {
        Some(_) => None,
        None => configured.or_else(|| if in_pod { None } else { default() }),
    };
    let settings = client::Settings {
        kubeconfig: kubeconfig.clone(),
        kubeconfig_text: access.as_ref().map(|access| access.run.clone()),
        user_agent: crate::USER_AGENT,
        ..client::Settings::default()
    };
    let own_pod = variable("POD_NAME")
        .zip(variable("POD_UID"))
        .map(|(name, uid)| PodRef {
            namespace: args.namespace.clone(),
            name,
            uid,
        });
    let pod = args.pod.clone().or(own_pod);
    Ok(Context {
        client: client::build(&settings).await?,
        fetcher: fetcher(args, bundle.as_deref())?,
        kubeconfig,
        backend_kubeconfig: access.map(|access| access.backend),
        bundle,
        run: run.map(|run| *run),
        pod_log: (!args.process).then(|| PodLog::new(std::io::stdout())),
        identity: Identity {
            lock_domain: args.lock_domain.clone(),
            ..Identity::of_this_process(pod, &environment)
        },
        settings: Settings {
            work_root: args.work_root.clone(),
            lock_file: args.lock_file.clone(),
            tools_dir: args.tools_dir.clone(),
            providers: provider_cache(args),
            grace: Duration::from_secs(args.grace_seconds),
            api_timeout: Duration::from_secs(args.api_timeout_seconds),
            heartbeat: Duration::from_secs(args.heartbeat_seconds.max(1)),
            step: Duration::from_secs(args.step_seconds),
            ..Settings::new(&args.namespace, &args.run)
        },
        environment,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_client_of_a_plain_artifact_has_no_authorities() {
        let bundle = |url: &str| serde_json::json!({ "version": 1, "artifact": { "url": url } }).to_string();
        assert!(!artifact_client(Some(&bundle("http://source-controller/a.tar.gz"))).system_roots);
        for other in [
            bundle("https://source-controller/a.tar.gz"),
            bundle("HTTP://source-controller/a.tar.gz"),
            "{}".to_owned(),
            "no JSON".to_owned(),
        ] {
            assert!(artifact_client(Some(&other)).system_roots, "{other}");
        }
        assert!(artifact_client(None).system_roots, "a bundle in Secrets");
    }
}
