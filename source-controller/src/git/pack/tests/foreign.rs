//! Packs that no Git writes.

use git2::Odb;
use proptest::prelude::*;
use sluice_harness::git::pack::{
    PackWriter, deflate, deflated_zeros, literal_delta, object_name, repeating_delta,
};
use tempfile::TempDir;

use super::*;

/// An entry of a random pack: a blob, or a difference to an earlier entry or to the name of some blob.
#[derive(Clone, Debug)]
pub(super) enum Any {
    Blob(u8),
    Offset(u8, u8),
    Reference(u8, u8),
    Raw(u8, Vec<u8>),
}

pub(super) fn entry() -> impl Strategy<Value = Any> {
    prop_oneof![
        4 => (0_u8..8).prop_map(Any::Blob),
        3 => (0_u8..12, 0_u8..8).prop_map(|(base, to)| Any::Offset(base, to)),
        3 => (0_u8..8, 0_u8..8).prop_map(|(base, to)| Any::Reference(base, to)),
        1 => (0_u8..8, proptest::collection::vec(any::<u8>(), 0..24)).prop_map(|(kind, raw)| Any::Raw(kind, raw)),
    ]
}

pub(super) fn written(entries: &[Any]) -> Vec<u8> {
    let mut pack = PackWriter::default();
    let mut starts = Vec::new();
    for entry in entries {
        let at = pack.position();
        match entry {
            Any::Blob(number) => drop(pack.object("blob", &blob(*number))),
            Any::Offset(base, to) => {
                let start = starts.get(usize::from(*base)).copied().unwrap_or(at);
                pack.offset(at - start, &literal_delta(4, &blob(*to)));
            }
            Any::Reference(base, to) => {
                pack.reference(object_name("blob", &blob(*base)), &literal_delta(4, &blob(*to)));
            }
            Any::Raw(kind, raw) => pack.entry(*kind, raw.len() as u64, &[], &deflate(raw)),
        }
        starts.push(at);
    }
    pack.finish()
}

fn blob(number: u8) -> Vec<u8> {
    vec![number; 4]
}

/// What becomes of a pack; nothing of it stays on disk.
fn refused(pack: &[u8], limits: &Limits) -> String {
    let (packs, stop) = (TempDir::new().unwrap(), CancellationToken::new());
    let (mut pieces, bases) = (Cut::new(pack, 65_000), Odb::new().unwrap());
    let error = index(&mut pieces, &bases, packs.path(), limits, &stop).unwrap_err();
    assert_eq!(std::fs::read_dir(packs.path()).unwrap().count(), 0);
    error.to_string()
}

#[test]
fn two_differences_of_one_result_are_refused() {
    let mut pack = PackWriter::default();
    let base = pack.object("blob", b"base");
    pack.reference(base, &literal_delta(4, b"same"));
    pack.reference(base, &literal_delta(4, b"same"));
    let id = hex::encode(object_name("blob", b"same"));
    assert_eq!(
        refused(&pack.finish(), &Limits::default()),
        format!("object {id} is in it twice")
    );
    let mut pack = PackWriter::default();
    let base = pack.object("blob", b"base");
    pack.reference(base, &literal_delta(4, b"base"));
    let id = hex::encode(base);
    assert_eq!(
        refused(&pack.finish(), &Limits::default()),
        format!("object {id} is in it twice")
    );
}

#[test]
fn more_entries_than_announced_are_refused() {
    let mut pack = PackWriter::default();
    let base = pack.object("blob", b"base");
    for number in 0..1000_u32 {
        pack.reference(base, &literal_delta(4, &number.to_be_bytes()));
    }
    let words = refused(&pack.finish_as(2), &Limits::default());
    assert_eq!(
        words,
        "it has more bytes than its header announces with 2 objects"
    );
    let words = refused(&pack.finish_as(1002), &Limits::default());
    assert!(
        words.starts_with(&format!("the entry at byte {}", pack.position())),
        "{words}"
    );
    let limits = Limits {
        pack_objects: 1000,
        ..Limits::default()
    };
    assert_eq!(
        refused(&pack.finish(), &limits),
        "more than 1000 objects; raise --git-max-pack-objects"
    );
}

#[test]
fn differences_that_make_too_much_are_refused() {
    let (base, result) = (80_000_000, 160_000_000);
    let mut pack = PackWriter::default();
    pack.entry(3, base, &[], &deflated_zeros(base));
    pack.offset(pack.position() - 12, &repeating_delta(base, result));
    let pack = pack.finish();
    assert!(pack.len() < 100_000);
    assert_eq!(
        refused(&pack, &Limits::default()),
        "more than 67108864 bytes of one object that is stored as a difference; raise --git-max-delta-bytes"
    );
    let limits = Limits {
        unpacked_bytes: 1 << 20,
        ..Limits::default()
    };
    assert_eq!(
        refused(&pack, &limits),
        "more than 1048576 unpacked bytes; raise --git-max-unpacked-bytes"
    );
}

#[test]
fn long_and_large_chains_are_refused() {
    let chain = |length: usize, size: u64| {
        let mut pack = PackWriter::default();
        let mut last = pack.position();
        pack.entry(3, size, &[], &deflated_zeros(size));
        for number in 0..length {
            let at = pack.position();
            // Each is a byte longer than the one before.
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
        "it has a chain of more than 4095 differences"
    );
    let limits = Limits {
        delta_bytes: 1 << 20,
        ..Limits::default()
    };
    assert_eq!(
        refused(&chain(40, 1 << 19), &limits),
        "more than 16777216 bytes of one chain of differences; raise --git-max-delta-bytes"
    );
    let packs = TempDir::new().unwrap();
    // More than is held at once: what was let go is made once more.
    let objects = indexed(&chain(20, 4 << 20), 65_000, &Odb::new().unwrap(), packs.path()).unwrap();
    assert_eq!(objects, 21);
    let (kept, index) = pair(packs.path());
    assert!(index == index_of_git(&kept));
}

#[test]
fn bases_that_are_no_earlier_entries_are_refused() {
    for (distance, why) in [
        (0, "itself"),
        (5, "the middle of an entry"),
        (4000, "before the pack"),
    ] {
        let mut pack = PackWriter::default();
        pack.object("blob", b"base");
        let at = pack.position();
        pack.offset(distance, &literal_delta(4, b"next"));
        let words = format!("the entry at byte {at} is a difference to something that is no earlier entry");
        assert_eq!(refused(&pack.finish(), &Limits::default()), words, "{why}");
    }
    let mut pack = PackWriter::default();
    let (one, other) = (object_name("blob", b"onee"), object_name("blob", b"othe"));
    pack.reference(one, &literal_delta(4, b"othe"));
    pack.reference(other, &literal_delta(4, b"onee"));
    assert_eq!(
        refused(&pack.finish(), &Limits::default()),
        "2 differences in it have no base"
    );
}

#[test]
fn what_is_not_as_it_says_is_refused() {
    let with = |kind: u8, size: u64, bytes: &[u8]| {
        let mut pack = PackWriter::default();
        pack.entry(kind, size, &[], bytes);
        refused(&pack.finish(), &Limits::default())
    };
    let size = "the entry at byte 12 does not have the size that it announces";
    assert_eq!(with(3, 5, &deflate(b"four")), size);
    assert_eq!(with(3, 3, &deflate(b"four")), size);
    assert_eq!(
        with(3, 1 << 40, &deflate(b"four")),
        "more than 17179869184 unpacked bytes; raise --git-max-unpacked-bytes"
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
        "it has more bytes than its header announces with 1 objects"
    );
}
