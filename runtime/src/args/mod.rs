//! Flags shared by the controllers, with Flux's names, defaults, syntax and environment variables. A flag wins over its
//! variable, the variable over the default. Nothing else reads the environment, except the exporter of OpenTelemetry its own variables.

mod parse;

use std::time::Duration;

use clap::{ArgAction, Args};
pub use parse::{boolean, duration, matches, parse};

use crate::http::{Environment, EnvironmentError};
use crate::schedule::Backoff;
use crate::serve::ListenAddress;
use crate::telemetry::{Encoding, Level};

/// How the program logs.
#[derive(Args, Clone, Copy, Debug)]
pub struct Logging {
    /// Format of the log lines.
    #[arg(long, value_enum, default_value = "json")]
    pub log_encoding: Encoding,
    /// Least severe level that is logged.
    #[arg(long, value_enum, default_value = "info")]
    pub log_level: Level,
}

/// Where the program listens and reports.
#[derive(Args, Clone, Debug)]
pub struct Addresses {
    /// Address of the metrics server; `0` disables it.
    #[arg(long, env = "METRICS_ADDR", default_value = ":8080")]
    pub metrics_addr: ListenAddress,
    /// Address of the health probes; `0` disables them.
    #[arg(long, default_value = ":9440")]
    pub health_addr: ListenAddress,
    /// URL of the receiver of events; empty for none.
    #[arg(long, env = "EVENTS_ADDR", default_value = "")]
    pub events_addr: String,
    /// Write routine events (`Normal` at each interval) to Kubernetes too.
    #[arg(long, default_value = "false", value_parser = boolean, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub trace_events: bool,
}

/// Where the program exports traces.
#[derive(Args, Clone, Debug, Default)]
pub struct Tracing {
    /// URL of an OpenTelemetry collector that gets traces (OTLP over HTTP with protobuf); empty for none.
    #[arg(
        long,
        env = "OTEL_EXPORTER_OTLP_ENDPOINT",
        hide_env_values = true,
        value_name = "URL",
        default_value = ""
    )]
    pub otlp_endpoint: String,
}

/// How many objects of a kind are reconciled at once; the default is the controller's.
#[derive(Args, Clone, Copy, Debug)]
pub struct Concurrency<const DEFAULT: u16> {
    /// Maximum number of concurrent reconciliations; in tf-controller, of concurrent runs.
    // Not `default_value_t`: it keeps its text in one static for all values of `DEFAULT`. This leaks a few bytes for each
    // time that a program looks at its arguments.
    #[arg(long, default_value = &*DEFAULT.to_string().leak(), value_parser = clap::value_parser!(u16).range(1..))]
    pub concurrent: u16,
}

/// Which objects are watched.
#[derive(Args, Clone, Debug)]
pub struct WatchScope {
    /// Watch every namespace; otherwise only the one named by `RUNTIME_NAMESPACE`.
    #[arg(long, default_value = "true", value_parser = boolean, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub watch_all_namespaces: bool,
    /// Watch only objects with these labels (`key=value`, `key in (a,b)`, `!key`, ...).
    #[arg(long, default_value = "")]
    pub watch_label_selector: String,
    /// Accepted for compatibility; not used.
    #[arg(long, default_value = "reconcile.fluxcd.io/watch=Enabled")]
    pub watch_configs_label_selector: String,
    /// The namespace that the program runs in.
    #[arg(long, env = "RUNTIME_NAMESPACE", default_value = "", hide = true)]
    pub runtime_namespace: String,
}

impl WatchScope {
    /// The only namespace to watch, if there is one.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        (!self.watch_all_namespaces && !self.runtime_namespace.is_empty()).then_some(&*self.runtime_namespace)
    }

    /// The label selector, if there is one.
    #[must_use]
    pub fn labels(&self) -> Option<&str> {
        (!self.watch_label_selector.is_empty()).then_some(&*self.watch_label_selector)
    }
}

/// When objects are reconciled again.
#[derive(Args, Clone, Copy, Debug)]
pub struct Retry {
    /// Delay before the first retry of a failed object; doubled with each failure.
    #[arg(long, default_value = "750ms", value_parser = duration)]
    pub min_retry_delay: Duration,
    /// Maximum delay between retries.
    #[arg(long, default_value = "15m", value_parser = duration)]
    pub max_retry_delay: Duration,
    /// In source-controller: requeue delay of an object whose include is missing.
    #[arg(long, default_value = "30s", value_parser = duration)]
    pub requeue_dependency: Duration,
    /// In source-controller: jitter of intervals, ± percent (0 to 99).
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(0..=99))]
    pub interval_jitter_percentage: u8,
}

impl Retry {
    /// The per-object back-off that these flags describe.
    #[must_use]
    pub fn backoff(&self) -> Backoff {
        Backoff::new(self.min_retry_delay, self.max_retry_delay)
    }
}

/// How one of several replicas is chosen.
#[derive(Args, Clone, Copy, Debug)]
pub struct LeaderElection {
    /// Work only while holding the Lease.
    #[arg(long, default_value = "false", value_parser = boolean, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub enable_leader_election: bool,
    /// Release the Lease at shutdown, so that another replica can take it at once.
    #[arg(long, default_value = "true", value_parser = boolean, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub leader_election_release_on_cancel: bool,
    /// Duration of a Lease without renewal.
    #[arg(long, default_value = "35s", value_parser = duration)]
    pub leader_election_lease_duration: Duration,
    /// Time after the last renewal at which the leader gives up.
    #[arg(long, default_value = "30s", value_parser = duration)]
    pub leader_election_renew_deadline: Duration,
    /// Delay between attempts.
    #[arg(long, default_value = "5s", value_parser = duration)]
    pub leader_election_retry_period: Duration,
}

/// Accepted for compatibility: every supported API server limits its clients itself (priority and fairness), and Flux
/// ignores these flags where it does.
#[derive(Args, Clone, Copy, Debug)]
pub struct KubeApi {
    /// Queries per second; no effect.
    #[arg(long, default_value_t = 50.0)]
    pub kube_api_qps: f32,
    /// Burst of queries; no effect.
    #[arg(long, default_value_t = 300)]
    pub kube_api_burst: u32,
}

/// All shared groups together, with the controller's default of `--concurrent`.
#[derive(Args, Clone, Debug)]
pub struct Common<const CONCURRENT: u16> {
    /// How the program logs.
    #[command(flatten)]
    pub logging: Logging,
    /// Where it listens and reports.
    #[command(flatten)]
    pub addresses: Addresses,
    /// How many at once.
    #[command(flatten)]
    pub concurrency: Concurrency<CONCURRENT>,
    /// Which objects are watched.
    #[command(flatten)]
    pub scope: WatchScope,
    /// When objects are reconciled again.
    #[command(flatten)]
    pub retry: Retry,
    /// How one of several replicas is chosen.
    #[command(flatten)]
    pub leader_election: LeaderElection,
    /// Accepted for compatibility.
    #[command(flatten)]
    pub kube_api: KubeApi,
}

/// Reads `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, upper case first, then lower case.
///
/// # Errors
/// A variable holds an invalid proxy address.
pub fn proxy_environment() -> Result<Environment, EnvironmentError> {
    Environment::read(|name| std::env::var(name).ok())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser, Debug)]
    struct Program {
        #[command(flatten)]
        common: Common<4>,
    }

    fn parse(args: &[&str]) -> Result<Common<4>, clap::Error> {
        Program::try_parse_from([&["program"], args].concat()).map(|program| program.common)
    }

    #[test]
    fn without_flags_the_values_are_those_of_flux() {
        let args = parse(&[]).unwrap();
        assert_eq!(args.addresses.health_addr, ListenAddress::AllInterfaces(9440));
        assert_eq!(
            (args.concurrency.concurrent, args.retry.interval_jitter_percentage),
            (4, 5)
        );
        assert_eq!(args.retry.min_retry_delay, Duration::from_millis(750));
        assert_eq!(args.retry.max_retry_delay, Duration::from_mins(15));
        assert!(args.scope.watch_all_namespaces && !args.leader_election.enable_leader_election);
        assert!(args.leader_election.leader_election_release_on_cancel);
        assert_eq!(
            args.leader_election.leader_election_lease_duration,
            Duration::from_secs(35)
        );
        assert_eq!(
            (args.logging.log_encoding, args.logging.log_level),
            (Encoding::Json, Level::Info)
        );
    }

    #[test]
    fn controllers_of_one_program_have_defaults_of_their_own() {
        #[derive(Parser, Debug)]
        struct Other {
            #[command(flatten)]
            common: Common<2>,
        }
        let other = Other::try_parse_from(["other"]).unwrap();
        assert_eq!(other.common.concurrency.concurrent, 2);
        assert_eq!(parse(&[]).unwrap().concurrency.concurrent, 4);
    }

    #[test]
    fn the_deployment_of_flux_is_accepted_as_it_stands() {
        let args = parse(&[
            "--events-addr=http://notification-controller.flux-system.svc.cluster.local./",
            "--watch-all-namespaces",
            "--log-level=info",
            "--log-encoding=json",
            "--enable-leader-election",
        ])
        .unwrap();
        assert!(args.leader_election.enable_leader_election && args.scope.watch_all_namespaces);
    }

    #[test]
    fn booleans_and_durations_are_written_as_in_go() {
        let args = parse(&[
            "--watch-all-namespaces=false",
            "--requeue-dependency=1m30s",
            "--runtime-namespace=flux-system",
        ])
        .unwrap();
        assert_eq!(args.scope.namespace(), Some("flux-system"));
        assert_eq!(args.retry.requeue_dependency, Duration::from_secs(90));
        assert_eq!(
            parse(&["--watch-label-selector=!a"]).unwrap().scope.labels(),
            Some("!a")
        );
        for bad in [
            "--interval-jitter-percentage=100",
            "--concurrent=0",
            "--watch-all-namespaces=maybe",
            "--nonsense",
        ] {
            assert!(parse(&[bad]).is_err(), "{bad}");
        }
    }
}
