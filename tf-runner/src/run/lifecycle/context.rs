//! What a run is carried out with.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use sluice_runtime::artifact::Fetcher;

use crate::run::lifecycle::identity::Identity;

/// The cache of providers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderCacheSettings {
    /// Its directory, which is made when something comes in.
    pub directory: PathBuf,
    /// Most bytes of all unpacked packages; beyond them the least recently used go.
    pub max_bytes: u64,
}

/// Settings of one runner process.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Namespace of the run.
    pub namespace: String,
    /// Name of the run.
    pub run: String,
    /// Directory that holds the stacks' working directories; absent in a pod, where `/tmp/<namespace>-<name>` is used.
    pub work_root: Option<PathBuf>,
    /// File whose lock says that this run lives.
    pub lock_file: Option<PathBuf>,
    /// Directory of the installed versions of the CLI, for stacks that select one.
    pub tools: Option<PathBuf>,
    /// The packages of providers that runs share; absent: each run downloads its own.
    pub providers: Option<ProviderCacheSettings>,
    /// From the interrupt of the CLI to its kill.
    pub grace: Duration,
    /// How long the API may be away before a run gives up on it.
    pub patience: Duration,
    /// Directory with a directory of certificates for each host of a webhook.
    pub webhook_certificates: PathBuf,
    /// Between two signs of life.
    pub heartbeat: Duration,
    /// How long a step lasts before it is written: quick ones are written together.
    pub step: Duration,
    /// How long a run waits for the stack's directory while the CLI of an earlier run still works in it.
    pub directory_wait: Duration,
}

impl Settings {
    /// With the usual times: a minute of grace, ten of patience.
    #[must_use]
    pub fn new(namespace: &str, run: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            run: run.to_owned(),
            work_root: None,
            lock_file: None,
            tools: None,
            providers: None,
            grace: Duration::from_secs(60),
            patience: Duration::from_secs(600),
            webhook_certificates: PathBuf::from("/etc/certs"),
            heartbeat: Duration::from_secs(10),
            step: Duration::from_secs(1),
            directory_wait: Duration::from_secs(600),
        }
    }
}

/// All that a run reaches out with; tests pass their own.
#[derive(Clone)]
pub struct Context {
    /// The Kubernetes API.
    pub client: kube::Client,
    /// Downloads artifacts.
    pub fetcher: Fetcher,
    /// The environment that the CLI inherits, before refused names are dropped.
    pub environment: BTreeMap<String, String>,
    /// Kubeconfig of the same API for the CLI's kubernetes backend; absent in a pod.
    pub kubeconfig: Option<PathBuf>,
    /// Text of a kubeconfig that is good for the CLI's kubernetes backend and for nothing else. With it, nothing in the environment
    /// of the CLI leads to the API of the run.
    pub backend_kubeconfig: Option<String>,
    /// The run's bundle as JSON, if the executor handed it over.
    pub bundle: Option<String>,
    /// Who claims the run.
    pub identity: Identity,
    /// Settings.
    pub settings: Settings,
}
