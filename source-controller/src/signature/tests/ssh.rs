//! Tests of SSH: key algorithms, authorized keys, namespaces, and damaged signatures.

use jiff::Timestamp;
use sluice_harness::ssh_key::SshKey;

use super::super::{ObjectKind, SignedObject};
use super::{Objects, check};

const NO_MATCH: &str = "unable to verify Git commit SSH signature: unable to verify payload with any of the given \
    authorized keys: no matching key";
const KINDS: [(&str, u16); 5] = [
    ("ed25519", 256),
    ("rsa", 2048),
    ("ecdsa", 256),
    ("ecdsa", 384),
    ("ecdsa", 521),
];

fn verified(signature: &str, keys: &[(&str, &str)]) -> Result<String, String> {
    let signed = SignedObject {
        payload: b"content".to_vec(),
        signature: signature.into(),
    };
    check(&signed, ObjectKind::Commit, keys, Timestamp::now())
}

#[test]
fn every_kind_of_key_signs_commits_and_tags() {
    let keys: Vec<_> = KINDS
        .iter()
        .map(|(kind, bits)| SshKey::generate(kind, *bits).unwrap())
        .collect();
    let all: String = keys.iter().map(SshKey::public).collect();
    for key in &keys {
        let objects = Objects::by_ssh(&key.file());
        assert_eq!(
            objects.verified(&[("a.sshpub", key.public())]),
            Ok(key.fingerprint().to_owned())
        );
        assert_eq!(
            objects.verified(&[("a.sshpub", &all)]),
            Ok(key.fingerprint().to_owned())
        );
        for (kind, mut signed) in objects.parts() {
            signed.payload[3] ^= 1;
            let error = check(&signed, kind, &[("a.sshpub", &all)], Timestamp::now()).unwrap_err();
            assert!(
                error.contains(&format!("no matching key (key '{}'", key.fingerprint())),
                "{error}"
            );
        }
    }
}

#[test]
fn all_entries_are_searched_and_an_invalid_line_only_affects_its_own_entry() {
    let (key, other) = (
        SshKey::generate("ed25519", 256).unwrap(),
        SshKey::generate("ecdsa", 256).unwrap(),
    );
    let objects = Objects::by_ssh(&key.file());
    let found = Ok(key.fingerprint().to_owned());
    let decorated = format!(
        "# team\n\n{}no-pty,command=\"a b\" {}\n",
        other.public(),
        key.public().trim()
    );
    let spoilt = format!("{}invalid-key-data\n", key.public());
    let verified = |entries: &[(&str, &str)]| objects.verified(entries);
    assert_eq!(verified(&[("a.sshpub", &decorated)]), found);
    assert_eq!(
        verified(&[("a.sshpub", other.public()), ("b.sshpub", key.public())]),
        found
    );
    assert_eq!(
        verified(&[("a.sshpub", "invalid-key-data"), ("b.sshpub", key.public())]),
        found
    );
    assert_eq!(
        verified(&[("a.sshpub", key.public()), ("b.sshpub", "invalid-key-data")]),
        found
    );
    assert_eq!(
        verified(&[("a.sshpub", &spoilt), ("b.sshpub", other.public())]),
        Err(NO_MATCH.into())
    );
    assert_eq!(verified(&[("a.sshpub", other.public())]), Err(NO_MATCH.into()));
    assert_eq!(verified(&[("a.sshpub", "")]), Err(NO_MATCH.into()));
    assert_eq!(
        verified(&[("a.sshpub", &spoilt), ("b.sshpub", "x")]),
        Err("unable to verify Git commit SSH signature: unable to parse authorized keys: unable to parse authorized \
            key: line 2 is not a public key"
            .into())
    );
    let asc = "SSH signature detected but no SSH public keys found in secret (keys with .sshpub suffix)";
    assert_eq!(verified(&[("a.asc", key.public())]), Err(asc.into()));
    assert_eq!(verified(&[]), Err(asc.into()));
}

#[test]
fn both_hashes_are_valid_and_another_namespace_is_not() {
    let key = SshKey::generate("rsa", 2048).unwrap();
    let keys = [("a.sshpub", key.public())];
    for hash in ["sha256", "sha512"] {
        let signature = key
            .sign(b"content", &["-n", "git", "-O", &format!("hashalg={hash}")])
            .unwrap();
        assert_eq!(
            verified(&signature, &keys),
            Ok(key.fingerprint().to_owned()),
            "{hash}"
        );
    }
    let error = verified(&key.sign(b"content", &["-n", "file"]).unwrap(), &keys).unwrap_err();
    assert!(
        error.starts_with(NO_MATCH) && error.ends_with("is for the namespace \"file\", not \"git\")"),
        "{error}"
    );
}

#[test]
fn damaged_and_decorated_signatures() {
    let key = SshKey::generate("ed25519", 256).unwrap();
    let keys = [("a.sshpub", key.public())];
    let good = key.sign(b"content", &["-n", "git"]).unwrap();
    let body: String = good.lines().filter(|line| !line.starts_with('-')).collect();
    let armored =
        |body: &str| format!("-----BEGIN SSH SIGNATURE-----\n{body}\n-----END SSH SIGNATURE-----\n");
    for decorated in [
        good.clone(),
        format!(" \n{good}\n\t"),
        good.replace('\n', "\r\n"),
        format!("{good}garbage behind the end"),
        armored(&body),
    ] {
        assert_eq!(
            verified(&decorated, &keys),
            Ok(key.fingerprint().to_owned()),
            "{decorated}"
        );
    }
    for damaged in [
        armored(""),
        armored("!!!"),
        armored(&body[..body.len() / 2 / 4 * 4]),
        armored(&body[4..]),
        good.replace("-----END SSH SIGNATURE-----", ""),
        good.replace("END SSH", "END PGP"),
    ] {
        let error = verified(&damaged, &keys).unwrap_err();
        assert!(
            error.starts_with("unable to verify Git commit SSH signature: unable to unarmor SSH signature: "),
            "{error}"
        );
    }
    // The last bytes contain the signature itself.
    let at = body.len() - 12;
    let other = if body.as_bytes()[at] == b'A' { "B" } else { "A" };
    let corrupted = format!("{}{other}{}", &body[..at], &body[at + 1..]);
    let error = verified(&armored(&corrupted), &keys).unwrap_err();
    assert!(error.starts_with(NO_MATCH), "{error}");
}

#[test]
fn a_misplaced_private_key_is_not_printed() {
    let key = SshKey::generate("ed25519", 256).unwrap();
    let private = std::fs::read_to_string(key.file()).unwrap();
    let objects = Objects::by_ssh(&key.file());
    let error = objects.verified(&[("a.sshpub", &private)]).unwrap_err();
    assert!(error.ends_with("line 1 is not a public key"), "{error}");
}
