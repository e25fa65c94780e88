//! The index of an artifact: which segments its file contains, in their order. Pure.
//!
//! It stands beside the artifact and is read as foreign bytes, because a disk may damage it: a limit on its size, one encoding of each
//! index, and a digest over all of it. It names the digest of its artifact, so that it fits no other file. Without a valid index
//! everything is compressed again.
//!
//! ```text
//! "sluice segments 1\n" | length of the artifact's digest: u8 | digest as text
//!   | number of records: u32 | records | number of sizes: u32 | sizes | SHA-256 of all this
//! record: key: 32 bytes | length, unpacked, crc, stored crc, notable files, first notable file: u32 each
//! size: name of a Git object: 20 bytes | its size: u64
//! ```
//! Numbers are big-endian. The offset of a segment is the sum of the lengths before it. The sizes spare the next build a look at each
//! file that has not changed.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};
use sluice_api::digest::Digest;

use super::member::HEADER;
use super::segment::{Key, MAX, Notable};

const MAGIC: &[u8] = b"sluice segments 1\n";
/// Length of a record.
const RECORD_BYTES: usize = 32 + 6 * 4;
/// Length of a size.
const SIZE_BYTES: usize = 20 + 8;
/// Maximum number of sizes. The others are looked up.
pub(super) const MAX_SIZES: usize = 200_000;
/// Length of the SHA-256 at the end.
const SUM_BYTES: usize = 32;
/// Maximum length of an index: besides all sizes 200,000 segments, which are about 100 GB of files.
pub const MAX_INDEX_BYTES: u64 = 16 << 20;

/// One segment of an artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Names the content and the compressor.
    pub(super) key: Key,
    /// Number of compressed bytes.
    pub(super) length: u32,
    /// Number of bytes of the tar.
    pub(super) unpacked: u32,
    /// CRC-32 of the bytes of the tar.
    pub(super) crc: u32,
    /// CRC-32 of the compressed bytes, which tells whether the file still has them.
    pub(super) stored_crc: u32,
    /// The notable files.
    pub(super) notable: Notable,
}

/// Why bytes are no index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// More bytes than [`MAX_INDEX_BYTES`].
    #[error("it is too large")]
    TooLarge,
    /// Another format, or another version of it.
    #[error("it has another format")]
    Format,
    /// The digest at the end differs: the file is damaged.
    #[error("it is damaged")]
    Damaged,
}

/// The name of a Git object.
type ObjectName = [u8; 20];

/// The segments of an artifact, and the sizes of its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    artifact: Digest,
    records: Vec<Record>,
    sizes: Vec<(ObjectName, u64)>,
}

/// The segments of an artifact by their keys, with the offset of each in its file.
pub(super) type Table = HashMap<Key, (u64, Record)>;

impl Index {
    /// Creates an index; there are at most [`MAX_SIZES`] sizes.
    pub(super) const fn new(artifact: Digest, records: Vec<Record>, sizes: Vec<(ObjectName, u64)>) -> Self {
        Self {
            artifact,
            records,
            sizes,
        }
    }

    /// Returns the known sizes of Git objects, in bytes.
    #[must_use]
    pub fn sizes(&self) -> HashMap<[u8; 20], u64> {
        self.sizes.iter().copied().collect()
    }

    /// Returns the digest of the artifact that this index belongs to.
    #[must_use]
    pub const fn artifact(&self) -> &Digest {
        &self.artifact
    }

    /// Returns the bytes that [`Index::parse`] reads.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let digest = self.artifact.to_string();
        let mut bytes = MAGIC.to_vec();
        bytes.push(u8::try_from(digest.len()).unwrap_or_default());
        bytes.extend_from_slice(digest.as_bytes());
        put_count(&mut bytes, self.records.len());
        for record in &self.records {
            record.encode(&mut bytes);
        }
        put_count(&mut bytes, self.sizes.len());
        for (name, size) in &self.sizes {
            bytes.extend_from_slice(name);
            bytes.extend_from_slice(&size.to_be_bytes());
        }
        let sum: [u8; SUM_BYTES] = Sha256::digest(&bytes).into();
        bytes.extend_from_slice(&sum);
        bytes
    }

    /// Parses an index.
    ///
    /// # Errors
    /// The bytes are none, or are damaged.
    pub fn parse(bytes: &[u8]) -> Result<Self, IndexError> {
        if bytes.len() as u64 > MAX_INDEX_BYTES {
            return Err(IndexError::TooLarge);
        }
        let (content, sum) = bytes.split_last_chunk::<SUM_BYTES>().ok_or(IndexError::Format)?;
        let rest = content.strip_prefix(MAGIC).ok_or(IndexError::Format)?;
        if <[u8; SUM_BYTES]>::from(Sha256::digest(content)) != *sum {
            return Err(IndexError::Damaged);
        }
        read(rest).ok_or(IndexError::Format)
    }

    /// Returns the segments by their keys.
    pub(super) fn into_table(self) -> Table {
        let mut offset = HEADER.len() as u64;
        let mut table = Table::with_capacity(self.records.len());
        for record in self.records {
            table.insert(record.key, (offset, record));
            offset += u64::from(record.length);
        }
        table
    }
}

fn put_count(bytes: &mut Vec<u8>, count: usize) {
    bytes.extend_from_slice(&u32::try_from(count).unwrap_or_default().to_be_bytes());
}

/// Reads everything between magic and digest.
fn read(rest: &[u8]) -> Option<Index> {
    let (length, rest) = rest.split_first()?;
    let (digest, rest) = rest.split_at_checked(usize::from(*length))?;
    let artifact = std::str::from_utf8(digest).ok()?.parse::<Digest>().ok()?;
    let (records, rest) = split_list(rest, RECORD_BYTES)?;
    let records = records.chunks_exact(RECORD_BYTES).map(Record::read);
    let (sizes, rest) = split_list(rest, SIZE_BYTES)?;
    let sizes = sizes.chunks_exact(SIZE_BYTES).map(read_size);
    let index = Index {
        records: records.collect::<Option<_>>()?,
        sizes: sizes.collect::<Option<_>>()?,
        artifact,
    };
    // The parser of digests may accept other spellings, which are other bytes.
    let is_whole = rest.is_empty() && index.artifact.to_string().as_bytes() == digest;
    (is_whole && index.sizes.len() <= MAX_SIZES).then_some(index)
}

/// Splits off a list: its number of items, and the items of this length.
fn split_list(bytes: &[u8], item: usize) -> Option<(&[u8], &[u8])> {
    let (count, rest) = bytes.split_first_chunk()?;
    let count = usize::try_from(u32::from_be_bytes(*count)).ok()?;
    rest.split_at_checked(count.checked_mul(item)?)
}

fn read_size(bytes: &[u8]) -> Option<(ObjectName, u64)> {
    let (name, size) = bytes.split_first_chunk()?;
    Some((*name, u64::from_be_bytes(size.try_into().ok()?)))
}

impl Record {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.key);
        let Notable { count, first } = self.notable;
        for number in [
            self.length,
            self.unpacked,
            self.crc,
            self.stored_crc,
            count,
            first,
        ] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
    }

    /// Reads a record; `None` if no segment is like this.
    fn read(bytes: &[u8]) -> Option<Self> {
        let (key, mut rest) = bytes.split_first_chunk()?;
        let mut number = || {
            let (number, later) = rest.split_first_chunk()?;
            rest = later;
            Some(u32::from_be_bytes(*number))
        };
        let record = Self {
            key: *key,
            length: number()?,
            unpacked: number()?,
            crc: number()?,
            stored_crc: number()?,
            notable: Notable {
                count: number()?,
                first: number()?,
            },
        };
        // A segment that does not compress grows by less than half.
        let is_plausible = (1..=MAX).contains(&u64::from(record.unpacked))
            && record.length > 0
            && u64::from(record.length) <= MAX + MAX / 2;
        is_plausible.then_some(record)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn records() -> impl Strategy<Value = Vec<Record>> {
        let max = u32::try_from(MAX).unwrap();
        let numbers = (
            1..=max,
            1..=max,
            any::<u32>(),
            any::<u32>(),
            any::<u32>(),
            any::<u32>(),
        );
        let record =
            (any::<Key>(), numbers).prop_map(|(key, (length, unpacked, crc, stored_crc, count, first))| {
                Record {
                    key,
                    length,
                    unpacked,
                    crc,
                    stored_crc,
                    notable: Notable { count, first },
                }
            });
        proptest::collection::vec(record, 0..20)
    }

    fn index(records: &[Record]) -> Index {
        let sizes = records.iter().zip(0_u8..);
        let sizes = sizes.map(|(record, name)| ([name; 20], u64::from(record.unpacked)));
        Index::new(Digest::sha256([7; 32]), records.to_vec(), sizes.collect())
    }

    #[test]
    fn as_many_sizes_as_are_kept_are_read() {
        for (count, expected) in [(MAX_SIZES, true), (MAX_SIZES + 1, false)] {
            let sizes = vec![([1; 20], 2); count];
            let index = Index::new(Digest::sha256([7; 32]), Vec::new(), sizes);
            assert_eq!(index.sizes(), HashMap::from([([1; 20], 2)]));
            assert_eq!(Index::parse(&index.encode()).is_ok(), expected);
        }
    }

    #[test]
    fn other_bytes_are_no_index() {
        let valid = index(&[]).encode();
        assert!(Index::parse(&valid).is_ok());
        assert_eq!(Index::parse(b""), Err(IndexError::Format));
        assert_eq!(Index::parse(&[b'x'; 200]), Err(IndexError::Format));
        assert_eq!(Index::parse(&valid[..valid.len() - 1]), Err(IndexError::Damaged));
        let large = vec![0; usize::try_from(MAX_INDEX_BYTES).unwrap() + 1];
        assert_eq!(Index::parse(&large), Err(IndexError::TooLarge));
    }

    /// A valid digest does not make a valid index: another version may have written it.
    #[test]
    fn a_record_that_no_segment_has_is_rejected() {
        let record = Record {
            key: [1; 32],
            length: 9,
            unpacked: 512,
            crc: 1,
            stored_crc: 2,
            notable: Notable::default(),
        };
        assert!(Index::parse(&index(&[record]).encode()).is_ok());
        for (length, unpacked) in [(0, 512), (9, 0), (u32::MAX, 512), (9, u32::MAX)] {
            let record = Record {
                length,
                unpacked,
                ..record
            };
            let parsed = Index::parse(&index(&[record]).encode());
            assert_eq!(parsed, Err(IndexError::Format), "{length} {unpacked}");
        }
    }

    proptest! {
        #[test]
        fn an_index_is_read_as_it_was_written(records in records()) {
            let index = index(&records);
            prop_assert_eq!(Index::parse(&index.encode()), Ok(index));
        }

        #[test]
        fn a_changed_byte_is_noticed(records in records(), at in any::<prop::sample::Index>(), by in 1..=255_u8) {
            let mut bytes = index(&records).encode();
            let at = at.index(bytes.len());
            bytes[at] ^= by;
            prop_assert!(Index::parse(&bytes).is_err());
        }

        #[test]
        fn any_bytes_are_an_index_or_not(
            content in proptest::collection::vec(any::<u8>(), 0..300),
            signed in any::<bool>(),
        ) {
            let mut bytes = content;
            if signed {
                bytes = [MAGIC, &bytes].concat();
                let sum: [u8; SUM_BYTES] = Sha256::digest(&bytes).into();
                bytes.extend_from_slice(&sum);
            }
            if let Ok(index) = Index::parse(&bytes) {
                prop_assert_eq!(index.encode(), bytes);
            }
        }

        #[test]
        fn offsets_are_those_of_the_file(records in records()) {
            let table = index(&records).into_table();
            let mut offset = HEADER.len() as u64;
            for record in records {
                // Equal keys would have equal content; the last one counts.
                if table[&record.key].1 == record {
                    prop_assert_eq!(table[&record.key].0, offset);
                }
                offset += u64::from(record.length);
            }
        }
    }
}
