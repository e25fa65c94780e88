//! Credentials that a provider lends instead of those in the Secret: GitHub Apps, Microsoft Entra, AWS.
//!
//! [`Wanted`] says what a spec wants, without asking anybody; [`Tokens`] gets it, by way of a cache. Each provider is a
//! folder or file of its own: it says who an identity is, and makes the exchange for one token. What a remote is told in
//! the end is [`Credentials::Lent`]: it names who is asking apart from the token, so that a renewed token finds the same
//! mirror.

mod account;
pub mod answer;
pub mod aws;
mod azure;
mod cache;
mod call;
mod environment;
mod error;
pub mod github;
mod hosts;
mod reach;
mod series;
mod wanted;
mod who;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use sluice_runtime::clock::Clock;
use sluice_runtime::http::{self, TlsError};
use sluice_runtime::metrics::Metrics;
use sluice_runtime::schedule::ObjectKey;

pub use account::Account;
pub use cache::CacheSettings;
pub use environment::Environment;
pub use error::{IdentityError, TokenError};
pub use hosts::{BadPattern, HostPattern, TrustedHosts};
pub use wanted::{Rules, Wanted};

use crate::git::{Credentials, Proxy, Tls, Transport};
use answer::{Grant, Keys};
use aws::Aws;
use aws::codecommit::Repository;
use azure::Azure;
use cache::{Cache, Exchange, Mortal};
use call::Pool;
use reach::Reach;

/// What a cloud's identities are got with.
pub struct TokenSettings {
    /// To the API server, for ServiceAccounts.
    pub client: Client,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// What the process was told by its environment.
    pub environment: Environment,
    /// What it was told by its flags.
    pub rules: Rules,
    /// How many tokens are kept, and how long.
    pub cache: CacheSettings,
}

/// Tokens of providers: those that are kept, and how new ones are had.
pub struct Tokens {
    client: Client,
    clock: Arc<dyn Clock>,
    environment: Environment,
    rules: Rules,
    /// To endpoints of the own machine, never through a proxy.
    nearby: Pool,
    cache: Cache<Token>,
}

/// On which terms a provider is asked.
pub struct Terms<'a> {
    /// Bound on the whole exchange, `spec.timeout`.
    pub limit: Duration,
    /// Connections.
    pub transport: &'a Transport,
    /// What the object's Secret says about TLS. It is for GitHub and its Git server alike, and for nobody else.
    pub tls: &'a Arc<Tls>,
    /// The object's own proxy.
    pub proxy: Option<&'a Arc<Proxy>>,
}

impl Terms<'_> {
    fn pool(&self, tls: &Arc<Tls>) -> Result<Pool, TokenError> {
        self.transport
            .pool(tls, self.proxy)
            .map_err(|error| TokenError::Tls(error.to_string()))
    }
}

/// What a provider gives.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// Shown as a password.
    Password(Grant),
    /// Shown as it is.
    Bearer(Grant),
    /// Not shown at all: they sign.
    Keys(Keys),
}

impl Mortal for Token {
    fn expires(&self) -> Option<Timestamp> {
        match self {
            Self::Password(grant) | Self::Bearer(grant) => Some(grant.expires),
            Self::Keys(keys) => keys.expires,
        }
    }
}

/// What is done for one object.
struct Plan {
    /// Who is to be spoken for.
    who: [u8; 32],
    /// What keys would sign for.
    repository: Option<Repository>,
    /// What is done if no token is kept.
    exchange: Exchange<Token>,
}

impl Tokens {
    /// Without any token yet.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn new(settings: TokenSettings, metrics: &Metrics) -> Result<Self, TlsError> {
        let TokenSettings {
            client,
            clock,
            environment,
            rules,
            cache,
        } = settings;
        Ok(Self {
            nearby: http::client(&http::Settings::default())?,
            cache: Cache::new(cache, Arc::clone(&clock), series::Series::new(metrics)),
            client,
            clock,
            environment,
            rules,
        })
    }

    /// What the flags say about identities.
    #[must_use]
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// What a remote is to be told on behalf of `object`.
    ///
    /// # Errors
    /// The provider does not give it in time.
    pub async fn credentials(
        &self,
        wanted: Wanted,
        object: &ObjectKey,
        terms: &Terms<'_>,
    ) -> Result<Credentials, IdentityError> {
        let limit = terms.limit;
        let late = |_| TokenError::TimedOut(limit);
        let lent = tokio::time::timeout(limit, self.lend(wanted, object, terms));
        Ok(lent.await.map_err(late)??)
    }

    /// Forgets the token in credentials that a remote refused, so that the next pass gets a new one. Others are left
    /// alone, and so is a token that has been renewed meanwhile.
    pub fn refused(&self, credentials: &Credentials) {
        if let Credentials::Lent { who, loan, .. } = credentials {
            self.cache.forget(*who, *loan);
        }
    }

    async fn lend(
        &self,
        wanted: Wanted,
        object: &ObjectKey,
        terms: &Terms<'_>,
    ) -> Result<Credentials, TokenError> {
        let limit = terms.limit;
        let pool = match &wanted {
            Wanted::Github(_) => terms.pool(terms.tls)?,
            Wanted::Azure(_) | Wanted::Aws(..) => terms.pool(&Arc::default())?,
        };
        let reach = Reach {
            pool,
            nearby: self.nearby.clone(),
            kube: self.client.clone(),
            now: self.clock.now(),
        };
        let Plan {
            who,
            repository,
            exchange,
        } = self.plan(wanted, reach).await?;
        let loan = self
            .cache
            .get(who, object, || {
                Box::pin(async move {
                    tokio::time::timeout(limit, exchange)
                        .await
                        .map_err(|_| TokenError::TimedOut(limit))?
                })
            })
            .await?;
        let credentials = loan.token.shown(repository.as_ref(), self.clock.now());
        Ok(Credentials::Lent {
            who,
            loan: loan.number,
            credentials: Box::new(credentials),
        })
    }

    async fn plan(&self, wanted: Wanted, reach: Reach) -> Result<Plan, TokenError> {
        let environment = &self.environment;
        Ok(match wanted {
            Wanted::Github(app) => Plan {
                who: app.who(),
                repository: None,
                exchange: Box::pin(async move {
                    let grant = github::token(&app, &reach.pool, reach.now).await?;
                    Ok(Token::Password(grant))
                }),
            },
            Wanted::Azure(account) => {
                let azure = match account {
                    None => Azure::of_controller(environment)?,
                    Some(account) => {
                        let annotations = account.annotations(&self.client).await?;
                        Azure::of_account(environment, account, &annotations)?
                    }
                };
                Plan {
                    who: azure.who(),
                    repository: None,
                    exchange: Box::pin(async move { Ok(Token::Bearer(azure.token(&reach).await?)) }),
                }
            }
            Wanted::Aws(repository, account) => {
                let region = repository.region();
                let aws = match account {
                    None => Aws::of_controller(environment, region)?,
                    Some(account) => {
                        let annotations = account.annotations(&self.client).await?;
                        Aws::of_account(environment, account, &annotations, region)?
                    }
                };
                Plan {
                    who: aws.who(),
                    repository: Some(repository),
                    exchange: Box::pin(async move { Ok(Token::Keys(aws.keys(&reach).await?)) }),
                }
            }
        })
    }
}

impl Token {
    /// As what a remote is told.
    fn shown(&self, repository: Option<&Repository>, now: Timestamp) -> Credentials {
        match (self, repository) {
            (Self::Password(Grant { token, .. }), _) => Credentials::Basic {
                username: github::USERNAME.to_owned(),
                password: token.expose().clone(),
            },
            (Self::Bearer(Grant { token, .. }), _) => Credentials::Bearer(token.expose().clone()),
            (Self::Keys(keys), Some(repository)) => repository.credentials(keys, now),
            // Keys are asked for with a repository only; without one there is nothing that they could say.
            (Self::Keys(_), None) => Credentials::Anonymous,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
