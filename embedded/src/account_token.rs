//! Tokens of ServiceAccounts: JSON Web Tokens (RFC 7519) with the claims of kube-apiserver, signed with HMAC-SHA256 (RFC 7518 §3.2),
//! because only this server verifies them. The server stores no token. A token is valid until it expires, or until its account or the
//! Secret that it is bound to is deleted. Pure except for randomness.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use rand::RngCore;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::Sha256;

use crate::meta;
use crate::rbac::User;
use crate::store::{Key, State};

/// The audience of this API, and the issuer of its tokens: the default of a cluster.
pub(crate) const AUDIENCE: &str = "https://kubernetes.default.svc";
/// The protected header, which is the same for each token: a verifier that reads an algorithm from the token can be deceived.
const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;
/// Separates this key from other keys of the same secret, so that no other signature is valid for a token.
const DOMAIN: &[u8] = b"sluice-service-account-1";
/// Maximum size of a token in bytes: names have at most 253 bytes, the rest are a few audiences.
const MAX_BYTES: usize = 16 * 1024;

/// The signing key of a server.
pub(crate) struct TokenKey([u8; 32]);

impl std::fmt::Debug for TokenKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TokenKey").finish_non_exhaustive()
    }
}

impl TokenKey {
    /// Creates a key that no other server has.
    pub(crate) fn random() -> Self {
        let mut bytes = [0_u8; 32];
        rand::rng().fill_bytes(&mut bytes);
        Self(bytes)
    }

    /// Derives the key from a secret of the server.
    pub(crate) fn derive(secret: &str) -> Option<Self> {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).ok()?;
        mac.update(DOMAIN);
        Some(Self(mac.finalize().into_bytes().into()))
    }

    fn sign(&self, content: &str) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        mac.update(content.as_bytes());
        Some(mac)
    }
}

/// The content of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claims {
    /// Audiences.
    pub(crate) aud: Vec<String>,
    /// End of validity, in seconds since the epoch.
    pub(crate) exp: i64,
    /// Time of issue.
    pub(crate) iat: i64,
    /// Issuer.
    pub(crate) iss: String,
    /// Unique id.
    pub(crate) jti: String,
    /// Start of validity.
    pub(crate) nbf: i64,
    /// User name of the account.
    pub(crate) sub: String,
    /// The account.
    #[serde(rename = "kubernetes.io")]
    pub(crate) kubernetes: AccountClaim,
}

/// The claim about the account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AccountClaim {
    /// Namespace of the account.
    pub(crate) namespace: String,
    /// The account.
    pub(crate) serviceaccount: ObjectReference,
    /// The Secret that the token is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<ObjectReference>,
}

/// Name and uid of an account or a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ObjectReference {
    /// Name.
    pub(crate) name: String,
    /// Uid. A later object of the same name has another one.
    pub(crate) uid: String,
}

impl ObjectReference {
    /// Returns the reference to an object.
    pub(crate) fn of(object: &Value) -> Self {
        Self {
            name: meta::name(object).to_owned(),
            uid: meta::uid(object).to_owned(),
        }
    }

    /// Whether the object exists and is not being deleted.
    fn exists(&self, state: &State, resource: &str, namespace: &str) -> bool {
        let object = state.get(&Key::new(resource, namespace, &self.name));
        object.is_some_and(|object| meta::uid(object) == self.uid && !meta::is_deleting(object))
    }
}

/// Issues a token.
pub(crate) fn issue(claims: &Claims, key: &TokenKey) -> Result<String, serde_json::Error> {
    let payload = BASE64.encode(serde_json::to_vec(claims)?);
    let content = format!("{}.{payload}", BASE64.encode(HEADER));
    let signature = key
        .sign(&content)
        .map(|mac| BASE64.encode(mac.finalize().into_bytes()));
    let signature = signature.unwrap_or_default();
    Ok(format!("{content}.{signature}"))
}

/// Returns the ServiceAccount of a token that [`verify`] accepts, and the audiences of the token. The account and the Secret of the token
/// must still exist.
pub(crate) fn authenticate(
    token: &str,
    key: &TokenKey,
    now: i64,
    audiences: &[&str],
    state: &State,
) -> Option<(User, Vec<String>)> {
    let claims = verify(token, key, now, audiences)?;
    let AccountClaim {
        namespace,
        serviceaccount: account,
        secret,
    } = &claims.kubernetes;
    let is_valid = account.exists(state, "serviceaccounts", namespace)
        && secret
            .as_ref()
            .is_none_or(|secret| secret.exists(state, "secrets", namespace));
    let user = || User::service_account(namespace, &account.name, &account.uid);
    is_valid.then(|| (user(), claims.aud.clone()))
}

/// Returns the claims of a token that was issued with this key and is valid at `now`, in seconds since the epoch, for one of the
/// audiences.
fn verify(token: &str, key: &TokenKey, now: i64, audiences: &[&str]) -> Option<Claims> {
    if token.len() > MAX_BYTES {
        return None;
    }
    let (content, signature) = token.rsplit_once('.')?;
    let (header, payload) = content.split_once('.')?;
    let signature = BASE64.decode(signature).ok()?;
    // Nothing of the payload is read before its signature is verified.
    if header != BASE64.encode(HEADER) || key.sign(content)?.verify_slice(&signature).is_err() {
        return None;
    }
    let claims: Claims = serde_json::from_slice(&BASE64.decode(payload).ok()?).ok()?;
    let is_valid = claims.iss == AUDIENCE
        && claims.aud.iter().any(|audience| audiences.contains(&&**audience))
        && (claims.nbf..claims.exp).contains(&now);
    is_valid.then_some(claims)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn claims() -> Claims {
        Claims {
            aud: vec![AUDIENCE.to_owned()],
            exp: 2000,
            iat: 1000,
            iss: AUDIENCE.to_owned(),
            jti: "1".to_owned(),
            nbf: 1000,
            sub: "system:serviceaccount:team:deployer".to_owned(),
            kubernetes: AccountClaim {
                namespace: "team".to_owned(),
                serviceaccount: ObjectReference {
                    name: "deployer".to_owned(),
                    uid: "u".to_owned(),
                },
                secret: None,
            },
        }
    }

    #[test]
    fn a_token_is_valid_in_its_time_for_its_audience_and_with_its_key() {
        let (key, other) = (TokenKey::derive("a").unwrap(), TokenKey::derive("b").unwrap());
        let token = issue(&claims(), &key).unwrap();
        assert_eq!(verify(&token, &key, 1000, &[AUDIENCE]), Some(claims()));
        assert_eq!(verify(&token, &key, 1999, &[AUDIENCE]), Some(claims()));
        assert_eq!(verify(&token, &key, 999, &[AUDIENCE]), None, "not yet valid");
        assert_eq!(verify(&token, &key, 2000, &[AUDIENCE]), None, "expired");
        assert_eq!(verify(&token, &other, 1000, &[AUDIENCE]), None, "another key");
        assert_eq!(verify(&token, &TokenKey::random(), 1000, &[AUDIENCE]), None);
        let aud = vec!["vault".to_owned()];
        let elsewhere = issue(&Claims { aud, ..claims() }, &key).unwrap();
        assert_eq!(
            verify(&elsewhere, &key, 1000, &[AUDIENCE]),
            None,
            "another audience"
        );
        assert!(verify(&elsewhere, &key, 1000, &[AUDIENCE, "vault"]).is_some());
    }

    #[test]
    fn forged_tokens_are_refused() {
        let key = TokenKey::derive("a").unwrap();
        let token = issue(&claims(), &key).unwrap();
        let parts: Vec<&str> = token.split('.').collect();
        let mut wider = claims();
        wider.sub = "system:serviceaccount:team:admin".to_owned();
        let wider = BASE64.encode(serde_json::to_vec(&wider).unwrap());
        let unsigned = BASE64.encode(r#"{"alg":"none","typ":"JWT"}"#);
        for forged in [
            format!("{}.{wider}.{}", parts[0], parts[2]),
            format!("{unsigned}.{}.", parts[1]),
            format!("{unsigned}.{}.{}", parts[1], parts[2]),
            format!("{}.{}.", parts[0], parts[1]),
            format!("{}.{}", parts[0], parts[1]),
            format!("{token}.{}", parts[2]),
            "x".repeat(MAX_BYTES + 1),
            String::new(),
        ] {
            assert_eq!(verify(&forged, &key, 1000, &[AUDIENCE]), None, "{forged}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_or_is_accepted(text in "[a-zA-Z0-9._-]{0,200}|\\PC{0,50}") {
            prop_assert_eq!(verify(&text, &TokenKey::derive("a").unwrap(), 1000, &[AUDIENCE]), None);
        }
    }
}
