//! The identity that a spec and its Secret select. Pure.

use std::collections::BTreeMap;

use sluice_api::source::{GitRepositorySpec, Provider};

use super::account::ServiceAccountRef;
use super::aws::codecommit::Repository;
use super::error::{IdentityError, TokenError};
use super::github::App;
use super::hosts::TrustedHosts;
use crate::git::{Address, Tls};

/// Key that marks a Secret with GitHub App data.
const APP_ID: &str = "githubAppID";

/// The flags that control identities.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentityPolicy {
    /// Whether objects may use ServiceAccounts: the feature gate `ObjectLevelWorkloadIdentity`.
    pub object_level: bool,
    /// ServiceAccount of objects without one, `--default-service-account`.
    pub default_account: Option<String>,
    /// The hosts for the controller's own identities, `--controller-identity-hosts`.
    pub hosts: TrustedHosts,
}

/// An identity at a provider.
#[derive(Clone, Debug)]
pub enum ProviderIdentity {
    /// An installation of a GitHub App.
    Github(App),
    /// An Entra identity for Azure DevOps: of the controller or of a ServiceAccount.
    Azure(Option<ServiceAccountRef>),
    /// An AWS identity that signs for a CodeCommit repository: of the controller or of a ServiceAccount.
    Aws(Repository, Option<ServiceAccountRef>),
}

impl ProviderIdentity {
    /// Selects the identity of a spec; `None` without a provider. `secret` is the Secret's namespace and name, and its
    /// data.
    ///
    /// # Errors
    /// Provider, Secret, URL and flags contradict each other.
    pub(crate) fn from_spec(
        spec: &GitRepositorySpec,
        namespace: &str,
        address: &Address,
        secret: Option<(&str, &BTreeMap<String, Vec<u8>>)>,
        policy: &IdentityPolicy,
    ) -> Result<Option<Self>, IdentityError> {
        Ok(match spec.provider.unwrap_or(Provider::Generic) {
            Provider::Generic => match secret {
                Some((name, data)) if data.contains_key(APP_ID) => {
                    let secret = name.to_owned();
                    return Err(IdentityError::ProviderNotGithub { secret });
                }
                _ => None,
            },
            Provider::Github => {
                let (name, data) = secret.ok_or(IdentityError::SecretNotNamed)?;
                Some(Self::Github(App::from_secret(name, data)?))
            }
            Provider::Azure => {
                let account = account(spec, namespace, policy)?;
                if account.is_none() {
                    reject_custom_ca(address, secret, policy)?;
                    if !address.is_ssh() && !policy.hosts.allows(address.url()) {
                        return Err(IdentityError::HostNotTrusted { host: address.host() });
                    }
                }
                Some(Self::Azure(account))
            }
            Provider::Aws => {
                let account = account(spec, namespace, policy)?;
                let repository = Repository::parse(address.url()).map_err(TokenError::from)?;
                if account.is_none() {
                    reject_custom_ca(address, secret, policy)?;
                }
                Some(Self::Aws(repository, account))
            }
        })
    }
}

/// Rejects a custom CA for the controller's own identity: with it, the author of an object could intercept the token by
/// a proxy.
fn reject_custom_ca(
    address: &Address,
    secret: Option<(&str, &BTreeMap<String, Vec<u8>>)>,
    policy: &IdentityPolicy,
) -> Result<(), IdentityError> {
    match secret {
        Some((name, data)) if !Tls::from_secret(data).authorities.is_empty() => {
            if address.is_ssh() || policy.hosts.allow_all() {
                return Ok(());
            }
            let secret = name.to_owned();
            Err(IdentityError::OwnAuthorities { secret })
        }
        _ => Ok(()),
    }
}

/// Returns the ServiceAccount of a spec or the default; `None` for the controller's own identity.
fn account(
    spec: &GitRepositorySpec,
    namespace: &str,
    policy: &IdentityPolicy,
) -> Result<Option<ServiceAccountRef>, IdentityError> {
    let named = spec
        .service_account_name
        .as_deref()
        .filter(|name| !name.is_empty());
    if named.is_some() && !policy.object_level {
        return Err(IdentityError::GateClosed);
    }
    let default = policy.default_account.as_deref().filter(|_| policy.object_level);
    Ok(named.or(default).map(|name| ServiceAccountRef {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }))
}
