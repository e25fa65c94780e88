//! AWS CodeCommit: its repository URLs, and the signature used as a password. Pure.
//!
//! The signature follows Signature Version 4 for a request with method `GIT`; only the path and the `host` header are
//! signed. Its timestamp lacks the `Z` that the password has.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ring::hmac;
use sha2::{Digest as _, Sha256};
use url::Url;

use super::super::response::AwsKeys;
use crate::git::Credentials;

/// A CodeCommit repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// Host and optional port of the URL.
    host: String,
    /// Path as written in the URL.
    path: String,
    /// The region in the host name.
    region: String,
}

/// An error in the URL of a CodeCommit repository.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepositoryError {
    /// The scheme is not https.
    #[error("AWS CodeCommit authentication requires an HTTPS Git URL")]
    Scheme,
    /// The host does not belong to CodeCommit.
    #[error("invalid AWS CodeCommit Git URL: {0}")]
    Host(String),
}

impl Repository {
    /// Parses a repository's URL.
    ///
    /// # Errors
    /// The URL is not https, or its host does not belong to CodeCommit.
    pub fn parse(url: &Url) -> Result<Self, RepositoryError> {
        if url.scheme() != "https" {
            return Err(RepositoryError::Scheme);
        }
        let name = url.host_str().unwrap_or_default();
        let host = super::super::request::host(url);
        let invalid = || RepositoryError::Host(host.clone());
        let service = ["git-codecommit.", "git-codecommit-fips."]
            .iter()
            .find_map(|prefix| name.strip_prefix(prefix))
            .ok_or_else(invalid)?;
        let region = [".amazonaws.com", ".amazonaws.com.cn"]
            .iter()
            .find_map(|suffix| service.strip_suffix(suffix))
            .ok_or_else(invalid)?;
        let region = region.split('.').next().unwrap_or_default();
        // The region becomes part of another host name.
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if region.is_empty() || !region.chars().all(plain) {
            return Err(invalid());
        }
        Ok(Self {
            path: url.path().to_owned(),
            region: region.to_owned(),
            host,
        })
    }

    /// Returns the region of the repository.
    #[must_use]
    pub fn region(&self) -> &str {
        &self.region
    }

    /// Returns a username and password signed with these keys; valid for 15 minutes.
    #[must_use]
    pub fn credentials(&self, keys: &AwsKeys, now: Timestamp) -> Credentials {
        let username = match &keys.session_token {
            Some(token) => format!("{}%{}", keys.access_key_id, token.expose()),
            None => keys.access_key_id.clone(),
        };
        let time = now.to_zoned(TimeZone::UTC).strftime("%Y%m%dT%H%M%S").to_string();
        let signature = self.signature(keys, &time);
        Credentials::Basic {
            username,
            password: format!("{time}Z{signature}"),
        }
    }

    fn signature(&self, keys: &AwsKeys, time: &str) -> String {
        let Self { host, path, region } = self;
        let date = time.get(..8).unwrap_or_default();
        let request = format!("GIT\n{path}\n\nhost:{host}\n\nhost\n");
        let digest = hex::encode(Sha256::digest(request));
        let signed = format!("AWS4-HMAC-SHA256\n{time}\n{date}/{region}/codecommit/aws4_request\n{digest}");
        let start = format!("AWS4{}", keys.secret_access_key.expose()).into_bytes();
        let key = [date, region, "codecommit", "aws4_request"]
            .into_iter()
            .fold(start, |key, part| mac(&key, part).as_ref().to_vec());
        hex::encode(mac(&key, &signed))
    }
}

fn mac(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
}
