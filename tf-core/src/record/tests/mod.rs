//! Records that OpenSSL signed, our own ones, and changed ones.

mod content;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const ED25519: &[u8] = include_bytes!("golden/ed25519.pem");
const ED25519_PUBLIC: &[u8] = include_bytes!("golden/ed25519.pub");
const P256: &[u8] = include_bytes!("golden/p256.pem");
const P256_PUBLIC: &[u8] = include_bytes!("golden/p256.pub");
/// One record, signed with each of the keys by `openssl pkeyutl` and `openssl dgst`. It has a field that this version does not know.
const ED25519_RECORD: &[u8] = include_bytes!("golden/ed25519.json");
const P256_RECORD: &[u8] = include_bytes!("golden/p256.json");
/// As `openssl pkey -pubin -outform DER | sha256sum` prints them.
const ED25519_ID: &str = "e3e48b43dc362586374e7b375767e9c5e46854ca9f7ae2c56b1637d9a78c9ec9";
const P256_ID: &str = "b3d49a5bcda1fa61a18ec38d3d6669a8af2041d4955c63abc45d48da0a011c75";

fn public(pem: &[u8]) -> PublicKey {
    PublicKey::from_pem(pem).unwrap()
}

fn signing(pem: &[u8]) -> SigningKey {
    SigningKey::from_pem(pem).unwrap()
}

/// The record in the golden files.
fn golden_record() -> RunRecord {
    let verified = verify(ED25519_RECORD, &[public(ED25519_PUBLIC)]).unwrap();
    verified.statement.predicate
}

/// Signs any payload with the Ed25519 key.
fn envelope(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let envelope = Envelope::sign(payload_type, payload.to_vec(), &signing(ED25519)).unwrap();
    envelope.to_json().unwrap().into_bytes()
}

fn refusal(file: &[u8]) -> String {
    let error = verify(file, &[public(ED25519_PUBLIC)]).unwrap_err();
    error.to_string()
}

/// The example of DSSE's `protocol.md`.
#[test]
fn the_encoding_before_the_signature_is_that_of_the_specification() {
    assert_eq!(
        pae("http://example.com/HelloWorld", b"hello world"),
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    );
    assert_eq!(pae("", b""), b"DSSEv1 0  0 ");
    // Lengths are in bytes.
    assert_eq!(
        pae("\u{e9}", "\u{e9}".as_bytes()),
        "DSSEv1 2 \u{e9} 2 \u{e9}".as_bytes()
    );
}

#[test]
fn records_that_openssl_signed_are_verified() {
    for (file, key, id) in [
        (ED25519_RECORD, ED25519_PUBLIC, ED25519_ID),
        (P256_RECORD, P256_PUBLIC, P256_ID),
    ] {
        let verified = verify(file, &[public(key)]).unwrap();
        assert_eq!(verified.key_id, id);
        let record = verified.statement.predicate.clone();
        assert_eq!(record.run.name, "net-0123456789-2");
        assert_eq!(record.source.commit_signature.status, SignatureStatus::Verified);
        assert_eq!(
            Statement::new(record).unwrap(),
            verified.statement,
            "the subjects are those of the predicate"
        );
        let payload: Value = serde_json::from_slice(&verified.payload).unwrap();
        assert_eq!(payload["predicate"]["fieldOfALaterVersion"]["is"], "ignored");
    }
}

#[test]
fn a_signed_record_is_verified_by_its_key_among_others() {
    let both = [public(ED25519_PUBLIC), public(P256_PUBLIC)];
    for (private, id) in [(ED25519, ED25519_ID), (P256, P256_ID)] {
        let file = sign(golden_record(), &signing(private)).unwrap();
        let verified = verify(file.as_bytes(), &both).unwrap();
        assert_eq!(verified.key_id, id);
        assert_eq!(verified.statement.predicate, golden_record());
        let envelope: Value = serde_json::from_str(&file).unwrap();
        assert_eq!(envelope["payloadType"], "application/vnd.in-toto+json");
        assert_eq!(envelope["signatures"][0]["keyid"], id);
    }
}

#[test]
fn another_key_and_a_changed_record_have_messages_of_their_own() {
    let error = verify(ED25519_RECORD, &[public(P256_PUBLIC)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "no given key has signed it: it names the keys [{ED25519_ID}], and the given keys are [{P256_ID}]"
        )
    );
    let mut changed: Value = serde_json::from_slice(ED25519_RECORD).unwrap();
    let payload = STANDARD.decode(changed["payload"].as_str().unwrap()).unwrap();
    let payload = String::from_utf8(payload)
        .unwrap()
        .replace("kubectl-edit", "kubectl-else");
    changed["payload"] = json!(STANDARD.encode(payload));
    assert_eq!(
        refusal(changed.to_string().as_bytes()),
        format!(
            "the signature of the key {ED25519_ID} is not valid: the record was changed, or the signature is of something else"
        )
    );
}

/// Ids in an envelope are not signed, so they neither permit nor forbid anything.
#[test]
fn ids_of_keys_do_not_decide() {
    let mut other: Value = serde_json::from_slice(ED25519_RECORD).unwrap();
    other["signatures"][0]["keyid"] = json!(P256_ID);
    let other = other.to_string();
    let key = [public(ED25519_PUBLIC)];
    assert_eq!(verify(other.as_bytes(), &key).unwrap().key_id, ED25519_ID);
    let claimed = verify(other.as_bytes(), &[public(P256_PUBLIC)]);
    assert!(matches!(claimed, Err(RecordError::InvalidSignature { key_id }) if key_id == P256_ID));

    let mut none: Value = serde_json::from_slice(P256_RECORD).unwrap();
    none["signatures"][0].as_object_mut().unwrap().remove("keyid");
    // cosign may use the other alphabet, and several signatures are possible.
    let payload = STANDARD.decode(none["payload"].as_str().unwrap()).unwrap();
    none["payload"] = json!(URL_SAFE.encode(payload));
    let signature = none["signatures"][0].clone();
    none["signatures"] = json!([{ "keyid": "x", "sig": "AAAA" }, signature]);
    let verified = verify(none.to_string().as_bytes(), &[public(P256_PUBLIC)]).unwrap();
    assert_eq!(verified.key_id, P256_ID);
}

#[test]
fn nothing_is_parsed_before_the_signature_is_valid() {
    let mut unsigned: Value = serde_json::from_slice(&envelope(PAYLOAD_TYPE, b"no json")).unwrap();
    assert!(refusal(unsigned.to_string().as_bytes()).starts_with("the payload is not an in-toto statement"));
    unsigned["signatures"][0]["sig"] = json!("AAAA");
    assert!(refusal(unsigned.to_string().as_bytes()).starts_with("the signature of the key"));
    assert!(matches!(
        verify(ED25519_RECORD, &[]),
        Err(RecordError::OtherKey { .. })
    ));
}

#[test]
fn each_refusal_names_the_field() {
    let statement = |change: &dyn Fn(&mut Value)| {
        let mut statement = serde_json::to_value(Statement::new(golden_record()).unwrap()).unwrap();
        change(&mut statement);
        refusal(&envelope(PAYLOAD_TYPE, statement.to_string().as_bytes()))
    };
    assert_eq!(
        statement(&|value| value["predicateType"] = json!("https://slsa.dev/provenance/v1")),
        "the field predicateType of the statement is \"https://slsa.dev/provenance/v1\", and only \
         \"https://infra.sluice.dev/run-record/v1\" is known"
    );
    let version = statement(&|value| value["_type"] = json!("https://in-toto.io/Statement/v2\u{1b}[2J"));
    assert!(
        version.starts_with("the field _type of the statement is \"https://in-toto.io/Statement/v2[2J\""),
        "{version}"
    );
    assert_eq!(
        statement(&|value| value["subject"] = json!([])),
        "the field subject of the statement is empty"
    );
    let lacking = statement(&|value| {
        value["predicate"]["result"]
            .as_object_mut()
            .unwrap()
            .remove("phase");
    });
    assert!(
        lacking.starts_with("the statement is not a record of a run: missing field `phase`"),
        "{lacking}"
    );
    let payload = serde_json::to_vec(&Statement::new(golden_record()).unwrap()).unwrap();
    assert_eq!(
        refusal(&envelope("text/plain", &payload)),
        "the field payloadType is \"text/plain\", and only \"application/vnd.in-toto+json\" is known"
    );
    for (file, expected) in [
        ("", "it is not a DSSE envelope: EOF"),
        ("{}", "it is not a DSSE envelope: missing field `payload`"),
        (
            r#"{"payload":"","payloadType":"","signatures":[]}"#,
            "the field signatures of the envelope is empty",
        ),
        (
            r#"{"payload":"?","payloadType":"","signatures":[{"sig":""}]}"#,
            "the field payload of the envelope is not base64",
        ),
        (
            r#"{"payload":"","payloadType":"","signatures":[{"sig":""},{"sig":"A"}]}"#,
            "the field signatures[1].sig of the envelope is not base64",
        ),
    ] {
        let message = refusal(file.as_bytes());
        assert!(message.starts_with(expected), "{file}: {message}");
    }
}

#[test]
fn sizes_are_limited() {
    assert_eq!(refusal(&vec![b' '; LIMIT + 1]), "it is longer than 1 MiB");
    assert!(refusal(&vec![b' '; LIMIT]).starts_with("it is not a DSSE envelope"));
    let signatures = vec![json!({ "sig": "" }); 17];
    let many = json!({ "payload": "", "payloadType": "", "signatures": signatures });
    assert_eq!(
        refusal(many.to_string().as_bytes()),
        "the envelope has 17 signatures, more than 16"
    );
    let deep = "[".repeat(LIMIT);
    assert!(refusal(deep.as_bytes()).starts_with("it is not a DSSE envelope"));
    let mut long = golden_record();
    long.result.message = "x".repeat(LIMIT);
    assert!(matches!(
        sign(long, &signing(ED25519)),
        Err(SignError::TooLong(_))
    ));
}

#[test]
fn a_key_that_cannot_be_used_says_why() {
    let private = |text: &[u8]| SigningKey::from_pem(text).map(drop).unwrap_err();
    let public = |text: &[u8]| PublicKey::from_pem(text).map(drop).unwrap_err();
    assert_eq!(public(b"hunter2"), KeyError::NoPem);
    assert_eq!(public(&vec![b'x'; 100_000]), KeyError::TooLong);
    assert_eq!(
        public(ED25519).to_string(),
        "it has a PEM block \"PRIVATE KEY\" instead of \"PUBLIC KEY\": `openssl pkey` writes PKCS#8, with -pubout the public key"
    );
    assert!(matches!(private(P256_PUBLIC), KeyError::WrongLabel { .. }));
    assert!(matches!(
        private(b"-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"),
        KeyError::WrongLabel { .. }
    ));
    for label in ["ENCRYPTED PRIVATE KEY", "ENCRYPTED SIGSTORE PRIVATE KEY"] {
        let text = format!("-----BEGIN {label}-----\nAAAA\n-----END {label}-----\n");
        assert_eq!(private(text.as_bytes()), KeyError::Encrypted);
    }
    let block = |content: &str, end: &str| format!("-----BEGIN PUBLIC KEY-----\n{content}\n{end}\n");
    let end = "-----END PUBLIC KEY-----";
    assert_eq!(public(block("AAAA", end).as_bytes()), KeyError::Unsupported);
    assert!(matches!(public(block("?", end).as_bytes()), KeyError::Damaged(_)));
    assert!(matches!(
        public(block("AAAA", "").as_bytes()),
        KeyError::Damaged(_)
    ));
    let commented = [b"# of the release team\n".as_slice(), ED25519_PUBLIC].concat();
    assert_eq!(PublicKey::from_pem(&commented).unwrap().id(), ED25519_ID);
    let signing = format!("{:?}", signing(ED25519));
    assert!(
        !signing.contains("seed") && signing.contains("public"),
        "{signing}"
    );
}

proptest! {
    #[test]
    fn a_changed_byte_of_payload_type_or_signature_is_refused(part in 0..3, at in any::<prop::sample::Index>(), flip in 1..=255_u8) {
        let mut envelope = Envelope::parse(ED25519_RECORD).unwrap();
        let key = [public(ED25519_PUBLIC)];
        prop_assert!(envelope.verify(&key).is_ok());
        match part {
            0 => {
                let at = at.index(envelope.payload.len());
                envelope.payload[at] ^= flip;
            }
            1 => {
                let at = at.index(envelope.signatures[0].bytes.len());
                envelope.signatures[0].bytes[at] ^= flip;
            }
            _ => {
                let at = at.index(envelope.payload_type.len());
                // Stays ASCII.
                let other = if envelope.payload_type.as_bytes()[at] == b'x' { "y" } else { "x" };
                envelope.payload_type.replace_range(at..=at, other);
            }
        }
        let is_refused = matches!(envelope.verify(&key), Err(RecordError::InvalidSignature { .. }));
        prop_assert!(is_refused);
    }

    /// A byte outside of what is signed, such as white space or the id of the key, may change; what is verified may not.
    #[test]
    fn a_changed_byte_of_the_file_is_refused_or_changes_nothing(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let key = [public(ED25519_PUBLIC)];
        let original = verify(ED25519_RECORD, &key).unwrap();
        let mut file = ED25519_RECORD.to_vec();
        let at = at.index(file.len());
        file[at] = byte;
        if let Ok(verified) = verify(&file, &key) {
            prop_assert_eq!(verified, original);
        }
    }

    #[test]
    fn any_payload_is_signed_and_parsed_back(payload_type in "\\PC{0,40}", payload in prop::collection::vec(any::<u8>(), 0..300)) {
        let signed = Envelope::sign(&payload_type, payload.clone(), &signing(P256)).unwrap();
        let parsed = Envelope::parse(signed.to_json().unwrap().as_bytes()).unwrap();
        prop_assert_eq!(&parsed, &signed);
        prop_assert_eq!(parsed.payload, payload);
        let key = [public(P256_PUBLIC)];
        prop_assert!(signed.verify(&key).is_ok());
        prop_assert!(signed.verify(&[public(ED25519_PUBLIC)]).is_err());
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let text = STANDARD.encode(&bytes);
        for label in ["PRIVATE KEY", "PUBLIC KEY"] {
            let pem = format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n");
            let _ = (SigningKey::from_pem(pem.as_bytes()), PublicKey::from_pem(pem.as_bytes()));
        }
        let _ = (SigningKey::from_pem(&bytes), PublicKey::from_pem(&bytes));
        prop_assert!(Envelope::parse(&bytes).is_err());
        prop_assert!(Statement::parse(&bytes).is_err());
        let signed = json!({ "payload": text, "payloadType": PAYLOAD_TYPE, "signatures": [{ "sig": text }] });
        prop_assert!(verify(signed.to_string().as_bytes(), &[public(ED25519_PUBLIC), public(P256_PUBLIC)]).is_err());
    }
}
