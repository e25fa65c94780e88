//! The flags of the program: those of tofu-controller with their names and defaults, and Sluice's own.

mod transport;

#[cfg(test)]
mod table;

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Parser, ValueEnum};
use sluice_runtime::args::{self, Common, Tracing};
use sluice_runtime::client::is_account_name;
use sluice_tf_core::bundle::StateCopies;
pub use transport::Transport;

use crate::memory::{MemoryQuantity, MemoryRequest};
use crate::schedule::LabelLimit;

/// Default of `--concurrent`, that of tofu-controller.
pub const CONCURRENT: u16 = 4;

/// Default of `--destroy-files-limit`, in bytes.
pub const DESTROY_FILES_LIMIT: u64 = 8 * 1024 * 1024;

/// Defaults of `--state-copies` and `--state-copy-limit`.
pub const STATE_COPIES: StateCopies = StateCopies {
    count: 3,
    limit: 8 * 1024 * 1024,
    keys: Vec::new(),
};

/// Default of `--provider-cache-max-bytes`.
pub const PROVIDER_CACHE_MAX_BYTES: u64 = 5 * 1024 * 1024 * 1024;

/// Plans and applies Terraform objects.
#[derive(Parser, Clone, Debug)]
#[command(name = "tf-controller", version, mut_arg("concurrent", |flag| flag.visible_alias("max-concurrent-runs")))]
pub struct Args {
    /// The flags of all controllers.
    #[command(flatten)]
    pub common: Common<CONCURRENT>,
    /// Traces.
    #[command(flatten)]
    pub tracing: Tracing,
    /// Allow references to other namespaces.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = args::boolean, action = ArgAction::Set)]
    pub allow_cross_namespace_refs: Option<bool>,
    /// Deny references to other namespaces; without effect beside --allow-cross-namespace-refs.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = args::boolean, action = ArgAction::Set)]
    pub no_cross_namespace_refs: Option<bool>,
    /// Retries of a run's artifact download, 5 to 30 s apart.
    #[arg(long, default_value_t = 9)]
    pub http_retry: u32,
    /// How runs are started. Default: job in a cluster, process with a kubeconfig.
    #[arg(long, value_enum)]
    pub executor: Option<ExecutorKind>,
    /// The image of the Jobs of the job executor, for stacks without runnerPodTemplate.spec.image.
    #[arg(long, env = "RUNNER_POD_IMAGE", default_value = "")]
    pub runner_image: String,
    /// How long a finished Job stays, with the log of its pod.
    #[arg(long, default_value = "1h", value_parser = args::duration)]
    pub runner_job_ttl: Duration,
    /// The runner program of the process executor. Default: this program, as `tf-runner`.
    #[arg(long)]
    pub runner: Option<PathBuf>,
    /// Directory of the artifacts that are read for the inputs of stacks. With --executor=process also of working directories, process
    /// locks and logs of runs.
    #[arg(long, default_value = "/data")]
    pub work_root: PathBuf,
    /// Directory of the installed versions of the CLI, for stacks with spec.tool: DIR/NAME/VERSION/NAME. With Jobs, a directory of the
    /// image of runs, /opt/tools by default.
    #[arg(long, value_name = "DIR")]
    pub tools_dir: Option<PathBuf>,
    /// With --executor=process: directory of the provider packages that runs share. Default: providers below --work-root.
    #[arg(long, value_name = "DIR")]
    pub provider_cache_dir: Option<PathBuf>,
    /// Maximum size of these packages, unpacked, in bytes; beyond it the least recently used are deleted. 0: each run downloads its own.
    #[arg(long, default_value_t = PROVIDER_CACHE_MAX_BYTES, value_name = "BYTES")]
    pub provider_cache_max_bytes: u64,
    /// Kubeconfig; default: KUBECONFIG, then the pod's ServiceAccount.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// Deadline of a run whose stack sets no runDeadline.
    #[arg(long, default_value = "2h", value_parser = args::duration)]
    pub run_deadline: Duration,
    /// Time without a heartbeat, at least 30s. With --executor=process, a run in another pod is lost after it. With Jobs, a run is reported
    /// as silent after twice this time.
    #[arg(long, default_value = "1m", value_parser = args::duration)]
    pub run_silence: Duration,
    /// Maximum size of the compressed files that are stored when a stack with destroyResourcesOnDeletion is applied, so that its
    /// deletion can destroy without the source. Stacks of a namespace share them. Above the limit, a destroy requires the source.
    #[arg(long, default_value_t = DESTROY_FILES_LIMIT, value_name = "BYTES")]
    pub destroy_files_limit: u64,
    /// Number of copies of its state that remain of each stack and workspace. A run stores one before it applies. 0: none.
    #[arg(long, default_value_t = STATE_COPIES.count, value_name = "N")]
    pub state_copies: u16,
    /// Maximum size of a copy of a state, compressed. Above the limit, a run applies without a copy and reports it.
    #[arg(long, default_value_t = STATE_COPIES.limit, value_name = "BYTES")]
    pub state_copy_limit: u64,
    /// Maximum number of concurrent runs per namespace; 0: no separate limit.
    #[arg(long, default_value_t = 0)]
    pub concurrent_per_namespace: u16,
    /// Maximum number of concurrent runs of stacks with the same value of a label, such as account=3; 0: no separate limit. Stacks
    /// without the label do not count.
    #[arg(long, value_name = "KEY=N", value_delimiter = ',')]
    pub concurrent_per_label: Vec<LabelLimit>,
    /// With --executor=process: memory that all runs may use by their estimates, such as 8Gi; 0: no limit. The estimate of a stack is
    /// the highest measured peak of its runs, or 512Mi. Against other namespaces, the runs of one count for at most half of the limit.
    #[arg(long, default_value = "0", value_name = "QUANTITY")]
    pub run_memory_limit: MemoryQuantity,
    /// With --executor=job: the memory request of runs whose runnerPodTemplate sets neither a request nor a limit of memory. `measured`:
    /// the highest measured peak of the stack's runs, with a margin, if the namespace has no default; `none`; or a quantity.
    #[arg(long, default_value = "measured", value_name = "measured|none|QUANTITY")]
    pub runner_memory_request: MemoryRequest,
    /// Host that replaces the host in artifact URLs.
    #[arg(long, env = "SOURCE_CONTROLLER_LOCALHOST", hide_env_values = true)]
    pub source_controller_localhost: Option<String>,
    /// Use the local backend instead of the kubernetes backend for stacks without backendConfig.
    #[arg(long, env = "DISABLE_TF_K8S_BACKEND", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = args::boolean, action = ArgAction::Set)]
    pub disable_tf_k8s_backend: bool,
    /// With --executor=process in a pod: how long runs may continue after SIGTERM before the CLI is interrupted. 0: interrupt at once.
    #[arg(long, default_value = "4m", value_parser = args::duration)]
    pub graceful_shutdown_timeout: Duration,
    /// Seal stored plans with the keys in this Secret: its name, in the controller's namespace, or `namespace/name`.
    #[arg(long, default_value = "")]
    pub plan_encryption_secret: String,
    /// Allow break-glass sessions, in which a user works in the stack's working directory (`breakTheGlass`).
    #[arg(long, default_value = "false", value_parser = args::boolean, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub allow_break_the_glass: bool,
    /// With --executor=process: run stacks whose serviceAccountName is not tf-runner with the rights of this controller's ServiceAccount.
    /// Without it, they stall in a pod.
    #[arg(long, default_value = "false", value_parser = args::boolean, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub ignore_service_account_name: bool,
    /// Read the Secrets and ConfigMaps of each stack with the rights of its ServiceAccount. NAME is the account of stacks whose
    /// serviceAccountName is empty. Without it, they are read with the rights of this controller.
    #[arg(long, default_value = "", value_name = "NAME", value_parser = account)]
    pub default_service_account: String,
    /// ServiceAccount in the namespace of a stack under which its deletion destroys if the account of the stack does not exist. Without
    /// it, such a deletion waits. Only for the job executor.
    #[arg(long, default_value = "", value_name = "NAME", value_parser = account)]
    pub destroy_service_account: String,
    /// Maximum duration of a break-glass session.
    #[arg(long, default_value = "1h", value_parser = args::duration)]
    pub break_the_glass_deadline: Duration,
    /// Flags of tofu-controller's runner transport, without effect.
    #[command(flatten)]
    pub transport: Transport,
}

impl Args {
    /// Returns how runs are started, inside or outside a pod.
    #[must_use]
    pub fn executor(&self, is_in_pod: bool) -> ExecutorKind {
        let default = if is_in_pod {
            ExecutorKind::Job
        } else {
            ExecutorKind::Process
        };
        self.executor.unwrap_or(default)
    }
}

/// Parses the name of a ServiceAccount; empty: none.
fn account(text: &str) -> Result<String, String> {
    if text.is_empty() || is_account_name(text) {
        return Ok(text.to_owned());
    }
    Err(format!("{text:?} is not a valid name of a ServiceAccount"))
}

/// The executors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExecutorKind {
    /// A Kubernetes Job for each run.
    Job,
    /// A child process of the controller for each run.
    Process,
}
