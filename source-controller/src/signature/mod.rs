//! Verifies signatures of commits and tags. Pure: takes bytes, keys and the time.
//!
//! [`object`] splits a raw object into payload and signature. The signature's format selects the verifier: `openpgp` or
//! `ssh`. [`TrustedKeys`] are the user's keys.

mod armor;
mod keys;
pub mod object;
mod openpgp;
mod ssh;

use std::fmt;

pub use armor::SignatureFormat;
use jiff::Timestamp;
pub use keys::TrustedKeys;
pub use object::SignedObject;
pub use openpgp::OpenPgpError;
pub use ssh::SshError;

/// Maximum size of a signature with its armor, in bytes. Real signatures have at most a few kilobytes.
pub(crate) const MAX_SIGNATURE_BYTES: usize = 128 << 10;
/// Maximum size of one entry with keys, in bytes; also the maximum size of a Secret.
pub(crate) const MAX_KEYS_BYTES: usize = 1 << 20;

/// The kind of a signed object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// A commit.
    Commit,
    /// An annotated tag.
    Tag,
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Commit => "commit",
            Self::Tag => "tag",
        })
    }
}

/// An error that makes a signature invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// An OpenPGP signature, but no key ring.
    #[error("PGP signature detected but no PGP public keys found in secret (keys with .asc suffix)")]
    NoKeyRings,
    /// An SSH signature, but no authorized keys.
    #[error("SSH signature detected but no SSH public keys found in secret (keys with .sshpub suffix)")]
    NoAuthorizedKeys,
    /// No signature, or one of an unsupported format.
    #[error("unsupported signature type: {0}")]
    Unsupported(SignatureFormat),
    /// The OpenPGP signature cannot be verified.
    #[error("unable to verify Git {kind}: {source}")]
    OpenPgp {
        /// The signed object.
        kind: ObjectKind,
        /// The cause.
        source: OpenPgpError,
    },
    /// The SSH signature cannot be verified.
    #[error("unable to verify Git {kind} SSH signature: {source}")]
    Ssh {
        /// The signed object.
        kind: ObjectKind,
        /// The cause.
        source: SshError,
    },
}

/// Verifies a signature against trusted keys. Returns the key that made it: for OpenPGP the id of the primary key, 16
/// upper-case hexadecimal digits; for SSH the fingerprint, `SHA256:…`. Takes up to tens of milliseconds.
///
/// # Errors
/// The signature is missing, unsupported, invalid, or from an untrusted key.
pub fn verify(
    signed: &SignedObject,
    kind: ObjectKind,
    keys: &TrustedKeys,
    now: Timestamp,
) -> Result<String, SignatureError> {
    match signed.format() {
        SignatureFormat::OpenPgp if keys.key_rings().next().is_none() => Err(SignatureError::NoKeyRings),
        SignatureFormat::Ssh if keys.ssh_keys().next().is_none() => Err(SignatureError::NoAuthorizedKeys),
        SignatureFormat::OpenPgp => openpgp::verify(signed, keys.key_rings(), now.as_second())
            .map_err(|source| SignatureError::OpenPgp { kind, source }),
        SignatureFormat::Ssh => {
            ssh::verify(signed, keys.ssh_keys()).map_err(|source| SignatureError::Ssh { kind, source })
        }
        other => Err(SignatureError::Unsupported(other)),
    }
}

#[cfg(test)]
mod tests;
