//! The Kubernetes client, with an explicit timeout and retry policy for every call.
//!
//! kube's defaults, which wait forever for a silent server and retry up to 15 times, are disabled.

mod calls;
mod kubeconfig;

use std::path::PathBuf;
use std::time::Duration;

pub use calls::{RequestTimedOut, RetryPolicy, RetryService, TimeoutBody};
use http::{HeaderName, HeaderValue, Request, header};
use kube::Client;
use kube::client::{AuthError, Body, ClientBuilder};
use tower::buffer::BufferLayer;

use crate::metrics::Metrics;

/// The user agent of `sluice`, the default of [`Settings`]. The API server takes the name before the slash as the field manager of
/// writes that name none.
pub const USER_AGENT: &str = concat!("sluice/", env!("CARGO_PKG_VERSION"));

/// The header that names the user of a request in place of its sender.
const IMPERSONATE_USER: &str = "impersonate-user";

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
    /// The user agent of the requests, in visible ASCII: `tf-controller/0.1.0`.
    pub user_agent: &'static str,
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
            user_agent: USER_AGENT,
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
    /// The kubeconfig is longer than any that a user or program writes.
    #[error(
        "cannot use kubeconfig {path}: it has {bytes} bytes, more than {}",
        kubeconfig::LIMIT
    )]
    TooLarge {
        /// Its path.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// The program that the kubeconfig names for the credentials does not start, or fails.
    #[error("cannot run {command}, which the kubeconfig names for the credentials: {cause}")]
    Login {
        /// The program.
        command: String,
        /// Why, without its output, which may contain credentials.
        cause: String,
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
    let mut config = kubeconfig::load(settings).await?;
    config.connect_timeout = Some(settings.connect_timeout);
    config.read_timeout = Some(settings.read_timeout);
    config.write_timeout = Some(settings.read_timeout);
    // Otherwise the idle time before a request counts for its response.
    config.reset_reader_on_write = true;
    config.default_retry = false;
    let agent = HeaderValue::from_static(settings.user_agent);
    config.headers.push((header::USER_AGENT, agent));
    if is_loopback(&config.cluster_url) {
        // A proxy cannot reach this machine's loopback addresses.
        config.proxy_url = None;
    }
    let host = config.cluster_url.authority().map(ToString::to_string);
    let count = settings.metrics.requests_to(&host.unwrap_or_default());
    let login = config
        .auth_info
        .exec
        .as_ref()
        .and_then(|exec| exec.command.clone());
    let builder = ClientBuilder::try_from(config).map_err(|error| not_built(login, error))?;
    Ok(builder
        .with_layer(&count)
        .with_layer(&BufferLayer::new(1024))
        .with_layer(&settings.policy)
        .build())
}

/// Returns why there is no client. `login` is the program that the kubeconfig names for the credentials.
fn not_built(login: Option<String>, error: kube::Error) -> ClientError {
    let cause = match &error {
        kube::Error::Auth(AuthError::AuthExecStart(source)) => source.to_string(),
        kube::Error::Auth(AuthError::AuthExecRun { out, .. }) => out.status.to_string(),
        _ => return ClientError::Invalid(Box::new(error)),
    };
    ClientError::Login {
        command: login.unwrap_or_default(),
        cause,
    }
}

/// Not a name that a ServiceAccount can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a valid name of a ServiceAccount")]
pub struct InvalidAccountName(pub String);

/// The longest name of an object.
const MAX_NAME: usize = 253;

/// Returns whether a ServiceAccount can have this name: a DNS subdomain of RFC 1123.
#[must_use]
pub fn is_account_name(name: &str) -> bool {
    let is_valid = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(is_valid) && !label.starts_with('-') && !label.ends_with('-')
    };
    name.len() <= MAX_NAME && name.split('.').all(is_label)
}

/// Returns a client that sends its requests in the name of a ServiceAccount, over the connections and with the policy of `client`. The
/// API server adds the groups of the account. It needs no such account, but the sender must have the verb `impersonate` on it.
///
/// # Errors
/// The name is not one of a ServiceAccount. With other characters it could be that of a user.
pub fn impersonate(client: &Client, namespace: &str, account: &str) -> Result<Client, InvalidAccountName> {
    let invalid = || InvalidAccountName(account.to_owned());
    if !is_account_name(account) {
        return Err(invalid());
    }
    let user = format!("system:serviceaccount:{namespace}:{account}");
    let user = HeaderValue::try_from(user).map_err(|_| invalid())?;
    let name = HeaderName::from_static(IMPERSONATE_USER);
    Ok(with_header(client, namespace, name, user))
}

/// Returns a client with this user agent, in visible ASCII, on top of `client`: for a client in process, which has none.
#[must_use]
pub fn with_user_agent(client: &Client, user_agent: &'static str) -> Client {
    let agent = HeaderValue::from_static(user_agent);
    with_header(client, client.default_namespace(), header::USER_AGENT, agent)
}

/// Returns a client whose requests have this header, and are sent by `client`.
fn with_header(client: &Client, namespace: &str, name: HeaderName, value: HeaderValue) -> Client {
    let sender = client.clone();
    let service = tower::service_fn(move |mut request: Request<Body>| {
        request.headers_mut().insert(name.clone(), value.clone());
        let sender = sender.clone();
        async move { sender.send(request).await }
    });
    Client::new(service, namespace)
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

#[cfg(test)]
mod tests {
    use std::future::ready;

    use http::StatusCode;
    use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
    use k8s_openapi::api::rbac::v1::RoleBinding;
    use kube::Api;
    use kube::api::PostParams;
    use sluice_embedded::ApiServer;

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
        let page = move |path: &str| {
            let is_known = path == "/api/v1/namespaces/a";
            ready(is_known.then(|| Page::text(StatusCode::OK, namespace)))
        };
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

    #[tokio::test]
    async fn requests_act_as_a_service_account_and_never_as_another_user() {
        let service = tower::service_fn(|request: Request<Body>| async move {
            let user = request.headers().get(IMPERSONATE_USER).cloned();
            let user = user.map(|user| user.to_str().unwrap().to_owned());
            let body = serde_json::json!({ "apiVersion": "v1", "kind": "Namespace",
                "metadata": { "name": "a", "uid": user.unwrap_or_default() } });
            let response = http::Response::new(Body::from(body.to_string().into_bytes()));
            Ok::<_, tower::BoxError>(response)
        });
        let client = Client::new(service, "default");
        let uid = async |client: Client| {
            let api: Api<Namespace> = Api::all(client);
            api.get("a").await.unwrap().metadata.uid.unwrap_or_default()
        };
        let account = impersonate(&client, "team", "tf-runner").unwrap();
        assert_eq!(uid(account).await, "system:serviceaccount:team:tf-runner");
        assert_eq!(uid(client.clone()).await, "", "the sender is unchanged");
        for name in ["a", "0-a.b-1", &"a".repeat(MAX_NAME)] {
            assert!(is_account_name(name), "{name}");
        }
        let long = "a".repeat(MAX_NAME + 1);
        for name in [
            "",
            "a:b",
            "A",
            "a\r\nImpersonate-Group: system:masters",
            "a b",
            "-",
            "a-",
            "-a",
            ".a",
            "a.",
            "a..b",
            "a.-b",
            "..",
            &long,
        ] {
            let refused = impersonate(&client, "team", name).map(drop);
            assert_eq!(refused, Err(InvalidAccountName(name.to_owned())), "{name:?}");
        }
    }

    /// Creates a ConfigMap and returns the field managers of the API server.
    async fn managers(client: Client) -> Vec<String> {
        let object = serde_json::json!({ "metadata": { "generateName": "a-" }, "data": { "key": "value" } });
        let object: ConfigMap = serde_json::from_value(object).unwrap();
        let api: Api<ConfigMap> = Api::namespaced(client, "default");
        let created = api.create(&PostParams::default(), &object).await.unwrap();
        let entries = created.metadata.managed_fields.unwrap_or_default();
        entries.into_iter().filter_map(|entry| entry.manager).collect()
    }

    #[tokio::test]
    async fn the_user_agent_becomes_the_field_manager() {
        let dir = tempfile::tempdir().unwrap();
        crate::http::install_crypto();
        let embedded = ApiServer::builder().build().unwrap();
        let serving = embedded
            .serve(([127, 0, 0, 1], 0).into(), dir.path())
            .await
            .unwrap();
        let settings = |user_agent| Settings {
            kubeconfig: Some(serving.kubeconfig_path.clone()),
            user_agent,
            ..Settings::default()
        };
        let controller = build(&settings("tf-controller/0.1.0")).await.unwrap();
        assert_eq!(managers(controller.clone()).await, ["tf-controller"]);
        let cli = build(&settings(USER_AGENT)).await.unwrap();
        assert_eq!(managers(cli).await, ["sluice"]);
        let role = serde_json::json!({
            "metadata": { "name": "runner" },
            "subjects": [{ "kind": "ServiceAccount", "name": "tf-runner", "namespace": "default" }],
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        });
        let role = serde_json::from_value(role).unwrap();
        let roles: Api<RoleBinding> = Api::namespaced(controller.clone(), "default");
        roles.create(&PostParams::default(), &role).await.unwrap();
        let account = impersonate(&controller, "default", "tf-runner").unwrap();
        assert_eq!(managers(account).await, ["tf-controller"], "impersonated");

        let in_process = embedded.client();
        assert_eq!(managers(in_process.clone()).await, ["unknown"]);
        let source_controller = with_user_agent(&in_process, "source-controller/0.1.0");
        assert_eq!(managers(source_controller).await, ["source-controller"]);
        serving.stop().await;
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

    #[tokio::test]
    async fn a_kubeconfig_that_would_fill_the_memory_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        let file = std::fs::File::create(&path).unwrap();
        // A sparse file: it takes no disk.
        file.set_len(kubeconfig::LIMIT + 1).unwrap();
        let settings = Settings {
            kubeconfig: Some(path),
            ..Settings::default()
        };
        let error = build(&settings).await.map(drop).unwrap_err();
        assert!(matches!(error, ClientError::TooLarge { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_login_program_that_is_missing_is_named() {
        let content = "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}], \
             clusters: [{name: k, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: u, user: {exec: \
             {apiVersion: client.authentication.k8s.io/v1, command: no-such-login, interactiveMode: Never}}}]}";
        let settings = Settings {
            kubeconfig_text: Some(content.to_owned()),
            ..Settings::default()
        };
        let error = build(&settings).await.map(drop).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot run no-such-login, which the kubeconfig names for the credentials: No such file or directory (os error 2)"
        );
    }
}
