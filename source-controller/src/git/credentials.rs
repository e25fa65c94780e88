//! Credentials for a remote: none, basic authentication, a token, or an ssh key.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use sha2::{Digest as _, Sha256};

use super::address::Address;
use super::ssh::SshCredentials;

/// Credentials of one remote. `Debug` shows neither name nor password.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Credentials {
    /// No credentials.
    #[default]
    Anonymous,
    /// HTTP basic authentication.
    Basic {
        /// The user name.
        username: String,
        /// The password or token; may be empty.
        password: String,
    },
    /// A bearer token.
    Bearer(String),
    /// Short-lived credentials of a workload identity.
    WorkloadIdentity {
        /// Digest of everything that identifies the reader, without what changes on renewal.
        identity: [u8; 32],
        /// Version of the credentials; changes with each renewal.
        version: u64,
        /// The current credentials.
        credentials: Box<Self>,
    },
    /// A private key and the known hosts.
    Ssh(SshCredentials),
}

/// A Secret that contains no valid credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// A password without a user name.
    #[error("invalid '{scheme}' auth option: 'password' requires 'username' to be set")]
    PasswordWithoutUsername {
        /// `http` or `https`.
        scheme: String,
    },
    /// A token together with a user name or a password.
    #[error("basic auth and bearer token cannot be set at the same time")]
    BasicAndBearer,
    /// A missing required key.
    #[error("invalid 'ssh' auth option: '{0}' is required")]
    Required(&'static str),
    /// An encrypted private key without a passphrase in the Secret.
    #[error("SSH identity key is encrypted but no 'password' field was provided in the secret")]
    Encrypted,
    /// A token that is not a valid HTTP header value.
    #[error("the value of '{0}' contains control characters, which HTTP headers do not allow")]
    NotHeader(&'static str),
    /// A value that is not text.
    #[error("the value of '{0}' is not UTF-8 text")]
    NotText(&'static str),
}

impl Credentials {
    /// Reads the Secret's data; the address provides what the Secret omits.
    ///
    /// # Errors
    /// The Secret's keys contradict each other.
    pub fn resolve(
        address: &Address,
        secret: Option<&BTreeMap<String, Vec<u8>>>,
    ) -> Result<Self, CredentialsError> {
        if address.is_ssh() {
            return SshCredentials::resolve(address, secret).map(Self::Ssh);
        }
        let secret_value = |key: &'static str| match secret.and_then(|data| data.get(key)) {
            Some(value) => String::from_utf8(value.clone()).map_err(|_| CredentialsError::NotText(key)),
            None => Ok(String::new()),
        };
        let either = |own: String, other: &str| if own.is_empty() { other.to_owned() } else { own };
        // Token files often end in a line break.
        let token = secret_value("bearerToken")?.trim().to_owned();
        if HeaderValue::try_from(&token).is_err() {
            return Err(CredentialsError::NotHeader("bearerToken"));
        }
        let (username, password) = if secret.is_some_and(|data| data.contains_key("bearerToken")) {
            // The key's presence disables these two, even if it is empty.
            (String::new(), String::new())
        } else {
            (secret_value("username")?, secret_value("password")?)
        };
        let username = either(username, address.username());
        let password = either(password, address.password());
        if !token.is_empty() {
            let password_only = username.is_empty() && password.is_empty();
            return if password_only {
                Ok(Self::Bearer(token))
            } else {
                Err(CredentialsError::BasicAndBearer)
            };
        }
        match (username.is_empty(), password.is_empty()) {
            (true, true) => Ok(Self::Anonymous),
            (true, false) => Err(CredentialsError::PasswordWithoutUsername {
                scheme: address.url().scheme().to_owned(),
            }),
            (false, _) => Ok(Self::Basic { username, password }),
        }
    }

    /// Returns a digest that differs for different readers, so a mirror is never read with other credentials than those
    /// that filled it. Renewed workload identity credentials keep their digest and their mirror.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        match self {
            Self::Anonymous => hash.update(b"anonymous"),
            Self::Basic { username, password } => {
                hash.update(b"basic");
                hash_parts(&mut hash, [username, password]);
            }
            Self::Bearer(token) => {
                hash.update(b"bearer");
                hash.update(token);
            }
            Self::WorkloadIdentity { identity, .. } => {
                hash.update(b"lent");
                hash.update(identity);
            }
            Self::Ssh(credentials) => credentials.hash_into(&mut hash),
        }
        hash.finalize().into()
    }

    /// Returns the value of the `Authorization` header, marked as sensitive so that it stays out of logs.
    #[must_use]
    pub fn header(&self) -> Option<HeaderValue> {
        let text = match self {
            Self::Anonymous | Self::Ssh(_) => return None,
            Self::Basic { username, password } => {
                format!("Basic {}", STANDARD.encode(format!("{username}:{password}")))
            }
            Self::Bearer(token) => format!("Bearer {token}"),
            Self::WorkloadIdentity { credentials, .. } => return credentials.header(),
        };
        let mut value = HeaderValue::try_from(text).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

/// Adds parts to a digest, each after its length, so that different lists never collide.
pub(crate) fn hash_parts<T: AsRef<[u8]>>(hash: &mut Sha256, parts: impl IntoIterator<Item = T>) {
    for part in parts {
        hash.update(part.as_ref().len().to_be_bytes());
        hash.update(part);
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Anonymous => "Anonymous",
            Self::Basic { .. } => "Basic(***)",
            Self::Bearer(_) => "Bearer(***)",
            Self::WorkloadIdentity { .. } => "Lent(***)",
            Self::Ssh(_) => "Ssh(***)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Outcome = Result<Credentials, CredentialsError>;
    /// Address, Secret data, expected result.
    type Case<'a> = (&'a str, Option<&'a [(&'a str, &'a str)]>, Outcome);

    fn basic(username: &str, password: &str) -> Credentials {
        Credentials::Basic {
            username: username.into(),
            password: password.into(),
        }
    }

    fn data(pairs: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        let pairs = pairs.iter();
        pairs
            .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()))
            .collect()
    }

    #[test]
    fn secret_and_address_are_combined() {
        let plain = "https://h/r";
        let password_only = CredentialsError::PasswordWithoutUsername {
            scheme: "https".into(),
        };
        let cases: &[Case<'_>] = &[
            (plain, None, Ok(Credentials::Anonymous)),
            (plain, Some(&[]), Ok(Credentials::Anonymous)),
            (
                plain,
                Some(&[("username", "u"), ("password", "p")]),
                Ok(basic("u", "p")),
            ),
            (plain, Some(&[("username", "u")]), Ok(basic("u", ""))),
            ("https://a:b@h/r", None, Ok(basic("a", "b"))),
            ("https://a%40x:b%2Fc@h/r", None, Ok(basic("a@x", "b/c"))),
            ("https://a:b@h/r", Some(&[("username", "u")]), Ok(basic("u", "b"))),
            ("https://a@h/r", Some(&[("password", "p")]), Ok(basic("a", "p"))),
            (plain, Some(&[("password", "p")]), Err(password_only)),
            (
                plain,
                Some(&[("ca.crt", "x"), ("tls.crt", "y")]),
                Ok(Credentials::Anonymous),
            ),
        ];
        for (url, secret, expected) in cases {
            let address = Address::parse(url).unwrap();
            let data = secret.map(data);
            assert_eq!(
                &Credentials::resolve(&address, data.as_ref()),
                expected,
                "{url} {secret:?}"
            );
        }
    }

    /// All combinations, with equal results for http and https: Flux's controller has no option that forbids either.
    #[test]
    fn credentials_are_allowed_over_http_and_https() {
        for scheme in ["http", "https", "HTTP", "hTTps"] {
            let both = CredentialsError::BasicAndBearer;
            let password_only = CredentialsError::PasswordWithoutUsername {
                scheme: scheme.to_ascii_lowercase(),
            };
            let bearer = || Ok(Credentials::Bearer("t".into()));
            let cases: &[Case<'_>] = &[
                ("", None, Ok(Credentials::Anonymous)),
                ("", Some(&[("username", "u")]), Ok(basic("u", ""))),
                ("", Some(&[("password", "p")]), Err(password_only.clone())),
                (
                    "",
                    Some(&[("username", "u"), ("password", "p")]),
                    Ok(basic("u", "p")),
                ),
                ("", Some(&[("bearerToken", "t")]), bearer()),
                ("", Some(&[("bearerToken", "t"), ("username", "u")]), bearer()),
                ("", Some(&[("bearerToken", "t"), ("password", "p")]), bearer()),
                (
                    "",
                    Some(&[("bearerToken", ""), ("username", "u")]),
                    Ok(Credentials::Anonymous),
                ),
                ("u@", None, Ok(basic("u", ""))),
                (":p@", None, Err(password_only)),
                ("u:p@", None, Ok(basic("u", "p"))),
                ("u:p@", Some(&[("bearerToken", "t")]), Err(both.clone())),
                ("u@", Some(&[("bearerToken", "t")]), Err(both.clone())),
                (":p@", Some(&[("bearerToken", "t")]), Err(both)),
                ("u:p@", Some(&[("bearerToken", "")]), Ok(basic("u", "p"))),
            ];
            for (userinfo, secret, expected) in cases {
                let address = Address::parse(&format!("{scheme}://{userinfo}h/r")).unwrap();
                let data = secret.map(data);
                let found = Credentials::resolve(&address, data.as_ref());
                assert_eq!(&found, expected, "{scheme} {userinfo} {secret:?}");
            }
        }
    }

    #[test]
    fn a_bearer_token_is_trimmed_and_control_characters_are_refused() {
        let address = Address::parse("https://h/r").unwrap();
        let resolve = |token: &str| Credentials::resolve(&address, Some(&data(&[("bearerToken", token)])));
        for token in ["t", "t\n", "t\r\n", " t\t\n"] {
            let credentials = resolve(token).unwrap();
            assert_eq!(credentials, Credentials::Bearer("t".into()), "{token:?}");
            assert_eq!(credentials.header().unwrap(), "Bearer t");
        }
        assert_eq!(resolve("\n"), Ok(Credentials::Anonymous));
        let error = resolve("a\nb").unwrap_err();
        assert_eq!(
            error.to_string(),
            "the value of 'bearerToken' contains control characters, which HTTP headers do not allow"
        );
    }

    #[test]
    fn digests_differ_for_different_credentials() {
        let digest = |u: &str, p: &str| basic(u, p).digest();
        assert_ne!(digest("ab", "c"), digest("a", "bc"));
        assert_ne!(digest("", ""), Credentials::Anonymous.digest());
        assert_eq!(digest("a", "b"), digest("a", "b"));
        assert_ne!(
            Credentials::Bearer("a".into()).digest(),
            Credentials::Bearer("b".into()).digest()
        );
    }

    #[test]
    fn renewed_workload_identity_credentials_keep_their_digest() {
        let workload_identity = |who: u8, token: &str| Credentials::WorkloadIdentity {
            identity: [who; 32],
            version: token.len() as u64,
            credentials: Box::new(Credentials::Bearer(token.into())),
        };
        assert_eq!(
            workload_identity(1, "old").digest(),
            workload_identity(1, "newer").digest()
        );
        assert_ne!(
            workload_identity(1, "old").digest(),
            workload_identity(2, "old").digest()
        );
        assert_eq!(workload_identity(1, "newer").header().unwrap(), "Bearer newer");
        assert_eq!(format!("{:?}", workload_identity(1, "old")), "Lent(***)");
    }

    #[test]
    fn secrets_are_not_printed() {
        let credentials = basic("user", "hunter2");
        let header = credentials.header().unwrap();
        assert_eq!(header.to_str().unwrap(), "Basic dXNlcjpodW50ZXIy");
        assert_eq!(format!("{credentials:?} {header:?}"), "Basic(***) Sensitive");
    }
}
