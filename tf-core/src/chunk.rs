//! Bytes too large for one Secret: packed into several, and put together again with nothing missing (pure).

use std::collections::BTreeMap;
use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use k8s_openapi::ByteString;
use sha2::{Digest as _, Sha256};

/// Payload of one Secret. Its limit is 1 MiB, keys included.
pub const CHUNK: usize = 900_000;

/// Why chunks cannot be put together.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ChunkError {
    /// Some are missing.
    #[error("{found} of {wanted} chunks are there")]
    Incomplete {
        /// Chunks found.
        found: usize,
        /// Chunks that were written.
        wanted: usize,
    },
    /// Their digest is not the one that was written.
    #[error("the chunks do not have the digest that was recorded")]
    Altered,
    /// They hold no gzip stream, or one that grows beyond the limit.
    #[error("the chunks do not decompress")]
    Corrupt,
}

/// Streams by key, cut into pieces that each fit into a Secret. Small streams share one.
#[must_use]
pub fn pack(streams: &[(&str, &[u8])]) -> Vec<BTreeMap<String, ByteString>> {
    let mut packed = vec![BTreeMap::new()];
    let mut room = CHUNK;
    for (key, bytes) in streams {
        let mut rest = *bytes;
        while !rest.is_empty() {
            if room == 0 {
                packed.push(BTreeMap::new());
                room = CHUNK;
            }
            let (piece, more) = rest.split_at(room.min(rest.len()));
            if let Some(last) = packed.last_mut() {
                last.insert((*key).to_owned(), ByteString(piece.to_vec()));
            }
            room -= piece.len();
            rest = more;
        }
    }
    packed
}

/// The bytes of one key, over all pieces in their order.
#[must_use]
pub fn joined<'a>(pieces: impl IntoIterator<Item = &'a BTreeMap<String, ByteString>>, key: &str) -> Vec<u8> {
    pieces
        .into_iter()
        .filter_map(|piece| piece.get(key))
        .flat_map(|bytes| bytes.0.iter().copied())
        .collect()
}

/// Digest of all that the pieces hold, with the names that it lies under: `sha256:` and its hex digits. What is sealed has
/// another name than what is not, so one never passes for the other.
#[must_use]
pub fn digest<'a>(pieces: impl IntoIterator<Item = &'a BTreeMap<String, ByteString>>) -> String {
    let mut hash = Sha256::new();
    for piece in pieces {
        hash.update((piece.len() as u64).to_be_bytes());
        for (name, bytes) in piece {
            for part in [name.as_bytes(), bytes.0.as_slice()] {
                hash.update((part.len() as u64).to_be_bytes());
                hash.update(part);
            }
        }
    }
    format!("sha256:{}", hex::encode(hash.finalize()))
}

/// Compresses.
///
/// # Errors
/// Never in practice: it writes to memory.
pub fn compress(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// Decompresses at most `limit` bytes.
///
/// # Errors
/// [`ChunkError::Corrupt`] when the stream is broken or longer.
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
        let large = vec![7; 2 * CHUNK + 5];
        let packed = pack(&[("a", &large), ("b", b"small")]);
        assert_eq!(packed.len(), 3);
        assert!(
            packed
                .iter()
                .all(|piece| piece.values().map(|bytes| bytes.0.len()).sum::<usize>() <= CHUNK)
        );
        assert_eq!(joined(&packed, "a"), large);
        assert_eq!(joined(&packed, "b"), b"small");
        assert_eq!(pack(&[("a", b"x"), ("b", b"y")]).len(), 1);
    }

    #[test]
    fn a_digest_tells_pieces_and_their_names_apart() {
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
