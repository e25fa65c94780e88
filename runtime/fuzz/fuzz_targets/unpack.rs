//! Extracts arbitrary bytes, compressed or not: writes nothing outside the directory, creates only files and directories, and
//! respects the limits.
#![no_main]

use std::fs;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use sluice_runtime::artifact::{Limits, unpack};
use sluice_runtime::shutdown::Token;

const LIMITS: Limits = Limits {
    entries: 50,
    bytes: 100_000,
    depth: 5,
};

fuzz_target!(|data: &[u8]| {
    let mut packed = flate2::read::GzEncoder::new(data, flate2::Compression::fast());
    check(|into| unpack(data, into, &LIMITS, &Token::new()).is_ok());
    check(|into| unpack(&mut packed, into, &LIMITS, &Token::new()).is_ok());
});

/// Counts of the created entries, also after a rejected archive.
#[derive(Default)]
struct Made {
    entries: u64,
    bytes: u64,
}

fn check(unpack: impl FnOnce(&Path) -> bool) {
    let folder = tempfile::tempdir().expect("a folder");
    let into = folder.path().join("into");
    fs::create_dir(&into).expect("a folder");
    unpack(&into);
    let beside = fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(beside, 1, "something was written outside");
    let mut made = Made::default();
    count(&into, 0, &mut made);
    assert!(made.bytes <= LIMITS.bytes, "{} bytes", made.bytes);
    // Implicit parents are created as well.
    assert!(made.entries <= LIMITS.entries * LIMITS.depth as u64, "{} entries", made.entries);
}

fn count(folder: &Path, depth: usize, made: &mut Made) {
    assert!(depth <= LIMITS.depth, "{}", folder.display());
    for entry in fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let kind = entry.file_type().expect("a kind");
        assert!(kind.is_dir() || kind.is_file(), "{:?}", entry.path());
        made.entries += 1;
        if kind.is_dir() {
            count(&entry.path(), depth + 1, made);
        } else {
            made.bytes += entry.metadata().expect("a length").len();
        }
    }
}
