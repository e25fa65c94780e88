//! What a spec and its Secret want of a provider. Pure: nobody is asked yet.

use std::collections::BTreeMap;

use sluice_api::source::{GitRepositorySpec, Provider};

use super::account::Account;
use super::aws::codecommit::Repository;
use super::error::{IdentityError, TokenError};
use super::github::App;
use super::hosts::TrustedHosts;
use crate::git::{Address, Tls};

/// The key whose presence says that a Secret describes a GitHub App.
const APP_ID: &str = "githubAppID";

/// What the controller's flags say about identities.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Whether objects may name ServiceAccounts: the gate `ObjectLevelWorkloadIdentity`.
    pub object_level: bool,
    /// The ServiceAccount of objects that name none, `--default-service-account`.
    pub default_account: Option<String>,
    /// Where the controller's own identities may be used, `--controller-identity-hosts`.
    pub hosts: TrustedHosts,
}

/// Credentials that a provider is to give.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// A token of a GitHub App's installation.
    Github(App),
    /// A token of Entra for Azure DevOps; of the controller itself, or of a ServiceAccount.
    Azure(Option<Account>),
    /// A signature for a repository of CodeCommit; of the controller itself, or of a ServiceAccount.
    Aws(Repository, Option<Account>),
}

impl Wanted {
    /// What a spec wants; nothing, if the Secret alone decides. `secret` is its namespace and name, and its data.
    ///
    /// # Errors
    /// Provider, Secret, address and flags do not go together.
    pub fn of(
        spec: &GitRepositorySpec,
        namespace: &str,
        address: &Address,
        secret: Option<(&str, &BTreeMap<String, Vec<u8>>)>,
        rules: &Rules,
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
                Some(Self::Github(App::of_secret(name, data)?))
            }
            Provider::Azure => {
                let account = account(spec, namespace, rules)?;
                if account.is_none() {
                    check(address, secret, rules)?;
                    if !address.is_ssh() && !rules.hosts.admit(address.url()) {
                        return Err(IdentityError::HostNotTrusted { host: address.host() });
                    }
                }
                Some(Self::Azure(account))
            }
            Provider::Aws => {
                let account = account(spec, namespace, rules)?;
                let repository = Repository::of(address.url()).map_err(TokenError::from)?;
                if account.is_none() {
                    check(address, secret, rules)?;
                }
                Some(Self::Aws(repository, account))
            }
        })
    }
}

/// Authorities of the object's own would let its author read what the controller's own identity is lent, by a proxy of
/// theirs.
fn check(
    address: &Address,
    secret: Option<(&str, &BTreeMap<String, Vec<u8>>)>,
    rules: &Rules,
) -> Result<(), IdentityError> {
    match secret {
        Some((name, data)) if !Tls::of(data).authorities.is_empty() => {
            if address.is_ssh() || rules.hosts.are_all() {
                return Ok(());
            }
            let secret = name.to_owned();
            Err(IdentityError::OwnAuthorities { secret })
        }
        _ => Ok(()),
    }
}

/// Whose identity is used; nobody's but the controller's, if the object says nothing and the flags neither.
fn account(
    spec: &GitRepositorySpec,
    namespace: &str,
    rules: &Rules,
) -> Result<Option<Account>, IdentityError> {
    let named = spec
        .service_account_name
        .as_deref()
        .filter(|name| !name.is_empty());
    if named.is_some() && !rules.object_level {
        return Err(IdentityError::GateClosed);
    }
    let default = rules.default_account.as_deref().filter(|_| rules.object_level);
    Ok(named.or(default).map(|name| Account {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }))
}
