//! Any entries are a pack or are refused: within the bounds, with an end, and without anything left on disk.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sluice_source_controller::git::Limits;
use sluice_source_controller::git::pack::{PackError, Pieces, index};
use tokio_util::sync::CancellationToken;

/// All bytes at once.
struct Once(Option<Bytes>);

impl Pieces for Once {
    fn next(&mut self) -> Result<Option<Bytes>, PackError> {
        Ok(self.0.take())
    }
}

fuzz_target!(|data: &[u8]| {
    let limits = Limits {
        pack_objects: 1000,
        unpacked_bytes: 1 << 20,
        delta_bytes: 1 << 16,
        ..Limits::default()
    };
    let packs = tempfile::tempdir().expect("a directory");
    let bases = git2::Odb::new().expect("an object database");
    let stop = CancellationToken::new();
    let mut pieces = Once(Some(Bytes::copy_from_slice(data)));
    let kept = index(&mut pieces, &bases, packs.path(), &limits, &stop).is_ok_and(|kept| kept.is_some());
    let files = std::fs::read_dir(packs.path()).expect("the directory").count();
    assert_eq!(files, if kept { 2 } else { 0 });
});
