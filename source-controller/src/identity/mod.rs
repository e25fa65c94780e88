//! Provider credentials in place of those in the Secret: GitHub Apps, Microsoft Entra, AWS.
//!
//! [`ProviderIdentity`] describes the identity that a spec selects, without I/O; [`Tokens`] obtains its token through a
//! cache. Each provider has its own module, which fingerprints an identity and performs the token exchange. The remote
//! receives [`Credentials::WorkloadIdentity`], which holds the fingerprint beside the token, so that a renewed token uses the same
//! mirror.

mod account;
pub mod aws;
mod azure;
mod cache;
mod environment;
mod error;
pub mod github;
mod hosts;
mod metrics;
mod provider;
mod request;
pub mod response;

use std::sync::Arc;
use std::time::Duration;

pub use account::ServiceAccountRef;
use aws::Aws;
use aws::codecommit::Repository;
use azure::Azure;
pub use cache::CacheSettings;
use cache::{Cache, Exchange, Expiring};
pub use environment::Environment;
pub use error::{IdentityError, TokenError};
pub use hosts::{HostPattern, InvalidHostPattern, TrustedHosts};
use jiff::Timestamp;
use kube::Client;
use metrics::CacheMetrics;
pub use provider::{IdentityPolicy, ProviderIdentity};
use request::{ExchangeContext, Pool};
use response::{AccessToken, AwsKeys};
use sluice_runtime::clock::Clock;
use sluice_runtime::http::{self, TlsError};
use sluice_runtime::metrics::Metrics;
use sluice_runtime::schedule::ObjectKey;

use crate::git::{Credentials, Proxy, Tls, Transport};

/// The dependencies of [`Tokens`].
pub struct TokenSettings {
    /// Client for the Kubernetes API, for ServiceAccounts.
    pub client: Client,
    /// Source of the current time.
    pub clock: Arc<dyn Clock>,
    /// The vendors' environment variables.
    pub environment: Environment,
    /// The policy set by flags.
    pub policy: IdentityPolicy,
    /// Limits of the cache.
    pub cache: CacheSettings,
}

/// Provider tokens: the cache and the token exchange.
pub struct Tokens {
    settings: TokenSettings,
    /// Pool for local endpoints, without a proxy.
    local_pool: Pool,
    cache: Cache<Token>,
}

/// Connection settings of a token exchange.
pub struct ExchangeSettings<'a> {
    /// Time limit of the whole exchange, `spec.timeout`.
    pub limit: Duration,
    /// Connection pools.
    pub transport: &'a Transport,
    /// TLS settings of the object's Secret. Used for GitHub's API and Git server, but for no other provider.
    pub tls: &'a Arc<Tls>,
    /// The object's proxy.
    pub proxy: Option<&'a Arc<Proxy>>,
}

impl ExchangeSettings<'_> {
    fn pool(&self, tls: &Arc<Tls>) -> Result<Pool, TokenError> {
        self.transport
            .pool(tls, self.proxy)
            .map_err(|error| TokenError::Tls(error.to_string()))
    }
}

/// A provider's token.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// A token used as a password.
    Password(AccessToken),
    /// A bearer token.
    Bearer(AccessToken),
    /// Keys for signing; never sent.
    Keys(AwsKeys),
}

impl Expiring for Token {
    fn expires(&self) -> Option<Timestamp> {
        match self {
            Self::Password(grant) | Self::Bearer(grant) => Some(grant.expires),
            Self::Keys(keys) => keys.expires,
        }
    }
}

/// A token exchange to perform if the cache has no token.
struct PreparedExchange {
    /// Fingerprint of the identity.
    fingerprint: [u8; 32],
    /// The repository to sign for.
    repository: Option<Repository>,
    /// The exchange.
    exchange: Exchange<Token>,
}

impl Tokens {
    /// Creates an instance with an empty cache.
    ///
    /// # Errors
    /// TLS cannot be initialised.
    pub fn new(settings: TokenSettings, metrics: &Metrics) -> Result<Self, TlsError> {
        let clock = Arc::clone(&settings.clock);
        Ok(Self {
            local_pool: http::client(&http::Settings::default())?,
            cache: Cache::new(settings.cache, clock, CacheMetrics::new(metrics)),
            settings,
        })
    }

    /// Returns the policy set by flags.
    #[must_use]
    pub const fn policy(&self) -> &IdentityPolicy {
        &self.settings.policy
    }

    /// Returns the credentials of an identity for a remote, on behalf of `object`.
    ///
    /// # Errors
    /// The provider returns no token in time.
    pub async fn credentials(
        &self,
        identity: ProviderIdentity,
        object: &ObjectKey,
        settings: &ExchangeSettings<'_>,
    ) -> Result<Credentials, IdentityError> {
        let limit = settings.limit;
        let timed_out = |_| TokenError::TimedOut(limit);
        let credentials = tokio::time::timeout(limit, self.exchange(identity, object, settings));
        Ok(credentials.await.map_err(timed_out)??)
    }

    /// Removes a token that a remote refused from the cache, so that the next reconciliation requests a new one.
    /// Ignores static credentials and tokens that were renewed meanwhile.
    pub fn invalidate(&self, credentials: &Credentials) {
        if let Credentials::WorkloadIdentity {
            identity, version, ..
        } = credentials
        {
            self.cache.remove(*identity, *version);
        }
    }

    async fn exchange(
        &self,
        identity: ProviderIdentity,
        object: &ObjectKey,
        settings: &ExchangeSettings<'_>,
    ) -> Result<Credentials, TokenError> {
        let limit = settings.limit;
        let pool = match &identity {
            ProviderIdentity::Github(_) => settings.pool(settings.tls)?,
            ProviderIdentity::Azure(_) | ProviderIdentity::Aws(..) => settings.pool(&Arc::default())?,
        };
        let context = ExchangeContext {
            pool,
            local_pool: self.local_pool.clone(),
            kube: self.settings.client.clone(),
            now: self.settings.clock.now(),
        };
        let prepared = self.prepare(identity, context).await?;
        let (fingerprint, exchange) = (prepared.fingerprint, prepared.exchange);
        let exchange = async move {
            let result = tokio::time::timeout(limit, exchange).await;
            result.map_err(|_| TokenError::TimedOut(limit))?
        };
        let issued = self.cache.get(fingerprint, object, || Box::pin(exchange)).await?;
        let repository = prepared.repository.as_ref();
        let credentials = issued.token.to_credentials(repository, self.settings.clock.now());
        Ok(Credentials::WorkloadIdentity {
            identity: fingerprint,
            version: issued.number,
            credentials: Box::new(credentials),
        })
    }

    async fn prepare(
        &self,
        identity: ProviderIdentity,
        context: ExchangeContext,
    ) -> Result<PreparedExchange, TokenError> {
        let TokenSettings {
            client, environment, ..
        } = &self.settings;
        Ok(match identity {
            ProviderIdentity::Github(app) => PreparedExchange {
                fingerprint: app.fingerprint(),
                repository: None,
                exchange: Box::pin(async move {
                    let grant = github::token(&app, &context.pool, context.now).await?;
                    Ok(Token::Password(grant))
                }),
            },
            ProviderIdentity::Azure(account) => {
                let azure = match account {
                    None => Azure::from_environment(environment)?,
                    Some(account) => {
                        let annotations = account.annotations(client).await?;
                        Azure::from_account(environment, account, &annotations)?
                    }
                };
                PreparedExchange {
                    fingerprint: azure.fingerprint(),
                    repository: None,
                    exchange: Box::pin(async move { Ok(Token::Bearer(azure.token(&context).await?)) }),
                }
            }
            ProviderIdentity::Aws(repository, account) => {
                let region = repository.region();
                let aws = match account {
                    None => Aws::from_environment(environment, region)?,
                    Some(account) => {
                        let annotations = account.annotations(client).await?;
                        Aws::from_account(environment, account, &annotations, region)?
                    }
                };
                PreparedExchange {
                    fingerprint: aws.fingerprint(),
                    repository: Some(repository),
                    exchange: Box::pin(async move { Ok(Token::Keys(aws.keys(&context).await?)) }),
                }
            }
        })
    }
}

impl Token {
    /// Returns the credentials for a remote.
    fn to_credentials(&self, repository: Option<&Repository>, now: Timestamp) -> Credentials {
        match (self, repository) {
            (Self::Password(AccessToken { token, .. }), _) => Credentials::Basic {
                username: github::USERNAME.to_owned(),
                password: token.expose().clone(),
            },
            (Self::Bearer(AccessToken { token, .. }), _) => Credentials::Bearer(token.expose().clone()),
            (Self::Keys(keys), Some(repository)) => repository.credentials(keys, now),
            // Keys are always requested with a repository.
            (Self::Keys(_), None) => Credentials::Anonymous,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
