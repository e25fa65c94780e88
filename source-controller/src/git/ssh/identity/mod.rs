//! Parses a private key from a Secret, in all formats that `ssh-keygen` and OpenSSL write.
//!
//! The formats are PKCS#1, SEC1, PKCS#8 and OpenSSH's own, each plain or encrypted. The file decides how expensive the
//! key derivation is, so excessive parameters are refused before the work begins.

mod pem;

use pem::Pem;
use pkcs8::der::Decode as _;
use pkcs8::pkcs5::pbes2::Kdf;
use russh::keys::ssh_key::{self, Algorithm, PrivateKey};
use russh::keys::{Error as KeyError, decode_secret_key};

/// Maximum length; an RSA key of 16384 bits has 13 KB.
const MAX_BYTES: usize = 64 << 10;
/// Maximum rounds of bcrypt; `ssh-keygen` uses 16 or 24, and 1024 take seconds.
const MAX_BCRYPT_ROUNDS: u32 = 1024;
/// Maximum rounds of PBKDF2; OpenSSL uses 2048, and ten million take seconds.
const MAX_PBKDF2_ROUNDS: u32 = 10_000_000;
/// Maximum memory of scrypt in bytes; OpenSSL's default takes 16 MiB.
const MAX_SCRYPT_BYTES: u64 = 128 << 20;

/// Why a key cannot be used. The message contains nothing of the key or the passphrase.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// An unsupported format.
    #[error("unknown format of the private key (expected PEM, PKCS#8 or OpenSSH)")]
    UnknownFormat,
    /// A supported format with invalid content.
    #[error("the private key is damaged: {0}")]
    Damaged(String),
    /// DSA, keys of security tokens, exotic curves.
    #[error("private keys of the type {0} are not supported: use RSA, ECDSA or Ed25519")]
    Type(String),
    /// The passphrase is missing.
    #[error("the private key is encrypted, but no passphrase is set")]
    Encrypted,
    /// The wrong passphrase, or a damaged file, which cannot be distinguished.
    #[error("the private key cannot be decrypted: the passphrase is wrong, or the key is damaged")]
    Passphrase,
    /// An unsupported encryption.
    #[error("the private key is encrypted in a way that is not supported: {0}")]
    Cipher(String),
    /// The key derivation exceeds the limits.
    #[error("the key derivation of the private key is too expensive: {0}")]
    TooCostly(String),
    /// Longer than the maximum.
    #[error("the private key is longer than {MAX_BYTES} bytes")]
    TooLong,
}

/// Whether the text is an encrypted private key. Nothing is derived or decrypted.
#[must_use]
pub fn is_encrypted(text: &str) -> bool {
    let Ok(pem) = Pem::parse(text) else { return false };
    match pem.label {
        "ENCRYPTED PRIVATE KEY" => true,
        "OPENSSH PRIVATE KEY" => PrivateKey::from_bytes(&pem.body).is_ok_and(|key| key.is_encrypted()),
        _ => pem.cipher.is_some(),
    }
}

/// Parses a key. Blocks for the bounded time of its decryption. A passphrase for an unencrypted key is ignored.
///
/// # Errors
/// The text is not a key, has an unsupported type, or cannot be decrypted.
pub fn parse(text: &str, passphrase: Option<&str>) -> Result<PrivateKey, IdentityError> {
    let pem = Pem::parse(text)?;
    let encrypted = is_encrypted(text);
    let passphrase = match (encrypted, passphrase) {
        (true, None) => return Err(IdentityError::Encrypted),
        (true, Some(passphrase)) => Some(passphrase),
        (false, _) => None,
    };
    check_kdf_cost(&pem)?;
    let key = match (&pem.cipher, passphrase) {
        (Some(cipher), Some(passphrase)) => {
            let body = cipher.decrypt(&pem.body, passphrase.as_bytes())?;
            // A wrong passphrase yields valid padding once in 256 times; then the content is random.
            decode_secret_key(&pem::encode(pem.label, &body), None).map_err(|_| IdentityError::Passphrase)?
        }
        _ => decode_secret_key(&pem::encode(pem.label, &pem.body), passphrase)
            .map_err(|error| failure(&error, encrypted))?,
    };
    match key.algorithm() {
        Algorithm::Ed25519 | Algorithm::Ecdsa { .. } | Algorithm::Rsa { .. } => Ok(key),
        other => Err(IdentityError::Type(other.to_string())),
    }
}

fn failure(error: &KeyError, encrypted: bool) -> IdentityError {
    match error {
        KeyError::UnsupportedKeyType { key_type_string, .. } => IdentityError::Type(key_type_string.clone()),
        KeyError::UnknownAlgorithm(oid) => IdentityError::Type(match oid.to_string().as_str() {
            "1.2.840.10040.4.1" => "DSA".to_owned(),
            other => other.to_owned(),
        }),
        KeyError::SshKey(ssh_key::Error::AlgorithmUnknown) => IdentityError::Type("in the file".into()),
        _ if encrypted => IdentityError::Passphrase,
        other => IdentityError::Damaged(other.to_string()),
    }
}

/// Refuses excessive costs of the key derivation.
fn check_kdf_cost(pem: &Pem<'_>) -> Result<(), IdentityError> {
    let refused = |what: String| Err(IdentityError::TooCostly(what));
    match pem.label {
        "OPENSSH PRIVATE KEY" => {
            let key = PrivateKey::from_bytes(&pem.body).map_err(|error| failure(&error.into(), false))?;
            match key.kdf() {
                ssh_key::Kdf::Bcrypt { rounds, .. } if *rounds > MAX_BCRYPT_ROUNDS => refused(format!(
                    "{rounds} rounds of bcrypt, more than {MAX_BCRYPT_ROUNDS}"
                )),
                _ => Ok(()),
            }
        }
        "ENCRYPTED PRIVATE KEY" => {
            let damaged = |error: &dyn std::error::Error| IdentityError::Damaged(error.to_string());
            let info =
                pkcs8::EncryptedPrivateKeyInfoRef::from_der(&pem.body).map_err(|error| damaged(&error))?;
            let Some(scheme) = info.encryption_algorithm.pbes2() else {
                return Err(IdentityError::Cipher("PKCS#5 version 1".into()));
            };
            match &scheme.kdf {
                Kdf::Pbkdf2(kdf) if kdf.iteration_count > MAX_PBKDF2_ROUNDS => refused(format!(
                    "{} rounds of PBKDF2, more than {MAX_PBKDF2_ROUNDS}",
                    kdf.iteration_count
                )),
                Kdf::Scrypt(kdf) => {
                    let blocks = u64::from(kdf.block_size) * u64::from(kdf.parallelization);
                    match blocks
                        .checked_mul(128)
                        .and_then(|bytes| bytes.checked_mul(kdf.cost_parameter))
                    {
                        Some(bytes) if bytes <= MAX_SCRYPT_BYTES => Ok(()),
                        _ => refused(format!(
                            "scrypt with more than {MAX_SCRYPT_BYTES} bytes of memory"
                        )),
                    }
                }
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
