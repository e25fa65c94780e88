//! Tests of other inputs: version 6 from RFC 9580, and arbitrary bytes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use proptest::prelude::*;

use super::super::{MAX_KEYS_BYTES, ObjectKind, SignedObject};
use super::check;

/// RFC 9580, A.3.
const KEY: &str = include_str!("golden/rfc9580-a3-key.asc");
/// RFC 9580, A.6: the signature of a text.
const SIGNATURE: &str = include_str!("golden/rfc9580-a6-signature.asc");
const TEXT: &str = "What we need from the grocery store:\n\n- tofu\n- vegetables\n- noodles\n";

fn verified(signature: &str, text: &str, ring: &str) -> Result<String, String> {
    let signed = SignedObject {
        payload: text.into(),
        signature: signature.into(),
    };
    check(&signed, ObjectKind::Commit, &[("a", ring)], Timestamp::now())
}

#[test]
fn a_version_6_signature_is_valid() {
    assert_eq!(verified(SIGNATURE, TEXT, KEY), Ok("CB186C4F0609A697".into()));
    // A text signature does not depend on line endings.
    let windows = TEXT.replace('\n', "\r\n");
    assert_eq!(verified(SIGNATURE, &windows, KEY), Ok("CB186C4F0609A697".into()));
    let error = verified(SIGNATURE, &TEXT.replace("tofu", "meat"), KEY).unwrap_err();
    assert!(
        error.ends_with("(key 'CB186C4F0609A697': the signature does not match the content)"),
        "{error}"
    );
}

#[test]
fn sizes_are_bounded() {
    let padded = format!("{KEY}{}", "\n".repeat(MAX_KEYS_BYTES));
    let error = verified(SIGNATURE, TEXT, &padded).unwrap_err();
    assert!(
        error.contains("unable to read armored key ring: the key ring is larger than"),
        "{error}"
    );
    let error = verified(&format!("{SIGNATURE}{}", "-\n".repeat(100_000)), TEXT, KEY).unwrap_err();
    assert!(
        error.contains("the signature is larger than 131072 bytes"),
        "{error}"
    );
}

/// Encodes bytes in an armor of this type.
fn armored(kind: &str, bytes: &[u8]) -> String {
    format!(
        "-----BEGIN PGP {kind}-----\n\n{}\n-----END PGP {kind}-----\n",
        STANDARD.encode(bytes)
    )
}

/// Decodes an armor.
fn bytes(armor: &str) -> Vec<u8> {
    let body: String = armor.lines().filter(|line| !line.starts_with('-')).collect();
    STANDARD.decode(body).unwrap()
}

proptest! {
    #[test]
    fn arbitrary_packets_never_verify(packets in proptest::collection::vec(any::<u8>(), 0..600)) {
        for kind in ["PUBLIC KEY BLOCK", "PRIVATE KEY BLOCK", "SIGNATURE"] {
            prop_assert!(verified(SIGNATURE, TEXT, &armored(kind, &packets)).is_err());
        }
        prop_assert!(verified(&armored("SIGNATURE", &packets), TEXT, KEY).is_err());
    }

    #[test]
    fn a_modified_key_ring_verifies_the_same_key_or_nothing(at in 0_usize..400, with in 1_u8..) {
        let mut ring = bytes(KEY);
        let at = at % ring.len();
        ring[at] ^= with;
        if let Ok(id) = verified(SIGNATURE, TEXT, &armored("PUBLIC KEY BLOCK", &ring)) {
            prop_assert_eq!(id, "CB186C4F0609A697");
        }
    }

    #[test]
    fn a_modified_signature_never_verifies_other_content(at in 0_usize..200, with in 1_u8..) {
        let mut signature = bytes(SIGNATURE);
        let at = at % signature.len();
        signature[at] ^= with;
        prop_assert!(verified(&armored("SIGNATURE", &signature), "another content", KEY).is_err());
    }

    #[test]
    fn arbitrary_texts_never_verify(signature in "(-----BEGIN (PGP|SSH) SIGNATURE-----\n)?\\PC{0,200}", ring in "\\PC{0,200}") {
        prop_assert!(verified(&signature, TEXT, &ring).is_err());
    }
}
