//! Errors of provider authentication.

use std::time::Duration;

use sluice_runtime::failure::{Class, Failure};

use super::aws::codecommit::RepositoryError;
use super::github::AppError;
use super::response::ResponseError;
use crate::git::ServerMessage;

/// An error that prevents provider credentials. Never contains a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// Provider `github` without `spec.secretRef`.
    #[error("secretRef with github app data must be specified when provider is set to github")]
    SecretNotNamed,
    /// Provider `github` with a Secret without GitHub App data.
    #[error("secretRef with github app data must be specified when provider is set to github")]
    AppMissing,
    /// Provider `github` with no installation, or with two.
    #[error(
        "secretRef '{secret}' must have exactly one of the keys githubAppInstallationID and githubAppInstallationOwner; it has {found}"
    )]
    Installation {
        /// Namespace and name of the Secret.
        secret: String,
        /// `both` or `neither`.
        found: &'static str,
    },
    /// A Secret with GitHub App data, but another provider.
    #[error("secretRef '{secret}' has github app data but provider is not set to github")]
    ProviderNotGithub {
        /// Namespace and name of the Secret.
        secret: String,
    },
    /// `spec.serviceAccountName` is set, but the feature gate is disabled.
    #[error(
        "to use spec.serviceAccountName for provider authentication please enable the ObjectLevelWorkloadIdentity feature gate in the controller"
    )]
    GateClosed,
    /// The controller's own identity may not be used for this host.
    #[error(
        "the controller's own identity is not used for {host}: it is only sent over https and to hosts in the flag --controller-identity-hosts; use another identity with spec.serviceAccountName"
    )]
    HostNotTrusted {
        /// The host.
        host: String,
    },
    /// The controller's own identity may not be used with a custom CA.
    #[error(
        "the controller's own identity is not used with the CA (ca.crt) of secret '{secret}', unless the flag --controller-identity-hosts is '*'"
    )]
    OwnAuthorities {
        /// Namespace and name of the Secret.
        secret: String,
    },
    /// No token could be obtained.
    #[error("failed to configure authentication options: {0}")]
    Token(#[from] TokenError),
}

impl Failure for IdentityError {
    fn class(&self) -> Class {
        match self {
            Self::SecretNotNamed | Self::GateClosed | Self::HostNotTrusted { .. } => Class::Terminal,
            // The Secret may be corrected at any time.
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

/// An error while obtaining a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The GitHub App data is invalid.
    #[error(transparent)]
    App(#[from] AppError),
    /// The URL does not belong to AWS CodeCommit.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// An endpoint in a variable or a Secret is invalid.
    #[error("{name} is not a valid URL: {why}")]
    Endpoint {
        /// The variable or key.
        name: &'static str,
        /// The defect.
        why: String,
    },
    /// The TLS settings of the Secret are invalid.
    #[error("tls.crt, tls.key and ca.crt: {0}")]
    Tls(String),
    /// The connection failed.
    #[error("connection to {host} failed: {why}")]
    Connection {
        /// The host.
        host: String,
        /// The chain of causes.
        why: String,
    },
    /// The whole exchange timed out.
    #[error("timed out: no token within {0:?}: a provider or one of its endpoints does not respond")]
    TimedOut(Duration),
    /// An endpoint did not respond in time.
    #[error("timed out: no complete response from {host} within {limit:?} (deadline exceeded)")]
    NoAnswer {
        /// The host.
        host: String,
        /// The time limit.
        limit: Duration,
    },
    /// The response is too long.
    #[error("the response of {host} exceeds {limit} bytes")]
    TooLong {
        /// The host.
        host: String,
        /// The limit.
        limit: usize,
    },
    /// The provider refused the request.
    #[error("{host} refuses to {what}: HTTP status {status}{said}")]
    Refused {
        /// The host.
        host: String,
        /// The requested operation.
        what: &'static str,
        /// The HTTP status.
        status: u16,
        /// The provider's error message.
        said: ServerMessage,
    },
    /// The provider asks to wait.
    #[error("{host} asks to wait {wait:?} (HTTP status {status})")]
    Throttled {
        /// The host.
        host: String,
        /// The HTTP status.
        status: u16,
        /// The requested wait.
        wait: Duration,
    },
    /// A successful response has invalid content.
    #[error("invalid response of {host} to a request to {what}: {source}")]
    Response {
        /// The host.
        host: String,
        /// The requested operation.
        what: &'static str,
        /// The defect.
        #[source]
        source: ResponseError,
    },
    /// The ServiceAccount cannot be used.
    #[error("service account '{account}': {why}")]
    ServiceAccountRef {
        /// Namespace and name of the ServiceAccount.
        account: String,
        /// The cause.
        why: String,
    },
    /// A token file cannot be read.
    #[error("cannot read the file named by {variable}: {why}")]
    File {
        /// The variable.
        variable: &'static str,
        /// The cause.
        why: String,
    },
    /// The controller has no identity for the provider.
    #[error("the controller has no identity for provider {provider}: {why}")]
    NoIdentity {
        /// The provider.
        provider: &'static str,
        /// The missing configuration.
        why: String,
    },
}

impl Failure for TokenError {
    fn class(&self) -> Class {
        match self {
            Self::Throttled { wait, .. } => Class::Waiting(*wait),
            // Secrets, ServiceAccounts and roles may be corrected without a change of the object.
            Self::App(_)
            | Self::Repository(_)
            | Self::Endpoint { .. }
            | Self::Tls(_)
            | Self::Connection { .. }
            | Self::TimedOut(_)
            | Self::NoAnswer { .. }
            | Self::TooLong { .. }
            | Self::Refused { .. }
            | Self::Response { .. }
            | Self::ServiceAccountRef { .. }
            | Self::File { .. }
            | Self::NoIdentity { .. } => Class::Transient,
        }
    }

    fn reason(&self) -> &'static str {
        "AuthenticationFailed"
    }
}
