//! Parses any bytes as a signed record, as its payload and as a key. An envelope that is parsed is written as one that parses to the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_tf_core::record::{Envelope, PublicKey, SigningKey, Statement, verify};

const KEY: &[u8] = include_bytes!("../../src/record/tests/golden/ed25519.pub");

fuzz_target!(|data: &[u8]| {
    let key = PublicKey::from_pem(KEY).expect("a key");
    if let Ok(verified) = verify(data, std::slice::from_ref(&key)) {
        assert_eq!(verified.key_id, key.id());
    }
    if let Ok(envelope) = Envelope::parse(data) {
        let _ = Statement::parse(&envelope.payload);
        // White space and the other alphabet of base64 make no difference; an escaped text may become longer than the limit.
        if let Ok(text) = envelope.to_json() {
            assert_eq!(Envelope::parse(text.as_bytes()).as_ref(), Ok(&envelope));
        }
    }
    let _ = Statement::parse(data);
    let _ = PublicKey::from_pem(data);
    let _ = SigningKey::from_pem(data);
});
