//! Any bytes are split into signed content and a signature, and nothing is added.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_source_controller::signature::{SignedObject, object};

fuzz_target!(|data: &[u8]| {
    let tag = SignedObject::tag(data);
    assert_eq!([tag.payload, tag.signature].concat(), data);
    let commit = SignedObject::commit(data);
    assert!(commit.payload.len() + commit.signature.len() <= data.len());
    let _ = object::tag_name(data);
});
