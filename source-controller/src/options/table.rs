//! Checks every flag of Flux's source-controller 1.9: default, variable and precedence.

use std::ffi::OsString;

use sluice_runtime::args;

use super::Options;

/// Flag, variable, default, and another valid value.
type Row = (&'static str, Option<&'static str>, &'static str, &'static str);

const FLAGS: [Row; 33] = [
    ("metrics-addr", Some("METRICS_ADDR"), ":8080", ":1"),
    ("health-addr", None, ":9440", ":1"),
    (
        "events-addr",
        Some("EVENTS_ADDR"),
        "",
        "http://notification-controller./",
    ),
    ("storage-path", Some("STORAGE_PATH"), "/data", "/elsewhere"),
    ("storage-addr", Some("STORAGE_ADDRESS"), ":9090", ":1"),
    (
        "storage-adv-addr",
        Some("STORAGE_ADV_ADDR"),
        "",
        "source-controller.ns.svc",
    ),
    ("artifact-retention-ttl", None, "1m", "1m30s"),
    ("artifact-retention-records", None, "2", "5"),
    ("artifact-digest-algo", None, "sha256", "sha512"),
    ("concurrent", None, "2", "20"),
    ("requeue-dependency", None, "30s", "5s"),
    ("min-retry-delay", None, "750ms", "1s"),
    ("max-retry-delay", None, "15m", "1h"),
    ("interval-jitter-percentage", None, "5", "99"),
    (
        "watch-label-selector",
        None,
        "",
        "sharding.fluxcd.io/key in (a,b),!c",
    ),
    (
        "watch-configs-label-selector",
        None,
        "reconcile.fluxcd.io/watch=Enabled",
        "a=b",
    ),
    ("default-service-account", None, "", "builder"),
    ("token-cache-max-size", None, "100", "0"),
    ("token-cache-max-duration", None, "1h", "10m"),
    ("helm-index-max-size", None, "52428800", "1"),
    ("helm-chart-max-size", None, "10485760", "1"),
    ("helm-chart-file-max-size", None, "5242880", "1"),
    ("helm-cache-max-size", None, "0", "1"),
    ("helm-cache-ttl", None, "15m", "1m"),
    ("helm-cache-purge-interval", None, "1m", "2m"),
    ("leader-election-lease-duration", None, "35s", "60s"),
    ("leader-election-renew-deadline", None, "30s", "40s"),
    ("leader-election-retry-period", None, "5s", "2s"),
    ("kube-api-qps", None, "50", "100"),
    ("kube-api-burst", None, "300", "600"),
    ("log-encoding", None, "json", "console"),
    ("log-level", None, "info", "trace"),
    ("runtime-namespace", Some("RUNTIME_NAMESPACE"), "", "flux-system"),
];

/// Booleans with their defaults.
const SWITCHES: [(&str, &str); 3] = [
    ("watch-all-namespaces", "true"),
    ("enable-leader-election", "false"),
    ("leader-election-release-on-cancel", "true"),
];

/// Lists, empty by default.
const LISTS: [(&str, &str); 3] = [
    ("ssh-kex-algos", "curve25519-sha256,ecdh-sha2-nistp256"),
    ("ssh-hostkey-algos", "ssh-ed25519,rsa-sha2-512"),
    (
        "feature-gates",
        "CacheSecretsAndConfigMaps=true,ObjectLevelWorkloadIdentity=false",
    ),
];

/// Returns the values of a flag as text.
fn value(flag: &str, arguments: &[String], environment: &[(&str, &str)]) -> Option<Vec<String>> {
    let all = ["source-controller".to_owned()]
        .into_iter()
        .chain(arguments.iter().cloned());
    let lookup = |name: &str| {
        let found = environment.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| OsString::from(value))
    };
    let matches = args::matches::<Options>(all.map(OsString::from), lookup);
    let matches = matches.unwrap_or_else(|error| panic!("{flag}: {error}"));
    let raw = matches.get_raw(&flag.replace('-', "_"))?;
    Some(raw.map(|text| text.to_str().unwrap().to_owned()).collect())
}

fn one(flag: &str, arguments: &[String], environment: &[(&str, &str)]) -> String {
    let mut values = value(flag, arguments, environment).unwrap_or_else(|| panic!("{flag} has no value"));
    assert_eq!(values.len(), 1, "{flag}: {values:?}");
    values.remove(0)
}

#[test]
fn every_flag_of_flux_has_its_default_and_takes_a_value_in_both_forms() {
    for (flag, _, default, other) in FLAGS {
        assert_eq!(one(flag, &[], &[]), default, "{flag}");
        assert_eq!(one(flag, &[format!("--{flag}={other}")], &[]), other, "{flag}");
        assert_eq!(
            one(flag, &[format!("--{flag}"), other.to_owned()], &[]),
            other,
            "{flag}"
        );
    }
}

#[test]
fn every_variable_of_flux_is_between_its_flag_and_the_default() {
    let mut count = 0;
    for (flag, variable, default, other) in FLAGS {
        let Some(variable) = variable else {
            continue;
        };
        count += 1;
        assert_eq!(one(flag, &[], &[(variable, other)]), other, "{variable}");
        assert_eq!(one(flag, &[], &[(variable, "")]), default, "{variable}");
        let arguments = [format!("--{flag}={default}")];
        assert_eq!(one(flag, &arguments, &[(variable, other)]), default, "{variable}");
    }
    assert_eq!(count, 6);
}

#[test]
fn switches_are_written_as_in_go() {
    for (flag, default) in SWITCHES {
        assert_eq!(one(flag, &[], &[]), default, "{flag}");
        assert_eq!(one(flag, &[format!("--{flag}")], &[]), "true", "{flag}");
        for text in ["true", "false", "1", "0", "T", "F"] {
            assert_eq!(one(flag, &[format!("--{flag}={text}")], &[]), text, "{flag}");
        }
    }
}

#[test]
fn lists_are_separated_by_commas_and_grow_by_repetition() {
    for (flag, text) in LISTS {
        assert_eq!(value(flag, &[], &[]), None, "{flag}");
        let expected: Vec<String> = text.split(',').map(str::to_owned).collect();
        let once = [format!("--{flag}={text}")];
        assert_eq!(value(flag, &once, &[]), Some(expected.clone()), "{flag}");
        let apart: Vec<String> = expected.iter().map(|part| format!("--{flag}={part}")).collect();
        assert_eq!(value(flag, &apart, &[]), Some(expected), "{flag}");
    }
}

#[test]
fn invalid_values_are_errors() {
    for bad in [
        "--interval-jitter-percentage=100",
        "--interval-jitter-percentage=-1",
        "--artifact-digest-algo=md5",
        "--artifact-retention-ttl=soon",
        "--concurrent=0",
        "--concurrent=many",
        "--log-level=warn",
        "--log-encoding=text",
        "--enable-leader-election=maybe",
        "--metrics-addr=8080",
        "--feature-gates=OptimizedGitClones=true",
        "--feature-gates=GitForcePushBranch=true",
        "--feature-gates=ObjectLevelWorkloadIdentity",
        "--insecure-allow-http",
        "--no-cross-namespace-refs",
        "--kubeconfig=x",
    ] {
        let arguments = ["source-controller", bad].map(OsString::from);
        let error = args::parse::<Options>(arguments, |_| None).expect_err(bad);
        assert_eq!(error.exit_code(), 2, "{bad}");
    }
}

/// Returns the arguments in the Deployment's manifest, in order.
fn manifest() -> Vec<&'static str> {
    include_str!("../../../config/source-controller/deployment.yaml")
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- --"))
        .collect()
}

#[test]
fn the_arguments_of_the_deployment_are_at_the_indexes_that_installers_patch() {
    let arguments = manifest();
    let names: Vec<&str> = arguments
        .iter()
        .map(|argument| argument.split('=').next().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "events-addr",
            "watch-all-namespaces",
            "log-level",
            "log-encoding",
            "enable-leader-election",
            "storage-path",
            "storage-adv-addr",
        ]
    );
    let arguments = arguments.iter().map(|argument| format!("--{argument}"));
    let all = ["source-controller".to_owned()].into_iter().chain(arguments);
    let options = args::parse::<Options>(all.map(OsString::from), |_| None).unwrap();
    assert!(options.common.leader_election.enable_leader_election);
}

#[test]
fn every_flag_is_in_the_reference() {
    let text = include_str!("../../../docs/reference/flags.md");
    let command = <Options as clap::CommandFactory>::command();
    let flags = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let absent: Vec<_> = flags
        .filter_map(clap::Arg::get_long)
        .filter(|flag| !text.contains(&format!("`--{flag}`")))
        .collect();
    assert!(absent.is_empty(), "{absent:?}");
}
