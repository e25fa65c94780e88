//! Any bytes in the armor of a signature are verified, and none is valid for unsigned content.
#![no_main]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;
use sluice_source_controller::signature::{ObjectKind, TrustedKeys, SignedObject, verify};

const RING: &str = include_str!("../../src/signature/tests/golden/rfc9580-a3-key.asc");

fuzz_target!(|data: &[u8]| {
    let keys = [("a.asc", RING), ("b.sshpub", "")].map(|(name, text)| (name.to_owned(), text.into()));
    let keys = TrustedKeys::new(keys.into());
    for kind in ["PGP", "SSH"] {
        let body = STANDARD.encode(data);
        let armored = format!("-----BEGIN {kind} SIGNATURE-----\n\n{body}\n-----END {kind} SIGNATURE-----\n");
        for signature in [armored.into_bytes(), data.to_vec()] {
            let signed = SignedObject {
                payload: b"content".to_vec(),
                signature,
            };
            assert!(verify(&signed, ObjectKind::Commit, &keys, Timestamp::UNIX_EPOCH).is_err());
        }
    }
});
