//! The environment of runs: the user's own, since `AWS_PROFILE` must work, less what the CLI would be steered by.

use std::{collections::BTreeMap, path::Path};

/// Variables that change what a plan means or how the CLI talks; tofu-controller refuses them.
const REJECTED: [&str; 12] = [
    "TF_INPUT",
    "TF_IN_AUTOMATION",
    "TF_LOG",
    "TF_LOG_CORE",
    "TF_LOG_PATH",
    "TF_LOG_PROVIDER",
    "TF_REATTACH_PROVIDERS",
    "TF_APPEND_USER_AGENT",
    "TF_WORKSPACE",
    "TF_DISABLE_PLUGIN_TLS",
    "TF_SKIP_PROVIDER_VERIFY",
    "TF_CLI_ARGS",
];
const REJECTED_FRONTS: [&str; 2] = ["TF_VAR_", "TF_CLI_ARGS_"];

/// What runs are started with.
pub(super) fn for_runs(
    own: impl Iterator<Item = (String, String)>,
    kubeconfig: &Path,
) -> BTreeMap<String, String> {
    let rejected =
        |name: &str| REJECTED.contains(&name) || REJECTED_FRONTS.iter().any(|front| name.starts_with(front));
    // KUBE_* configures the kubernetes backend: it must reach this API and no other.
    let mut environment: BTreeMap<_, _> = own
        .filter(|(name, _)| !rejected(name) && !name.starts_with("KUBE_") && !name.starts_with("KUBERNETES_"))
        .collect();
    let path = kubeconfig.display().to_string();
    environment.insert("KUBECONFIG".to_owned(), path.clone());
    environment.insert("KUBE_CONFIG_PATH".to_owned(), path);
    environment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_credentials_pass_and_what_steers_the_cli_does_not() {
        let own = [
            ("AWS_PROFILE", "x"),
            ("TF_VAR_a", "1"),
            ("TF_LOG", "trace"),
            ("KUBE_HOST", "other"),
            ("TF_TOKEN_h", "t"),
        ];
        let kept = for_runs(
            own.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())),
            Path::new("/k"),
        );
        let names: Vec<_> = kept.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            ["AWS_PROFILE", "KUBECONFIG", "KUBE_CONFIG_PATH", "TF_TOKEN_h"]
        );
    }
}
