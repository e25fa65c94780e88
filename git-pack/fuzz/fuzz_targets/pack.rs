//! Any entries are a pack or are refused: within the limits, in finite time, and without leftover files. The blobs of a pack are read as
//! libgit2 reads them.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sluice_git_pack::{BlobReader, Limits, index};

fuzz_target!(|data: &[u8]| {
    let limits = Limits {
        objects: 1000,
        unpacked_bytes: 1 << 20,
        delta_bytes: 1 << 16,
    };
    let directory = tempfile::tempdir().expect("a directory");
    let packs = directory.path().join("pack");
    std::fs::create_dir(&packs).expect("a directory");
    let bases = git2::Odb::new().expect("an object database");
    let mut chunks = std::iter::once(Ok(Bytes::copy_from_slice(data)));
    let kept = index(&mut chunks, &bases, &packs, &limits, &|| false).is_ok_and(|kept| kept.is_some());
    let files = std::fs::read_dir(&packs).expect("the directory").count();
    assert_eq!(files, if kept { 2 } else { 0 });
    if !kept {
        return;
    }
    let objects = git2::Odb::new().expect("an object database");
    objects
        .add_disk_alternate(&directory.path().to_string_lossy())
        .expect("the directory");
    let reader = BlobReader::open(&packs).expect("the directory");
    let mut ids = Vec::new();
    let is_listed = objects.foreach(|id| {
        ids.push(*id);
        true
    });
    is_listed.expect("the objects");
    for id in ids {
        if let Some(content) = reader.read(id, limits.unpacked_bytes) {
            let object = objects.read(id).expect("the object");
            assert_eq!(object.data(), content);
        }
    }
});
