//! What is said about a connection that cannot be made. Pure.

use std::error::Error as _;

use kube::config::KubeconfigError;
use sluice_runtime::client::ClientError;
use sluice_runtime::failure::chain;

/// Returns the cause. Of the places of a configuration, the kubeconfig is the one that a user expects.
pub(crate) fn message(error: &ClientError) -> String {
    let ClientError::NotConfigured(source) = error else {
        return chain(error);
    };
    let kubeconfig = source.source();
    match kubeconfig.and_then(|error| error.downcast_ref::<KubeconfigError>()) {
        Some(KubeconfigError::ReadConfig(error, path)) => {
            let path = path.display();
            format!(
                "cannot read the kubeconfig {path}: {error}; and this is no pod, which has a ServiceAccount"
            )
        }
        _ => chain(error),
    }
}

/// Returns what the user can do next.
pub(crate) fn advice(error: &ClientError) -> &'static str {
    match error {
        ClientError::Kubeconfig { source, .. }
            if matches!(
                **source,
                KubeconfigError::LoadContext(_) | KubeconfigError::CurrentContextNotSet
            ) =>
        {
            "`kubectl config get-contexts` lists the contexts: name one of them with --context"
        }
        ClientError::Login { .. } => {
            "install that program, or choose other credentials with --kubeconfig or --context"
        }
        _ => "set KUBECONFIG or --kubeconfig; `sluice up` prints the path of its own",
    }
}
