//! The directories of generations, and their records.

use proptest::prelude::*;

use super::*;

fn id(digit: char) -> Oid {
    parse_object_id(digit.to_string().repeat(40).as_bytes()).unwrap()
}

fn with_a_tip(generation: &Generation) -> Record {
    let mut record = Record::default();
    record.add(id('a'));
    record.write(generation.directory()).unwrap();
    record
}

#[test]
fn the_newest_generation_with_a_commit_is_opened_and_others_are_deleted() {
    let mirror = tempfile::tempdir().unwrap();
    assert!(open_latest(mirror.path()).unwrap().is_none());
    let generations: Vec<_> = (0..3)
        .map(|_| Generation::create(mirror.path()).unwrap())
        .collect();
    with_a_tip(&generations[0]);
    let record = with_a_tip(&generations[1]);
    let (found, read) = open_latest(mirror.path()).unwrap().unwrap();
    assert_eq!((found.directory(), read), (generations[1].directory(), record));
    assert_eq!(fs::read_dir(mirror.path()).unwrap().count(), 1);
}

#[test]
fn a_mirror_without_a_directory_gets_one_for_its_first_generation() {
    let root = tempfile::tempdir().unwrap();
    let mirror = root.path().join("mirrors/one");
    for _ in 0..2 {
        assert!(open_latest(&mirror).unwrap().is_none());
        assert_eq!(fs::read_dir(&mirror).unwrap().count(), 0);
    }
    let generations = [
        Generation::create_first(&mirror).unwrap(),
        Generation::create(&mirror).unwrap(),
        Generation::create_first(&mirror).unwrap(),
    ];
    let names = generations.map(|generation| generation.directory().file_name().unwrap().to_owned());
    assert_eq!(names, ["generation-0", "generation-1", "generation-2"]);
}

#[test]
fn leftovers_of_an_interrupted_fetch_are_removed() {
    let mirror = tempfile::tempdir().unwrap();
    let generation = Generation::create(mirror.path()).unwrap();
    with_a_tip(&generation);
    for name in [
        "pack_git2_a1b2c3",
        "pack-1.pack",
        "pack-1.idx",
        "pack-2.idx",
        "pack-3.pack",
        "tmp_idx",
    ] {
        fs::write(generation.packs().join(name), "x").unwrap();
    }
    let (found, _) = open_latest(mirror.path()).unwrap().unwrap();
    let mut names: Vec<_> = fs::read_dir(found.packs())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["pack-1.idx", "pack-1.pack"]);
    assert_eq!(found.pack_sizes().unwrap(), [1]);
}

#[test]
fn a_retired_generation_is_deleted_by_its_last_owner() {
    let mirror = tempfile::tempdir().unwrap();
    let generation = Generation::create(mirror.path()).unwrap();
    let directory = generation.directory().to_owned();
    generation.retire();
    assert!(directory.exists());
    drop(generation);
    assert!(!directory.exists());
}

#[test]
fn a_written_record_is_parsed_back() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(Record::read(directory.path()).unwrap(), Record::default());
    let mut record = Record::default();
    for (tip, shallow, unshallow) in [
        ('b', vec![id('b')], vec![]),
        ('a', vec![id('a')], vec![id('b')]),
        ('b', vec![], vec![]),
    ] {
        record.add(id(tip));
        record.update_shallow(&shallow, &unshallow);
    }
    assert_eq!(record.tips, [id('b'), id('a')]);
    record.write(directory.path()).unwrap();
    assert_eq!(Record::read(directory.path()).unwrap(), record);
    Record::delete(directory.path()).unwrap();
    Record::delete(directory.path()).unwrap();
    assert_eq!(Record::read(directory.path()).unwrap().tips, []);
}

#[test]
fn the_bytes_of_a_generation_are_those_of_all_its_files() {
    let mirror = tempfile::tempdir().unwrap();
    let generation = Generation::create(mirror.path()).unwrap();
    let mut record = Record::default();
    for (tip, shallow, pack) in [
        ('a', vec![id('a')], 1_000),
        ('b', vec![id('b'), id('c')], 20),
        ('c', vec![], 3),
    ] {
        record.add(id(tip));
        record.update_shallow(&shallow, &[]);
        record.write(generation.directory()).unwrap();
        for extension in ["pack", "idx"] {
            let name = format!("pack-{tip}.{extension}");
            fs::write(generation.packs().join(name), vec![0_u8; pack]).unwrap();
        }
        assert_eq!(
            generation.bytes(&record).unwrap(),
            directory_bytes(generation.directory()).unwrap()
        );
    }
}

proptest! {
    #[test]
    fn arbitrary_files_do_not_break_a_record(tips in "(\\PC|\n){0,200}", shallow in "([0-9a-f]{38,42}\n){0,4}") {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("packed-refs"), tips).unwrap();
        fs::write(directory.path().join("shallow"), shallow).unwrap();
        Record::read(directory.path()).unwrap();
    }
}
