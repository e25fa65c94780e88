//! A private key from a Secret, in any of the forms that `ssh-keygen` and OpenSSL write.
//!
//! The forms are PKCS#1, SEC1, PKCS#8 and OpenSSH's own, each plain or encrypted. Deriving a key from a passphrase
//! costs what the file says it shall cost, so files that ask for too much are refused before the work is begun.

mod pem;

use pkcs8::der::Decode as _;
use pkcs8::pkcs5::pbes2::Kdf;
use russh::keys::ssh_key::{self, Algorithm, PrivateKey};
use russh::keys::{Error as KeyError, decode_secret_key};

use pem::Pem;

/// Longest text that is looked at; an RSA key of 16384 bits has 13 KB.
const LONGEST: usize = 64 << 10;
/// Rounds of bcrypt; `ssh-keygen` uses 16 or 24, and 1024 take seconds.
const BCRYPT_ROUNDS: u32 = 1024;
/// Rounds of PBKDF2; OpenSSL uses 2048, and ten million take seconds.
const PBKDF2_ROUNDS: u32 = 10_000_000;
/// Bytes of memory for scrypt; OpenSSL's default takes 16 MiB.
const SCRYPT_MEMORY: u64 = 128 << 20;

/// Why a text gives no key. Nothing of the text or the passphrase is in the message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// Something else, or a form that is not read.
    #[error("the private key is in no form that is known (PEM, PKCS#8 or OpenSSH)")]
    Form,
    /// The form is known, what is in it is not.
    #[error("the private key is damaged: {0}")]
    Damaged(String),
    /// DSA, keys of security tokens, exotic curves.
    #[error("private keys of the type {0} are not supported: use RSA, ECDSA or Ed25519")]
    Type(String),
    /// No passphrase was given.
    #[error("the private key is encrypted, and there is no passphrase for it")]
    Encrypted,
    /// The wrong passphrase, or a damaged file, which look the same.
    #[error("the private key cannot be decrypted: the passphrase is wrong, or the key is damaged")]
    Passphrase,
    /// The encryption of the file is none that is known.
    #[error("the private key is encrypted in a way that is not supported: {0}")]
    Cipher(String),
    /// The file asks for more work than is reasonable.
    #[error("the private key asks for too much work to be decrypted: {0}")]
    TooCostly(String),
    /// Longer than any key.
    #[error("the private key is longer than {LONGEST} bytes")]
    TooLong,
}

/// Whether the text is a key that a passphrase protects. Nothing is derived or decrypted.
#[must_use]
pub fn is_encrypted(text: &str) -> bool {
    let Ok(pem) = Pem::parse(text) else { return false };
    match pem.label {
        "ENCRYPTED PRIVATE KEY" => true,
        "OPENSSH PRIVATE KEY" => PrivateKey::from_bytes(&pem.body).is_ok_and(|key| key.is_encrypted()),
        _ => pem.cipher.is_some(),
    }
}

/// Reads a key. Blocks for as long as its encryption wants, which is bounded. A passphrase for a key that has none is
/// no error.
///
/// # Errors
/// The text is no key, is of a type that is not supported, or cannot be decrypted.
pub fn parse(text: &str, passphrase: Option<&str>) -> Result<PrivateKey, IdentityError> {
    let pem = Pem::parse(text)?;
    let encrypted = is_encrypted(text);
    let passphrase = match (encrypted, passphrase) {
        (true, None) => return Err(IdentityError::Encrypted),
        (true, Some(passphrase)) => Some(passphrase),
        (false, _) => None,
    };
    affordable(&pem)?;
    let key = match (&pem.cipher, passphrase) {
        (Some(cipher), Some(passphrase)) => {
            let body = cipher.decrypt(&pem.body, passphrase.as_bytes())?;
            // A wrong passphrase gives a right padding once in 256 times; then the body is noise.
            decode_secret_key(&pem::plain(pem.label, &body), None).map_err(|_| IdentityError::Passphrase)?
        }
        _ => decode_secret_key(&pem::plain(pem.label, &pem.body), passphrase)
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

/// Bounds what deriving the key may cost.
fn affordable(pem: &Pem<'_>) -> Result<(), IdentityError> {
    let refused = |what: String| Err(IdentityError::TooCostly(what));
    match pem.label {
        "OPENSSH PRIVATE KEY" => {
            let key = PrivateKey::from_bytes(&pem.body).map_err(|error| failure(&error.into(), false))?;
            match key.kdf() {
                ssh_key::Kdf::Bcrypt { rounds, .. } if *rounds > BCRYPT_ROUNDS => {
                    refused(format!("{rounds} rounds of bcrypt, more than {BCRYPT_ROUNDS}"))
                }
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
                Kdf::Pbkdf2(kdf) if kdf.iteration_count > PBKDF2_ROUNDS => refused(format!(
                    "{} rounds of PBKDF2, more than {PBKDF2_ROUNDS}",
                    kdf.iteration_count
                )),
                Kdf::Scrypt(kdf) => {
                    let blocks = u64::from(kdf.block_size) * u64::from(kdf.parallelization);
                    match blocks
                        .checked_mul(128)
                        .and_then(|bytes| bytes.checked_mul(kdf.cost_parameter))
                    {
                        Some(bytes) if bytes <= SCRYPT_MEMORY => Ok(()),
                        _ => refused(format!("scrypt with more than {SCRYPT_MEMORY} bytes of memory")),
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
