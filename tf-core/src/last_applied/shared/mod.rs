//! The files of last applied records, stored once in a namespace. Immutable Secrets `tffiles-<label>-<i>` hold the files. A Secret
//! `tffiles-<label>` owns them, and every stack with these files owns that Secret: garbage collection deletes all of them with the
//! last stack. The label is a prefix of the digest of the files or, if they are sealed, of their MAC under a key of the namespace.
//! Each record has the digest of its files.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use sha2::{Digest as _, Sha256};

use super::{COUNT, DIGEST, INDEX, Inputs, annotation_of};
use crate::bundle::{PlanKey, Stack};
use crate::chunk::{self, ChunkError};
use crate::plan::store::immutable_secret;
use crate::seal::{SALT, SEALED_WITH, Seal, SealError, Subject};

/// Label of the Secrets of the same files.
pub const FILES_LABEL: &str = "infra.sluice.dev/applied-files";
/// Format of sealed files.
const SEALED_FORMAT: &str = "sluice.files/1";
/// Hex digits of a digest in names and labels.
const LABEL_LENGTH: usize = 32;
const DATA_KEY: &str = "files";

/// Shared files cannot be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FilesError {
    /// Chunks are missing or altered.
    #[error("is damaged: {0}")]
    Broken(#[from] ChunkError),
    /// The files are sealed and cannot be opened.
    #[error(transparent)]
    Sealed(#[from] SealError),
}

/// The Secrets of shared files.
pub struct SharedFiles {
    /// SHA-256 of the files, in hex.
    pub digest: String,
    /// The label value of the Secrets if they are sealed.
    pub sealed_label: Option<String>,
    /// The Secret that owns the others, owned by the stack.
    pub owner: Secret,
    /// The Secrets with the files, without owner references.
    pub chunks: Vec<Secret>,
}

/// Returns the SHA-256 of the files, in hex.
#[must_use]
pub fn digest(files: &[u8]) -> String {
    hex::encode(Sha256::digest(files))
}

/// Returns the prefix of a digest for names and labels.
#[must_use]
pub(crate) fn label_of(digest: &str) -> &str {
    digest.get(..LABEL_LENGTH).unwrap_or(digest)
}

/// Returns the selector of a label value.
#[must_use]
pub fn selector(label: &str) -> String {
    format!("{FILES_LABEL}={label}")
}

/// Encodes files into Secrets, sealed if there is a key of the namespace. Equal files and keys yield equal Secrets.
///
/// # Errors
/// The encryption failed.
pub fn encode(files: &[u8], stack: &Stack, key: Option<&PlanKey>) -> Result<SharedFiles, SealError> {
    let digest = digest(files);
    let (sealed_label, chunks, common) = match key {
        None => (None, chunk::pack(&[(DATA_KEY, files)]), BTreeMap::new()),
        Some(key) => {
            let sealed = Seal::for_content(subject(stack), key, files)?.seal(files, &[])?;
            let mut common = BTreeMap::from(sealed.annotations);
            let label = label_of(&common[SALT]).to_owned();
            common.insert(DIGEST, sealed.digest);
            (Some(label), sealed.chunks, common)
        }
    };
    let label = sealed_label.as_deref().unwrap_or_else(|| label_of(&digest));
    let count = chunks.len().to_string();
    let secret = |(index, data): (usize, BTreeMap<String, ByteString>)| {
        let name = format!("tffiles-{label}-{index}");
        let labels = BTreeMap::from([(FILES_LABEL.to_owned(), label.to_owned())]);
        let own = [(INDEX, index.to_string()), (COUNT, count.clone())];
        let annotations = common.clone().into_iter().chain(own);
        let annotations = annotations.map(|(key, value)| (key.to_owned(), value));
        let mut secret = immutable_secret(stack, name, labels, annotations.collect(), data);
        secret.metadata.owner_references = None;
        secret
    };
    let secrets = chunks.into_iter().enumerate().map(secret).collect();
    let labels = BTreeMap::from([(FILES_LABEL.to_owned(), label.to_owned())]);
    let name = format!("tffiles-{label}");
    Ok(SharedFiles {
        owner: immutable_secret(stack, name, labels, BTreeMap::new(), BTreeMap::new()),
        digest,
        sealed_label,
        chunks: secrets,
    })
}

/// Decodes the files of a record from the Secrets of [`selector`].
///
/// # Errors
/// Chunks are missing or altered, the files are not those of the record, or they are sealed with an unknown key.
pub fn decode(
    secrets: &[Secret],
    inputs: &Inputs,
    stack: &Stack,
    keys: &[PlanKey],
) -> Result<Vec<u8>, FilesError> {
    let indexed = secrets.iter().filter_map(|secret| {
        let index: usize = annotation_of(&secret.metadata, INDEX).parse().ok()?;
        Some((index, (secret, secret.data.as_ref()?)))
    });
    let chunks: BTreeMap<usize, _> = indexed.collect();
    let first = chunks.values().next().map(|(secret, _)| &secret.metadata);
    let common = |key| first.map_or("", |metadata| annotation_of(metadata, key));
    let expected = common(COUNT).parse().unwrap_or(1);
    if chunks.len() < expected {
        let found = chunks.len();
        return Err(ChunkError::Incomplete { found, expected }.into());
    }
    let chunks = chunks.into_values().map(|(_, data)| data);
    let files = if inputs.sealed_label.is_some() {
        let seal = Seal::for_stored(subject(stack), common(SEALED_WITH), common(SALT), keys)?;
        let chunks: Vec<_> = chunks.collect();
        seal.open(&chunks, common(DIGEST))?.0
    } else {
        chunk::join(chunks, DATA_KEY)
    };
    if inputs.shared_files.as_ref() == Some(&digest(&files)) {
        Ok(files)
    } else {
        Err(ChunkError::Altered.into())
    }
}

/// Returns the reference to the stored owner Secret.
#[must_use]
pub fn owner_reference(name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Secret".to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    }
}

/// Binds sealed files to the namespace, whose stacks share them.
fn subject(stack: &Stack) -> Subject {
    Subject {
        format: SEALED_FORMAT,
        identity: vec![stack.namespace.clone()],
    }
}

#[cfg(test)]
mod tests;
