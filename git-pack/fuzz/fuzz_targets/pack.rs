//! Any entries are a pack or are refused: within the limits, in finite time, and without leftover files.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sluice_git_pack::{Limits, index};

fuzz_target!(|data: &[u8]| {
    let limits = Limits {
        objects: 1000,
        unpacked_bytes: 1 << 20,
        delta_bytes: 1 << 16,
    };
    let packs = tempfile::tempdir().expect("a directory");
    let bases = git2::Odb::new().expect("an object database");
    let mut chunks = std::iter::once(Ok(Bytes::copy_from_slice(data)));
    let kept = index(&mut chunks, &bases, packs.path(), &limits, &|| false).is_ok_and(|kept| kept.is_some());
    let files = std::fs::read_dir(packs.path()).expect("the directory").count();
    assert_eq!(files, if kept { 2 } else { 0 });
});
