//! What a controller passes to the runner that it starts.

use std::str::FromStr;

use sluice_api::run::TerraformRun;

/// The variable with the memory in bytes that the container of a runner may use.
pub const MEMORY_LIMIT: &str = "POD_MEMORY_LIMIT";
/// The variable with the memory in bytes that this container requests if the controller requests none.
pub const DEFAULT_MEMORY_REQUEST: &str = "POD_DEFAULT_MEMORY_REQUEST";

/// The variable with the uid of the run that a runner was started for: a later run may have the name of a deleted one.
pub const RUN_UID: &str = "RUN_UID";

/// The standard input of a runner: one JSON object.
#[derive(Default, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunInput {
    /// Kubeconfigs. Absent: the environment has the configuration, as in a pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Kubeconfigs>,
    /// JSON of the run bundle. Absent: it is in the Secrets that the run names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<String>,
    /// The run as the controller knows it, so that the claim needs no read: it names this version, so an older one is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Box<TerraformRun>>,
}

/// The kubeconfigs of one run. They do not come from the environment, since the CLI inherits it.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
pub struct Kubeconfigs {
    /// Kubeconfig of the runner, as text.
    pub run: String,
    /// Kubeconfig of the CLI's `kubernetes` backend, as text.
    pub backend: String,
}

impl std::fmt::Debug for Kubeconfigs {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Kubeconfigs").finish_non_exhaustive()
    }
}

/// The pod of a runner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid; empty if unknown. Then the end of the pod does not prove the end of the runner.
    pub uid: String,
}

/// The text is not `namespace/name/uid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected namespace/name/uid")]
pub struct PodRefError;

impl FromStr for PodRef {
    type Err = PodRefError;

    fn from_str(text: &str) -> Result<Self, PodRefError> {
        let mut parts = text.split('/').map(str::to_owned);
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(namespace), Some(name), Some(uid), None) => Ok(Self { namespace, name, uid }),
            _ => Err(PodRefError),
        }
    }
}

impl std::fmt::Display for PodRef {
    fn fmt(&self, text: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(text, "{}/{}/{}", self.namespace, self.name, self.uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_read_as_it_is_written() {
        let pod = PodRef {
            namespace: "flux-system".into(),
            name: "tf-controller-1".into(),
            uid: String::new(),
        };
        assert_eq!(pod.to_string().parse(), Ok(pod));
        for text in ["", "a", "a/b", "a/b/c/d"] {
            assert_eq!(text.parse::<PodRef>(), Err(PodRefError), "{text}");
        }
    }
}
