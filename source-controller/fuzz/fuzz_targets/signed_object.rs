//! Any bytes come apart into what is signed and a signature, and nothing is invented.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_source_controller::signature::{Signed, object};

fuzz_target!(|data: &[u8]| {
    let tag = Signed::tag(data);
    assert_eq!([tag.payload, tag.signature].concat(), data);
    let commit = Signed::commit(data);
    assert!(commit.payload.len() + commit.signature.len() <= data.len());
    let _ = object::tag_name(data);
});
