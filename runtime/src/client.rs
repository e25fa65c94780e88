//! The Kubernetes client: every call is bounded in time and retried by an explicit policy.
//!
//! kube's own defaults wait without end for a silent server and retry up to 15 times; both are switched off here.

mod calls;

use std::path::PathBuf;
use std::time::Duration;

use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::buffer::BufferLayer;

pub use calls::{Bounded, Calls, Policy, TimedOut};

/// How the API is reached.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The kubeconfig to use; otherwise `KUBECONFIG`, `~/.kube/config`, or the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// The context in the kubeconfig; otherwise its current one.
    pub context: Option<String>,
    /// To open a connection.
    pub connect_timeout: Duration,
    /// Longest silence on a connection. A quiet watch is silent for up to its own timeout of 290 s.
    pub read_timeout: Duration,
    /// Limits and retries of calls.
    pub policy: Policy,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            context: None,
            connect_timeout: Duration::from_secs(10),
            read_timeout: Duration::from_secs(330),
            policy: Policy::default(),
        }
    }
}

/// The client cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The named kubeconfig is not usable.
    #[error("cannot use kubeconfig {path}")]
    Kubeconfig {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<kube::config::KubeconfigError>,
    },
    /// Neither a kubeconfig nor a service account was found.
    #[error("no cluster configuration found")]
    Absent(#[source] Box<kube::config::InferConfigError>),
    /// The configuration does not make a client.
    #[error("cannot make a client of the cluster configuration")]
    Unusable(#[source] Box<kube::Error>),
}

/// Builds the client. Nothing is sent yet.
///
/// # Errors
/// The configuration is missing or not usable.
pub async fn build(settings: &Settings) -> Result<Client, ClientError> {
    crate::http::install_crypto();
    let mut config = load(settings).await?;
    config.connect_timeout = Some(settings.connect_timeout);
    config.read_timeout = Some(settings.read_timeout);
    config.write_timeout = Some(settings.read_timeout);
    // Without this the silence before a request counts as silence of its answer.
    config.reset_reader_on_write = true;
    config.default_retry = false;
    let builder = ClientBuilder::try_from(config).map_err(|error| ClientError::Unusable(Box::new(error)))?;
    Ok(builder
        .with_layer(&BufferLayer::new(1024))
        .with_layer(&settings.policy)
        .build())
}

async fn load(settings: &Settings) -> Result<Config, ClientError> {
    let Some(path) = &settings.kubeconfig else {
        return Config::infer()
            .await
            .map_err(|error| ClientError::Absent(Box::new(error)));
    };
    let failed = |source| ClientError::Kubeconfig {
        path: path.clone(),
        source: Box::new(source),
    };
    let file = Kubeconfig::read_from(path).map_err(failed)?;
    let options = KubeConfigOptions {
        context: settings.context.clone(),
        ..KubeConfigOptions::default()
    };
    Config::from_custom_kubeconfig(file, &options)
        .await
        .map_err(failed)
}
