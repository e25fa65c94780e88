//! The ssh part of a Secret.

use std::collections::BTreeMap;
use std::fmt;

use sha2::{Digest as _, Sha256};

use super::identity;
use crate::git::address::Address;
use crate::git::credentials::{CredentialsError, hash_parts};

/// The user that Git hosts expect.
const DEFAULT_USER: &str = "git";

/// User, private key and known hosts for a server. `Debug` shows none of them.
#[derive(Clone, PartialEq, Eq)]
pub struct SshCredentials {
    user: String,
    identity: String,
    passphrase: Option<String>,
    known_hosts: String,
}

impl SshCredentials {
    /// Reads the address and the Secret's data: `identity`, `known_hosts` and, for an encrypted key, `password`. Other
    /// keys are ignored for ssh.
    ///
    /// # Errors
    /// A key is missing, or the private key is encrypted and there is no passphrase.
    pub(in crate::git) fn resolve(
        address: &Address,
        secret: Option<&BTreeMap<String, Vec<u8>>>,
    ) -> Result<Self, CredentialsError> {
        let value = |key: &'static str| match secret.and_then(|data| data.get(key)) {
            Some(value) if !value.is_empty() => Some(value.as_slice()),
            _ => None,
        };
        let required = |key: &'static str| value(key).ok_or(CredentialsError::Required(key));
        let text = |key: &'static str, value: &[u8]| {
            String::from_utf8(value.to_vec()).map_err(|_| CredentialsError::NotText(key))
        };
        let identity = text("identity", required("identity")?)?;
        // A comment may have any encoding; everything else in the file is ASCII.
        let known_hosts = String::from_utf8_lossy(required("known_hosts")?).into_owned();
        let passphrase = value("password")
            .map(|value| text("password", value))
            .transpose()?;
        if passphrase.is_none() && identity::is_encrypted(&identity) {
            return Err(CredentialsError::Encrypted);
        }
        let user = match address.username() {
            "" => DEFAULT_USER.to_owned(),
            user => user.to_owned(),
        };
        Ok(Self {
            user,
            identity,
            passphrase,
            known_hosts,
        })
    }

    /// Returns the user at the server.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Returns the private key as in the Secret.
    pub(in crate::git) fn identity(&self) -> &str {
        &self.identity
    }

    /// Returns the passphrase of the private key.
    pub(in crate::git) fn passphrase(&self) -> Option<&str> {
        self.passphrase.as_deref()
    }

    /// Returns the known hosts as in the Secret.
    pub(in crate::git) fn known_hosts(&self) -> &str {
        &self.known_hosts
    }

    /// Adds all fields to a digest.
    pub(in crate::git) fn hash_into(&self, hash: &mut Sha256) {
        hash.update(b"ssh");
        let passphrase = self.passphrase.as_deref().unwrap_or_default();
        hash_parts(hash, [&self.user, &self.identity, passphrase, &self.known_hosts]);
    }
}

impl fmt::Debug for SshCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ssh(***)")
    }
}
