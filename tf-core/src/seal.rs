//! Sealed chunks: AES-256-GCM under a key of the stack or its namespace, each chunk bound to where it belongs.
//!
//! The key of what is sealed is derived (HKDF-SHA-256) from that key and 32 bytes that stand in an annotation, so
//! that it encrypts this and nothing else; the nonce is then the chunk's index. The 32 bytes are random, or, for what stacks share, a
//! MAC of the content: equal content gives equal chunks, so whoever seals it second finds them there, and whoever has no key learns
//! that it is equal and nothing more. The associated data names the form, what the chunks
//! belong to, index and count: a chunk in another place, or chunks of which one is missing, do not open. Pure but for the salt.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use rand::RngCore;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::hmac;
use sha2::{Digest as _, Sha256};

use crate::bundle::PlanKey;
use crate::chunk::CHUNK;

/// Annotation: id of the key that a sealed Secret is opened with.
pub const SEALED_WITH: &str = "infra.sluice.dev/plan-sealed-with";
/// Annotation: what makes the key of what is sealed one of its own, in hex.
pub const SALT: &str = "infra.sluice.dev/plan-salt";
/// Names the derivation of the key of the MAC.
const CONTENT: &[u8] = b"sluice.sealed-content/1";
/// Key of a sealed chunk in its Secret.
const SEALED: &str = "sealed";

/// What is sealed: its form, which also separates the keys, and the words that name the one thing of that form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Name and version of the form.
    pub form: &'static str,
    /// What it belongs to.
    pub words: Vec<String>,
}

/// Why nothing can be sealed or opened. No byte of a key or of what is sealed is part of it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SealError {
    /// This run was not given the key.
    #[error(
        "is sealed with the key {key:?}, which the Secret of --plan-encryption-secret does not hold: put the key back"
    )]
    KeyMissing {
        /// Id of the key.
        key: String,
    },
    /// The key does not open it, or it is not what was sealed.
    #[error(
        "cannot be opened with the key {key:?}: it is another key than the one of that name it was sealed with, or the \
         Secrets were altered"
    )]
    NotOpened {
        /// Id of the key.
        key: String,
    },
    /// The chunks do not have the digest that was recorded.
    #[error("does not have the digest that was recorded")]
    Altered,
    /// What is stored is not of the form.
    #[error("is not understood")]
    Malformed,
    /// It cannot be sealed.
    #[error("cannot be sealed")]
    Sealing,
}

/// Two streams, sealed.
pub struct Closed {
    /// The data of one Secret each.
    pub pieces: Vec<BTreeMap<String, ByteString>>,
    /// The annotations that open them, the digest not among them.
    pub marks: [(&'static str, String); 2],
    /// SHA-256 over the sealed chunks, each but the last behind its length.
    pub digest: String,
}

/// The seal of one subject.
pub struct Seal {
    subject: Subject,
    key_id: String,
    salt: [u8; 32],
    key: LessSafeKey,
}

impl Seal {
    /// For what is about to be stored.
    ///
    /// # Errors
    /// When the key is none.
    pub fn fresh(subject: Subject, key: &PlanKey) -> Result<Self, SealError> {
        let mut salt = [0; 32];
        rand::rng().fill_bytes(&mut salt);
        Self::with(subject, key, salt)
    }

    /// For content that is stored once however often it is sealed.
    ///
    /// # Errors
    /// When the key is none.
    pub fn of_content(subject: Subject, key: &PlanKey, content: &[u8]) -> Result<Self, SealError> {
        let bytes = key.bytes().map_err(|_| SealError::Malformed)?;
        let derived = Salt::new(HKDF_SHA256, CONTENT).extract(&bytes);
        let info = [subject.form.as_bytes()];
        let mac = derived.expand(&info, hmac::HMAC_SHA256).map(hmac::Key::from);
        let mut mac = hmac::Context::with_key(&mac.map_err(|_| SealError::Sealing)?);
        // Its name stands beside it: the same key under another name must not take it for its own.
        for part in [key.id.as_bytes(), content] {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        let mut salt = [0; 32];
        salt.copy_from_slice(mac.sign().as_ref());
        Self::with(subject, key, salt)
    }

    /// For what is stored, with the key that `sealed_with` names.
    ///
    /// # Errors
    /// When that key is not among them.
    pub fn of_stored(
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
        Self::with(subject, key, bytes)
    }

    fn with(subject: Subject, key: &PlanKey, salt: [u8; 32]) -> Result<Self, SealError> {
        let bytes = key.bytes().map_err(|_| SealError::Malformed)?;
        let derived = Salt::new(HKDF_SHA256, &salt).extract(&bytes);
        let info = [subject.form.as_bytes()];
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

    /// The sealed chunks of two streams, and the marks that open them.
    ///
    /// # Errors
    /// When the cipher refuses.
    pub fn close(&self, first: &[u8], second: &[u8]) -> Result<Closed, SealError> {
        let mut stream = Vec::with_capacity(8 + first.len() + second.len());
        stream.extend_from_slice(&(first.len() as u64).to_be_bytes());
        stream.extend_from_slice(first);
        stream.extend_from_slice(second);
        let pieces: Vec<_> = stream.chunks(CHUNK).collect();
        let count = pieces.len();
        let mut sealed = Vec::with_capacity(count);
        for (index, piece) in pieces.into_iter().enumerate() {
            let mut bytes = piece.to_vec();
            let aad = Aad::from(self.bound(index, count));
            self.key
                .seal_in_place_append_tag(nonce(index), aad, &mut bytes)
                .map_err(|_| SealError::Sealing)?;
            sealed.push(bytes);
        }
        let digest = digest(&sealed.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let pieces = sealed
            .into_iter()
            .map(|bytes| BTreeMap::from([(SEALED.to_owned(), ByteString(bytes))]));
        Ok(Closed {
            pieces: pieces.collect(),
            marks: [(SEALED_WITH, self.key_id.clone()), (SALT, hex::encode(self.salt))],
            digest,
        })
    }

    /// The two streams.
    ///
    /// # Errors
    /// When the chunks are not those that were sealed.
    pub fn open(
        &self,
        chunks: &[&BTreeMap<String, ByteString>],
        wanted: &str,
    ) -> Result<(Vec<u8>, Vec<u8>), SealError> {
        let sealed: Option<Vec<&[u8]>> = chunks
            .iter()
            .map(|chunk| chunk.get(SEALED).map(|bytes| bytes.0.as_slice()))
            .collect();
        let sealed = sealed.ok_or(SealError::Malformed)?;
        if digest(&sealed) != wanted {
            return Err(SealError::Altered);
        }
        let mut stream = Vec::new();
        for (index, piece) in sealed.iter().enumerate() {
            let mut bytes = piece.to_vec();
            let aad = Aad::from(self.bound(index, sealed.len()));
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

    /// What a chunk is bound to.
    fn bound(&self, index: usize, count: usize) -> Vec<u8> {
        let mut words = vec![serde_json::json!(self.subject.form)];
        words.extend(self.subject.words.iter().map(|word| serde_json::json!(word)));
        words.extend([serde_json::json!(index), serde_json::json!(count)]);
        serde_json::Value::Array(words).to_string().into_bytes()
    }
}

/// The index, which is used once under this key.
fn nonce(index: usize) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&(index as u64).to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// SHA-256 over byte strings, each but the last behind its length.
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
