//! What runs get of the controller's own environment on a cluster. Pure.

use std::collections::BTreeMap;

/// The variables that are passed on: no credential of the controller is among them but those by which runs reach the API. Proxies
/// are written in capitals or in small letters, and those who need an authority of their own name it for all programs.
const PASSED_ON: [&str; 19] = [
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

/// The part of an environment that runs get.
#[must_use]
pub fn passed_on(environment: impl IntoIterator<Item = (String, String)>) -> BTreeMap<String, String> {
    let passed = |(name, _): &(String, String)| PASSED_ON.contains(&name.as_str());
    environment.into_iter().filter(passed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_and_authorities_are_passed_on_and_credentials_are_not() {
        let passed = [
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
        let kept_back = ["AWS_SECRET_ACCESS_KEY", "TF_LOG", "Path", "EVENTS_TOKEN"];
        let all = passed.iter().chain(&kept_back);
        let found = passed_on(all.map(|name| ((*name).to_owned(), format!("of {name}"))));
        let wanted: BTreeMap<_, _> = passed
            .iter()
            .map(|name| ((*name).to_owned(), format!("of {name}")))
            .collect();
        assert_eq!(found, wanted);
    }
}
