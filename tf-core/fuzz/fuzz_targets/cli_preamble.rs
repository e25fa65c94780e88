//! Removes the preamble of any output: nothing else is removed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_tf_core::cli::preamble::strip_preamble;

fuzz_target!(|printed: &[u8]| {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("1.out");
    std::fs::write(&file, printed).expect("a file");
    strip_preamble(&file).expect("a file that was just written");
    let left = std::fs::read(&file).expect("the answer");
    let front = printed
        .strip_suffix(left.as_slice())
        .expect("nothing of it is altered");
    if !front.is_empty() {
        assert!(front.ends_with(b"\n") && left.starts_with(b"{"));
        assert!(
            !front
                .split(|byte| *byte == b'\n')
                .any(|line| line.starts_with(b"{"))
        );
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1);
});
