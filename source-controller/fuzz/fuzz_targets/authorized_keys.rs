//! Any text is authorized keys or not, and confirms nothing.
#![no_main]

use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;
use sluice_source_controller::signature::{Carrier, Keys, Signed, verify};

/// A signature over another content, by a key that nobody keeps.
const SIGNATURE: &str = include_str!("../../src/signature/tests/golden/ssh-signature.txt");

fuzz_target!(|data: &[u8]| {
    let keys = Keys::new([("a.sshpub".to_owned(), data.to_vec())].into());
    let signed = Signed {
        payload: b"content".to_vec(),
        signature: SIGNATURE.into(),
    };
    assert!(verify(&signed, Carrier::Tag, &keys, Timestamp::UNIX_EPOCH).is_err());
});
