//! The report of the program that a hostile module runs (`tests/assets/attack`).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::Value;

use super::attempt::{Attempt, rules};
use super::{ACCOUNT, TENANT};

/// The Secret with the report, and its key.
const SECRET: (&str, &str) = ("attack-report", "report");
/// The variables that a run may have, beside those whose names begin as in [`VARIABLE_PREFIXES`]. `NODE` is that of the stack.
const VARIABLES: [&str; 13] = [
    "CHECKPOINT_DISABLE",
    "GNUPGHOME",
    "HOME",
    "HOSTNAME",
    "JOB_NAME",
    "NODE",
    "OLDPWD",
    "PATH",
    "PWD",
    "RUNNER_POD_IMAGE",
    "RUN_UID",
    "SHLVL",
    "_",
];
const VARIABLE_PREFIXES: [&str; 3] = ["KUBERNETES_", "POD_", "TF_"];
/// The programs in the pod of a run: the runner, its CLI, the shell of the provisioner, and what it starts.
const PROGRAMS: [&str; 4] = ["tf-runner", "tofu", "sh", "attack"];
/// Where the kubelet mounts the token of the pod.
const TOKEN_FOLDERS: [&str; 2] = ["/run/secrets/kubernetes.io/", "/var/run/secrets/kubernetes.io/"];
/// The resources that any account may use, for questions about itself, begin with this.
const SELF_REVIEW: &str = "selfsubject";

/// The results of the attempts, and what the program found in its pod.
#[derive(Deserialize)]
pub(super) struct Report {
    /// By the names of the attempts: `<HTTP status> <body>`, `done <content>` or `failed <error>`.
    results: BTreeMap<String, String>,
    /// Names of variables, of the program and of the first process.
    environment: Vec<String>,
    /// Command lines.
    processes: Vec<String>,
    /// Paths of files with names of credentials.
    credentials: Vec<String>,
    /// The payload of the token.
    claims: Value,
}

impl Report {
    /// Reads the report.
    pub(super) async fn read(client: Client) -> Self {
        let secrets: Api<Secret> = Api::namespaced(client, TENANT);
        let (name, key) = SECRET;
        let data = secrets.get(name).await.unwrap().data.unwrap();
        serde_json::from_slice(&data[key].0).unwrap()
    }

    /// Checks that each attempt had its result.
    pub(super) fn check_attempts(&self, attempts: &[Attempt]) {
        assert_eq!(self.results.len(), attempts.len(), "two attempts have one name");
        let faults: Vec<_> = attempts
            .iter()
            .filter_map(|attempt| attempt.fault(self.results.get(&attempt.name).map(String::as_str)))
            .collect();
        assert!(faults.is_empty(), "{faults:#?}");
    }

    /// Checks that the account may use no resource of a namespace.
    pub(super) fn check_rules(&self, namespace: &str) {
        let result = &self.results[&rules(namespace).name];
        let (_, body) = result.split_once(' ').unwrap();
        let review: Value = serde_json::from_str(body).unwrap();
        let rules = review.pointer("/status/resourceRules").and_then(Value::as_array);
        let resources = rules
            .unwrap()
            .iter()
            .flat_map(|rule| rule["resources"].as_array().unwrap())
            .map(|resource| resource.as_str().unwrap());
        let (own, others): (Vec<_>, Vec<_>) =
            resources.partition(|resource| resource.starts_with(SELF_REVIEW));
        assert!(!own.is_empty() && others.is_empty(), "{namespace}: {review:#}");
    }

    /// Checks that the pod has the token of its own account, no other credentials, and nothing of its node.
    pub(super) fn check_pod(&self) {
        let account = format!("system:serviceaccount:{TENANT}:{ACCOUNT}");
        assert_eq!(self.claims["sub"], account, "{:#}", self.claims);
        let pod = self.claims.pointer("/kubernetes.io/pod/name");
        let pod = pod.and_then(Value::as_str).unwrap_or_default();
        assert!(pod.starts_with("attack-"), "{:#}", self.claims);
        let is_own = |path: &&String| TOKEN_FOLDERS.iter().any(|folder| path.starts_with(*folder));
        let (own, others): (Vec<_>, Vec<_>) = self.credentials.iter().partition(is_own);
        assert!(!own.is_empty() && others.is_empty(), "{own:?} {others:?}");

        let is_known = |name: &&String| {
            VARIABLES.contains(&name.as_str())
                || VARIABLE_PREFIXES.iter().any(|prefix| name.starts_with(*prefix))
        };
        let unknown: Vec<_> = self.environment.iter().filter(|name| !is_known(name)).collect();
        assert!(unknown.is_empty(), "variables: {unknown:?}");
        assert!(self.environment.iter().any(|name| name == "NODE"));

        let is_of_run = |line: &&String| {
            let program = line.split(' ').next().unwrap_or_default();
            let program = program.rsplit('/').next().unwrap_or_default();
            PROGRAMS.contains(&program)
        };
        let (own, others): (Vec<_>, Vec<_>) = self.processes.iter().partition(is_of_run);
        assert!(own.len() >= 3 && others.is_empty(), "{own:?} {others:?}");
    }
}
