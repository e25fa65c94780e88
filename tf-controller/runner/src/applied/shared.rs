//! The files that stacks applied, kept once in a namespace however many stacks applied the same: immutable Secrets
//! `tffiles-<32 of the digest>-<i>` that each of these stacks owns, and that go with the last of them. The stack's own Secrets name
//! the digest, by which the files are known to be the right ones. Pure; `run::shared_files` writes and reads.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use sha2::{Digest as _, Sha256};

use super::{COUNT, INDEX, held};
use crate::bundle::Stack;
use crate::chunk::{self, ChunkError};
use crate::plan::store::piece;

/// Label: which files, by [`mark`].
pub const FILES_LABEL: &str = "infra.sluice.dev/applied-files";
/// Hex digits of a digest in a name and a label.
const MARK: usize = 32;
const KEY: &str = "files";

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

/// The label selector of files.
#[must_use]
pub fn selector(digest: &str) -> String {
    format!("{FILES_LABEL}={}", mark(digest))
}

/// The Secrets that keep the files, owned by this stack.
#[must_use]
pub fn encode(files: &[u8], stack: &Stack) -> Vec<Secret> {
    let digest = digest(files);
    let pieces = chunk::pack(&[(KEY, files)]);
    let count = pieces.len().to_string();
    let secret = |(index, data): (usize, BTreeMap<String, ByteString>)| {
        let name = format!("tffiles-{}-{index}", mark(&digest));
        let labels = BTreeMap::from([(FILES_LABEL.to_owned(), mark(&digest).to_owned())]);
        let annotations = BTreeMap::from([
            (INDEX.to_owned(), index.to_string()),
            (COUNT.to_owned(), count.clone()),
        ]);
        piece(stack, name, labels, annotations, data)
    };
    pieces.into_iter().enumerate().map(secret).collect()
}

/// The files of this digest out of the Secrets of [`selector`].
///
/// # Errors
/// When some are missing, or are not the ones that were kept.
pub fn decode(secrets: &[Secret], wanted: &str) -> Result<Vec<u8>, ChunkError> {
    let indexed = secrets.iter().filter_map(|secret| {
        let index: usize = held(&secret.metadata, INDEX).parse().ok()?;
        Some((index, secret.data.as_ref()?))
    });
    let pieces: BTreeMap<usize, _> = indexed.collect();
    let count = secrets.first().map_or("", |secret| held(&secret.metadata, COUNT));
    let count = count.parse().unwrap_or(1);
    if pieces.len() < count {
        let found = pieces.len();
        return Err(ChunkError::Incomplete { found, wanted: count });
    }
    let files = chunk::joined(pieces.into_values(), KEY);
    if digest(&files) == wanted {
        Ok(files)
    } else {
        Err(ChunkError::Altered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(name: &str) -> Stack {
        Stack {
            namespace: "team".into(),
            name: name.into(),
            uid: name.into(),
        }
    }

    #[test]
    fn two_stacks_keep_the_same_files_in_the_same_secrets() {
        let files: Vec<u8> = (0..2 * chunk::CHUNK + 5).map(|n| n.to_le_bytes()[1]).collect();
        let [one, other] = ["net", "app"].map(|name| encode(&files, &stack(name)));
        let names = |all: &[Secret]| -> Vec<_> { all.iter().map(|s| s.metadata.name.clone()).collect() };
        assert_eq!((names(&one), one.len()), (names(&other), 3));
        assert!(one.iter().zip(&other).all(|(one, other)| one.data == other.data));
        let mut found = one.clone();
        found.reverse();
        assert_eq!(decode(&found, &digest(&files)), Ok(files.clone()));
        assert_ne!(names(&encode(b"other", &stack("net"))), names(&one));
    }

    #[test]
    fn other_files_than_those_that_were_kept_are_refused() {
        let files = vec![7; chunk::CHUNK + 1];
        let wanted = digest(&files);
        let mut kept = encode(&files, &stack("net"));
        let incomplete = |found, wanted| Err(ChunkError::Incomplete { found, wanted });
        assert_eq!(decode(&kept[..1], &wanted), incomplete(1, 2));
        assert_eq!(decode(&[], &wanted), incomplete(0, 1));
        kept[1] = encode(b"forged", &stack("net")).remove(0);
        assert!(decode(&kept, &wanted).is_err());
        let forged = encode(b"forged", &stack("net"));
        assert_eq!(decode(&forged, &wanted), Err(ChunkError::Altered));
    }
}
