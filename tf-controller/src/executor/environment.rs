//! The environment variables that runners inherit from the controller. Pure.

use std::collections::BTreeMap;

/// The inherited variables. The only credentials among them are those for the Kubernetes API. Programs read proxies in upper or
/// lower case, and the certificate authorities apply to all programs.
const INHERITED: [&str; 19] = [
    "PATH",
    "HOME",
    "TMPDIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "KUBECONFIG",
    "KUBERNETES_SERVICE_HOST",
    "KUBERNETES_SERVICE_PORT",
    "CHECKPOINT_DISABLE",
    "DISABLE_WEBHOOK_TLS_VERIFY",
    "LOG_HUMAN_READABLE_PLAN",
];

/// Returns the part of the controller's environment that runners inherit.
pub(crate) fn runner_environment(
    environment: impl IntoIterator<Item = (String, String)>,
) -> BTreeMap<String, String> {
    let is_inherited = |(name, _): &(String, String)| INHERITED.contains(&name.as_str());
    environment.into_iter().filter(is_inherited).collect()
}

/// Returns the part of the controller's environment that pods of runs get: proxies and settings. Paths are those of another image,
/// and the kubelet sets the access to the API.
pub(crate) fn pod_environment(
    environment: impl IntoIterator<Item = (String, String)>,
) -> BTreeMap<String, String> {
    let mut inherited = runner_environment(environment);
    let is_local = |name: &str| {
        name.starts_with("KUBE") || name.starts_with("SSL_") || matches!(name, "PATH" | "HOME" | "TMPDIR")
    };
    inherited.retain(|name, _| !is_local(name));
    inherited
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_and_authorities_are_passed_on_and_credentials_are_not() {
        let inherited = [
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "ALL_PROXY",
            "NO_PROXY",
            "http_proxy",
            "https_proxy",
            "all_proxy",
            "no_proxy",
            "SSL_CERT_FILE",
            "SSL_CERT_DIR",
            "KUBERNETES_SERVICE_HOST",
            "LOG_HUMAN_READABLE_PLAN",
        ];
        let others = ["AWS_SECRET_ACCESS_KEY", "TF_LOG", "Path", "EVENTS_TOKEN"];
        let all = inherited.iter().chain(&others);
        let found = runner_environment(all.map(|name| ((*name).to_owned(), format!("of {name}"))));
        let expected: BTreeMap<_, _> = inherited
            .iter()
            .map(|name| ((*name).to_owned(), format!("of {name}")))
            .collect();
        assert_eq!(found, expected);
    }
}
