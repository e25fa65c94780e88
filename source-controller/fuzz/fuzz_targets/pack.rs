//! Any entries are a pack or are refused: within the limits, in finite time, and without leftover files.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sluice_source_controller::git::Limits;
use sluice_source_controller::git::pack::{PackError, PackSource, index};
use tokio_util::sync::CancellationToken;

/// Returns all bytes at once.
struct Once(Option<Bytes>);

impl PackSource for Once {
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
    let mut source = Once(Some(Bytes::copy_from_slice(data)));
    let kept = index(&mut source, &bases, packs.path(), &limits, &stop).is_ok_and(|kept| kept.is_some());
    let files = std::fs::read_dir(packs.path()).expect("the directory").count();
    assert_eq!(files, if kept { 2 } else { 0 });
});
