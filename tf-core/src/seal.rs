//! Sealed chunks: AES-256-GCM under a key of the stack or its namespace.
//!
//! HKDF-SHA-256 derives the encryption key from that key and a salt of 32 bytes, which is stored in an annotation. An encryption key
//! is used for one content only, so the nonce is the index of the chunk. The salt is random or, for content that stacks share, a MAC
//! of the content: equal content yields equal chunks, which reveals its equality and nothing else. The associated data has the
//! format, the subject, the index and the count, so chunks of another subject, or an incomplete set, do not open.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use rand::RngCore;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::hmac;
use sha2::{Digest as _, Sha256};

use crate::bundle::PlanKey;
use crate::chunk::CHUNK_SIZE;

/// Annotation: id of the key of a sealed Secret.
pub const SEALED_WITH: &str = "infra.sluice.dev/plan-sealed-with";
/// Annotation: the salt in hex.
pub const SALT: &str = "infra.sluice.dev/plan-salt";
/// Salt for the derivation of the MAC key.
const MAC_SALT: &[u8] = b"sluice.sealed-content/1";
/// Data key of a sealed chunk in its Secret.
const DATA_KEY: &str = "sealed";

/// The object that sealed chunks belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Name and version of the format. Each format has its own keys.
    pub format: &'static str,
    /// Its identity within the format.
    pub identity: Vec<String>,
}

/// An error of sealing or opening. It contains no bytes of keys or content.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SealError {
    /// The key is not configured.
    #[error(
        "is sealed with the key {key:?}, which the Secret of --plan-encryption-secret does not contain: restore the key"
    )]
    KeyMissing {
        /// Id of the key.
        key: String,
    },
    /// The key is wrong, or the chunks were altered.
    #[error(
        "cannot be decrypted with the key {key:?}: the key was replaced under this name, or the Secrets were modified"
    )]
    NotOpened {
        /// Id of the key.
        key: String,
    },
    /// The digest of the chunks is not the recorded one.
    #[error("does not have the recorded digest")]
    Altered,
    /// The chunks or annotations are malformed.
    #[error("is invalid")]
    Malformed,
    /// The encryption failed.
    #[error("cannot be sealed")]
    Sealing,
}

/// Two sealed streams.
pub struct SealedChunks {
    /// The data of one Secret each.
    pub chunks: Vec<BTreeMap<String, ByteString>>,
    /// Annotations with key id and salt.
    pub annotations: [(&'static str, String); 2],
    /// The [`digest`] of the sealed chunks.
    pub digest: String,
}

/// The cipher of one subject.
pub struct Seal {
    subject: Subject,
    key_id: String,
    salt: [u8; 32],
    key: LessSafeKey,
}

impl Seal {
    /// Creates a cipher with a random salt.
    ///
    /// # Errors
    /// The key is invalid.
    pub(crate) fn with_random_salt(subject: Subject, key: &PlanKey) -> Result<Self, SealError> {
        let mut salt = [0; 32];
        rand::rng().fill_bytes(&mut salt);
        Self::new(subject, key, salt)
    }

    /// Creates a cipher whose salt depends on key and content, so that equal content is stored once.
    ///
    /// # Errors
    /// The key is invalid.
    pub(crate) fn for_content(subject: Subject, key: &PlanKey, content: &[u8]) -> Result<Self, SealError> {
        let bytes = key.bytes().map_err(|_| SealError::Malformed)?;
        let derived = Salt::new(HKDF_SHA256, MAC_SALT).extract(&bytes);
        let info = [subject.format.as_bytes()];
        let mac = derived.expand(&info, hmac::HMAC_SHA256).map(hmac::Key::from);
        let mut mac = hmac::Context::with_key(&mac.map_err(|_| SealError::Sealing)?);
        // The key id is stored with the chunks, so another id must yield other chunks.
        for part in [key.id.as_bytes(), content] {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        let mut salt = [0; 32];
        salt.copy_from_slice(mac.sign().as_ref());
        Self::new(subject, key, salt)
    }

    /// Creates a cipher for stored chunks, with the key that `sealed_with` names.
    ///
    /// # Errors
    /// `keys` do not contain that key.
    pub(crate) fn for_stored(
        subject: Subject,
        sealed_with: &str,
        salt: &str,
        keys: &[PlanKey],
    ) -> Result<Self, SealError> {
        let key = keys.iter().find(|key| key.id == sealed_with);
        let key = key.ok_or_else(|| SealError::KeyMissing {
            key: sealed_with.to_owned(),
        })?;
        let mut bytes = [0; 32];
        hex::decode_to_slice(salt, &mut bytes).map_err(|_| SealError::Malformed)?;
        Self::new(subject, key, bytes)
    }

    fn new(subject: Subject, key: &PlanKey, salt: [u8; 32]) -> Result<Self, SealError> {
        let bytes = key.bytes().map_err(|_| SealError::Malformed)?;
        let derived = Salt::new(HKDF_SHA256, &salt).extract(&bytes);
        let info = [subject.format.as_bytes()];
        let unbound = derived.expand(&info, &AES_256_GCM).map(UnboundKey::from);
        let key_id = key.id.clone();
        let key = LessSafeKey::new(unbound.map_err(|_| SealError::Sealing)?);
        Ok(Self {
            subject,
            key_id,
            salt,
            key,
        })
    }

    /// Seals two streams.
    ///
    /// # Errors
    /// The encryption failed.
    pub fn seal(&self, first: &[u8], second: &[u8]) -> Result<SealedChunks, SealError> {
        let mut stream = Vec::with_capacity(8 + first.len() + second.len());
        stream.extend_from_slice(&(first.len() as u64).to_be_bytes());
        stream.extend_from_slice(first);
        stream.extend_from_slice(second);
        let plain: Vec<_> = stream.chunks(CHUNK_SIZE).collect();
        let count = plain.len();
        let mut sealed = Vec::with_capacity(count);
        for (index, chunk) in plain.into_iter().enumerate() {
            let mut bytes = chunk.to_vec();
            let aad = Aad::from(self.associated_data(index, count));
            self.key
                .seal_in_place_append_tag(nonce(index), aad, &mut bytes)
                .map_err(|_| SealError::Sealing)?;
            sealed.push(bytes);
        }
        let digest = digest(&sealed.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let chunks = sealed
            .into_iter()
            .map(|bytes| BTreeMap::from([(DATA_KEY.to_owned(), ByteString(bytes))]));
        Ok(SealedChunks {
            chunks: chunks.collect(),
            annotations: [(SEALED_WITH, self.key_id.clone()), (SALT, hex::encode(self.salt))],
            digest,
        })
    }

    /// Opens two streams.
    ///
    /// # Errors
    /// The chunks are not those that were sealed, or do not have this digest.
    pub fn open(
        &self,
        chunks: &[&BTreeMap<String, ByteString>],
        expected_digest: &str,
    ) -> Result<(Vec<u8>, Vec<u8>), SealError> {
        let sealed: Option<Vec<&[u8]>> = chunks
            .iter()
            .map(|chunk| chunk.get(DATA_KEY).map(|bytes| bytes.0.as_slice()))
            .collect();
        let sealed = sealed.ok_or(SealError::Malformed)?;
        if digest(&sealed) != expected_digest {
            return Err(SealError::Altered);
        }
        let mut stream = Vec::new();
        for (index, chunk) in sealed.iter().enumerate() {
            let mut bytes = chunk.to_vec();
            let aad = Aad::from(self.associated_data(index, sealed.len()));
            let opened = self.key.open_in_place(nonce(index), aad, &mut bytes);
            let opened = opened.map_err(|_| SealError::NotOpened {
                key: self.key_id.clone(),
            })?;
            stream.extend_from_slice(opened);
        }
        let (length, rest) = stream.split_first_chunk::<8>().ok_or(SealError::Malformed)?;
        let length = usize::try_from(u64::from_be_bytes(*length)).map_err(|_| SealError::Malformed)?;
        let (first, second) = rest.split_at_checked(length).ok_or(SealError::Malformed)?;
        Ok((first.to_vec(), second.to_vec()))
    }

    fn associated_data(&self, index: usize, count: usize) -> Vec<u8> {
        let mut words = vec![serde_json::json!(self.subject.format)];
        words.extend(self.subject.identity.iter().map(|word| serde_json::json!(word)));
        words.extend([serde_json::json!(index), serde_json::json!(count)]);
        serde_json::Value::Array(words).to_string().into_bytes()
    }
}

/// Returns the index as nonce: each encryption key seals each index once.
fn nonce(index: usize) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&(index as u64).to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// Returns the SHA-256 over byte strings, each but the last prefixed by its length.
#[must_use]
pub fn digest(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for (index, part) in parts.iter().enumerate() {
        if index + 1 < parts.len() {
            hash.update((part.len() as u64).to_be_bytes());
        }
        hash.update(part);
    }
    hex::encode(hash.finalize())
}
