//! Access to the control plane: kubeconfigs, clients, service accounts and their roles.

use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::core::GroupVersionKind;
use kube::{Client, Config, ResourceExt};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::tls::Identity;

/// How long a new kind may take to be served.
const SERVED_TIMEOUT: Duration = Duration::from_mins(1);
/// How long a token of [`token`] is valid: longer than any test.
const TOKEN_SECONDS: i64 = 24 * 60 * 60;
/// Time limit of one request of [`get`].
const GET_TIMEOUT: Duration = Duration::from_secs(5);

/// Why access failed.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The kubeconfig is invalid.
    #[error("the kubeconfig is invalid: {0}")]
    Kubeconfig(#[from] KubeconfigError),
    /// The API refused a request or was unavailable.
    #[error("{what}: {source}")]
    Api {
        /// The object.
        what: String,
        /// The error of the API.
        source: kube::Error,
    },
    /// A document is not a Kubernetes object in YAML.
    #[error("document {number} is not a Kubernetes object: {why}")]
    Document {
        /// Its position in the stream, from 1.
        number: usize,
        /// The error.
        why: String,
    },
    /// The response has no token.
    #[error("no token for service account {0}")]
    NoToken(String),
}

/// A kubeconfig for one identity.
#[derive(Clone, Debug)]
pub struct Access(String);

impl Access {
    pub(crate) fn certificate(url: &str, authority: &str, identity: &Identity) -> Self {
        let user = json!({
            "client-certificate-data": STANDARD.encode(&identity.certificate),
            "client-key-data": STANDARD.encode(&identity.key),
        });
        Self::new(url, authority, &user, "default")
    }

    pub(crate) fn token(url: &str, authority: &str, token: &str, namespace: &str) -> Self {
        Self::new(url, authority, &json!({ "token": token }), namespace)
    }

    fn new(url: &str, authority: &str, user: &Value, namespace: &str) -> Self {
        let cluster = json!({ "server": url, "certificate-authority-data": STANDARD.encode(authority) });
        let context = json!({ "cluster": "tests", "user": "tests", "namespace": namespace });
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "tests", "cluster": cluster }],
            "users": [{ "name": "tests", "user": user }],
            "contexts": [{ "name": "tests", "context": context }],
            "current-context": "tests",
        });
        Self(kubeconfig.to_string())
    }

    /// Returns the kubeconfig's text (JSON, which is valid YAML), to be written to a file.
    #[must_use]
    pub fn kubeconfig(&self) -> &str {
        &self.0
    }

    /// Returns the configuration of a client, for tests with their own timeouts.
    ///
    /// # Errors
    /// When the kubeconfig is invalid.
    pub async fn config(&self) -> Result<Config, AccessError> {
        let kubeconfig = Kubeconfig::from_yaml(&self.0)?;
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        // A proxy of the machine must not be used for loopback.
        config.proxy_url = None;
        Ok(config)
    }

    /// Returns a client for this identity.
    ///
    /// # Errors
    /// When the kubeconfig is invalid.
    pub async fn client(&self) -> Result<Client, AccessError> {
        let config = self.config().await?;
        Client::try_from(config).map_err(api("make a client"))
    }
}

fn api(what: impl Into<String>) -> impl FnOnce(kube::Error) -> AccessError {
    move |source| AccessError::Api {
        what: what.into(),
        source,
    }
}

/// Returns the response to a `GET`; `None` if it fails or takes too long.
pub(crate) async fn get(client: &Client, path: &str) -> Option<String> {
    let request = http::Request::get(path).body(Vec::new()).ok()?;
    let response = tokio::time::timeout(GET_TIMEOUT, client.request_text(request)).await;
    response.ok()?.ok()
}

/// Creates namespace, account and roles, and requests a token.
pub(crate) async fn token(
    client: &Client,
    namespace: &str,
    name: &str,
    rbac: &str,
) -> Result<String, AccessError> {
    let as_tests = PatchParams::apply("tests").force();
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces
        .patch(namespace, &as_tests, &Patch::Apply(object))
        .await
        .map_err(api(format!("namespace {namespace}")))?;
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name } });
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
    let what = format!("service account {namespace}/{name}");
    accounts
        .patch(name, &as_tests, &Patch::Apply(account))
        .await
        .map_err(api(&what))?;
    apply(client, rbac).await?;
    let spec = TokenRequestSpec {
        expiration_seconds: Some(TOKEN_SECONDS),
        ..TokenRequestSpec::default()
    };
    let request = TokenRequest {
        spec,
        ..TokenRequest::default()
    };
    let response = accounts
        .create_token_request(name, &PostParams::default(), &request)
        .await
        .map_err(api(&what))?;
    response
        .status
        .map(|status| status.token)
        .ok_or(AccessError::NoToken(what))
}

/// Applies each document by server-side apply.
pub(crate) async fn apply(client: &Client, documents: &str) -> Result<(), AccessError> {
    for (index, document) in serde_yaml_ng::Deserializer::from_str(documents).enumerate() {
        let number = index + 1;
        let invalid = |why: &dyn ToString| AccessError::Document {
            number,
            why: why.to_string(),
        };
        let value = Value::deserialize(document).map_err(|error| invalid(&error))?;
        if value.is_null() {
            continue;
        }
        let object: DynamicObject = serde_json::from_value(value).map_err(|error| invalid(&error))?;
        let types = object
            .types
            .clone()
            .ok_or_else(|| invalid(&"no apiVersion and kind"))?;
        let kind = GroupVersionKind::try_from(&types).map_err(|error| invalid(&error))?;
        let what = format!("{} {}", kind.kind, object.name_any());
        let (resource, scope) = kube::discovery::pinned_kind(client, &kind)
            .await
            .map_err(api(&what))?;
        let objects: Api<DynamicObject> = match (&scope.scope, object.namespace()) {
            (kube::discovery::Scope::Cluster, _) => Api::all_with(client.clone(), &resource),
            (_, Some(namespace)) => Api::namespaced_with(client.clone(), &namespace, &resource),
            (_, None) => Api::default_namespaced_with(client.clone(), &resource),
        };
        let as_tests = PatchParams::apply("tests").force();
        objects
            .patch(&object.name_any(), &as_tests, &Patch::Apply(&object))
            .await
            .map_err(api(&what))?;
        if kind.kind == "CustomResourceDefinition" {
            wait_until_served(client, &object).await?;
        }
    }
    Ok(())
}

/// Waits until every served version of a definition responds to a list: handlers start after `Established`.
async fn wait_until_served(client: &Client, definition: &DynamicObject) -> Result<(), AccessError> {
    let spec = &definition.data["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    let started = Instant::now();
    for version in spec["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|version| version["served"] == true)
    {
        let path = format!("/apis/{group}/{}/{plural}?limit=1", text(&version["name"]));
        loop {
            let request = http::Request::get(&path).body(Vec::new());
            let request = request.map_err(|error| AccessError::Document {
                number: 0,
                why: error.to_string(),
            })?;
            match client.request_text(request).await {
                Ok(_) => break,
                Err(error) if started.elapsed() > SERVED_TIMEOUT => return Err(api(path)(error)),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
    Ok(())
}
