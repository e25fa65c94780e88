//! Reads the Secrets and ConfigMaps of one stack: with the rights of the controller or, with `--default-service-account`, with those
//! of the stack's ServiceAccount; for a plan outside of a run, with those of a user. Live, not from a cache.

use std::collections::BTreeSet;
use std::sync::Mutex;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client, ResourceExt};
use sluice_api::reference::ObjectName;
use sluice_api::terraform::{KeySource, Terraform};
use sluice_runtime::client;
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::sync::lock;
use sluice_tf_core::redaction::Redactor;

use super::read_error::{ReadError, is_impersonation};
use super::{Context, api_message};
use crate::inputs::Pairs;

/// Reads the inputs of one stack.
pub(in crate::reconcile) struct InputReader {
    client: Client,
    /// The namespace of the stack.
    namespace: String,
    /// The account that the client impersonates.
    account: Option<ObjectName>,
    /// Whether the client is that of a user, who may be permitted less than the runs of the stack.
    is_user: bool,
    /// The Secrets that were read.
    secrets: Mutex<BTreeSet<ObjectKey>>,
}

impl InputReader {
    /// Returns the reader of a stack.
    ///
    /// # Errors
    /// The stack names an account that cannot exist.
    pub(in crate::reconcile) fn new(stack: &Terraform, context: &Context) -> Result<Self, ReadError> {
        let namespace = stack.namespace().unwrap_or_default();
        if context.default_account.is_none() {
            return Ok(Self {
                client: context.client.clone(),
                namespace,
                account: None,
                is_user: false,
                secrets: Mutex::default(),
            });
        }
        Self::impersonating(&context.client, namespace, context.account_of(stack))
    }

    /// Returns the reader of a stack in this namespace with the rights of a user.
    pub(super) fn of_user(client: &Client, namespace: String) -> Self {
        Self {
            client: client.clone(),
            namespace,
            account: None,
            is_user: true,
            secrets: Mutex::default(),
        }
    }

    fn impersonating(client: &Client, namespace: String, account: &str) -> Result<Self, ReadError> {
        Ok(Self {
            // It shares the connections of the controller's client, so none is kept for later reconciliations.
            client: client::impersonate(client, &namespace, account)?,
            account: Some(ObjectName {
                namespace: namespace.clone(),
                name: account.to_owned(),
            }),
            namespace,
            is_user: false,
            secrets: Mutex::default(),
        })
    }

    /// Reads the keys and values of an object in the namespace of the stack.
    pub(super) async fn read(
        &self,
        kind: KeySource,
        name: &str,
        field: &'static str,
    ) -> Result<Pairs, ReadError> {
        let object = ObjectName {
            namespace: self.namespace.clone(),
            name: name.to_owned(),
        };
        self.read_object(kind, &object, field).await
    }

    /// Reads the keys and values of an object.
    pub(super) async fn read_object(
        &self,
        kind: KeySource,
        object: &ObjectName,
        field: &'static str,
    ) -> Result<Pairs, ReadError> {
        let read = match kind {
            KeySource::Secret => {
                lock(&self.secrets).insert(key_of(object));
                read_secret(object, &self.client).await
            }
            KeySource::ConfigMap => read_config_map(object, &self.client).await,
        };
        read.map_err(|error| self.error(kind, object, field, &error))
    }

    /// Returns the values of these Secrets, which a run must not show. A Secret that is absent was not part of the inputs.
    pub(in crate::reconcile) async fn sensitive_values(
        &self,
        secrets: &BTreeSet<ObjectKey>,
    ) -> Result<Vec<String>, ReadError> {
        let mut known = Redactor::default();
        for ObjectKey { namespace, name } in secrets {
            let object = ObjectName {
                namespace: namespace.clone(),
                name: name.clone(),
            };
            match self.read_object(KeySource::Secret, &object, "the spec").await {
                Ok(pairs) => pairs
                    .iter()
                    .for_each(|(key, value)| add_values(&mut known, key, value)),
                Err(error) if error.is_absent() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(known.values())
    }

    /// Reads those of these Secrets that were not read yet, because no value of them is an input: the account must be permitted to get
    /// them too. With the rights of the controller there is nothing to check.
    pub(super) async fn check_unused(&self, secrets: &BTreeSet<ObjectKey>) -> Result<(), ReadError> {
        if self.account.is_none() {
            return Ok(());
        }
        let unused: BTreeSet<_> = secrets.difference(&lock(&self.secrets)).cloned().collect();
        self.sensitive_values(&unused).await.map(drop)
    }

    fn error(
        &self,
        kind: KeySource,
        object: &ObjectName,
        field: &'static str,
        error: &kube::Error,
    ) -> ReadError {
        let status = match error {
            kube::Error::Api(status) => Some(status),
            _ => None,
        };
        match (&self.account, status) {
            (Some(account), Some(status)) if status.is_forbidden() && is_impersonation(status) => {
                ReadError::NotImpersonated {
                    account: account.clone(),
                    field,
                }
            }
            (Some(account), Some(status)) if status.is_forbidden() => ReadError::Refused {
                account: account.clone(),
                kind,
                object: object.clone(),
                field,
            },
            (None, Some(status)) if self.is_user && status.is_forbidden() => ReadError::UserRefused {
                kind,
                object: object.clone(),
                field,
            },
            _ => ReadError::Api {
                kind,
                name: object.name.clone(),
                field,
                code: status.map_or(0, |status| status.code),
                text: api_message(error),
            },
        }
    }
}

fn key_of(object: &ObjectName) -> ObjectKey {
    ObjectKey {
        namespace: object.namespace.clone(),
        name: object.name.clone(),
    }
}

/// Reads the keys and values of a Secret.
pub(super) async fn read_secret(object: &ObjectName, client: &Client) -> Result<Pairs, kube::Error> {
    let api: Api<Secret> = Api::namespaced(client.clone(), &object.namespace);
    let data = api.get(&object.name).await?.data.unwrap_or_default();
    Ok(data.into_iter().map(|(key, value)| (key, value.0)).collect())
}

async fn read_config_map(object: &ObjectName, client: &Client) -> Result<Pairs, kube::Error> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &object.namespace);
    let map = api.get(&object.name).await?;
    let text = map.data.unwrap_or_default().into_iter();
    let binary = map.binary_data.unwrap_or_default().into_iter();
    Ok(text
        .map(|(key, value)| (key, value.into_bytes()))
        .chain(binary.map(|(key, value)| (key, value.0)))
        .collect())
}

/// Adds the value of one key as text and, if it is JSON, each value in it, since `values` and modules take it apart.
/// The type of another key is not sensitive.
fn add_values(known: &mut Redactor, key: &str, value: &[u8]) {
    let text = String::from_utf8_lossy(value);
    known.add_text(&text);
    let json = serde_json::from_str(&text).ok();
    let parts = json.filter(|json: &serde_json::Value| json.is_array() || json.is_object());
    if let Some(parts) = parts.filter(|_| !key.ends_with("__type")) {
        known.add_json(&parts);
    }
}

#[cfg(test)]
mod tests {
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// Returns an API with one Secret, which answers all other requests with this code. `refused` is the kind that it refuses.
    fn api(code: u16, refused: &'static str) -> Client {
        let service = tower::service_fn(move |request: http::Request<Body>| async move {
            let is_open = request.uri().path().ends_with("/open");
            let body = if is_open {
                json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "open" },
                    "data": { "password": "aHVudGVyMi1odW50ZXI=" } })
            } else {
                json!({ "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code,
                    "reason": if code == 403 { "Forbidden" } else { "" }, "message": "no", "details": { "kind": refused } })
            };
            let answer = http::Response::builder().status(if is_open { 200 } else { code });
            let response = answer.body(Body::from(body.to_string().into_bytes()));
            Ok::<_, tower::BoxError>(response.unwrap())
        });
        Client::new(service, "team")
    }

    fn controller(client: Client) -> InputReader {
        InputReader {
            client,
            namespace: "team".into(),
            account: None,
            is_user: false,
            secrets: Mutex::default(),
        }
    }

    fn account(client: &Client) -> InputReader {
        InputReader::impersonating(client, "team".into(), "deployer").unwrap()
    }

    async fn error(reader: &InputReader) -> ReadError {
        let read = reader.read(KeySource::Secret, "login", "varsFrom").await;
        read.map(drop).unwrap_err()
    }

    #[tokio::test]
    async fn optional_covers_absent_objects_but_neither_other_errors_nor_a_refused_account() {
        for code in [404, 403] {
            assert!(
                error(&controller(api(code, "secrets"))).await.is_absent(),
                "{code}"
            );
        }
        for code in [401, 429, 500, 503, 504] {
            assert!(
                !error(&controller(api(code, "secrets"))).await.is_absent(),
                "{code}"
            );
        }
        let missing = error(&account(&api(404, "secrets"))).await;
        assert!(missing.is_absent() && missing.is_not_found(), "{missing}");
        let refused = error(&account(&api(403, "secrets"))).await;
        assert!(!refused.is_absent() && refused.is_refused(), "{refused}");
    }

    #[tokio::test]
    async fn a_refusal_names_account_object_verb_and_role() {
        let refused = error(&account(&api(403, "secrets"))).await;
        insta::assert_snapshot!(refused.to_string(), @"ServiceAccount team/deployer may not get Secret team/login of varsFrom: in namespace team, bind it to a role with the verb get on secrets login, or to the role sluice-tf-runner of the overlay multi-tenant, which may read and write all of them");
        let not_impersonated = error(&account(&api(403, "serviceaccounts"))).await;
        insta::assert_snapshot!(not_impersonated.to_string(), @"tf-controller may not impersonate ServiceAccount team/deployer to read varsFrom: in namespace team, bind the ServiceAccount of tf-controller to a role with the verb impersonate on serviceaccounts, such as sluice-tf-controller-stacks of the overlay multi-tenant");
        let invalid = InputReader::impersonating(&api(404, ""), "team".into(), "a:b");
        let invalid = invalid.map(drop).unwrap_err();
        assert!(invalid.is_refused());
        insta::assert_snapshot!(invalid.to_string(), @r#"spec.serviceAccountName: "a:b" is not a valid name of a ServiceAccount"#);
    }

    #[tokio::test]
    async fn what_a_user_may_not_read_is_not_absent() {
        let user = |code| InputReader::of_user(&api(code, "secrets"), "team".into());
        let refused = error(&user(403)).await;
        assert!(!refused.is_absent() && refused.is_refused(), "{refused}");
        insta::assert_snapshot!(refused.to_string(), @"you may not get Secret team/login of varsFrom, which the plan needs: the verb get on secrets login in namespace team permits it");
        assert!(error(&user(404)).await.is_absent());
    }

    #[tokio::test]
    async fn an_absent_secret_has_no_sensitive_values() {
        let key = |name: &str| ObjectKey {
            namespace: "team".into(),
            name: name.into(),
        };
        let both = BTreeSet::from([key("closed"), key("open")]);
        for code in [403, 404] {
            let reader = controller(api(code, "secrets"));
            assert_eq!(
                reader.sensitive_values(&both).await.unwrap(),
                ["hunter2-hunter"],
                "{code}"
            );
        }
        let failing = controller(api(500, "secrets"));
        assert!(failing.sensitive_values(&both).await.is_err());
        // The run would have the value among its inputs, and not know that it is sensitive.
        let refused = account(&api(403, "secrets"));
        assert!(refused.sensitive_values(&both).await.is_err());
    }

    #[tokio::test]
    async fn a_refused_secret_without_a_use_is_refused_too() {
        let key = |name: &str| {
            BTreeSet::from([ObjectKey {
                namespace: "team".into(),
                name: name.into(),
            }])
        };
        let refused = account(&api(403, "secrets"));
        assert!(
            refused
                .check_unused(&key("closed"))
                .await
                .unwrap_err()
                .is_refused()
        );
        assert!(refused.check_unused(&key("open")).await.is_ok());
        assert!(
            account(&api(404, "secrets"))
                .check_unused(&key("closed"))
                .await
                .is_ok()
        );
        assert!(
            controller(api(500, "secrets"))
                .check_unused(&key("closed"))
                .await
                .is_ok()
        );
        // A step has read it, and its error counts: no second request.
        let read = account(&api(503, "secrets"));
        assert!(read.read(KeySource::Secret, "closed", "varsFrom").await.is_err());
        assert!(read.check_unused(&key("closed")).await.is_ok());
    }
}
