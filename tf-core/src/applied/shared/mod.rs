//! The files that stacks applied, kept once in a namespace however many stacks applied the same: immutable Secrets
//! `tffiles-<mark>-<i>`, and a small one `tffiles-<mark>` that owns them and that each of these stacks owns: another stack writes the
//! small one alone, and the last that goes takes all with it. The mark is made of the digest of the files, or,
//! where they are sealed, of their MAC under a key of the namespace. The stack's own Secrets name
//! the digest, by which the files are known to be the right ones. Pure; `run::shared_files` writes and reads.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use sha2::{Digest as _, Sha256};

use super::{COUNT, DIGEST, INDEX, Inputs, held};
use crate::bundle::{PlanKey, Stack};
use crate::chunk::{self, ChunkError};
use crate::plan::store::piece;
use crate::seal::{SALT, SEALED_WITH, Seal, SealError, Subject};

/// Label: which files, by their mark.
pub const FILES_LABEL: &str = "infra.sluice.dev/applied-files";
/// Names the form of what is sealed.
const SEALED_FORM: &str = "sluice.files/1";
/// Hex digits of a digest in a name and a label.
const MARK: usize = 32;
const KEY: &str = "files";

/// Why files cannot be taken from their Secrets.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FilesError {
    /// They are not whole, or not the ones that were kept.
    #[error("is not whole: {0}")]
    Broken(#[from] ChunkError),
    /// They are sealed, and cannot be opened.
    #[error(transparent)]
    Sealed(#[from] SealError),
}

/// Files in the form in which they are kept.
pub struct Kept {
    /// SHA-256 of the files, in hex.
    pub digest: String,
    /// The mark of the Secrets, where they are sealed.
    pub sealed_mark: Option<String>,
    /// The Secret that owns the others, owned by one stack.
    pub holder: Secret,
    /// The Secrets with the files, without an owner.
    pub pieces: Vec<Secret>,
}

/// SHA-256 of the files, in hex.
#[must_use]
pub fn digest(files: &[u8]) -> String {
    hex::encode(Sha256::digest(files))
}

/// The part of a digest that names and labels hold.
#[must_use]
pub fn mark(digest: &str) -> &str {
    digest.get(..MARK).unwrap_or(digest)
}

/// The label selector of the files of a mark.
#[must_use]
pub fn selector(mark: &str) -> String {
    format!("{FILES_LABEL}={mark}")
}

/// What keeps the files, owned by this stack; sealed where there is a key of the namespace. Another stack that has the same files
/// and the same key gets the same.
///
/// # Errors
/// When they cannot be sealed.
pub fn encode(files: &[u8], stack: &Stack, key: Option<&PlanKey>) -> Result<Kept, SealError> {
    let digest = digest(files);
    let (sealed_mark, pieces, marks) = match key {
        None => (None, chunk::pack(&[(KEY, files)]), BTreeMap::new()),
        Some(key) => {
            let closed = Seal::of_content(subject(stack), key, files)?.close(files, &[])?;
            let mut marks = BTreeMap::from(closed.marks);
            let mark = mark(&marks[SALT]).to_owned();
            marks.insert(DIGEST, closed.digest);
            (Some(mark), closed.pieces, marks)
        }
    };
    let label = sealed_mark.as_deref().unwrap_or_else(|| mark(&digest));
    let count = pieces.len().to_string();
    let secret = |(index, data): (usize, BTreeMap<String, ByteString>)| {
        let name = format!("tffiles-{label}-{index}");
        let labels = BTreeMap::from([(FILES_LABEL.to_owned(), label.to_owned())]);
        let own = [(INDEX, index.to_string()), (COUNT, count.clone())];
        let annotations = marks.clone().into_iter().chain(own);
        let annotations = annotations.map(|(key, value)| (key.to_owned(), value));
        let mut secret = piece(stack, name, labels, annotations.collect(), data);
        secret.metadata.owner_references = None;
        secret
    };
    let secrets = pieces.into_iter().enumerate().map(secret).collect();
    let labels = BTreeMap::from([(FILES_LABEL.to_owned(), label.to_owned())]);
    let name = format!("tffiles-{label}");
    Ok(Kept {
        holder: piece(stack, name, labels, BTreeMap::new(), BTreeMap::new()),
        digest,
        sealed_mark,
        pieces: secrets,
    })
}

/// The files of an apply out of the Secrets of [`selector`].
///
/// # Errors
/// When some are missing, are not the ones that were kept, or are sealed with a key that is not there.
pub fn decode(
    secrets: &[Secret],
    inputs: &Inputs,
    stack: &Stack,
    keys: &[PlanKey],
) -> Result<Vec<u8>, FilesError> {
    let indexed = secrets.iter().filter_map(|secret| {
        let index: usize = held(&secret.metadata, INDEX).parse().ok()?;
        Some((index, (secret, secret.data.as_ref()?)))
    });
    let pieces: BTreeMap<usize, _> = indexed.collect();
    let first = pieces.values().next().map(|(secret, _)| &secret.metadata);
    let marked = |key| first.map_or("", |metadata| held(metadata, key));
    let wanted = marked(COUNT).parse().unwrap_or(1);
    if pieces.len() < wanted {
        let found = pieces.len();
        return Err(ChunkError::Incomplete { found, wanted }.into());
    }
    let pieces = pieces.into_values().map(|(_, data)| data);
    let files = if inputs.sealed_mark.is_some() {
        let seal = Seal::of_stored(subject(stack), marked(SEALED_WITH), marked(SALT), keys)?;
        let pieces: Vec<_> = pieces.collect();
        seal.open(&pieces, marked(DIGEST))?.0
    } else {
        chunk::joined(pieces, KEY)
    };
    if inputs.shared_files.as_ref() == Some(&digest(&files)) {
        Ok(files)
    } else {
        Err(ChunkError::Altered.into())
    }
}

/// The reference by which a holder that the API has stored owns the files.
#[must_use]
pub fn owned_by(name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Secret".to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    }
}

/// What is sealed is bound to the namespace, whose stacks share it.
fn subject(stack: &Stack) -> Subject {
    Subject {
        form: SEALED_FORM,
        words: vec![stack.namespace.clone()],
    }
}

#[cfg(test)]
mod tests;
