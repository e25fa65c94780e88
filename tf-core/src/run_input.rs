//! What a controller passes to a runner on its standard input.

/// What a controller hands to the runner that it starts: one JSON object on standard input.
#[derive(Default, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunInput {
    /// How the API is reached. Absent: the environment says so, as in a pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// JSON of the run's bundle. Absent: it lies in the Secrets that the run names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<String>,
}

/// How one run reaches the API. The environment is then the CLI's alone.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
pub struct Access {
    /// Kubeconfig of the runner, as text.
    pub run: String,
    /// Kubeconfig of the CLI's kubernetes backend, as text.
    pub backend: String,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Access").finish_non_exhaustive()
    }
}
