//! Tests of small blobs that are read as a whole.

use git2::{ObjectType, Oid};
use sluice_harness::git::pack::{PackWriter, deflate};

use super::blobs::{Damage, Objects, one_blob};
use super::*;

/// Reads every object; returns how many were read, and how many are left to libgit2: those that are not undeltified blobs.
fn compare(objects: &Objects) -> (usize, usize) {
    let (odb, ids) = objects.open();
    let reader = BlobReader::open(&objects.packs()).unwrap();
    let (mut read, mut others) = (0, 0);
    for id in ids {
        let object = odb.read(id).unwrap();
        let is_undeltified = open_blob(&objects.packs(), id).unwrap().is_some();
        let content = reader.read(id, u64::MAX);
        assert_eq!(content.is_some(), is_undeltified, "{id}");
        let Some(content) = content else {
            others += 1;
            continue;
        };
        assert_eq!(object.kind(), ObjectType::Blob);
        assert!(content == object.data(), "{id}");
        read += 1;
    }
    (read, others)
}

/// Reads the only blob with a new reader.
fn read_blob(objects: &Objects, id: Oid) -> Option<Vec<u8>> {
    BlobReader::open(&objects.packs()).unwrap().read(id, u64::MAX)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Two commits of random files, in one pack or in two. Files with the same seed begin alike, so that some are deltas.
    #[test]
    fn undeltified_blobs_are_read_as_libgit2_reads_them(
        files in proptest::collection::vec((0_u64..6, 0_usize..40_000, 0_usize..40_000), 1..12),
        is_split in any::<bool>(),
    ) {
        let repository = Repository::create().unwrap();
        repository.write("empty", "").unwrap();
        for commit in [1, 2] {
            for (number, (seed, first, second)) in files.iter().enumerate() {
                let size = if commit == 1 { *first } else { *second };
                repository.write(&number.to_string(), noise(*seed, size)).unwrap();
            }
            repository.commit("files").unwrap();
        }
        let pack = |revisions: &str| repository.pack(&["--delta-base-offset"], revisions).unwrap();
        let objects = Objects::new(&pack(if is_split { "main~1\n" } else { "main\n" }));
        if is_split {
            objects.add(&pack("main\n^main~1\n"));
        }
        let (read, others) = compare(&objects);
        // At least the empty file, two commits and a tree.
        prop_assert!(read >= 1 && others >= 3, "{read} {others}");
    }
}

#[test]
fn deltas_and_other_objects_are_left_out() {
    let repository = repository();
    let objects = Objects::new(&repository.pack(&["--delta-base-offset"], "main\n").unwrap());
    let (read, others) = compare(&objects);
    assert!(read > 10 && others > 10, "{read} {others}");
    let missing = Oid::from_bytes(&[0xff; 20]).unwrap();
    assert_eq!(read_blob(&objects, missing), None);
}

#[test]
fn threads_read_at_once() {
    let mut pack = PackWriter::default();
    let texts: Vec<_> = (0..64).map(|number| noise(number, 20_000)).collect();
    let ids: Vec<_> = texts
        .iter()
        .map(|text| Oid::from_bytes(&pack.object("blob", text.as_bytes())).unwrap())
        .collect();
    let objects = Objects::new(&pack.finish());
    let reader = BlobReader::open(&objects.packs()).unwrap();
    let read_all = || {
        for (id, text) in ids.iter().zip(&texts) {
            assert!(reader.read(*id, u64::MAX).unwrap() == text.as_bytes());
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(read_all);
        }
    });
}

#[test]
fn the_limit_is_a_size_that_is_read() {
    let (pack, id, text) = one_blob();
    let objects = Objects::new(&pack);
    let reader = BlobReader::open(&objects.packs()).unwrap();
    let size = text.len() as u64;
    assert_eq!(reader.read(id, size - 1), None);
    assert!(reader.read(id, size).unwrap() == text.as_bytes());
}

#[test]
fn damage_of_the_pack_gives_nothing() {
    let (pack, id, text) = one_blob();
    let objects = Objects::new(&pack);
    assert!(read_blob(&objects, id).unwrap() == text.as_bytes());
    for at in [12, 40, pack.len() / 2, pack.len() - 30] {
        let mut damaged = pack.clone();
        damaged[at] ^= 0x10;
        objects.replace("pack", &damaged);
        assert_eq!(read_blob(&objects, id), None, "byte {at}");
    }
    for length in [0, 12, 13, pack.len() / 2, pack.len() - 25] {
        objects.replace("pack", &pack[..length]);
        assert_eq!(read_blob(&objects, id), None, "{length} bytes");
    }
    let compressed = deflate(text.as_bytes());
    for size in [0, text.len() - 1, text.len() + 1] {
        let mut other = PackWriter::default();
        other.entry(3, size as u64, &[], &compressed);
        objects.replace("pack", &other.finish());
        assert_eq!(read_blob(&objects, id), None, "the header promises {size} bytes");
    }
}

/// After a damaged blob, the same decompressor reads another one.
#[test]
fn damage_of_one_blob_does_not_affect_the_next() {
    let (one, other) = (noise(1, 30_000), noise(2, 30_000));
    let mut pack = PackWriter::default();
    let [one_id, other_id] = [&one, &other].map(|text| {
        let id = pack.object("blob", text.as_bytes());
        Oid::from_bytes(&id).unwrap()
    });
    let mut pack = pack.finish();
    let objects = Objects::new(&pack);
    pack[2000] ^= 0x10;
    objects.replace("pack", &pack);
    let reader = BlobReader::open(&objects.packs()).unwrap();
    for _ in 0..2 {
        assert_eq!(reader.read(one_id, u64::MAX), None);
        assert!(reader.read(other_id, u64::MAX).unwrap() == other.as_bytes());
    }
}

#[test]
fn damage_of_the_index_gives_nothing_or_the_blob() {
    let (pack, id, text) = one_blob();
    let objects = Objects::new(&pack);
    objects.damage_index(|damage, at| match read_blob(&objects, id) {
        Some(content) if damage == Damage::Byte => {
            assert!(content == text.as_bytes(), "{damage:?} {at}");
        }
        content => assert_eq!(content, None, "{damage:?} {at}"),
    });
}

/// An open reader neither needs the files of its packs nor sees later ones.
#[test]
fn packs_come_and_go() {
    let mut packs = (0..6_u8).map(|number| {
        let mut pack = PackWriter::default();
        let mut id = [0; 20];
        // The later, the larger.
        for blob in 0..=number {
            id = pack.object("blob", &[number, blob]);
        }
        (pack.finish(), Oid::from_bytes(&id).unwrap())
    });
    let (first, first_id) = packs.next().unwrap();
    let objects = Objects::new(&first);
    let mut ids = vec![first_id];
    let old = BlobReader::open(&objects.packs()).unwrap();
    for (pack, id) in packs {
        objects.add(&pack);
        ids.push(id);
    }
    let new = BlobReader::open(&objects.packs()).unwrap();
    std::fs::remove_dir_all(objects.packs()).unwrap();
    let read = |reader: &BlobReader| -> Vec<_> {
        let read = ids.iter().map(|id| reader.read(*id, u64::MAX).is_some());
        read.collect()
    };
    assert_eq!(read(&old), [true, false, false, false, false, false]);
    assert_eq!(
        read(&new),
        [false, false, true, true, true, true],
        "the four largest"
    );
    assert!(BlobReader::open(&objects.packs()).is_err());
}
