//! Selects files from any archive: the result is within the limit and unpacks inside of its directory.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_runtime::artifact::{Limits, unpack};
use sluice_tf_core::chunk::compress;
use sluice_tf_core::last_applied::files::select;
use tokio_util::sync::CancellationToken;

/// Maximum number of bytes of what is selected.
const LIMIT: u64 = 64 * 1024;

fuzz_target!(|data: (&[u8], Vec<String>)| {
    let (bytes, closure) = data;
    let archive = compress(bytes).expect("memory");
    for archive in [bytes, &archive] {
        if let Ok(Some(files)) = select(archive, &closure, LIMIT) {
            assert!(files.len() as u64 <= LIMIT);
        }
        let folder = tempfile::tempdir().expect("a folder");
        let limits = Limits {
            entries: 100,
            bytes: 1 << 20,
            depth: 8,
        };
        let _ = unpack(
            archive,
            &folder.path().join("into"),
            &limits,
            &CancellationToken::new(),
        );
        assert!(std::fs::read_dir(folder.path()).expect("a folder").count() <= 1);
    }
});
