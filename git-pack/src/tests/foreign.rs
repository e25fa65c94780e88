//! Packs that Git never writes.

use git2::Odb;
use proptest::prelude::*;
use sluice_harness::git::pack::{
    PackWriter, deflate, deflated_zeros, literal_delta, object_name, repeating_delta,
};
use tempfile::TempDir;

use super::*;

/// Entry of a random pack: a blob, or a delta based on an earlier entry or on the name of a blob.
#[derive(Clone, Debug)]
pub(super) enum AnyEntry {
    Blob(u8),
    OfsDelta(u8, u8),
    RefDelta(u8, u8),
    Raw(u8, Vec<u8>),
}

pub(super) fn entry() -> impl Strategy<Value = AnyEntry> {
    prop_oneof![
        4 => (0_u8..8).prop_map(AnyEntry::Blob),
        3 => (0_u8..12, 0_u8..8).prop_map(|(base, to)| AnyEntry::OfsDelta(base, to)),
        3 => (0_u8..8, 0_u8..8).prop_map(|(base, to)| AnyEntry::RefDelta(base, to)),
        1 => (0_u8..8, proptest::collection::vec(any::<u8>(), 0..24)).prop_map(|(kind, raw)| AnyEntry::Raw(kind, raw)),
    ]
}

pub(super) fn written(entries: &[AnyEntry]) -> Vec<u8> {
    let mut pack = PackWriter::default();
    let mut starts = Vec::new();
    for entry in entries {
        let at = pack.position();
        match entry {
            AnyEntry::Blob(number) => drop(pack.object("blob", &blob(*number))),
            AnyEntry::OfsDelta(base, to) => {
                let start = starts.get(usize::from(*base)).copied().unwrap_or(at);
                pack.offset(at - start, &literal_delta(4, &blob(*to)));
            }
            AnyEntry::RefDelta(base, to) => {
                pack.reference(object_name("blob", &blob(*base)), &literal_delta(4, &blob(*to)));
            }
            AnyEntry::Raw(kind, raw) => pack.entry(*kind, raw.len() as u64, &[], &deflate(raw)),
        }
        starts.push(at);
    }
    pack.finish()
}

fn blob(number: u8) -> Vec<u8> {
    vec![number; 4]
}

/// Returns the error for a pack; checks that no file remains.
fn refused(pack: &[u8], limits: &Limits) -> String {
    let (packs, bases) = (TempDir::new().unwrap(), Odb::new().unwrap());
    let mut chunks = chunks(pack, 65_000);
    let error = index(&mut chunks, &bases, packs.path(), limits, &|| false).unwrap_err();
    assert_eq!(std::fs::read_dir(packs.path()).unwrap().count(), 0);
    error.to_string()
}

/// Bases that cannot be opened.
struct Closed;

impl Bases for Closed {
    fn odb(&self) -> Result<&Odb<'_>, PackError> {
        Err(PackError::Stopped)
    }
}

#[test]
fn the_bases_are_opened_only_for_a_thin_pack() {
    let (packs, limits) = (TempDir::new().unwrap(), Limits::default());
    let index_closed = |pack: &[u8]| index(&mut chunks(pack, 64), &Closed, packs.path(), &limits, &|| false);
    let mut pack = PackWriter::default();
    let base = pack.object("blob", b"base");
    pack.reference(base, &literal_delta(4, b"next"));
    assert_eq!(index_closed(&pack.finish()).unwrap().unwrap().objects, 2);
    pack.reference(object_name("blob", b"else"), &literal_delta(4, b"more"));
    let error = index_closed(&pack.finish()).unwrap_err();
    assert!(matches!(error, PackError::Stopped), "{error}");
}

#[test]
fn two_deltas_with_one_result_are_refused() {
    let mut pack = PackWriter::default();
    let base = pack.object("blob", b"base");
    pack.reference(base, &literal_delta(4, b"same"));
    pack.reference(base, &literal_delta(4, b"same"));
    let id = hex::encode(object_name("blob", b"same"));
    assert_eq!(
        refused(&pack.finish(), &Limits::default()),
        format!("it contains object {id} twice")
    );
    let mut pack = PackWriter::default();
    let base = pack.object("blob", b"base");
    pack.reference(base, &literal_delta(4, b"base"));
    let id = hex::encode(base);
    assert_eq!(
        refused(&pack.finish(), &Limits::default()),
        format!("it contains object {id} twice")
    );
}

#[test]
fn more_entries_than_in_the_header_are_refused() {
    let mut pack = PackWriter::default();
    let base = pack.object("blob", b"base");
    for number in 0..1000_u32 {
        pack.reference(base, &literal_delta(4, &number.to_be_bytes()));
    }
    let error = refused(&pack.finish_with_count(2), &Limits::default());
    assert_eq!(error, "it continues after the 2 objects of its header");
    let error = refused(&pack.finish_with_count(1002), &Limits::default());
    assert!(
        error.starts_with(&format!("the entry at byte {}", pack.position())),
        "{error}"
    );
    let limits = Limits {
        objects: 1000,
        ..Limits::default()
    };
    assert_eq!(refused(&pack.finish(), &limits), "more than 1000 objects");
}

#[test]
fn deltas_with_oversized_results_are_refused() {
    let (base, result) = (80_000_000, 160_000_000);
    let mut pack = PackWriter::default();
    pack.entry(3, base, &[], &deflated_zeros(base));
    pack.offset(pack.position() - 12, &repeating_delta(base, result));
    let pack = pack.finish();
    assert!(pack.len() < 100_000);
    assert_eq!(
        refused(&pack, &Limits::default()),
        "more than 67108864 bytes of one deltified object"
    );
    let limits = Limits {
        unpacked_bytes: 1 << 20,
        ..Limits::default()
    };
    assert_eq!(refused(&pack, &limits), "more than 1048576 unpacked bytes");
}

#[test]
fn long_and_large_chains_are_refused() {
    let chain = |length: usize, size: u64| {
        let mut pack = PackWriter::default();
        let mut last = pack.position();
        pack.entry(3, size, &[], &deflated_zeros(size));
        for number in 0..length {
            let at = pack.position();
            // Each one is a byte longer than the previous one.
            let mut delta = repeating_delta(size + number as u64, size + number as u64 + 1);
            delta.truncate(delta.len() - 4);
            delta.extend([1, 7]);
            pack.offset(at - last, &delta);
            last = at;
        }
        pack.finish()
    };
    assert_eq!(
        refused(&chain(4100, 10), &Limits::default()),
        "it has a delta chain longer than 4095"
    );
    let limits = Limits {
        delta_bytes: 1 << 20,
        ..Limits::default()
    };
    assert_eq!(
        refused(&chain(40, 1 << 19), &limits),
        "more than 16777216 bytes of one delta chain"
    );
    let packs = TempDir::new().unwrap();
    // Exceeds the cache budget: evicted objects are rebuilt.
    let objects = index_pack(&chain(20, 4 << 20), 65_000, &Odb::new().unwrap(), packs.path()).unwrap();
    assert_eq!(objects, 21);
    let (stored, index) = pair(packs.path());
    assert!(index == index_of_git(&stored));
}

#[test]
fn bases_that_are_not_earlier_entries_are_refused() {
    for (distance, why) in [
        (0, "itself"),
        (5, "the middle of an entry"),
        (4000, "before the pack"),
    ] {
        let mut pack = PackWriter::default();
        pack.object("blob", b"base");
        let at = pack.position();
        pack.offset(distance, &literal_delta(4, b"next"));
        let error = format!("the entry at byte {at} is a delta whose base is not an earlier entry");
        assert_eq!(refused(&pack.finish(), &Limits::default()), error, "{why}");
    }
    let mut pack = PackWriter::default();
    let (one, other) = (object_name("blob", b"onee"), object_name("blob", b"othe"));
    pack.reference(one, &literal_delta(4, b"othe"));
    pack.reference(other, &literal_delta(4, b"onee"));
    assert_eq!(
        refused(&pack.finish(), &Limits::default()),
        "2 deltas have no base"
    );
}

#[test]
fn inconsistent_headers_are_refused() {
    let with = |kind: u8, size: u64, bytes: &[u8]| {
        let mut pack = PackWriter::default();
        pack.entry(kind, size, &[], bytes);
        refused(&pack.finish(), &Limits::default())
    };
    let size = "the entry at byte 12 does not have the size in its header";
    assert_eq!(with(3, 5, &deflate(b"four")), size);
    assert_eq!(with(3, 3, &deflate(b"four")), size);
    assert_eq!(
        with(3, 1 << 40, &deflate(b"four")),
        "more than 17179869184 unpacked bytes"
    );
    assert_eq!(
        with(5, 4, &deflate(b"four")),
        "the entry at byte 12 has no valid header"
    );
    assert_eq!(
        with(3, 4, b"not deflated"),
        "the entry at byte 12 has broken compressed data"
    );
    let mut pack = PackWriter::default();
    pack.object("blob", b"base");
    let mut pack = pack.finish();
    let last = pack.len() - 1;
    pack[last] ^= 1;
    assert_eq!(refused(&pack, &Limits::default()), "its checksum is wrong");
    pack[last] ^= 1;
    pack.push(0);
    assert_eq!(
        refused(&pack, &Limits::default()),
        "it continues after the 1 objects of its header"
    );
}
