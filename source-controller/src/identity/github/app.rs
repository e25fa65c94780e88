//! Parses GitHub App data from a Secret. Pure.

use std::collections::BTreeMap;
use std::fmt;

use url::Url;

use super::super::cache::Fingerprint;
use super::super::error::{IdentityError, TokenError};
use super::super::request::endpoint;

/// Default API endpoint.
const DEFAULT_URL: &str = "https://api.github.com";
/// Key of the API endpoint in the Secret.
const BASE_URL: &str = "githubAppBaseURL";

/// A GitHub App with one of its installations. `Debug` prints no key.
#[derive(Clone)]
pub struct App {
    /// The App's id.
    pub(super) id: String,
    /// The installation.
    pub(super) installation: Installation,
    /// The API endpoint.
    pub(super) base: Url,
    /// The private key in PEM.
    pub(super) key: Vec<u8>,
}

/// A reference to an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Installation {
    /// By id.
    Id(String),
    /// By the organisation or user that installed the App.
    Owner(String),
}

/// An error in GitHub App data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppError {
    /// The value is not a number.
    #[error("the value of '{0}' is not a whole number")]
    Number(&'static str),
    /// The value is not UTF-8.
    #[error("the value of '{0}' is not UTF-8 text")]
    Text(&'static str),
    /// The key is not an RSA private key.
    #[error(
        "the value of 'githubAppPrivateKey' is not an RSA private key in PEM (PKCS #1 or PKCS #8) of 2048 to 4096 bits: {0}"
    )]
    Key(String),
}

impl App {
    /// Parses the data of a Secret; `secret` is its namespace and name.
    ///
    /// # Errors
    /// A key is missing or invalid, or the keys are contradictory.
    pub(in super::super) fn from_secret(
        secret: &str,
        data: &BTreeMap<String, Vec<u8>>,
    ) -> Result<Self, IdentityError> {
        let text = |key: &'static str| -> Result<Option<&str>, IdentityError> {
            let value = data.get(key).map_or(&[][..], Vec::as_slice);
            let text = std::str::from_utf8(value).map_err(|_| TokenError::from(AppError::Text(key)))?;
            Ok(Some(text.trim()).filter(|text| !text.is_empty()))
        };
        let key = data.get("githubAppPrivateKey").filter(|key| !key.is_empty());
        let (Some(id), Some(key)) = (text("githubAppID")?, key) else {
            return Err(IdentityError::AppMissing);
        };
        let ambiguous = |found| IdentityError::Installation {
            secret: secret.to_owned(),
            found,
        };
        let installation = match (
            text("githubAppInstallationID")?,
            text("githubAppInstallationOwner")?,
        ) {
            (Some(id), None) => Installation::Id(number("githubAppInstallationID", id)?),
            (None, Some(owner)) => Installation::Owner(owner.to_owned()),
            (Some(_), Some(_)) => return Err(ambiguous("both")),
            (None, None) => return Err(ambiguous("neither")),
        };
        Ok(Self {
            id: number("githubAppID", id)?,
            installation,
            base: endpoint(BASE_URL, text(BASE_URL)?.unwrap_or(DEFAULT_URL))?,
            key: key.clone(),
        })
    }

    /// Returns the fingerprint of the identity: everything that determines the permissions of its token.
    pub(in super::super) fn fingerprint(&self) -> [u8; 32] {
        let (kind, name) = match &self.installation {
            Installation::Id(id) => ("id", id),
            Installation::Owner(owner) => ("owner", owner),
        };
        Fingerprint::new("github")
            .with(&self.id)
            .with(kind)
            .with(name)
            .with(self.base.as_str())
            .with(&self.key)
            .digest()
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App")
            .field("id", &self.id)
            .field("installation", &self.installation)
            .field("base", &self.base.as_str())
            .finish_non_exhaustive()
    }
}

fn number(key: &'static str, text: &str) -> Result<String, TokenError> {
    let number: u64 = text.parse().map_err(|_| AppError::Number(key))?;
    Ok(number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The data of a Secret and the expected result.
    type Case<'a> = (&'a [(&'a str, &'a str)], Result<&'a str, &'a str>);

    const MISSING: &str = "secretRef with github app data must be specified when provider is set to github";
    const AMBIGUOUS: &str = "secretRef 'ns/app' must have exactly one of the keys githubAppInstallationID and githubAppInstallationOwner; it has";
    const UNUSABLE: &str = "failed to configure authentication options:";
    const KEY: (&str, &str) = ("githubAppPrivateKey", "pem");
    const ID: (&str, &str) = ("githubAppID", "7");
    const INSTALLATION: (&str, &str) = ("githubAppInstallationID", "1");
    const OWNER: (&str, &str) = ("githubAppInstallationOwner", "o");

    #[test]
    fn a_secret_is_parsed_or_its_defect_is_named() {
        let base = |url| (BASE_URL, url);
        let cases: &[Case<'_>] = &[
            (&[], Err(MISSING)),
            (&[("username", "u"), ("password", "p")], Err(MISSING)),
            (&[ID], Err(MISSING)),
            (&[KEY, INSTALLATION], Err(MISSING)),
            (&[ID, KEY], Err(&format!("{AMBIGUOUS} neither"))),
            (&[ID, KEY, INSTALLATION, OWNER], Err(&format!("{AMBIGUOUS} both"))),
            (
                &[("githubAppID", "seven"), KEY, INSTALLATION],
                Err(&format!(
                    "{UNUSABLE} the value of 'githubAppID' is not a whole number"
                )),
            ),
            (
                &[ID, KEY, INSTALLATION, base("ghes.example")],
                Err(&format!(
                    "{UNUSABLE} githubAppBaseURL is not a valid URL: relative URL without a base"
                )),
            ),
            (
                &[ID, KEY, INSTALLATION],
                Ok(r#"App { id: "7", installation: Id("1"), base: "https://api.github.com/", .. }"#),
            ),
            (
                &[ID, KEY, OWNER, base("https://h/api/v3/")],
                Ok(r#"App { id: "7", installation: Owner("o"), base: "https://h/api/v3/", .. }"#),
            ),
        ];
        for (pairs, expected) in cases {
            let data = pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()))
                .collect();
            let found = App::from_secret("ns/app", &data)
                .map(|app| format!("{app:?}"))
                .map_err(|error| error.to_string());
            assert_eq!(
                found,
                expected.map(str::to_owned).map_err(str::to_owned),
                "{pairs:?}"
            );
        }
    }

    #[test]
    fn every_field_changes_the_fingerprint() {
        let app = |id: &str, installation: Installation, base: &str, key: &[u8]| {
            let (id, key) = (id.to_owned(), key.to_vec());
            let base = Url::parse(base).unwrap();
            App {
                id,
                installation,
                base,
                key,
            }
            .fingerprint()
        };
        let (id, owner) = (Installation::Id("1".into()), Installation::Owner("1".into()));
        let all = [
            app("1", id.clone(), DEFAULT_URL, b"k"),
            app("2", id.clone(), DEFAULT_URL, b"k"),
            app("1", owner, DEFAULT_URL, b"k"),
            app("1", id.clone(), "https://ghes.example", b"k"),
            app("1", id, DEFAULT_URL, b"l"),
        ];
        let distinct: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
    }
}
