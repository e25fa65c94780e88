//! Why an object gets no credentials from its provider.

use std::time::Duration;

use sluice_runtime::failure::{Class, Failure};

use super::answer::AnswerError;
use super::aws::codecommit::RepositoryError;
use super::github::AppError;
use crate::git::Said;

/// Why there are no credentials. Never holds a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// Provider `github` without `spec.secretRef`.
    #[error("secretRef with github app data must be specified when provider is set to github")]
    SecretNotNamed,
    /// Provider `github` with a Secret that does not describe an App.
    #[error("secretRef with github app data must be specified when provider is set to github")]
    AppMissing,
    /// Provider `github` without an installation, or with two.
    #[error(
        "secretRef '{secret}' must have exactly one of the keys githubAppInstallationID and githubAppInstallationOwner; it has {found}"
    )]
    Installation {
        /// Namespace and name of the Secret.
        secret: String,
        /// `both` or `neither`.
        found: &'static str,
    },
    /// A Secret that describes an App, and no provider that would use it.
    #[error("secretRef '{secret}' has github app data but provider is not set to github")]
    ProviderNotGithub {
        /// Namespace and name of the Secret.
        secret: String,
    },
    /// An identity of the object's own, with the feature gate closed.
    #[error(
        "to use spec.serviceAccountName for provider authentication please enable the ObjectLevelWorkloadIdentity feature gate in the controller"
    )]
    GateClosed,
    /// The controller's own identity is for other hosts.
    #[error(
        "the controller's own identity is not used for {host}: it is sent over https only, and to hosts of the flag --controller-identity-hosts only; name another one with spec.serviceAccountName"
    )]
    HostNotTrusted {
        /// The host.
        host: String,
    },
    /// The controller's own identity, with authorities of the object's.
    #[error(
        "the controller's own identity is not used with the authorities (ca.crt) of secret '{secret}', unless the flag --controller-identity-hosts is '*'"
    )]
    OwnAuthorities {
        /// Namespace and name of the Secret.
        secret: String,
    },
    /// The provider was asked, or could not be.
    #[error("failed to configure authentication options: {0}")]
    Token(#[from] TokenError),
}

impl Failure for IdentityError {
    fn class(&self) -> Class {
        match self {
            Self::SecretNotNamed | Self::GateClosed | Self::HostNotTrusted { .. } => Class::Terminal,
            // The Secret may be mended at any time.
            Self::AppMissing
            | Self::Installation { .. }
            | Self::ProviderNotGithub { .. }
            | Self::OwnAuthorities { .. } => Class::Transient,
            Self::Token(error) => error.class(),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::SecretNotNamed
            | Self::AppMissing
            | Self::Installation { .. }
            | Self::ProviderNotGithub { .. }
            | Self::HostNotTrusted { .. }
            | Self::OwnAuthorities { .. } => "InvalidProviderConfiguration",
            Self::GateClosed => "FeatureGateDisabled",
            Self::Token(error) => error.reason(),
        }
    }
}

/// Why there is no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The App in the Secret is not usable.
    #[error(transparent)]
    App(#[from] AppError),
    /// The address is no repository of AWS CodeCommit.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// An endpoint that a variable or a Secret names is no address of http or https.
    #[error("{name} is no usable address: {why}")]
    Endpoint {
        /// Where it is set.
        name: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// What the Secret says about TLS is not usable.
    #[error("tls.crt, tls.key and ca.crt: {0}")]
    Tls(String),
    /// No connection, or one that broke.
    #[error("cannot talk to {host}: {why}")]
    Connection {
        /// The host.
        host: String,
        /// The chain of causes.
        why: String,
    },
    /// The time for the whole exchange is over.
    #[error("timed out: no token within {0:?}: a provider or one of its endpoints does not answer")]
    TimedOut(Duration),
    /// One of several endpoints does not answer.
    #[error("timed out: no complete answer from {host} within {limit:?} (deadline exceeded)")]
    NoAnswer {
        /// The host.
        host: String,
        /// The time allowed.
        limit: Duration,
    },
    /// An answer longer than any honest one.
    #[error("the answer of {host} is longer than {limit} bytes")]
    TooLong {
        /// The host.
        host: String,
        /// The limit.
        limit: usize,
    },
    /// An answer that is no success.
    #[error("{host} refuses to {what}: HTTP status {status}{said}")]
    Refused {
        /// The host.
        host: String,
        /// What was asked for.
        what: &'static str,
        /// The status.
        status: u16,
        /// What it said about it.
        said: Said,
    },
    /// The provider asks to be left alone for a while.
    #[error("{host} asks to wait {wait:?} (HTTP status {status})")]
    Throttled {
        /// The host.
        host: String,
        /// The status.
        status: u16,
        /// How long.
        wait: Duration,
    },
    /// A success that does not hold what was asked for.
    #[error("the answer of {host} to a request to {what} cannot be used: {source}")]
    Answer {
        /// The host.
        host: String,
        /// What was asked for.
        what: &'static str,
        /// What is wrong with it.
        #[source]
        source: AnswerError,
    },
    /// A ServiceAccount that gives no identity.
    #[error("service account '{account}': {why}")]
    Account {
        /// Its namespace and name.
        account: String,
        /// What is missing.
        why: String,
    },
    /// A token file that cannot be read.
    #[error("cannot read the file that {variable} names: {why}")]
    File {
        /// The variable.
        variable: &'static str,
        /// What the system says.
        why: String,
    },
    /// The controller itself has no identity towards the provider.
    #[error("the controller has no identity for provider {provider}: {why}")]
    NoIdentity {
        /// The provider.
        provider: &'static str,
        /// What was looked for.
        why: String,
    },
}

impl Failure for TokenError {
    fn class(&self) -> Class {
        match self {
            Self::Throttled { wait, .. } => Class::Waiting(*wait),
            // Secrets, ServiceAccounts and roles are mended elsewhere, and the object does not see it.
            Self::App(_)
            | Self::Repository(_)
            | Self::Endpoint { .. }
            | Self::Tls(_)
            | Self::Connection { .. }
            | Self::TimedOut(_)
            | Self::NoAnswer { .. }
            | Self::TooLong { .. }
            | Self::Refused { .. }
            | Self::Answer { .. }
            | Self::Account { .. }
            | Self::File { .. }
            | Self::NoIdentity { .. } => Class::Transient,
        }
    }

    fn reason(&self) -> &'static str {
        "AuthenticationFailed"
    }
}
