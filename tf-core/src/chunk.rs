//! Chunks: data that is too large for one Secret, split over several.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use k8s_openapi::ByteString;
use sha2::{Digest as _, Sha256};

/// Data bytes of one Secret. The limit of a Secret is 1 MiB, including keys.
pub const CHUNK_SIZE: usize = 900_000;

/// Chunks cannot be joined.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ChunkError {
    /// Chunks are missing.
    #[error("found {found} of {expected} chunks")]
    Incomplete {
        /// Chunks found.
        found: usize,
        /// Chunks written.
        expected: usize,
    },
    /// The digest is not the recorded one.
    #[error("the chunks do not have the recorded digest")]
    Altered,
    /// The data is not gzip, or exceeds the limit once decompressed.
    #[error("the chunks do not decompress")]
    Corrupt,
}

/// Returns the name of one of several Secrets by its index from 0: the name of the first, which is a prefix of the names of the others.
#[must_use]
pub fn secret_name(first: &str, index: usize) -> String {
    if index == 0 {
        first.to_owned()
    } else {
        format!("{first}-{index}")
    }
}

/// Splits streams, by data key, into the data of Secrets. Small streams share a Secret.
#[must_use]
pub fn pack(streams: &[(&str, &[u8])]) -> Vec<BTreeMap<String, ByteString>> {
    let mut chunks = vec![BTreeMap::new()];
    let mut remaining = CHUNK_SIZE;
    for (key, bytes) in streams {
        let mut rest = *bytes;
        while !rest.is_empty() {
            if remaining == 0 {
                chunks.push(BTreeMap::new());
                remaining = CHUNK_SIZE;
            }
            let (piece, more) = rest.split_at(remaining.min(rest.len()));
            if let Some(last) = chunks.last_mut() {
                last.insert((*key).to_owned(), ByteString(piece.to_vec()));
            }
            remaining -= piece.len();
            rest = more;
        }
    }
    chunks
}

/// Joins the bytes of one data key over all chunks, in order.
#[must_use]
pub fn join<'a>(chunks: impl IntoIterator<Item = &'a BTreeMap<String, ByteString>>, key: &str) -> Vec<u8> {
    chunks
        .into_iter()
        .filter_map(|chunk| chunk.get(key))
        .flat_map(|bytes| bytes.0.iter().copied())
        .collect()
}

/// Returns the digest of all chunks with their data keys: `sha256:` and hex digits. Sealed chunks have another data key, so a
/// sealed chunk and a plain one never have the same digest.
#[must_use]
pub fn digest<'a>(chunks: impl IntoIterator<Item = &'a BTreeMap<String, ByteString>>) -> String {
    let mut hash = Sha256::new();
    for chunk in chunks {
        hash.update((chunk.len() as u64).to_be_bytes());
        for (name, bytes) in chunk {
            for part in [name.as_bytes(), bytes.0.as_slice()] {
                hash.update((part.len() as u64).to_be_bytes());
                hash.update(part);
            }
        }
    }
    format!("sha256:{}", hex::encode(hash.finalize()))
}

/// Returns the SHA-256 over byte strings with their lengths, in hex.
#[must_use]
pub(crate) fn digest_of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hex::encode(hash.finalize())
}

/// Compresses with gzip.
///
/// # Errors
/// None in practice: it writes to memory.
pub fn compress(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// Decompresses at most `limit` bytes.
///
/// # Errors
/// [`ChunkError::Corrupt`] if the stream is not gzip, or longer.
pub fn decompress(bytes: &[u8], limit: u64) -> Result<Vec<u8>, ChunkError> {
    let mut plain = Vec::new();
    GzDecoder::new(bytes)
        .take(limit + 1)
        .read_to_end(&mut plain)
        .map_err(|_| ChunkError::Corrupt)?;
    if plain.len() as u64 > limit {
        Err(ChunkError::Corrupt)
    } else {
        Ok(plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_streams_share_a_chunk_and_large_ones_span_several() {
        let large = vec![7; 2 * CHUNK_SIZE + 5];
        let packed = pack(&[("a", &large), ("b", b"small")]);
        assert_eq!(packed.len(), 3);
        assert!(
            packed
                .iter()
                .all(|piece| piece.values().map(|bytes| bytes.0.len()).sum::<usize>() <= CHUNK_SIZE)
        );
        assert_eq!(join(&packed, "a"), large);
        assert_eq!(join(&packed, "b"), b"small");
        assert_eq!(pack(&[("a", b"x"), ("b", b"y")]).len(), 1);
    }

    #[test]
    fn a_digest_depends_on_chunks_and_their_names() {
        let piece = |pairs: &[(&str, &str)]| -> BTreeMap<String, ByteString> {
            let pair =
                |(name, text): &(&str, &str)| ((*name).to_owned(), ByteString(text.as_bytes().to_vec()));
            pairs.iter().map(pair).collect()
        };
        let all = [
            vec![piece(&[("a", "bc")])],
            vec![piece(&[("ab", "c")])],
            vec![piece(&[("a", "b"), ("c", "")])],
            vec![piece(&[("a", "b")]), piece(&[("c", "")])],
            vec![piece(&[("a", "bc")]), piece(&[])],
        ];
        let digests: std::collections::BTreeSet<_> = all.iter().map(digest).collect();
        assert_eq!(digests.len(), all.len());
    }

    #[test]
    fn decompression_is_bounded() {
        let small = compress(&[0; 10_000]).unwrap();
        assert_eq!(decompress(&small, 10_000).unwrap().len(), 10_000);
        assert_eq!(decompress(&small, 9_999), Err(ChunkError::Corrupt));
        assert_eq!(decompress(b"no gzip", 10), Err(ChunkError::Corrupt));
    }
}
