//! AWS CodeCommit: which addresses are its repositories, and the signature that stands for a password there. Pure.
//!
//! The signature is Signature Version 4 over a request with the method `GIT`, of which only the path and the header
//! `host` are signed. Its time is written without the `Z` that the password has.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ring::hmac;
use sha2::{Digest as _, Sha256};
use url::Url;

use super::super::answer::Keys;
use crate::git::Credentials;

/// A repository of CodeCommit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// Host, and port if the address names one.
    host: String,
    /// Path, as it stands in the address.
    path: String,
    /// The region in the host's name.
    region: String,
}

/// Why an address is no repository of CodeCommit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepositoryError {
    /// Another scheme.
    #[error("AWS CodeCommit authentication requires an HTTPS Git URL")]
    Scheme,
    /// Another host.
    #[error("invalid AWS CodeCommit Git URL: {0}")]
    Host(String),
}

impl Repository {
    /// From a repository's address.
    ///
    /// # Errors
    /// It is not https, or its host is none of CodeCommit's.
    pub fn of(url: &Url) -> Result<Self, RepositoryError> {
        if url.scheme() != "https" {
            return Err(RepositoryError::Scheme);
        }
        let name = url.host_str().unwrap_or_default();
        let host = super::super::call::host(url);
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
        // It becomes part of the name of another host.
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

    /// The region in the host's name.
    #[must_use]
    pub fn region(&self) -> &str {
        &self.region
    }

    /// Name and password that these keys make at this moment; good for a quarter of an hour.
    #[must_use]
    pub fn credentials(&self, keys: &Keys, now: Timestamp) -> Credentials {
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

    fn signature(&self, keys: &Keys, time: &str) -> String {
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
