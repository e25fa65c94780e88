//! The identity of a ServiceAccount: its annotations, and tokens that the API server signs for it.

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

use super::error::TokenError;
use super::who::Who;

/// How long a ServiceAccount's token lives, in seconds: the shortest that the API gives. It is used at once.
const LIFE: i64 = 600;
/// Most bytes of a token file.
const LONGEST_FILE: u64 = 64 * 1024;

/// A ServiceAccount whose identity is used instead of the controller's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its namespace, which is the object's.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Account {
    /// What is written on it for other systems.
    ///
    /// # Errors
    /// It is not there or may not be read.
    pub(super) async fn annotations(&self, client: &Client) -> Result<BTreeMap<String, String>, TokenError> {
        let found = self.api(client).get_opt(&self.name).await;
        match found {
            Ok(Some(found)) => Ok(found.metadata.annotations.unwrap_or_default()),
            Ok(None) => Err(self.lacks("not found".to_owned())),
            Err(error) => Err(self.lacks(format!("it cannot be read: {}", chain(&error)))),
        }
    }

    /// A token that says to `audience` that this is the ServiceAccount.
    async fn token(&self, client: &Client, audience: &str) -> Result<Secret<String>, TokenError> {
        let wanted = TokenRequest {
            spec: TokenRequestSpec {
                audiences: vec![audience.to_owned()],
                expiration_seconds: Some(LIFE),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let made = self
            .api(client)
            .create_token_request(&self.name, &PostParams::default(), &wanted)
            .await
            .map_err(|error| {
                let why = chain(&error);
                self.lacks(format!("no token can be made for the audience {audience}: {why}"))
            })?;
        let token = made.status.map(|status| status.token).unwrap_or_default();
        if token.is_empty() {
            return Err(self.lacks(format!("the API server made an empty token for {audience}")));
        }
        Ok(Secret::new(token))
    }

    /// The error that says what is missing.
    pub(super) fn lacks(&self, why: String) -> TokenError {
        TokenError::Account {
            account: self.to_string(),
            why,
        }
    }

    fn api(&self, client: &Client) -> Api<ServiceAccount> {
        Api::namespaced(client.clone(), &self.namespace)
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What shows to a provider which workload is asking.
#[derive(Clone, Debug)]
pub(super) enum Proof {
    /// A file that the kubelet keeps fresh, named by this variable.
    File {
        /// The variable.
        variable: &'static str,
        /// Its value.
        path: PathBuf,
    },
    /// A token made for the occasion.
    Account {
        /// Of whom.
        account: Account,
        /// For whom.
        audience: &'static str,
    },
}

impl Proof {
    /// The token itself, new each time.
    ///
    /// # Errors
    /// The file cannot be read, or the API server makes no token.
    pub(super) async fn token(&self, client: &Client) -> Result<Secret<String>, TokenError> {
        match self {
            Self::File { variable, path } => token_file(variable, path).await,
            Self::Account { account, audience } => account.token(client, audience).await,
        }
    }

    /// Adds to an identity who this proof speaks of.
    pub(super) fn tell(&self, who: Who) -> Who {
        match self {
            Self::File { path, .. } => who.and("file").and(path.as_os_str().as_encoded_bytes()),
            Self::Account { account, .. } => who.and("account").and(&account.namespace).and(&account.name),
        }
    }
}

/// What a token file holds, without the line's end.
///
/// # Errors
/// It cannot be read, is too long, empty or no text.
pub(super) async fn token_file(variable: &'static str, path: &Path) -> Result<Secret<String>, TokenError> {
    let bad = |why: String| TokenError::File { variable, why };
    let file = tokio::fs::File::open(path)
        .await
        .map_err(|error| bad(error.to_string()))?;
    let mut text = String::new();
    let read = file.take(LONGEST_FILE + 1).read_to_string(&mut text).await;
    let read = read.map_err(|error| bad(error.to_string()))?;
    if read as u64 > LONGEST_FILE {
        return Err(bad(format!("it is longer than {LONGEST_FILE} bytes")));
    }
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(bad("it holds no token".to_owned()));
    }
    Ok(Secret::new(token.to_owned()))
}
