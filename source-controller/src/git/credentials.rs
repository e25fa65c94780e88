//! What a remote is told about who is asking: nothing, a name and a password, or a token.

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
    /// None: anybody may read.
    #[default]
    Anonymous,
    /// HTTP basic authentication.
    Basic {
        /// The name.
        username: String,
        /// The password or token; may be empty.
        password: String,
    },
    /// A bearer token.
    Bearer(String),
    /// Credentials that a provider lends for a while to somebody who stays the same.
    Lent {
        /// Digest of everything that decides who is asking, without what changes when the loan is renewed.
        who: [u8; 32],
        /// Which renewal of the loan this is.
        loan: u64,
        /// What the remote is told today.
        credentials: Box<Self>,
    },
    /// A private key, and the keys that the server may show.
    Ssh(SshCredentials),
}

/// A Secret that no credentials can be made of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// A password without a name.
    #[error("invalid '{scheme}' auth option: 'password' requires 'username' to be set")]
    PasswordWithoutUsername {
        /// `http` or `https`.
        scheme: String,
    },
    /// A token, and a name or a password beside it.
    #[error("basic auth and bearer token cannot be set at the same time")]
    BasicAndBearer,
    /// A key that nothing works without.
    #[error("invalid 'ssh' auth option: '{0}' is required")]
    Required(&'static str),
    /// A private key with a passphrase that the Secret does not have.
    #[error("SSH identity key is encrypted but no 'password' field was provided in the secret")]
    Encrypted,
    /// A token that no HTTP header can hold.
    #[error("the value of '{0}' has control characters, which no HTTP header may have")]
    NotHeader(&'static str),
    /// The value of a key is no text.
    #[error("the value of '{0}' is not UTF-8 text")]
    NotText(&'static str),
}

impl Credentials {
    /// From the Secret's data and the address: what the Secret leaves out is taken from the address.
    ///
    /// # Errors
    /// The Secret's keys do not go together.
    pub fn resolve(
        address: &Address,
        secret: Option<&BTreeMap<String, Vec<u8>>>,
    ) -> Result<Self, CredentialsError> {
        if address.is_ssh() {
            return SshCredentials::resolve(address, secret).map(Self::Ssh);
        }
        let of_secret = |key: &'static str| match secret.and_then(|data| data.get(key)) {
            Some(value) => String::from_utf8(value.clone()).map_err(|_| CredentialsError::NotText(key)),
            None => Ok(String::new()),
        };
        let either = |own: String, other: &str| if own.is_empty() { other.to_owned() } else { own };
        // Files that tokens are kept in end in a line break.
        let token = of_secret("bearerToken")?.trim().to_owned();
        if HeaderValue::try_from(&token).is_err() {
            return Err(CredentialsError::NotHeader("bearerToken"));
        }
        let (username, password) = if secret.is_some_and(|data| data.contains_key("bearerToken")) {
            // The key's presence hides these two, even if it is empty.
            (String::new(), String::new())
        } else {
            (of_secret("username")?, of_secret("password")?)
        };
        let username = either(username, address.username());
        let password = either(password, address.password());
        if !token.is_empty() {
            let alone = username.is_empty() && password.is_empty();
            return if alone {
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

    /// A digest that differs when whoever asks does, so that nobody reads a mirror that others' rights filled. Lent
    /// credentials are renewed without a change of it, and their mirror stays.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        match self {
            Self::Anonymous => hash.update(b"anonymous"),
            Self::Basic { username, password } => {
                hash.update(b"basic");
                for part in [username, password] {
                    hash.update(part.len().to_be_bytes());
                    hash.update(part);
                }
            }
            Self::Bearer(token) => {
                hash.update(b"bearer");
                hash.update(token);
            }
            Self::Lent { who, .. } => {
                hash.update(b"lent");
                hash.update(who);
            }
            Self::Ssh(credentials) => credentials.digest(&mut hash),
        }
        hash.finalize().into()
    }

    /// The value of the `Authorization` header, marked so that it stays out of logs.
    #[must_use]
    pub fn header(&self) -> Option<HeaderValue> {
        let text = match self {
            Self::Anonymous | Self::Ssh(_) => return None,
            Self::Basic { username, password } => {
                format!("Basic {}", STANDARD.encode(format!("{username}:{password}")))
            }
            Self::Bearer(token) => format!("Bearer {token}"),
            Self::Lent { credentials, .. } => return credentials.header(),
        };
        let mut value = HeaderValue::try_from(text).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Anonymous => "Anonymous",
            Self::Basic { .. } => "Basic(***)",
            Self::Bearer(_) => "Bearer(***)",
            Self::Lent { .. } => "Lent(***)",
            Self::Ssh(_) => "Ssh(***)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Outcome = Result<Credentials, CredentialsError>;
    /// Address, the Secret's data, and what comes of them.
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
    fn secret_and_address_complete_each_other() {
        let plain = "https://h/r";
        let alone = CredentialsError::PasswordWithoutUsername {
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
            (plain, Some(&[("password", "p")]), Err(alone)),
            (
                plain,
                Some(&[("ca.crt", "x"), ("tls.crt", "y")]),
                Ok(Credentials::Anonymous),
            ),
        ];
        for (url, secret, wanted) in cases {
            let address = Address::parse(url).unwrap();
            let data = secret.map(data);
            assert_eq!(
                &Credentials::resolve(&address, data.as_ref()),
                wanted,
                "{url} {secret:?}"
            );
        }
    }

    /// The whole matrix of what may be sent, the same over http as over https: Flux's controller has no switch that
    /// forbids either.
    #[test]
    fn credentials_are_allowed_over_http_as_over_https() {
        for scheme in ["http", "https", "HTTP", "hTTps"] {
            let both = CredentialsError::BasicAndBearer;
            let alone = CredentialsError::PasswordWithoutUsername {
                scheme: scheme.to_ascii_lowercase(),
            };
            let bearer = || Ok(Credentials::Bearer("t".into()));
            let cases: &[Case<'_>] = &[
                ("", None, Ok(Credentials::Anonymous)),
                ("", Some(&[("username", "u")]), Ok(basic("u", ""))),
                ("", Some(&[("password", "p")]), Err(alone.clone())),
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
                (":p@", None, Err(alone)),
                ("u:p@", None, Ok(basic("u", "p"))),
                ("u:p@", Some(&[("bearerToken", "t")]), Err(both.clone())),
                ("u@", Some(&[("bearerToken", "t")]), Err(both.clone())),
                (":p@", Some(&[("bearerToken", "t")]), Err(both)),
                ("u:p@", Some(&[("bearerToken", "")]), Ok(basic("u", "p"))),
            ];
            for (userinfo, secret, wanted) in cases {
                let address = Address::parse(&format!("{scheme}://{userinfo}h/r")).unwrap();
                let data = secret.map(data);
                let found = Credentials::resolve(&address, data.as_ref());
                assert_eq!(&found, wanted, "{scheme} {userinfo} {secret:?}");
            }
        }
    }

    #[test]
    fn a_bearer_token_loses_its_line_break_and_one_that_fits_no_header_is_refused() {
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
            "the value of 'bearerToken' has control characters, which no HTTP header may have"
        );
    }

    #[test]
    fn digests_tell_credentials_apart() {
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
    fn a_renewed_loan_has_the_same_digest_and_another_header() {
        let lent = |who: u8, token: &str| Credentials::Lent {
            who: [who; 32],
            loan: token.len() as u64,
            credentials: Box::new(Credentials::Bearer(token.into())),
        };
        assert_eq!(lent(1, "old").digest(), lent(1, "newer").digest());
        assert_ne!(lent(1, "old").digest(), lent(2, "old").digest());
        assert_eq!(lent(1, "newer").header().unwrap(), "Bearer newer");
        assert_eq!(format!("{:?}", lent(1, "old")), "Lent(***)");
    }

    #[test]
    fn nothing_secret_is_printed() {
        let credentials = basic("user", "hunter2");
        let header = credentials.header().unwrap();
        assert_eq!(header.to_str().unwrap(), "Basic dXNlcjpodW50ZXIy");
        assert_eq!(format!("{credentials:?} {header:?}"), "Basic(***) Sensitive");
    }
}
