//! Errors of a spec and its Secrets: their messages, which are those of Flux, their classes and their reasons.

use sluice_runtime::failure::{Class, Failure};

use crate::git::{AddressError, CredentialsError, ProxyError};
use crate::identity::IdentityError;

/// An error while resolving a spec.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// The URL is invalid.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The Secret cannot be read.
    #[error("failed to get secret '{secret}': {source}")]
    Secret {
        /// Namespace and name of the Secret.
        secret: String,
        /// The client's error.
        #[source]
        source: Box<kube::Error>,
    },
    /// The Secret does not exist.
    #[error("failed to get secret '{secret}': secrets \"{name}\" not found")]
    MissingSecret {
        /// Namespace and name of the Secret.
        secret: String,
        /// Name of the Secret.
        name: String,
    },
    /// The private key needs a passphrase.
    #[error("SSH identity key is encrypted but no 'password' field was provided in the secret '{secret}'")]
    EncryptedIdentity {
        /// Namespace and name of the Secret.
        secret: String,
    },
    /// The Secret has a bearer token and a username or password.
    #[error("failed to checkout and determine revision: {0}")]
    BasicAndBearer(#[source] CredentialsError),
    /// The proxy's Secret cannot be read.
    #[error("failed to configure proxy options: {0}")]
    ProxySecret(#[source] Box<Self>),
    /// The proxy's Secret is invalid.
    #[error("failed to configure proxy options: secret '{secret}': {source}")]
    Proxy {
        /// Namespace and name of the Secret.
        secret: String,
        /// The defect.
        #[source]
        source: ProxySecretError,
    },
    /// The Secret contains no usable credentials.
    #[error("failed to configure authentication options: {}{source}", secret_prefix(.secret))]
    Credentials {
        /// Namespace and name of the Secret; empty if the URL contains the credentials.
        secret: String,
        /// The defect.
        #[source]
        source: CredentialsError,
    },
    /// The identity provider returns no token.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// An error in a proxy Secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxySecretError {
    /// The value is not UTF-8.
    #[error("the value of '{0}' is not UTF-8 text")]
    NotText(&'static str),
    /// The address is invalid.
    #[error("key 'address': {0}")]
    Address(#[from] ProxyError),
}

/// Returns the prefix of a message about a Secret; empty without a Secret.
fn secret_prefix(secret: &str) -> String {
    if secret.is_empty() {
        return String::new();
    }
    format!("secret '{secret}': ")
}

impl Failure for ResolveError {
    fn class(&self) -> Class {
        match self {
            Self::Address(error) => error.class(),
            Self::Identity(error) => error.class(),
            // The Secret may be created or corrected at any time.
            Self::Secret { .. }
            | Self::MissingSecret { .. }
            | Self::EncryptedIdentity { .. }
            | Self::BasicAndBearer(_)
            | Self::ProxySecret(_)
            | Self::Proxy { .. }
            | Self::Credentials { .. } => Class::Transient,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Address(error) => error.reason(),
            Self::BasicAndBearer(error) => error.reason(),
            Self::Identity(error) => error.reason(),
            Self::Secret { .. }
            | Self::MissingSecret { .. }
            | Self::EncryptedIdentity { .. }
            | Self::ProxySecret(_)
            | Self::Proxy { .. }
            | Self::Credentials { .. } => "AuthenticationFailed",
        }
    }
}
