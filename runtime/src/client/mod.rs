//! The Kubernetes client, with an explicit timeout and retry policy for every call.
//!
//! kube's defaults, which wait forever for a silent server and retry up to 15 times, are disabled.

mod calls;

use std::path::PathBuf;
use std::time::Duration;

pub use calls::{RequestTimedOut, RetryPolicy, RetryService, TimeoutBody};
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::buffer::BufferLayer;

use crate::metrics::Metrics;

/// Settings of the client.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Path of the kubeconfig; default: `KUBECONFIG`, `~/.kube/config`, or the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// Content of a kubeconfig, instead of a file.
    pub kubeconfig_text: Option<String>,
    /// Context in the kubeconfig; default: the current one.
    pub context: Option<String>,
    /// Timeout to open a connection.
    pub connect_timeout: Duration,
    /// Maximum idle time of a connection. A watch without events is idle for up to its own timeout of 290 s.
    pub read_timeout: Duration,
    /// Timeout and retries of calls.
    pub policy: RetryPolicy,
    /// Metrics of the requests.
    pub metrics: Metrics,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            kubeconfig_text: None,
            context: None,
            connect_timeout: Duration::from_secs(10),
            read_timeout: Duration::from_secs(330),
            policy: RetryPolicy::default(),
            metrics: Metrics::new(),
        }
    }
}

/// The client cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig is invalid.
    #[error("cannot use kubeconfig {path}")]
    Kubeconfig {
        /// Its path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<kube::config::KubeconfigError>,
    },
    /// There is neither a kubeconfig nor a service account.
    #[error("no cluster configuration found")]
    NotConfigured(#[source] Box<kube::config::InferConfigError>),
    /// The configuration is invalid.
    #[error("cannot create a client from the cluster configuration")]
    Invalid(#[source] Box<kube::Error>),
}

/// Creates the client; sends no request.
///
/// # Errors
/// The configuration is missing or invalid.
pub async fn build(settings: &Settings) -> Result<Client, ClientError> {
    crate::http::install_crypto();
    let mut config = load(settings).await?;
    config.connect_timeout = Some(settings.connect_timeout);
    config.read_timeout = Some(settings.read_timeout);
    config.write_timeout = Some(settings.read_timeout);
    // Otherwise the idle time before a request counts for its response.
    config.reset_reader_on_write = true;
    config.default_retry = false;
    if is_loopback(&config.cluster_url) {
        // A proxy cannot reach this machine's loopback addresses.
        config.proxy_url = None;
    }
    let host = config.cluster_url.authority().map(ToString::to_string);
    let count = settings.metrics.requests_to(&host.unwrap_or_default());
    let builder = ClientBuilder::try_from(config).map_err(|error| ClientError::Invalid(Box::new(error)))?;
    Ok(builder
        .with_layer(&count)
        .with_layer(&BufferLayer::new(1024))
        .with_layer(&settings.policy)
        .build())
}

fn is_loopback(url: &http::Uri) -> bool {
    let host = url
        .host()
        .unwrap_or_default()
        .trim_start_matches('[')
        .trim_end_matches(']');
    host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

async fn load(settings: &Settings) -> Result<Config, ClientError> {
    let path = settings.kubeconfig.clone().unwrap_or_default();
    let failed = |source| ClientError::Kubeconfig {
        path: path.clone(),
        source: Box::new(source),
    };
    let file = match (&settings.kubeconfig_text, &settings.kubeconfig) {
        (Some(text), _) => Kubeconfig::from_yaml(text).map_err(failed)?,
        (None, Some(path)) => Kubeconfig::read_from(path).map_err(failed)?,
        (None, None) => {
            let found = Config::infer().await;
            return found.map_err(|error| ClientError::NotConfigured(Box::new(error)));
        }
    };
    let options = KubeConfigOptions {
        context: settings.context.clone(),
        ..KubeConfigOptions::default()
    };
    Config::from_custom_kubeconfig(file, &options)
        .await
        .map_err(failed)
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use k8s_openapi::api::core::v1::Namespace;
    use kube::Api;

    use super::*;
    use crate::serve::{ListenAddress, Page, listen, serve};
    use crate::shutdown::Token;

    #[tokio::test]
    async fn a_kubeconfig_leads_to_its_api() {
        let listener = listen(&ListenAddress::HostPort("127.0.0.1:0".into()))
            .await
            .unwrap()
            .unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let namespace = r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a","uid":"u"}}"#;
        let page =
            move |path: &str| (path == "/api/v1/namespaces/a").then(|| Page::text(StatusCode::OK, namespace));
        tokio::spawn(serve(listener, page, Token::new()));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        let content = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: k, user: u}}}}], \
             clusters: [{{name: k, cluster: {{server: '{server}'}}}}], users: [{{name: u, user: {{token: t}}}}]}}"
        );
        std::fs::write(&path, content).unwrap();
        let settings = Settings {
            kubeconfig: Some(path),
            ..Settings::default()
        };
        let api: Api<Namespace> = Api::all(build(&settings).await.unwrap());
        assert_eq!(api.get("a").await.unwrap().metadata.uid.as_deref(), Some("u"));
        assert!(api.get("b").await.is_err());
        let (host, text) = (server.trim_start_matches("http://"), settings.metrics.text());
        for code in ["200", "404"] {
            let counted =
                format!("rest_client_requests_total{{code=\"{code}\",host=\"{host}\",method=\"GET\"}} 1\n");
            assert!(text.contains(&counted), "{text}");
        }
        let absent = Settings {
            context: Some("other".into()),
            ..settings
        };
        assert!(matches!(
            build(&absent).await,
            Err(ClientError::Kubeconfig { .. })
        ));
    }

    #[test]
    fn loopback_is_recognized_by_name_and_address() {
        let is = |url: &str| is_loopback(&url.parse().unwrap());
        assert!(is("https://localhost:6443") && is("https://127.0.0.5/") && is("https://[::1]:1/"));
        assert!(!is("https://10.0.0.1/") && !is("https://localhost.example/"));
    }

    #[tokio::test]
    async fn a_missing_kubeconfig_is_named() {
        let settings = Settings {
            kubeconfig: Some("/nowhere/config".into()),
            ..Settings::default()
        };
        let error = build(&settings).await.map(drop).unwrap_err();
        assert_eq!(error.to_string(), "cannot use kubeconfig /nowhere/config");
    }
}
