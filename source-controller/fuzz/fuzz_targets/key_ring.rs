//! Any bytes, armored or not, are a key ring or not.
#![no_main]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;
use sluice_source_controller::signature::{ObjectKind, TrustedKeys, SignedObject, verify};

const SIGNATURE: &str = include_str!("../../src/signature/tests/golden/rfc9580-a6-signature.asc");

fuzz_target!(|data: &[u8]| {
    let body = STANDARD.encode(data);
    let armored =
        format!("-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n{body}\n-----END PGP PUBLIC KEY BLOCK-----\n");
    let entries = [("a", armored.into_bytes()), ("b", data.to_vec())];
    let keys = TrustedKeys::new(entries.map(|(name, text)| (name.to_owned(), text)).into());
    let signed = SignedObject {
        payload: b"content".to_vec(),
        signature: SIGNATURE.into(),
    };
    assert!(verify(&signed, ObjectKind::Tag, &keys, Timestamp::UNIX_EPOCH).is_err());
});
