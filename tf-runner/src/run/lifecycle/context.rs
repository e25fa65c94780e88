//! The clients and settings of one runner process.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use kube::Resource;
use kube::api::{Api, PostParams};
use kube::core::NamespaceResourceScope;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sluice_api::run::TerraformRun;
use sluice_runtime::artifact::Fetcher;
use sluice_tf_core::bundle::MIN_CLI_GRACE_SECONDS;
use tokio_util::sync::CancellationToken;

use crate::run::lifecycle::api_retry::{self, Creation, RetryRule};
use crate::run::lifecycle::identity::Identity;
use crate::run::log::pod_log::PodLog;

/// The cache of providers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderCacheSettings {
    /// Its directory. The first package that is stored creates it.
    pub directory: PathBuf,
    /// Capacity in bytes of all unpacked packages. The least recently used are evicted.
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
    /// File of the run's process lock.
    pub lock_file: Option<PathBuf>,
    /// Directory of the installed versions of the CLI, for stacks that select one.
    pub tools_dir: Option<PathBuf>,
    /// The cache of providers that runs share. Without it each run downloads its own.
    pub providers: Option<ProviderCacheSettings>,
    /// Time between the interrupt of the CLI and its kill.
    pub grace: Duration,
    /// Timeout for calls while the API is unavailable.
    pub api_timeout: Duration,
    /// Timeout for one attempt to store the log. The end of the run waits for it.
    pub log_timeout: Duration,
    /// Directory with a directory of certificates for each host of a webhook.
    pub webhook_certificates: PathBuf,
    /// Time between two heartbeats.
    pub heartbeat: Duration,
    /// Time that a step lasts before the status is written for it alone. Shorter steps are written together.
    pub step: Duration,
    /// Timeout for the lock of the stack's directory, which the CLI of an earlier run may hold.
    pub directory_wait: Duration,
}

impl Settings {
    /// Settings with default durations: one minute of grace, ten minutes for the API.
    #[must_use]
    pub fn new(namespace: &str, run: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            run: run.to_owned(),
            work_root: None,
            lock_file: None,
            tools_dir: None,
            providers: None,
            grace: Duration::from_secs(MIN_CLI_GRACE_SECONDS),
            api_timeout: Duration::from_mins(10),
            log_timeout: Duration::from_secs(15),
            webhook_certificates: PathBuf::from("/etc/certs"),
            heartbeat: Duration::from_secs(10),
            step: Duration::from_secs(1),
            directory_wait: Duration::from_mins(10),
        }
    }
}

/// Everything external that a run uses. Tests pass their own.
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
    /// Text of a kubeconfig with rights for the CLI's kubernetes backend only. With it, the environment of the CLI gives no access
    /// to the API of the run.
    pub backend_kubeconfig: Option<String>,
    /// The run's bundle as JSON, if the executor passed it.
    pub bundle: Option<String>,
    /// The run as its executor passed it. Its claim compares the version, so this may be outdated.
    pub run: Option<TerraformRun>,
    /// The log of the run's own pod. Absent if the runner is a process beside others, whose files stay.
    pub pod_log: Option<PodLog>,
    /// The claimant of the run.
    pub identity: Identity,
    /// Settings.
    pub settings: Settings,
}

impl Context {
    /// The objects of one kind in the namespace of the run, which is also that of its stack.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType: Default>,
    {
        Api::namespaced(self.client.clone(), &self.settings.namespace)
    }

    /// Repeats a call while the API is unavailable, for at most [`Settings::api_timeout`].
    pub(crate) async fn retry<T, F>(&self, call: impl FnMut() -> F) -> Result<T, kube::Error>
    where
        F: Future<Output = Result<T, kube::Error>>,
    {
        api_retry::retry(self.settings.api_timeout, call).await
    }

    /// As [`Self::retry`]. After `stop`, the call is made once more at most.
    pub(crate) async fn retry_until<T, F>(
        &self,
        stop: &CancellationToken,
        call: impl FnMut() -> F,
    ) -> Result<T, kube::Error>
    where
        F: Future<Output = Result<T, kube::Error>>,
    {
        api_retry::retry_until(stop, self.settings.api_timeout, call).await
    }

    /// Creates an object whose name is derived from its content: one that exists already is equal, or its digest is refused when
    /// it is read.
    pub(crate) async fn create_if_absent<K>(
        &self,
        object: &K,
        rule: RetryRule,
    ) -> Result<Creation, kube::Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned,
    {
        let (api, params) = (self.api(), PostParams::default());
        let call = || api.create(&params, object);
        api_retry::create(rule, self.settings.api_timeout, call).await
    }
}
