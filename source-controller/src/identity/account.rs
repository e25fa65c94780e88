//! ServiceAccounts as identities: their annotations and the tokens that the API server issues for them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};
use sluice_runtime::failure::chain;
use sluice_runtime::redact::Secret;
use tokio::io::AsyncReadExt as _;

use super::cache::Fingerprint;
use super::error::TokenError;

/// Lifetime of a ServiceAccount's token in seconds: the minimum that the API allows. The token is used at once.
const LIFETIME_SECONDS: i64 = 600;
/// Maximum size of a token file, in bytes.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// A ServiceAccount whose identity is used instead of the controller's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAccountRef {
    /// Its namespace, which is the object's.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ServiceAccountRef {
    /// Reads the annotations of the ServiceAccount.
    ///
    /// # Errors
    /// It does not exist or cannot be read.
    pub(super) async fn annotations(&self, client: &Client) -> Result<BTreeMap<String, String>, TokenError> {
        let found = self.api(client).get_opt(&self.name).await;
        match found {
            Ok(Some(found)) => Ok(found.metadata.annotations.unwrap_or_default()),
            Ok(None) => Err(self.error("not found".to_owned())),
            Err(error) => Err(self.error(format!("cannot be read: {}", chain(&error)))),
        }
    }

    /// Requests a token of the ServiceAccount for `audience`.
    async fn token(&self, client: &Client, audience: &str) -> Result<Secret<String>, TokenError> {
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: vec![audience.to_owned()],
                expiration_seconds: Some(LIFETIME_SECONDS),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let response = self
            .api(client)
            .create_token_request(&self.name, &PostParams::default(), &request)
            .await
            .map_err(|error| {
                let why = chain(&error);
                self.error(format!("cannot create a token for audience {audience}: {why}"))
            })?;
        let token = response.status.map(|status| status.token).unwrap_or_default();
        if token.is_empty() {
            return Err(self.error(format!(
                "the API server returned an empty token for audience {audience}"
            )));
        }
        Ok(Secret::new(token))
    }

    /// Returns an error about this ServiceAccount.
    pub(super) fn error(&self, why: String) -> TokenError {
        TokenError::ServiceAccountRef {
            account: self.to_string(),
            why,
        }
    }

    fn api(&self, client: &Client) -> Api<ServiceAccount> {
        Api::namespaced(client.clone(), &self.namespace)
    }
}

impl fmt::Display for ServiceAccountRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The source of the token that identifies a workload to a provider.
#[derive(Clone, Debug)]
pub(super) enum SubjectToken {
    /// A file maintained by the kubelet, named by an environment variable.
    File {
        /// The variable.
        variable: &'static str,
        /// Its value.
        path: PathBuf,
    },
    /// A token issued on request.
    ServiceAccountRef {
        /// The ServiceAccount.
        account: ServiceAccountRef,
        /// The audience of the token.
        audience: &'static str,
    },
}

impl SubjectToken {
    /// Returns a current token.
    ///
    /// # Errors
    /// The file cannot be read, or the API server issues no token.
    pub(super) async fn token(&self, client: &Client) -> Result<Secret<String>, TokenError> {
        match self {
            Self::File { variable, path } => token_file(variable, path).await,
            Self::ServiceAccountRef { account, audience } => account.token(client, audience).await,
        }
    }

    /// Adds the identified workload to a fingerprint.
    pub(super) fn add_to(&self, fingerprint: Fingerprint) -> Fingerprint {
        match self {
            Self::File { path, .. } => fingerprint.with("file").with(path.as_os_str().as_encoded_bytes()),
            Self::ServiceAccountRef { account, .. } => fingerprint
                .with("account")
                .with(&account.namespace)
                .with(&account.name),
        }
    }
}

/// Reads a token file, without its trailing newline.
///
/// # Errors
/// The file cannot be read, is too long or contains no token.
pub(super) async fn token_file(variable: &'static str, path: &Path) -> Result<Secret<String>, TokenError> {
    let invalid = |why: String| TokenError::File { variable, why };
    let file = tokio::fs::File::open(path)
        .await
        .map_err(|error| invalid(error.to_string()))?;
    let mut text = String::new();
    let read = file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).await;
    let read = read.map_err(|error| invalid(error.to_string()))?;
    if read as u64 > MAX_FILE_BYTES {
        return Err(invalid(format!("the file exceeds {MAX_FILE_BYTES} bytes")));
    }
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(invalid("the file contains no token".to_owned()));
    }
    Ok(Secret::new(token.to_owned()))
}
