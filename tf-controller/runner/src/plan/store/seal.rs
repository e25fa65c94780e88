//! Sealed plans: AES-256-GCM under a key of the stack, each chunk bound to where it belongs.
//!
//! The key of one plan is derived (HKDF-SHA-256) from the stack's key and 32 random bytes that stand in an annotation, so that
//! it encrypts this plan and nothing else; the nonce is then the chunk's index. The associated data names stack, workspace, plan,
//! run, index and count: a chunk in another place, or a plan with fewer of them, does not open.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use rand::RngCore;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};

use super::marks::{SALT, SEALED_WITH, held};
use super::{DIGEST, PlanName, StoreError, digest};
use crate::bundle::PlanKey;
use crate::chunk::{CHUNK, ChunkError};

/// Names the form in keys and associated data.
const FORM: &str = "sluice.plan/1";
/// Key of a sealed chunk in its Secret.
const SEALED: &str = "sealed";

/// The seal of one plan.
pub(super) struct Seal<'a> {
    name: &'a PlanName,
    key_id: String,
    salt: [u8; 32],
    key: LessSafeKey,
}

impl<'a> Seal<'a> {
    /// For a plan that is about to be stored.
    pub(super) fn fresh(name: &'a PlanName, key: &PlanKey) -> Result<Self, StoreError> {
        let mut salt = [0; 32];
        rand::rng().fill_bytes(&mut salt);
        Self::with(name, key, salt)
    }

    /// For a stored plan, with the key that its first chunk names.
    pub(super) fn of_stored(
        name: &'a PlanName,
        first: &ObjectMeta,
        keys: &[PlanKey],
    ) -> Result<Self, StoreError> {
        let id = held(first, SEALED_WITH);
        let key = keys.iter().find(|key| key.id == id);
        let key = key.ok_or_else(|| StoreError::KeyMissing {
            id: name.id.clone(),
            key: id.to_owned(),
        })?;
        let mut salt = [0; 32];
        hex::decode_to_slice(held(first, SALT), &mut salt).map_err(|_| StoreError::Malformed)?;
        Self::with(name, key, salt)
    }

    fn with(name: &'a PlanName, key: &PlanKey, salt: [u8; 32]) -> Result<Self, StoreError> {
        let bytes = key.bytes().map_err(|_| StoreError::Malformed)?;
        let derived = Salt::new(HKDF_SHA256, &salt).extract(&bytes);
        let info = [FORM.as_bytes()];
        let unbound = derived.expand(&info, &AES_256_GCM).map(UnboundKey::from);
        Ok(Self {
            name,
            key_id: key.id.clone(),
            salt,
            key: LessSafeKey::new(unbound.map_err(|_| StoreError::Packing)?),
        })
    }

    /// The sealed chunks, and the marks that open them.
    #[expect(
        clippy::type_complexity,
        reason = "the data of Secrets and their annotations, used once"
    )]
    pub(super) fn close(
        &self,
        plan: &[u8],
        context: &[u8],
    ) -> Result<(Vec<BTreeMap<String, ByteString>>, Vec<(&'static str, String)>), StoreError> {
        let mut stream = Vec::with_capacity(8 + plan.len() + context.len());
        stream.extend_from_slice(&(plan.len() as u64).to_be_bytes());
        stream.extend_from_slice(plan);
        stream.extend_from_slice(context);
        let pieces: Vec<_> = stream.chunks(CHUNK).collect();
        let count = pieces.len();
        let mut sealed = Vec::with_capacity(count);
        for (index, piece) in pieces.into_iter().enumerate() {
            let mut bytes = piece.to_vec();
            let aad = Aad::from(self.bound(index, count));
            self.key
                .seal_in_place_append_tag(nonce(index), aad, &mut bytes)
                .map_err(|_| StoreError::Packing)?;
            sealed.push(bytes);
        }
        let parts: Vec<&[u8]> = sealed.iter().map(Vec::as_slice).collect();
        let marks = vec![
            ("encoding", "gzip+aes-256-gcm".to_owned()),
            (SEALED_WITH, self.key_id.clone()),
            (SALT, hex::encode(self.salt)),
            (DIGEST, digest(&parts)),
        ];
        let pieces = sealed
            .into_iter()
            .map(|bytes| BTreeMap::from([(SEALED.to_owned(), ByteString(bytes))]));
        Ok((pieces.collect(), marks))
    }

    /// The plan and its context, still compressed.
    pub(super) fn open(
        &self,
        chunks: &[&BTreeMap<String, ByteString>],
        wanted: &str,
    ) -> Result<(Vec<u8>, Vec<u8>), StoreError> {
        let sealed: Option<Vec<&[u8]>> = chunks
            .iter()
            .map(|chunk| chunk.get(SEALED).map(|bytes| bytes.0.as_slice()))
            .collect();
        let sealed = sealed.ok_or(StoreError::Malformed)?;
        if digest(&sealed) != wanted {
            return Err(StoreError::Broken {
                id: self.name.id.clone(),
                source: ChunkError::Altered,
            });
        }
        let mut stream = Vec::new();
        for (index, piece) in sealed.iter().enumerate() {
            let mut bytes = piece.to_vec();
            let aad = Aad::from(self.bound(index, sealed.len()));
            let opened = self.key.open_in_place(nonce(index), aad, &mut bytes);
            let opened = opened.map_err(|_| StoreError::NotOpened {
                id: self.name.id.clone(),
                key: self.key_id.clone(),
            })?;
            stream.extend_from_slice(opened);
        }
        let (length, rest) = stream.split_first_chunk::<8>().ok_or(StoreError::Malformed)?;
        let length = usize::try_from(u64::from_be_bytes(*length)).map_err(|_| StoreError::Malformed)?;
        let (plan, context) = rest.split_at_checked(length).ok_or(StoreError::Malformed)?;
        Ok((plan.to_vec(), context.to_vec()))
    }

    /// What a chunk is bound to.
    fn bound(&self, index: usize, count: usize) -> Vec<u8> {
        let PlanName {
            stack,
            workspace,
            id,
            run,
        } = self.name;
        let words = serde_json::json!([
            FORM,
            stack.namespace,
            stack.name,
            stack.uid,
            workspace,
            id,
            run,
            index,
            count
        ]);
        words.to_string().into_bytes()
    }
}

/// The index, which is used once under this key.
fn nonce(index: usize) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&(index as u64).to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}
