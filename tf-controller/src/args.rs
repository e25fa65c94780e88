//! The flags of the program: names and defaults of tofu-controller, and Sluice's own.

use clap::{ArgAction, Parser, ValueEnum};
use sluice_runtime::args::{self, Common};
use std::{path::PathBuf, time::Duration};

/// Plans and applies Terraform objects.
#[derive(Parser, Clone, Debug)]
#[command(name = "tf-controller", version)]
pub struct Args {
    /// What all controllers take.
    #[command(flatten)]
    pub common: Common<4>,
    /// Let references lead to other namespaces.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = args::boolean, action = ArgAction::Set)]
    pub allow_cross_namespace_refs: Option<bool>,
    /// Keep references in their namespace; counts only if given alone.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = args::boolean, action = ArgAction::Set)]
    pub no_cross_namespace_refs: Option<bool>,
    /// Retries of an artifact download.
    #[arg(long, default_value_t = 9)]
    pub http_retry: u32,
    /// Where runs are carried out.
    #[arg(long, value_enum, default_value_t = ExecutorKind::Job)]
    pub executor: ExecutorKind,
    /// The runner program of the process executor. Default: tf-runner beside this program.
    #[arg(long)]
    pub runner: Option<PathBuf>,
    /// Directory of the process executor: working directories, locks and logs of runs.
    #[arg(long, default_value = "/data")]
    pub work_root: PathBuf,
    /// Kubeconfig; default: KUBECONFIG, then the pod's own.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// Bound on a run whose stack sets no runDeadline.
    #[arg(long, default_value = "2h", value_parser = args::duration)]
    pub run_deadline: Duration,
    /// Host that replaces the one of artifact URLs.
    #[arg(long, env = "SOURCE_CONTROLLER_LOCALHOST", hide_env_values = true)]
    pub source_controller_localhost: Option<String>,
    /// In a pod: how long runs may go on after the signal to stop, before the CLI is interrupted.
    #[arg(long, default_value = "4m", value_parser = args::duration)]
    pub graceful_shutdown_timeout: Duration,
    /// Flags of tofu-controller's runner transport: accepted, without effect.
    #[command(flatten)]
    pub transport: Transport,
}

/// Where runs are carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExecutorKind {
    /// A Kubernetes Job for each run.
    Job,
    /// A child process of the controller for each run.
    Process,
}

/// Flags that have no effect here, so that the arguments of an existing deployment are taken as they are.
#[derive(clap::Args, Clone, Debug)]
pub struct Transport {
    /// No effect.
    #[arg(long, hide = true)]
    pub runner_grpc_port: Option<String>,
    /// No effect.
    #[arg(long, hide = true)]
    pub runner_creation_timeout: Option<String>,
    /// No effect.
    #[arg(long, hide = true)]
    pub runner_rpc_timeout: Option<String>,
    /// No effect.
    #[arg(long, hide = true)]
    pub runner_grpc_max_message_size: Option<String>,
    /// No effect.
    #[arg(long, hide = true)]
    pub ca_cert_validity_duration: Option<String>,
    /// No effect.
    #[arg(long, hide = true)]
    pub cert_rotation_check_frequency: Option<String>,
    /// No effect.
    #[arg(long, hide = true)]
    pub cluster_domain: Option<String>,
    /// No effect.
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub use_pod_subdomain_resolution: Option<String>,
    /// No effect.
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub use_priority_queue: Option<String>,
}

impl Transport {
    /// The flags that were given.
    #[must_use]
    pub fn given(&self) -> Vec<&'static str> {
        let all = [
            ("--runner-grpc-port", &self.runner_grpc_port),
            ("--runner-creation-timeout", &self.runner_creation_timeout),
            ("--runner-rpc-timeout", &self.runner_rpc_timeout),
            (
                "--runner-grpc-max-message-size",
                &self.runner_grpc_max_message_size,
            ),
            ("--ca-cert-validity-duration", &self.ca_cert_validity_duration),
            (
                "--cert-rotation-check-frequency",
                &self.cert_rotation_check_frequency,
            ),
            ("--cluster-domain", &self.cluster_domain),
            (
                "--use-pod-subdomain-resolution",
                &self.use_pod_subdomain_resolution,
            ),
            ("--use-priority-queue", &self.use_priority_queue),
        ];
        all.into_iter()
            .filter_map(|(name, value)| value.is_some().then_some(name))
            .collect()
    }
}
