//! Flags of tofu-controller without effect: the controller has no connection to runners and creates no runner pods. Their values
//! are checked, so that the arguments of an existing deployment need no change.

use clap::ArgAction;
use sluice_runtime::args;

/// The flags without effect.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Accepted for compatibility, without effect")]
pub struct Transport {
    /// Port of tofu-controller's runners.
    #[arg(long, default_value = "30000", value_parser = port)]
    pub runner_grpc_port: String,
    /// Timeout for the start of a runner.
    #[arg(long, default_value = "120s", value_parser = duration)]
    pub runner_creation_timeout: String,
    /// Timeout for a call of a runner.
    #[arg(long, default_value = "30m", value_parser = duration)]
    pub runner_rpc_timeout: String,
    /// Maximum size of a message to a runner, in MiB.
    #[arg(long, default_value = "4", value_parser = integer)]
    pub runner_grpc_max_message_size: String,
    /// How long the certificates of runners are valid.
    #[arg(long, default_value = "168h", value_parser = duration)]
    pub ca_cert_validity_duration: String,
    /// How long the certificate of one runner is valid; removed from tofu-controller, but its chart still sets it.
    #[arg(long, default_value = "6h", value_parser = duration)]
    pub cert_validity_duration: String,
    /// How often the certificates of runners are checked.
    #[arg(long, default_value = "30m", value_parser = duration)]
    pub cert_rotation_check_frequency: String,
    /// Domain of the cluster.
    #[arg(long, default_value = "cluster.local")]
    pub cluster_domain: String,
    /// How runners are found.
    #[arg(long, default_value = "false", value_parser = boolean, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub use_pod_subdomain_resolution: String,
    /// Whether the work queue has priorities.
    #[arg(long, default_value = "true", value_parser = boolean, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub use_priority_queue: String,
    /// Whether to wait for a quota that prevents a runner's pod.
    #[arg(long, default_value = "false", value_parser = boolean, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub quota_retry_enabled: String,
    /// How long to wait for such a quota.
    #[arg(long, default_value = "5s", value_parser = duration)]
    pub quota_retry_delay: String,
    /// Jitter of that wait.
    #[arg(long, default_value = "0.4", value_parser = fraction)]
    pub quota_retry_jitter_factor: String,
}

impl Transport {
    /// Returns the flags whose value is not the default, for the log.
    pub(crate) fn non_default(&self) -> Vec<&'static str> {
        let all = [
            ("--runner-grpc-port", &self.runner_grpc_port, "30000"),
            ("--runner-creation-timeout", &self.runner_creation_timeout, "120s"),
            ("--runner-rpc-timeout", &self.runner_rpc_timeout, "30m"),
            (
                "--runner-grpc-max-message-size",
                &self.runner_grpc_max_message_size,
                "4",
            ),
            (
                "--ca-cert-validity-duration",
                &self.ca_cert_validity_duration,
                "168h",
            ),
            ("--cert-validity-duration", &self.cert_validity_duration, "6h"),
            (
                "--cert-rotation-check-frequency",
                &self.cert_rotation_check_frequency,
                "30m",
            ),
            ("--cluster-domain", &self.cluster_domain, "cluster.local"),
            (
                "--use-pod-subdomain-resolution",
                &self.use_pod_subdomain_resolution,
                "false",
            ),
            ("--use-priority-queue", &self.use_priority_queue, "true"),
            ("--quota-retry-enabled", &self.quota_retry_enabled, "false"),
            ("--quota-retry-delay", &self.quota_retry_delay, "5s"),
            (
                "--quota-retry-jitter-factor",
                &self.quota_retry_jitter_factor,
                "0.4",
            ),
        ];
        let changed = all.into_iter().filter(|(_, value, default)| value != default);
        changed.map(|(name, ..)| name).collect()
    }
}

fn duration(text: &str) -> Result<String, String> {
    args::duration(text).map(|_| text.to_owned())
}

fn boolean(text: &str) -> Result<String, String> {
    args::boolean(text).map(|value| value.to_string())
}

fn port(text: &str) -> Result<String, String> {
    parse::<u16>(text)
}

fn integer(text: &str) -> Result<String, String> {
    parse::<u32>(text)
}

fn fraction(text: &str) -> Result<String, String> {
    parse::<f64>(text)
}

fn parse<T: std::str::FromStr>(text: &str) -> Result<String, String> {
    let parsed = text.parse::<T>().map(|_| text.to_owned());
    parsed.map_err(|_| format!("{text:?} is not a valid number"))
}
