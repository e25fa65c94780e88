//! Each flag of tofu-controller with its default, its environment variable and its precedence.

use std::ffi::OsString;
use std::time::Duration;

use clap::CommandFactory as _;
use sluice_runtime::args;

use super::{Args, ExecutorKind};
use crate::memory::MemoryRequest;

/// Flag, variable, default, another value that it takes.
type Row = (&'static str, Option<&'static str>, &'static str, &'static str);

const FLAGS: [Row; 26] = [
    ("metrics-addr", Some("METRICS_ADDR"), ":8080", ":1"),
    (
        "events-addr",
        Some("EVENTS_ADDR"),
        "",
        "http://notification-controller./",
    ),
    ("health-addr", None, ":9440", ":1"),
    ("concurrent", None, "4", "24"),
    ("requeue-dependency", None, "30s", "5s"),
    ("http-retry", None, "9", "0"),
    ("ca-cert-validity-duration", None, "168h", "24h"),
    ("cert-validity-duration", None, "6h", "1h"),
    ("cert-rotation-check-frequency", None, "30m", "1m"),
    ("quota-retry-delay", None, "5s", "1m"),
    ("quota-retry-jitter-factor", None, "0.4", "1"),
    ("runner-grpc-port", None, "30000", "30001"),
    ("runner-creation-timeout", None, "120s", "5m"),
    ("runner-rpc-timeout", None, "30m", "1h"),
    ("runner-grpc-max-message-size", None, "4", "30"),
    ("cluster-domain", None, "cluster.local", "example.org"),
    ("graceful-shutdown-timeout", None, "4m", "0"),
    ("kube-api-qps", None, "50", "100"),
    ("kube-api-burst", None, "300", "600"),
    ("log-encoding", None, "json", "console"),
    ("log-level", None, "info", "debug"),
    ("leader-election-lease-duration", None, "35s", "60s"),
    ("leader-election-renew-deadline", None, "30s", "40s"),
    ("leader-election-retry-period", None, "5s", "2s"),
    ("runtime-namespace", Some("RUNTIME_NAMESPACE"), "", "flux-system"),
    (
        "watch-label-selector",
        None,
        "",
        "sharding.fluxcd.io/key in (a,b),!c",
    ),
];

/// Booleans with their defaults; `""`: not given is a third answer.
const SWITCHES: [(&str, &str); 10] = [
    ("watch-all-namespaces", "true"),
    ("enable-leader-election", "false"),
    ("leader-election-release-on-cancel", "true"),
    ("quota-retry-enabled", "false"),
    ("allow-break-the-glass", "false"),
    ("ignore-service-account-name", "false"),
    ("use-pod-subdomain-resolution", "false"),
    ("use-priority-queue", "true"),
    ("allow-cross-namespace-refs", ""),
    ("no-cross-namespace-refs", ""),
];

/// The value of a flag as text.
fn value(flag: &str, arguments: &[String], environment: &[(&str, &str)]) -> Option<String> {
    let all = ["tf-controller".to_owned()]
        .into_iter()
        .chain(arguments.iter().cloned());
    let lookup = |name: &str| {
        let found = environment.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| OsString::from(value))
    };
    let matches = args::matches::<Args>(all.map(OsString::from), lookup);
    let matches = matches.unwrap_or_else(|error| panic!("{flag}: {error}"));
    let mut raw = matches.get_raw(&flag.replace('-', "_"))?;
    raw.next()?.to_str().map(str::to_owned)
}

#[test]
fn every_flag_of_tofu_controller_has_its_default_and_takes_a_value_in_both_forms() {
    for (flag, _, default, other) in FLAGS {
        assert_eq!(value(flag, &[], &[]).as_deref(), Some(default), "{flag}");
        let given = [format!("--{flag}={other}")];
        assert_eq!(value(flag, &given, &[]).as_deref(), Some(other), "{flag}");
        let apart = [format!("--{flag}"), other.to_owned()];
        assert_eq!(value(flag, &apart, &[]).as_deref(), Some(other), "{flag}");
    }
}

#[test]
fn every_variable_is_between_its_flag_and_the_default() {
    for (flag, variable, default, other) in FLAGS {
        let Some(variable) = variable else { continue };
        assert_eq!(
            value(flag, &[], &[(variable, other)]).as_deref(),
            Some(other),
            "{variable}"
        );
        assert_eq!(
            value(flag, &[], &[(variable, "")]).as_deref(),
            Some(default),
            "{variable}"
        );
        let given = [format!("--{flag}={default}")];
        assert_eq!(
            value(flag, &given, &[(variable, other)]).as_deref(),
            Some(default),
            "{variable}"
        );
    }
}

#[test]
fn switches_are_written_as_in_go() {
    for (flag, default) in SWITCHES {
        assert_eq!(value(flag, &[], &[]).unwrap_or_default(), default, "{flag}");
        assert_eq!(
            value(flag, &[format!("--{flag}")], &[]).as_deref(),
            Some("true"),
            "{flag}"
        );
        for text in ["true", "false", "1", "0", "T", "F"] {
            let given = [format!("--{flag}={text}")];
            assert_eq!(value(flag, &given, &[]).as_deref(), Some(text), "{flag}");
        }
    }
}

#[test]
fn values_that_make_no_sense_and_unknown_flags_end_the_program() {
    for bad in [
        "--concurrent=0",
        "--http-retry=-1",
        "--http-retry=many",
        "--runner-grpc-port=70000",
        "--runner-rpc-timeout=soon",
        "--quota-retry-jitter-factor=some",
        "--quota-retry-enabled=maybe",
        "--graceful-shutdown-timeout=-1s",
        "--log-level=warn",
        "--executor=thread",
        "--max-concurrent-runs=0",
        "--concurrent-per-label=account",
        "--concurrent-per-label=a b=1",
        "--run-memory-limit=much",
        "--runner-memory-request=off",
        "--feature-gates=X=true",
        "--default-service-account=team:runner",
        "--destroy-service-account=Destroyer",
        "--nonsense",
        "stray",
    ] {
        let arguments = ["tf-controller", bad].map(OsString::from);
        let error = args::parse::<Args>(arguments, |_| None).expect_err(bad);
        assert_eq!(error.exit_code(), 2, "{bad}");
    }
}

#[test]
fn the_arguments_of_upstreams_chart_are_taken_and_those_without_effect_are_named() {
    let chart = [
        "tf-controller",
        "--allow-cross-namespace-refs=false",
        "--watch-all-namespaces=true",
        "--log-level=info",
        "--log-encoding=json",
        "--enable-leader-election=true",
        "--leader-election-release-on-cancel=true",
        "--concurrent=24",
        "--http-retry=9",
        "--ca-cert-validity-duration=168h0m",
        "--cert-rotation-check-frequency=30m0s",
        "--cert-validity-duration=6h0m",
        "--runner-creation-timeout=5m0s",
        "--runner-grpc-max-message-size=4",
        "--kube-api-qps=50",
        "--kube-api-burst=100",
        "--allow-break-the-glass=false",
        "--cluster-domain=cluster.local",
        "--use-pod-subdomain-resolution=false",
        "--graceful-shutdown-timeout=240s",
        "--events-addr=http://notification-controller.flux-system.svc.cluster.local./",
    ];
    let args = args::parse::<Args>(chart.map(OsString::from), |_| None).unwrap();
    assert_eq!(args.common.concurrency.concurrent, 24);
    assert_eq!(args.executor, None, "the chart names none");
    assert_eq!(args.graceful_shutdown_timeout, std::time::Duration::from_mins(4));
    assert!(
        args.transport
            .non_default()
            .contains(&"--runner-creation-timeout"),
        "{:?}",
        args.transport.non_default()
    );
    let none = args::parse::<Args>(["tf-controller"].map(OsString::from), |_| None).unwrap();
    assert_eq!(none.transport.non_default(), Vec::<&str>::new());
}

#[test]
fn the_limits_of_runs_have_the_forms_of_kubernetes() {
    let parse = |arguments: &[&str]| {
        let all = ["tf-controller"].iter().chain(arguments).map(OsString::from);
        args::parse::<Args>(all, |_| None).unwrap()
    };
    let none = parse(&[]);
    assert!(none.concurrent_per_label.is_empty());
    assert_eq!(none.run_memory_limit.bytes(), 0);
    assert_eq!(none.runner_memory_request, MemoryRequest::Measured);
    let given = parse(&[
        "--concurrent=2",
        "--max-concurrent-runs=9",
        "--concurrent-per-label=account=3,team=1",
        "--concurrent-per-label=account=5",
        "--run-memory-limit=8Gi",
        "--runner-memory-request=none",
    ]);
    assert_eq!(
        given.common.concurrency.concurrent, 9,
        "another name of --concurrent"
    );
    let labels = given.concurrent_per_label.iter();
    let labels: Vec<_> = labels.map(|limit| (limit.key.as_str(), limit.runs)).collect();
    assert_eq!(labels, [("account", 3), ("team", 1), ("account", 5)]);
    assert_eq!(given.run_memory_limit.bytes(), 8 << 30);
    assert_eq!(given.runner_memory_request, MemoryRequest::Disabled);
}

#[test]
fn runs_are_jobs_in_a_cluster_and_processes_elsewhere() {
    let executors = |arguments: &[&str]| {
        let all = ["tf-controller"].iter().chain(arguments).map(OsString::from);
        let args = args::parse::<Args>(all, |_| None).unwrap();
        [true, false].map(|is_in_pod| args.executor(is_in_pod))
    };
    let (job, process) = (ExecutorKind::Job, ExecutorKind::Process);
    assert_eq!(executors(&[]), [job, process]);
    assert_eq!(executors(&["--executor=job"]), [job, job]);
    assert_eq!(executors(&["--executor=process"]), [process, process]);
}

#[test]
fn the_arguments_of_the_deployment_are_taken() {
    let manifest = include_str!("../../../config/tf-controller/deployment.yaml");
    let lines = manifest
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- --"));
    let all = ["tf-controller".to_owned()]
        .into_iter()
        .chain(lines.map(|line| format!("--{line}")));
    let args = args::parse::<Args>(all.map(OsString::from), |_| None).unwrap();
    assert!(args.common.leader_election.enable_leader_election);
    assert_eq!(args.executor, Some(ExecutorKind::Job));
}

#[test]
fn the_flags_of_the_overlays_are_taken() {
    let tenants = include_str!("../../../config/components/multi-tenant/kustomization.yaml");
    let single = include_str!("../../../config/overlays/single-namespace/kustomization.yaml");
    let flags: Vec<OsString> = [tenants, single]
        .iter()
        .flat_map(|text| text.lines())
        .filter_map(|line| line.split_once("value: --")?.1.strip_suffix('}'))
        .filter(|flag| *flag != "watch-all-namespaces")
        .map(|flag| format!("--{flag}").into())
        .collect();
    assert_eq!(flags.len(), 6, "{flags:?}");
    for flag in flags {
        args::parse::<Args>([OsString::from("tf-controller"), flag], |_| None).unwrap();
    }
}

#[test]
fn the_pod_of_processes_has_the_time_to_end_them() {
    let component = include_str!("../../../config/components/process-executor/kustomization.yaml");
    let period = component
        .lines()
        .find_map(|line| line.split_once("/terminationGracePeriodSeconds, value: "));
    let period = period.unwrap().1.trim_end_matches('}').parse().unwrap();
    let args = args::parse::<Args>(["tf-controller"].map(OsString::from), |_| None).unwrap();
    // The grace of the runner for a CLI that it interrupts; then the time for what the program itself still does.
    let (interrupted, last) = (Duration::from_mins(1), Duration::from_secs(40));
    assert!(
        Duration::from_secs(period) >= args.graceful_shutdown_timeout + interrupted + last,
        "the kubelet may kill the pod before an interrupted CLI has written its state"
    );
}

#[test]
fn every_flag_is_in_the_reference() {
    let text = include_str!("../../../docs/reference/flags.md");
    let command = Args::command();
    let flags = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let absent: Vec<_> = flags
        .flat_map(|flag| flag.get_long_and_visible_aliases().unwrap_or_default())
        .filter(|flag| !text.contains(&format!("`--{flag}`")))
        .collect();
    assert!(absent.is_empty(), "{absent:?}");
}
