//! Resolves a spec and its Secrets to a source: the remote, its credentials and the reference.

mod error;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use error::ProxySecretError;
pub use error::ResolveError;
use sha2::{Digest as _, Sha256};
use sluice_api::source::GitRepositorySpec;
use sluice_runtime::schedule::ObjectKey;
use tokio::time::Instant;

use super::Context;
use super::secrets::{SecretContent, Secrets};
use crate::git::{
    Access, Address, Credentials, CredentialsError, Owner, Proxy, RefFields, Reference, Remote, Tls,
    hash_parts,
};
use crate::identity::{ExchangeSettings, ProviderIdentity};

/// How old the lookup of another object may always be: long enough for objects that one event triggers, and shorter than
/// any sensible interval.
pub(super) const MIN_LOOKUP_AGE: Duration = Duration::from_secs(1);

/// The source of a reconciliation.
#[derive(Clone, Debug)]
pub struct Source {
    /// The remote repository.
    pub remote: Remote,
    /// The reference to a commit.
    pub reference: Reference,
    /// The object that is reconciled again when the result of a lookup that it reused has changed.
    pub reader: Option<ObjectKey>,
    /// When an event triggered the reconciliation; older lookups of other objects are not reused.
    pub triggered_at: Option<Instant>,
    /// How old the lookup of another object may be to be reused.
    pub max_age: Duration,
    /// `spec.interval`; zero if the object is reconciled after events alone.
    pub interval: Duration,
    /// The selected parts of the commit.
    pub parts: Parts,
}

/// The parts of a repository that a spec selects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// `spec.sparseCheckout`.
    pub sparse: Vec<String>,
    /// `spec.recurseSubmodules`; ignored if sparse paths are set, as in Flux.
    pub submodules: bool,
}

impl Parts {
    /// Reads the selection from a spec.
    fn from_spec(spec: &GitRepositorySpec) -> Self {
        Self {
            sparse: spec.sparse_checkout.clone(),
            submodules: spec.recurse_submodules && spec.sparse_checkout.is_empty(),
        }
    }
}

/// Returns the host of a spec's URL; empty if the URL is invalid.
pub(super) fn host(spec: &GitRepositorySpec) -> String {
    Address::host_of(&spec.url)
}

/// Returns the timeout of an object's Git operations.
fn timeout(spec: &GitRepositorySpec) -> Duration {
    match spec.timeout.to_duration() {
        Duration::ZERO => Duration::from_mins(1),
        timeout => timeout,
    }
}

/// Resolves a spec. Reads the proxy's Secret first, as upstream does, so that the same of several errors is reported;
/// then the object's Secret; then requests a token from the provider.
///
/// # Errors
/// The URL is invalid, a Secret is missing or invalid, or the provider returns no token.
pub(super) async fn resolve(
    spec: &GitRepositorySpec,
    object: &ObjectKey,
    context: &Context,
) -> Result<Source, ResolveError> {
    let (secrets, transport, tokens) = (&context.secrets, &context.transport, &context.tokens);
    let namespace = &object.namespace;
    let proxy = read_proxy(spec, namespace, secrets).await?;
    let (address, reference) = parse_source(spec)?;
    let name = spec.secret_ref.as_ref().map(|reference| reference.name.as_str());
    let found = match name {
        Some(name) => Some(read_secret(secrets, namespace, name).await?),
        None => None,
    };
    let data = found.as_ref().map(|found| &found.data);
    let secret = name.map(|name| format!("{namespace}/{name}")).unwrap_or_default();
    let timeout = timeout(spec);
    let named_data = data.map(|data| (secret.as_str(), data));
    let tls = Arc::new(data.map(Tls::from_secret).unwrap_or_default());
    let identity = ProviderIdentity::from_spec(spec, namespace, &address, named_data, tokens.policy())?;
    let uses_secret = !matches!(
        identity,
        Some(ProviderIdentity::Azure(_) | ProviderIdentity::Aws(..))
    );
    let credentials = match identity {
        // Provider tokens are for HTTP; SSH uses the key in the Secret.
        Some(identity) if !address.is_ssh() => {
            let settings = ExchangeSettings {
                limit: timeout,
                transport,
                tls: &tls,
                proxy: proxy.as_ref(),
            };
            Box::pin(tokens.credentials(identity, object, &settings)).await?
        }
        _ => static_credentials(&address, data, secret.clone())?,
    };
    let principal = found
        .filter(|_| uses_secret)
        .map(|found| principal(&secret, &found.uid, &address));
    let namespace = namespace.clone();
    let access = Access {
        address,
        credentials,
        tls,
        proxy,
        owner: Owner { namespace, principal },
    };
    let remote = Remote {
        transport: transport.clone(),
        access: access.into(),
        timeout,
        limits: context.limits,
    };
    Ok(Source {
        remote,
        reference,
        reader: Some(object.clone()),
        triggered_at: None,
        max_age: MIN_LOOKUP_AGE,
        interval: Duration::ZERO,
        parts: Parts::from_spec(spec),
    })
}

/// Returns the principal of a Secret's credentials: its name and uid, regardless of its current content, plus the
/// userinfo of the URL. Another Secret cannot have the same uid.
fn principal(secret: &str, uid: &str, address: &Address) -> [u8; 32] {
    let mut hash = Sha256::new_with_prefix(b"secret");
    hash_parts(&mut hash, [secret, uid, address.username(), address.password()]);
    hash.finalize().into()
}

/// Reads the proxy of the object.
async fn read_proxy(
    spec: &GitRepositorySpec,
    namespace: &str,
    secrets: &Secrets,
) -> Result<Option<Arc<Proxy>>, ResolveError> {
    let Some(reference) = &spec.proxy_secret_ref else {
        return Ok(None);
    };
    let found = read_secret(secrets, namespace, &reference.name).await;
    let found = found.map_err(|error| ResolveError::ProxySecret(error.into()))?;
    let proxy = parse_proxy(&found.data).map_err(|source| ResolveError::Proxy {
        secret: format!("{namespace}/{}", reference.name),
        source,
    })?;
    Ok(Some(Arc::new(proxy)))
}

/// Parses a proxy from the keys `address`, `username` and `password`. The latter two override the userinfo of the
/// address.
fn parse_proxy(data: &BTreeMap<String, Vec<u8>>) -> Result<Proxy, ProxySecretError> {
    let value = |key: &'static str| match data.get(key) {
        Some(value) => std::str::from_utf8(value).map_err(|_| ProxySecretError::NotText(key)),
        None => Ok(""),
    };
    let (address, username, password) = (value("address")?, value("username")?, value("password")?);
    Ok(Proxy::new(address, Some(username), Some(password))?)
}

/// Returns the credentials in the Secret and the URL.
fn static_credentials(
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

/// Parses the URL and the reference. Pure.
fn parse_source(spec: &GitRepositorySpec) -> Result<(Address, Reference), ResolveError> {
    let address = Address::parse(&spec.url)?;
    let reference = spec.reference.as_ref();
    let fields = reference.map_or_else(RefFields::default, |reference| RefFields {
        branch: reference.branch.as_deref(),
        tag: reference.tag.as_deref(),
        semver: reference.semver.as_deref(),
        name: reference.name.as_deref(),
        commit: reference.commit.as_deref(),
    });
    Ok((address, Reference::resolve(fields)))
}

async fn read_secret(
    secrets: &Secrets,
    namespace: &str,
    name: &str,
) -> Result<Arc<SecretContent>, ResolveError> {
    let secret = format!("{namespace}/{name}");
    match secrets.read(namespace, name).await {
        Ok(Some(found)) => Ok(found),
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
    use serde_json::{Value, json};
    use sluice_api::interval::Interval;
    use sluice_runtime::failure::Failure as _;

    use super::*;

    fn refusal(url: &str, fields: Value) -> String {
        let mut spec = json!(GitRepositorySpec::new(url, Interval::from_secs(60)));
        let (Value::Object(spec_fields), Value::Object(fields)) = (&mut spec, fields) else {
            unreachable!()
        };
        spec_fields.extend(fields);
        let spec: GitRepositorySpec = serde_json::from_value(spec).unwrap();
        match parse_source(&spec) {
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
    fn an_invalid_url_is_terminal_and_masked() {
        let refusal = refusal("https://user:secret@h:no/r", json!({}));
        assert!(
            refusal.starts_with("Terminal URLInvalid: failed to parse url"),
            "{refusal}"
        );
        assert!(!refusal.contains("secret@"), "{refusal}");
    }

    fn proxy_of(pairs: &[(&str, &[u8])]) -> Result<String, String> {
        let data = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.to_vec()));
        let found = parse_proxy(&data.collect()).map_err(|error| error.to_string())?;
        Ok(format!("{found} {:?}", found.user()))
    }

    #[test]
    fn a_proxy_secret_is_parsed() {
        assert_eq!(
            proxy_of(&[("address", b"http://p:1")]).unwrap(),
            "http://p:1 None"
        );
        assert_eq!(
            proxy_of(&[
                ("address", b"socks5://a:b@p"),
                ("username", b"u"),
                ("password", b"w")
            ])
            .unwrap(),
            r#"socks5://p:1080 Some(("u", "w"))"#
        );
        assert_eq!(
            proxy_of(&[("address", b"http://a:b@p:1"), ("password", b"w")]).unwrap(),
            r#"http://p:1 Some(("a", "b"))"#
        );
    }

    #[test]
    fn errors_of_a_proxy_secret_name_the_key() {
        assert_eq!(
            proxy_of(&[]).unwrap_err(),
            "key 'address': it is missing or empty"
        );
        assert_eq!(
            proxy_of(&[("address", b"\xff")]).unwrap_err(),
            "the value of 'address' is not UTF-8 text"
        );
        let scheme = proxy_of(&[("address", b"ftp://u:secret@p")]).unwrap_err();
        assert!(scheme.contains("it must be http, https or socks5"), "{scheme}");
        assert!(!scheme.contains("secret"), "{scheme}");
    }
}
