//! Ways into the control plane: kubeconfigs, clients, service accounts and their roles.

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

/// How long a new kind may take until it is served.
const SERVED: Duration = Duration::from_secs(60);

/// Why there is no way in.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The kubeconfig is not understood.
    #[error("the kubeconfig is not understood: {0}")]
    Kubeconfig(#[from] KubeconfigError),
    /// The API refused, or was not there.
    #[error("{what}: {source}")]
    Api {
        /// The object that was written or read.
        what: String,
        /// What the API said.
        source: kube::Error,
    },
    /// A document is not YAML, or no Kubernetes object.
    #[error("document {number} is no Kubernetes object: {why}")]
    Document {
        /// Its place in the stream, from 1.
        number: usize,
        /// What is wrong with it.
        why: String,
    },
    /// No token in the answer.
    #[error("no token for service account {0}")]
    NoToken(String),
}

/// A kubeconfig for one identity.
#[derive(Clone, Debug)]
pub struct Access(String);

impl Access {
    pub(super) fn certificate(url: &str, authority: &str, identity: &Identity) -> Self {
        let user = json!({
            "client-certificate-data": STANDARD.encode(&identity.certificate),
            "client-key-data": STANDARD.encode(&identity.key),
        });
        Self::with(url, authority, &user, "default")
    }

    pub(super) fn token(url: &str, authority: &str, token: &str, namespace: &str) -> Self {
        Self::with(url, authority, &json!({ "token": token }), namespace)
    }

    fn with(url: &str, authority: &str, user: &Value, namespace: &str) -> Self {
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

    /// The kubeconfig's text (JSON, which is YAML), for a file that a program is given.
    #[must_use]
    pub fn kubeconfig(&self) -> &str {
        &self.0
    }

    /// What a client is made of, for tests that set timeouts of their own.
    ///
    /// # Errors
    /// When the kubeconfig is not understood.
    pub async fn config(&self) -> Result<Config, AccessError> {
        let kubeconfig = Kubeconfig::from_yaml(&self.0)?;
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        // Whatever proxy the machine uses, loopback is not behind it.
        config.proxy_url = None;
        Ok(config)
    }

    /// A client for this identity.
    ///
    /// # Errors
    /// When the kubeconfig is not understood.
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

/// Makes namespace, account and roles, and asks for a token of one hour.
pub(super) async fn token(
    client: &Client,
    namespace: &str,
    name: &str,
    rbac: &str,
) -> Result<String, AccessError> {
    let as_tests = PatchParams::apply("tests").force();
    let space = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
    let spaces = Api::<Namespace>::all(client.clone());
    spaces
        .patch(namespace, &as_tests, &Patch::Apply(space))
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
        expiration_seconds: Some(3600),
        ..TokenRequestSpec::default()
    };
    let wanted = TokenRequest {
        spec,
        ..TokenRequest::default()
    };
    let given = accounts
        .create_token_request(name, &PostParams::default(), &wanted)
        .await
        .map_err(api(&what))?;
    given
        .status
        .map(|status| status.token)
        .ok_or(AccessError::NoToken(what))
}

/// Server-side apply of each document.
pub(super) async fn apply(client: &Client, documents: &str) -> Result<(), AccessError> {
    for (index, document) in serde_yaml_ng::Deserializer::from_str(documents).enumerate() {
        let number = index + 1;
        let no_object = |why: &dyn ToString| AccessError::Document {
            number,
            why: why.to_string(),
        };
        let value = Value::deserialize(document).map_err(|error| no_object(&error))?;
        if value.is_null() {
            continue;
        }
        let object: DynamicObject = serde_json::from_value(value).map_err(|error| no_object(&error))?;
        let types = object
            .types
            .clone()
            .ok_or_else(|| no_object(&"no apiVersion and kind"))?;
        let kind = GroupVersionKind::try_from(&types).map_err(|error| no_object(&error))?;
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
            served(client, &object).await?;
        }
    }
    Ok(())
}

/// Waits until every served version of a definition answers a list: established is not enough, the handlers follow.
async fn served(client: &Client, definition: &DynamicObject) -> Result<(), AccessError> {
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
                Err(error) if started.elapsed() > SERVED => return Err(api(path)(error)),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
    Ok(())
}
