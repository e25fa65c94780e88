//! Tests with keys of the real `ssh-keygen`.

use std::path::Path;
use std::process::Command;

use proptest::prelude::*;

use super::*;

const PASSPHRASE: &str = "correct horse";

fn keygen(folder: &Path, arguments: &[&str]) -> String {
    let file = folder.join("key");
    let output = Command::new("ssh-keygen")
        .arg("-q")
        .args(arguments)
        .arg("-f")
        .arg(&file)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let key = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let _ = std::fs::remove_file(file.with_extension("pub"));
    key
}

#[test]
fn every_type_is_parsed_in_every_format_plain_and_encrypted() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, bits) in [
        ("rsa", "2048"),
        ("ecdsa", "256"),
        ("ecdsa", "384"),
        ("ecdsa", "521"),
        ("ed25519", "256"),
    ] {
        for form in ["RFC4716", "PKCS8", "PEM"] {
            // OpenSSH writes Ed25519 keys in its own format only.
            if kind == "ed25519" && form != "RFC4716" {
                continue;
            }
            for passphrase in ["", PASSPHRASE] {
                let text = keygen(
                    folder.path(),
                    &["-t", kind, "-b", bits, "-m", form, "-N", passphrase, "-a", "2"],
                );
                let case = format!("{kind} {bits} {form} {passphrase:?}");
                assert_eq!(is_encrypted(&text), !passphrase.is_empty(), "{case}");
                let key = parse(&text, Some(PASSPHRASE));
                assert!(key.is_ok(), "{case}: {key:?}");
                if passphrase.is_empty() {
                    assert!(parse(&text, None).is_ok(), "{case}");
                } else {
                    assert_eq!(
                        parse(&text, None).unwrap_err(),
                        IdentityError::Encrypted,
                        "{case}"
                    );
                    assert_eq!(
                        parse(&text, Some("wrong")).unwrap_err(),
                        IdentityError::Passphrase,
                        "{case}"
                    );
                }
            }
        }
    }
}

#[test]
fn white_space_and_text_around_a_key_are_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let text = keygen(folder.path(), &["-t", "ed25519", "-N", ""]);
    let crlf = text.replace('\n', "\r\n");
    let indented = format!("my key:\n\n  {}", text.replace('\n', "  \n  "));
    for text in [&text, &crlf, &indented, text.trim_end()] {
        assert!(parse(text, None).is_ok(), "{text}");
    }
}

#[test]
fn unusable_keys_are_reported() {
    let armor = |label: &str, body: &str| format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n");
    for (text, why) in [
        (String::new(), "unknown format"),
        ("ssh-ed25519 AAAA".into(), "unknown format"),
        (armor("PUBLIC KEY", "AAAA"), "unknown format"),
        ("PuTTY-User-Key-File-3: ssh-ed25519".into(), "unknown format"),
        (armor("DSA PRIVATE KEY", "AAAA"), "type DSA"),
        (armor("RSA PRIVATE KEY", "AAAA"), "damaged"),
        (armor("OPENSSH PRIVATE KEY", "AAAA"), "damaged"),
        (armor("PRIVATE KEY", "!"), "not base64"),
        ("-----BEGIN PRIVATE KEY-----\nAAAA".into(), "END line"),
        ("x".repeat(MAX_BYTES + 1), "longer than"),
        (
            armor(
                "RSA PRIVATE KEY",
                "Proc-Type: 4,ENCRYPTED\nDEK-Info: DES-EDE3-CBC,00\n\nAAAA",
            ),
            "DES-EDE3-CBC",
        ),
    ] {
        let error = parse(&text, Some("x")).unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn a_key_with_excessive_derivation_cost_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let text = keygen(folder.path(), &["-t", "ed25519", "-N", PASSPHRASE, "-a", "2"]);
    let pem = Pem::parse(&text).unwrap();
    let mut body = pem.body.clone();
    // The rounds follow the salt of 16 bytes, which follows the name "bcrypt" and two lengths.
    let name = body.windows(6).position(|bytes| bytes == b"bcrypt").unwrap();
    let rounds = name + 6 + 4 + 4 + 16;
    assert_eq!(body[rounds..rounds + 4], [0, 0, 0, 2]);
    body[rounds..rounds + 4].copy_from_slice(&u32::MAX.to_be_bytes());
    let error = parse(&pem::encode(pem.label, &body), Some(PASSPHRASE)).unwrap_err();
    assert!(matches!(error, IdentityError::TooCostly(_)), "{error}");
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(text in "\\PC{0,200}", label in "(RSA |EC |ENCRYPTED |OPENSSH |)", body in "[A-Za-z0-9+/]{0,80}") {
        let _ = parse(&text, Some("x"));
        let text = format!("-----BEGIN {label}PRIVATE KEY-----\n{body}\n-----END {label}PRIVATE KEY-----\n");
        let _ = (parse(&text, None), parse(&text, Some("x")));
    }
}
