//! Who signed a commit or a tag. Pure: bytes, keys and the time go in, an identity or a reason comes out.
//!
//! [`object`] takes a raw object apart into what was signed and the signature; the armor of the signature decides who
//! judges it: `openpgp` or `ssh`. [`Keys`] are what the user trusts. Nothing here reads a file, a clock or Kubernetes.

mod armor;
mod keys;
pub mod object;
mod openpgp;
mod ssh;

use std::fmt;

use jiff::Timestamp;

pub use armor::Form;
pub use keys::Keys;
pub use object::Signed;
pub use openpgp::OpenPgpError;
pub use ssh::SshError;

/// Largest signature that is looked at, armor included. The largest keys in use make a few kilobytes.
pub const LARGEST_SIGNATURE: usize = 128 << 10;
/// Largest set of keys that is read from one entry of a Secret; Kubernetes takes no Secret that is larger.
pub const LARGEST_KEYS: usize = 1 << 20;

/// What carries a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// A commit.
    Commit,
    /// An annotated tag.
    Tag,
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Commit => "commit",
            Self::Tag => "tag",
        })
    }
}

/// Why a signature does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// An OpenPGP signature, and no key ring.
    #[error("PGP signature detected but no PGP public keys found in secret (keys with .asc suffix)")]
    NoKeyRings,
    /// An SSH signature, and no authorized keys.
    #[error("SSH signature detected but no SSH public keys found in secret (keys with .sshpub suffix)")]
    NoAuthorizedKeys,
    /// No signature, or one of another kind.
    #[error("unsupported signature type: {0}")]
    Unsupported(Form),
    /// An OpenPGP signature that no key ring confirms.
    #[error("unable to verify Git {carrier}: {source}")]
    OpenPgp {
        /// What was signed.
        carrier: Carrier,
        /// What is wrong with the signature or the rings.
        source: OpenPgpError,
    },
    /// An SSH signature that no authorized key confirms.
    #[error("unable to verify Git {carrier} SSH signature: {source}")]
    Ssh {
        /// What was signed.
        carrier: Carrier,
        /// What is wrong with the signature or the keys.
        source: SshError,
    },
}

/// Verifies a signature against trusted keys. Answers the key that made it: for OpenPGP the id of the primary key, 16
/// upper-case hexadecimal digits; for SSH the fingerprint, `SHA256:…`. Takes up to some tens of milliseconds.
///
/// # Errors
/// There is no signature, it is of another kind, or no trusted key made it.
pub fn verify(
    signed: &Signed,
    carrier: Carrier,
    keys: &Keys,
    now: Timestamp,
) -> Result<String, SignatureError> {
    match signed.form() {
        Form::OpenPgp if keys.rings().next().is_none() => Err(SignatureError::NoKeyRings),
        Form::Ssh if keys.authorized().next().is_none() => Err(SignatureError::NoAuthorizedKeys),
        Form::OpenPgp => openpgp::verify(signed, keys.rings(), now.as_second())
            .map_err(|source| SignatureError::OpenPgp { carrier, source }),
        Form::Ssh => {
            ssh::verify(signed, keys.authorized()).map_err(|source| SignatureError::Ssh { carrier, source })
        }
        other => Err(SignatureError::Unsupported(other)),
    }
}

#[cfg(test)]
mod tests;
