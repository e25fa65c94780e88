//! Any text is a list of authorized keys or not, and verifies nothing.
#![no_main]

use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;
use sluice_source_controller::signature::{ObjectKind, TrustedKeys, SignedObject, verify};

/// A signature of other content by a discarded key.
const SIGNATURE: &str = include_str!("../../src/signature/tests/golden/ssh-signature.txt");

fuzz_target!(|data: &[u8]| {
    let keys = TrustedKeys::new([("a.sshpub".to_owned(), data.to_vec())].into());
    let signed = SignedObject {
        payload: b"content".to_vec(),
        signature: SIGNATURE.into(),
    };
    assert!(verify(&signed, ObjectKind::Tag, &keys, Timestamp::UNIX_EPOCH).is_err());
});
