//! Round trips, damage and bounds of an index.

use proptest::prelude::*;

use super::*;
use crate::archive::earlier::Earlier;
use crate::archive::member::HEADER;
use crate::archive::{Body, Entry};

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
    let record = (any::<Key>(), numbers).prop_map(
        |(key, (length, unpacked, crc, stored_crc, count, first))| Record {
            key,
            length,
            unpacked,
            crc,
            stored_crc,
            notable: Notable { count, first },
        },
    );
    proptest::collection::vec(record, 0..20)
}

fn valid_record() -> Record {
    Record {
        key: [1; 32],
        length: 9,
        unpacked: 512,
        crc: 1,
        stored_crc: 2,
        notable: Notable::default(),
    }
}

/// Returns an index of one segment for each record, with a file each and a directory of all of them.
fn index(records: &[Record]) -> Index {
    let (mut listing, mut segments) = (Listing::default(), Vec::new());
    for (record, number) in records.iter().zip(0_u8..) {
        listing.push(&Entry {
            path: format!("d/{number:02}").into_bytes(),
            body: Body::File {
                executable: number.is_multiple_of(2),
                size: u64::from(record.unpacked),
                id: vec![number; if number.is_multiple_of(3) { 32 } else { 20 }].into(),
                content: (),
            },
        });
        segments.push((1, 1));
    }
    let mut directory = Directory::new(b"d", &[1; 20], 0);
    directory.entries = u32::try_from(segments.len()).unwrap();
    let checkpoints = records.iter().map(|record| [record.key[0]; _]).collect();
    Index::new(Digest::sha256([7; 32]), records.to_vec(), segments, listing)
        .with_checkpoints(checkpoints)
        .with_directories([3; 32], vec![directory])
}

/// Another path, another type or another number of entries are other bytes, and an index has the entries that it says.
#[test]
fn a_listing_that_does_not_fit_its_index_is_rejected() {
    let record = valid_record();
    let valid = index(&[record, record]);
    assert!(Index::parse(&valid.encode()).is_ok());
    let mut beyond = Directory::new(b"e", &[1; 20], 1);
    beyond.entries = 2;
    let mut nested = Directory::new(b"e", &[1; 20], 0);
    nested.inner = 1;
    for wrong in [
        Index {
            segments: vec![(1, 1)],
            ..valid.clone()
        },
        Index {
            segments: vec![(1, 1), (1, 2)],
            ..valid.clone()
        },
        Index {
            segments: vec![(2, 2), (0, 0)],
            ..valid.clone()
        },
        Index {
            segments: Vec::new(),
            ..valid.clone()
        },
        valid.clone().with_directories([3; 32], vec![beyond]),
        valid.with_directories([3; 32], vec![nested]),
    ] {
        assert_eq!(
            Index::parse(&wrong.encode()),
            Err(IndexError::Format),
            "{wrong:?}"
        );
    }
}

/// Another compressor makes other bytes of the same entries. Such an index still says which entries there were.
#[test]
fn segments_of_another_compressor_are_not_copied_by_position() {
    let record = valid_record();
    let current = index(&[record, record]);
    let other = Index {
        format: [0; 32],
        ..current.clone()
    };
    assert_eq!(Index::parse(&other.encode()), Ok(other.clone()));
    let (current, other) = (Earlier::new(current), Earlier::new(other));
    assert_eq!((current.segment_at(1), other.segment_at(1)), (Some(1), None));
    assert_eq!((current.segments_before(2), other.segments_before(2)), (2, 0));
    assert_eq!(current.listing, other.listing);
}

#[test]
fn a_stripped_index_has_everything_but_the_checkpoints() {
    let full = index(&[valid_record(), valid_record()]);
    assert_eq!(full.checkpoints().len(), 2);
    let stripped = Index::parse(&Index::strip_checkpoints(full.encode()));
    assert_eq!(stripped, Ok(full.with_checkpoints(Vec::new())));
    assert_eq!(Index::strip_checkpoints(b"other".to_vec()), b"other");
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
    let record = valid_record();
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
        let table = Earlier::new(index(&records)).table;
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
