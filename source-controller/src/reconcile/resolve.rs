//! From a spec and its Secret to a source: which remote, as whom, which reference. Fields that later work brings are
//! refused by name, never ignored.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use sha2::{Digest as _, Sha256};
use sluice_api::source::GitRepositorySpec;
use sluice_runtime::failure::{Class, Failure};
use sluice_runtime::schedule::ObjectKey;
use tokio::time::Instant;

use super::compose::Parts;
use super::proxy::{self, ProxySecretError};
use crate::git::{
    Address, AddressError, Credentials, CredentialsError, Fields, Limits, Owner, Proxy, Reference, Remote,
    Tls, Transport,
};
use crate::identity::{IdentityError, Terms, Tokens, Wanted};

/// What a pass reads from.
#[derive(Clone, Debug)]
pub struct Source {
    /// The remote repository.
    pub remote: Remote,
    /// Which commit of it.
    pub reference: Reference,
    /// When an event called for this very pass: then no answer counts that others asked for before.
    pub call: Option<Instant>,
    /// Which parts of the commit.
    pub parts: Parts,
}

/// Why a spec gives no source.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// The address is none.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The Secret cannot be read.
    #[error("failed to get secret '{secret}': {source}")]
    Secret {
        /// Namespace and name of the Secret.
        secret: String,
        /// What the client said.
        #[source]
        source: Box<kube::Error>,
    },
    /// There is no such Secret.
    #[error("failed to get secret '{secret}': secrets \"{name}\" not found")]
    MissingSecret {
        /// Namespace and name of the Secret.
        secret: String,
        /// Its name alone.
        name: String,
    },
    /// The private key wants a passphrase.
    #[error("SSH identity key is encrypted but no 'password' field was provided in the secret '{secret}'")]
    EncryptedIdentity {
        /// Namespace and name of the Secret.
        secret: String,
    },
    /// A token, and a name or a password beside it.
    #[error("failed to checkout and determine revision: {0}")]
    BasicAndBearer(#[source] CredentialsError),
    /// The Secret of the proxy cannot be read.
    #[error("failed to configure proxy options: {0}")]
    ProxySecret(#[source] Box<Self>),
    /// The Secret of the proxy names none.
    #[error("failed to configure proxy options: secret '{secret}': {source}")]
    Proxy {
        /// Namespace and name of the Secret.
        secret: String,
        /// What is wrong with it.
        #[source]
        source: ProxySecretError,
    },
    /// No credentials can be made of the Secret.
    #[error("failed to configure authentication options: {}{source}", named(.secret))]
    Credentials {
        /// Namespace and name of the Secret; empty if the credentials stand in the address.
        secret: String,
        /// What is wrong with it.
        #[source]
        source: CredentialsError,
    },
    /// The provider lends none.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// A Secret in a message; nothing where there is none.
fn named(secret: &str) -> String {
    if secret.is_empty() {
        return String::new();
    }
    format!("secret '{secret}': ")
}

impl ResolveError {
    /// With what was being done when this came up.
    fn of_proxy(self) -> Self {
        Self::ProxySecret(Box::new(self))
    }
}

impl Failure for ResolveError {
    fn class(&self) -> Class {
        match self {
            Self::Address(error) => error.class(),
            Self::Identity(error) => error.class(),
            // A Secret may be made or mended at any time.
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

/// The host of a spec's address; empty if the address is none.
pub(super) fn host(spec: &GitRepositorySpec) -> String {
    Address::parse(&spec.url).map_or_else(|_| String::new(), |address| address.host())
}

/// Resolves a spec. Secrets are read, if there are any: the proxy's first, as upstream, so that of several faults the
/// same one is shown; then the provider is asked, if there is one.
///
/// # Errors
/// A field is not built yet, the address is none, the Secret is missing or makes no credentials, or the provider lends
/// none.
pub(super) async fn resolve(
    spec: &GitRepositorySpec,
    object: &ObjectKey,
    client: &Client,
    transport: &Transport,
    tokens: &Tokens,
    limits: Limits,
) -> Result<Source, ResolveError> {
    let namespace = &object.namespace;
    let proxy = own_proxy(spec, namespace, client).await?;
    let (address, reference) = check(spec)?;
    let name = spec.secret_ref.as_ref().map(|reference| reference.name.as_str());
    let found = match name {
        Some(name) => Some(secret(client, namespace, name).await?),
        None => None,
    };
    let (uid, data) = found.map(|found| (found.uid, found.data)).unzip();
    let secret = name.map(|name| format!("{namespace}/{name}")).unwrap_or_default();
    let timeout = match spec.timeout.to_duration() {
        Duration::ZERO => Duration::from_secs(60),
        timeout => timeout,
    };
    let given = data.as_ref().map(|data| (secret.as_str(), data));
    let tls = Arc::new(data.as_ref().map(Tls::of).unwrap_or_default());
    let wanted = Wanted::of(spec, namespace, &address, given, tokens.rules())?;
    let is_secrets = !matches!(wanted, Some(Wanted::Azure(_) | Wanted::Aws(..)));
    let credentials = match wanted {
        // What providers lend is for http. With ssh the Secret's key decides.
        Some(wanted) if !address.is_ssh() => {
            let terms = Terms {
                limit: timeout,
                transport,
                tls: &tls,
                proxy: proxy.as_ref(),
            };
            Box::pin(tokens.credentials(wanted, object, &terms)).await?
        }
        _ => own_credentials(&address, data.as_ref(), secret.clone())?,
    };
    let principal = uid
        .filter(|_| is_secrets)
        .map(|uid| principal(&secret, &uid, &address));
    let remote = Remote {
        transport: transport.clone(),
        address,
        credentials,
        tls,
        proxy,
        timeout,
        limits,
        owner: Owner {
            namespace: namespace.clone(),
            principal,
        },
    };
    Ok(Source {
        remote,
        reference,
        call: None,
        parts: Parts::wanted(spec),
    })
}

/// Whose credentials those of a Secret are: the Secret's, whatever stands in it today, together with what the address says
/// itself. Nobody can make another Secret of the same uid, so nobody else has this principal.
fn principal(secret: &str, uid: &str, address: &Address) -> [u8; 32] {
    let mut hash = Sha256::new_with_prefix(b"secret");
    for part in [secret, uid, address.username(), address.password()] {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// The object's own proxy.
async fn own_proxy(
    spec: &GitRepositorySpec,
    namespace: &str,
    client: &Client,
) -> Result<Option<Arc<Proxy>>, ResolveError> {
    let Some(reference) = &spec.proxy_secret_ref else {
        return Ok(None);
    };
    let data = secret(client, namespace, &reference.name).await;
    let data = data.map_err(ResolveError::of_proxy)?.data;
    let proxy = proxy::proxy(&data).map_err(|source| ResolveError::Proxy {
        secret: format!("{namespace}/{}", reference.name),
        source,
    })?;
    Ok(Some(Arc::new(proxy)))
}

/// What the Secret and the address say themselves.
fn own_credentials(
    address: &Address,
    data: Option<&BTreeMap<String, Vec<u8>>>,
    secret: String,
) -> Result<Credentials, ResolveError> {
    Credentials::resolve(address, data).map_err(|error| match error {
        CredentialsError::BasicAndBearer => ResolveError::BasicAndBearer(error),
        CredentialsError::Encrypted => ResolveError::EncryptedIdentity { secret },
        source => ResolveError::Credentials { secret, source },
    })
}

/// The pure part: the address, the reference.
fn check(spec: &GitRepositorySpec) -> Result<(Address, Reference), ResolveError> {
    let address = Address::parse(&spec.url)?;
    let wanted = spec.reference.as_ref();
    let fields = wanted.map_or_else(Fields::default, |wanted| Fields {
        branch: wanted.branch.as_deref(),
        tag: wanted.tag.as_deref(),
        semver: wanted.semver.as_deref(),
        name: wanted.name.as_deref(),
        commit: wanted.commit.as_deref(),
    });
    Ok((address, Reference::resolve(fields)))
}

/// A Secret as it was read.
struct Found {
    uid: String,
    data: BTreeMap<String, Vec<u8>>,
}

async fn secret(client: &Client, namespace: &str, name: &str) -> Result<Found, ResolveError> {
    let secret = format!("{namespace}/{name}");
    match Api::<Secret>::namespaced(client.clone(), namespace)
        .get_opt(name)
        .await
    {
        Ok(Some(found)) => Ok(Found {
            uid: found.metadata.uid.unwrap_or_default(),
            data: found
                .data
                .unwrap_or_default()
                .into_iter()
                .map(|(key, value)| (key, value.0))
                .collect(),
        }),
        Ok(None) => Err(ResolveError::MissingSecret {
            secret,
            name: name.to_owned(),
        }),
        Err(source) => Err(ResolveError::Secret {
            secret,
            source: Box::new(source),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use sluice_api::interval::Interval;

    fn refusal(url: &str, fields: Value) -> String {
        let mut spec = json!(GitRepositorySpec::new(url, Interval::from_secs(60)));
        let (Value::Object(spec_fields), Value::Object(fields)) = (&mut spec, fields) else {
            unreachable!()
        };
        spec_fields.extend(fields);
        let spec: GitRepositorySpec = serde_json::from_value(spec).unwrap();
        match check(&spec) {
            Ok(_) => "accepted".to_owned(),
            Err(error) => format!("{:?} {}: {error}", error.class(), error.reason()),
        }
    }

    #[test]
    fn defaults_that_the_api_server_writes_are_accepted() {
        for fields in [
            json!({}),
            json!({ "provider": "generic", "recurseSubmodules": false, "include": [] }),
        ] {
            assert_eq!(refusal("https://h/r", fields), "accepted");
        }
    }

    #[test]
    fn a_url_that_is_none_is_terminal_and_masked() {
        let refusal = refusal("https://user:secret@h:no/r", json!({}));
        assert!(
            refusal.starts_with("Terminal URLInvalid: failed to parse url"),
            "{refusal}"
        );
        assert!(!refusal.contains("secret@"), "{refusal}");
    }
}
