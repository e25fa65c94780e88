//! Tests with packs of the real `git pack-objects`, and with packs that Git never writes.

mod blobs;
mod foreign;
mod reader;

use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use sluice_harness::git::Repository;
use sluice_harness::sample::noise;
use tempfile::TempDir;

use super::*;

/// Returns a pack in chunks of a fixed size.
fn chunks(pack: &[u8], chunk_size: usize) -> impl Iterator<Item = Result<Bytes, PackError>> {
    pack.chunks(chunk_size)
        .map(|chunk| Ok(Bytes::copy_from_slice(chunk)))
}

fn index_pack(pack: &[u8], chunk_size: usize, bases: &Odb<'_>, packs: &Path) -> Result<usize, PackError> {
    let (mut chunks, limits) = (chunks(pack, chunk_size), Limits::default());
    let indexed = index(&mut chunks, bases, packs, &limits, &|| false)?;
    Ok(indexed.map_or(0, |indexed| indexed.objects))
}

/// Returns the pack and the index of a directory without other files.
fn pair(packs: &Path) -> (Vec<u8>, Vec<u8>) {
    let files: Vec<_> = std::fs::read_dir(packs)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    let of = |extension: &str| {
        let found = files
            .iter()
            .find(|path| path.extension().is_some_and(|e| e == extension));
        std::fs::read(found.unwrap()).unwrap()
    };
    assert_eq!(files.len(), 2, "{files:?}");
    (of("pack"), of("idx"))
}

/// Returns the index that Git creates for a pack.
fn index_of_git(pack: &[u8]) -> Vec<u8> {
    let directory = TempDir::new().unwrap();
    let (pack_path, index) = (directory.path().join("a.pack"), directory.path().join("a.idx"));
    std::fs::write(&pack_path, pack).unwrap();
    let output = Command::new("git")
        .args(["index-pack", "-o"])
        .args([&index, &pack_path])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    std::fs::read(index).unwrap()
}

/// Twelve commits of files with small changes, a tag, and a large file similar to no other.
fn repository() -> Repository {
    let repository = Repository::create().unwrap();
    repository.write("large.bin", noise(7, 3 << 20)).unwrap();
    for number in 0..12_u64 {
        for file in 0..20 {
            let text = format!(
                "{}\nrevision {number}\n{}",
                noise(file, 6_000),
                noise(file + 100, 3_000)
            );
            repository
                .write(&format!("modules/{file}/main.tf"), text)
                .unwrap();
        }
        repository.commit(&format!("commit {number}")).unwrap();
    }
    repository.annotated_tag("v1.0.0", "a release").unwrap();
    repository
}

#[test]
fn the_index_of_a_pack_equals_that_of_git() {
    let repository = repository();
    let empty = Odb::new().unwrap();
    for options in [
        &["--delta-base-offset"][..],
        &[],
        &["--depth=0"],
        &["--window=50", "--depth=4000"],
    ] {
        let pack = repository.pack(options, "main\nv1.0.0\n").unwrap();
        for chunk_size in [pack.len(), 8_191, 97] {
            let packs = TempDir::new().unwrap();
            let objects = index_pack(&pack, chunk_size, &empty, packs.path()).unwrap();
            assert!(objects > 250, "{objects}");
            let (stored, index) = pair(packs.path());
            assert!(stored == pack, "the pack is stored unchanged");
            assert!(
                index == index_of_git(&pack),
                "{options:?} in pieces of {chunk_size}"
            );
        }
    }
}

#[test]
fn omitted_bases_of_a_thin_pack_are_appended() {
    let repository = repository();
    let odb = Odb::new().unwrap();
    odb.add_disk_alternate(&repository.git_dir().join("objects").to_string_lossy())
        .unwrap();
    for options in [&["--thin", "--delta-base-offset"][..], &["--thin"]] {
        let pack = repository.pack(options, "main\n^main~3\n").unwrap();
        let announced = u32::from_be_bytes(pack[8..12].try_into().unwrap()) as usize;
        let packs = TempDir::new().unwrap();
        let objects = index_pack(&pack, 4096, &odb, packs.path()).unwrap();
        assert!(objects > announced, "{announced} objects and no bases");
        let (stored, index) = pair(packs.path());
        assert!(index == index_of_git(&stored), "{options:?}");
        let without = TempDir::new().unwrap();
        let error = index_pack(&pack, 4096, &Odb::new().unwrap(), without.path()).unwrap_err();
        assert!(
            matches!(error, PackError::Malformed(FormatError::Unresolved(_))),
            "{error}"
        );
        assert_eq!(std::fs::read_dir(without.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_pack_without_objects_leaves_no_file() {
    let packs = TempDir::new().unwrap();
    let pack = sluice_harness::git::pack::PackWriter::default().finish();
    assert_eq!(
        index_pack(&pack, 5, &Odb::new().unwrap(), packs.path()).unwrap(),
        0
    );
    assert_eq!(std::fs::read_dir(packs.path()).unwrap().count(), 0);
}

#[test]
fn a_pack_truncated_at_any_byte_is_refused() {
    let repository = Repository::create().unwrap();
    repository.commit_files(&[("a", noise(1, 200))], "one").unwrap();
    let pack = repository.pack(&["--delta-base-offset"], "main\n").unwrap();
    let empty = Odb::new().unwrap();
    for length in 0..pack.len() {
        let packs = TempDir::new().unwrap();
        let error = index_pack(&pack[..length], 64, &empty, packs.path()).unwrap_err();
        assert!(
            matches!(error, PackError::Malformed(FormatError::Truncated)),
            "{length}: {error}"
        );
        assert_eq!(std::fs::read_dir(packs.path()).unwrap().count(), 0);
    }
    let (packs, limits) = (TempDir::new().unwrap(), Limits::default());
    let error = index(&mut chunks(&pack, 64), &empty, packs.path(), &limits, &|| true).unwrap_err();
    assert!(matches!(error, PackError::Stopped));
    assert_eq!(std::fs::read_dir(packs.path()).unwrap().count(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Random entries: indexing ends, within the limits, and leaves no file unless the pack is valid.
    #[test]
    fn any_pack_is_indexed_or_refused(entries in proptest::collection::vec(foreign::entry(), 0..12), broken in any::<Option<(u16, u8)>>()) {
        let mut pack = foreign::written(&entries);
        if let Some((at, byte)) = broken {
            let at = usize::from(at) % pack.len();
            pack[at] = byte;
        }
        let packs = TempDir::new().unwrap();
        match index_pack(&pack, 61, &Odb::new().unwrap(), packs.path()) {
            Ok(0) | Err(_) => prop_assert_eq!(std::fs::read_dir(packs.path()).unwrap().count(), 0),
            Ok(_) => {
                let (stored, index) = pair(packs.path());
                prop_assert!(stored == pack);
                let odb = Odb::new().unwrap();
                odb.add_disk_alternate(&packs.path().to_string_lossy()).unwrap();
                prop_assert!(index.len() > 1032);
            }
        }
    }
}
