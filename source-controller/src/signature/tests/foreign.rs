//! Bytes that no gpg here makes: version 6 from RFC 9580, and anything at all.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use proptest::prelude::*;

use super::super::{Carrier, LARGEST_KEYS, Signed};
use super::judge;

/// RFC 9580, A.3.
const KEY: &str = include_str!("golden/rfc9580-a3-key.asc");
/// RFC 9580, A.6: the signature of a text.
const SIGNATURE: &str = include_str!("golden/rfc9580-a6-signature.asc");
const TEXT: &str = "What we need from the grocery store:\n\n- tofu\n- vegetables\n- noodles\n";

fn judged(signature: &str, text: &str, ring: &str) -> Result<String, String> {
    let signed = Signed {
        payload: text.into(),
        signature: signature.into(),
    };
    judge(&signed, Carrier::Commit, &[("a", ring)], Timestamp::now())
}

#[test]
fn a_signature_of_version_6_counts() {
    assert_eq!(judged(SIGNATURE, TEXT, KEY), Ok("CB186C4F0609A697".into()));
    // It is one over a text: other ends of lines are the same text.
    let windows = TEXT.replace('\n', "\r\n");
    assert_eq!(judged(SIGNATURE, &windows, KEY), Ok("CB186C4F0609A697".into()));
    let error = judged(SIGNATURE, &TEXT.replace("tofu", "meat"), KEY).unwrap_err();
    assert!(
        error.ends_with("(key 'CB186C4F0609A697': the signature does not fit the content)"),
        "{error}"
    );
}

#[test]
fn sizes_are_bounded() {
    let padded = format!("{KEY}{}", "\n".repeat(LARGEST_KEYS));
    let error = judged(SIGNATURE, TEXT, &padded).unwrap_err();
    assert!(
        error.contains("unable to read armored key ring: it is larger than"),
        "{error}"
    );
    let error = judged(&format!("{SIGNATURE}{}", "-\n".repeat(100_000)), TEXT, KEY).unwrap_err();
    assert!(error.contains("it is larger than 131072 bytes"), "{error}");
}

/// The bytes in an armor of this kind.
fn armored(kind: &str, bytes: &[u8]) -> String {
    format!(
        "-----BEGIN PGP {kind}-----\n\n{}\n-----END PGP {kind}-----\n",
        STANDARD.encode(bytes)
    )
}

/// The bytes in an armor.
fn bytes(armor: &str) -> Vec<u8> {
    let body: String = armor.lines().filter(|line| !line.starts_with('-')).collect();
    STANDARD.decode(body).unwrap()
}

proptest! {
    #[test]
    fn any_packets_are_a_ring_or_not_and_confirm_nothing(packets in proptest::collection::vec(any::<u8>(), 0..600)) {
        for kind in ["PUBLIC KEY BLOCK", "PRIVATE KEY BLOCK", "SIGNATURE"] {
            prop_assert!(judged(SIGNATURE, TEXT, &armored(kind, &packets)).is_err());
        }
        prop_assert!(judged(&armored("SIGNATURE", &packets), TEXT, KEY).is_err());
    }

    #[test]
    fn a_ring_that_was_changed_confirms_the_same_key_or_nothing(at in 0_usize..400, with in 1_u8..) {
        let mut ring = bytes(KEY);
        let at = at % ring.len();
        ring[at] ^= with;
        if let Ok(id) = judged(SIGNATURE, TEXT, &armored("PUBLIC KEY BLOCK", &ring)) {
            prop_assert_eq!(id, "CB186C4F0609A697");
        }
    }

    #[test]
    fn a_signature_that_was_changed_confirms_no_other_content(at in 0_usize..200, with in 1_u8..) {
        let mut signature = bytes(SIGNATURE);
        let at = at % signature.len();
        signature[at] ^= with;
        prop_assert!(judged(&armored("SIGNATURE", &signature), "another content", KEY).is_err());
    }

    #[test]
    fn any_text_is_judged(signature in "(-----BEGIN (PGP|SSH) SIGNATURE-----\n)?\\PC{0,200}", ring in "\\PC{0,200}") {
        prop_assert!(judged(&signature, TEXT, &ring).is_err());
    }
}
