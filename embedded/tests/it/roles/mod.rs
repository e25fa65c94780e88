//! Users of the API: roles, tokens of ServiceAccounts, client certificates, impersonation and reviews, over TLS.

mod defaults;
mod escalation;
mod kubectl_auth;
mod permissions;
mod reviews;
mod tokens;

use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use sluice_embedded::{ApiServer, Store, TlsServer};
use tempfile::TempDir;

use crate::fixture::{call, ok, serve, server_on};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";

/// A served API and its administrator.
pub(super) struct Served {
    pub(super) admin: Client,
    pub(super) dir: TempDir,
    pub(super) serving: TlsServer,
    pub(super) embedded: ApiServer,
}

impl Served {
    pub(super) async fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), Store::memory()).await
    }

    pub(super) async fn start_in(dir: TempDir, store: Store) -> Self {
        let embedded = server_on(store);
        let serving = serve(&embedded, dir.path()).await;
        Self {
            admin: embedded.client(),
            dir,
            serving,
            embedded,
        }
    }

    /// Stops the server, and returns its directory.
    pub(super) async fn stop(self) -> TempDir {
        self.serving.stop().await;
        self.embedded.stop();
        self.dir
    }

    /// Returns a client with these credentials.
    pub(super) async fn client(&self, auth: AuthInfo) -> Client {
        let mut config = Kubeconfig::read_from(&self.serving.kubeconfig_path).unwrap();
        for user in &mut config.auth_infos {
            user.auth_info = Some(auth.clone());
        }
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
        Client::try_from(config.unwrap()).unwrap()
    }

    /// Creates a token of a ServiceAccount.
    pub(super) async fn token(&self, account: &str) -> String {
        let path = format!("{ACCOUNTS}/{account}/token");
        let response = ok(&self.admin, "POST", &path, Some(&json!({}))).await;
        response["status"]["token"].as_str().unwrap().to_owned()
    }

    pub(super) async fn client_with_token(&self, token: &str) -> Client {
        let auth = serde_json::from_value(json!({ "token": token }));
        self.client(auth.unwrap()).await
    }

    /// Creates an account in a role with these rules, and returns its client.
    pub(super) async fn account(&self, name: &str, rules: &Value) -> Client {
        ok(&self.admin, "POST", ACCOUNTS, Some(&named(name))).await;
        let role = json!({"metadata": {"name": name}, "rules": rules});
        ok(&self.admin, "POST", ROLES, Some(&role)).await;
        let subject = json!({"kind": "ServiceAccount", "name": name, "namespace": "default"});
        let binding = binding(name, "Role", name, &subject);
        ok(&self.admin, "POST", BINDINGS, Some(&binding)).await;
        let token = self.token(name).await;
        self.client_with_token(&token).await
    }
}

pub(super) fn binding(name: &str, kind: &str, role: &str, subject: &Value) -> Value {
    json!({"metadata": {"name": name}, "roleRef": {"kind": kind, "name": role}, "subjects": [subject]})
}

pub(super) fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
}

pub(super) fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

/// Sends a request that must be forbidden, and returns the message.
pub(super) async fn forbidden(client: &Client, method: &str, path: &str, body: Option<&Value>) -> String {
    let response = call(client, method, path, body).await;
    assert_eq!(response.code, 403, "{method} {path}: {}", response.body);
    response.body["message"].as_str().unwrap().to_owned()
}
