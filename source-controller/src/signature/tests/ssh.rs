//! SSH: key kinds, texts of keys, namespaces, and damage.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use jiff::Timestamp;
use tempfile::TempDir;

use super::super::{Carrier, Signed};
use super::{Objects, judge};

const NO_MATCH: &str = "unable to verify Git commit SSH signature: unable to verify payload with any of the given \
    authorized keys: no matching key";
const KINDS: [(&str, &str); 5] = [
    ("ed25519", "256"),
    ("rsa", "2048"),
    ("ecdsa", "256"),
    ("ecdsa", "384"),
    ("ecdsa", "521"),
];

fn keygen(arguments: &[&str]) -> String {
    let output = Command::new("ssh-keygen")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

struct Key {
    folder: TempDir,
    public: String,
    fingerprint: String,
}

impl Key {
    fn generate(kind: &str, bits: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        let path = file.to_str().unwrap();
        keygen(&[
            "-q",
            "-t",
            kind,
            "-b",
            bits,
            "-N",
            "",
            "-C",
            "a comment",
            "-f",
            path,
        ]);
        let listed = keygen(&["-l", "-f", path]);
        Self {
            public: std::fs::read_to_string(folder.path().join("key.pub")).unwrap(),
            fingerprint: listed.split(' ').nth(1).unwrap().to_owned(),
            folder,
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("key")
    }

    /// A signature over a file with this content.
    fn sign(&self, content: &str, options: &[&str]) -> String {
        let file = self.folder.path().join("content");
        std::fs::write(&file, content).unwrap();
        let signature = self.folder.path().join("content.sig");
        drop(std::fs::remove_file(&signature));
        let (key, content) = (self.file(), file.to_str().unwrap().to_owned());
        keygen(
            &[
                &["-q", "-Y", "sign", "-f", key.to_str().unwrap()],
                options,
                &[content.as_str()],
            ]
            .concat(),
        );
        std::fs::read_to_string(signature).unwrap()
    }
}

fn judged(signature: &str, keys: &[(&str, &str)]) -> Result<String, String> {
    let signed = Signed {
        payload: b"content".to_vec(),
        signature: signature.into(),
    };
    judge(&signed, Carrier::Commit, keys, Timestamp::now())
}

#[test]
fn every_kind_of_key_signs_commits_and_tags() {
    let keys: Vec<_> = KINDS
        .iter()
        .map(|(kind, bits)| Key::generate(kind, bits))
        .collect();
    let all: String = keys.iter().map(|key| key.public.as_str()).collect();
    for key in &keys {
        let objects = Objects::by_ssh(&key.file());
        assert_eq!(
            objects.judged(&[("a.sshpub", &key.public)]),
            Ok(key.fingerprint.clone())
        );
        assert_eq!(objects.judged(&[("a.sshpub", &all)]), Ok(key.fingerprint.clone()));
        for (carrier, mut signed) in objects.parts() {
            signed.payload[3] ^= 1;
            let error = judge(&signed, carrier, &[("a.sshpub", &all)], Timestamp::now()).unwrap_err();
            assert!(
                error.contains(&format!("no matching key (key '{}'", key.fingerprint)),
                "{error}"
            );
        }
    }
}

#[test]
fn texts_of_keys_are_searched_and_a_bad_line_spoils_its_own_text_only() {
    let (key, other) = (Key::generate("ed25519", "256"), Key::generate("ecdsa", "256"));
    let objects = Objects::by_ssh(&key.file());
    let found = Ok(key.fingerprint.clone());
    let decorated = format!(
        "# team\n\n{}no-pty,command=\"a b\" {}\n",
        other.public,
        key.public.trim()
    );
    let spoilt = format!("{}invalid-key-data\n", key.public);
    let judged = |entries: &[(&str, &str)]| objects.judged(entries);
    assert_eq!(judged(&[("a.sshpub", &decorated)]), found);
    assert_eq!(
        judged(&[("a.sshpub", &other.public), ("b.sshpub", &key.public)]),
        found
    );
    assert_eq!(
        judged(&[("a.sshpub", "invalid-key-data"), ("b.sshpub", &key.public)]),
        found
    );
    assert_eq!(
        judged(&[("a.sshpub", &key.public), ("b.sshpub", "invalid-key-data")]),
        found
    );
    assert_eq!(
        judged(&[("a.sshpub", &spoilt), ("b.sshpub", &other.public)]),
        Err(NO_MATCH.into())
    );
    assert_eq!(judged(&[("a.sshpub", &other.public)]), Err(NO_MATCH.into()));
    assert_eq!(judged(&[("a.sshpub", "")]), Err(NO_MATCH.into()));
    assert_eq!(
        judged(&[("a.sshpub", &spoilt), ("b.sshpub", "x")]),
        Err("unable to verify Git commit SSH signature: unable to parse authorized keys: unable to parse authorized \
            key: line 2 is no public key"
            .into())
    );
    let asc = "SSH signature detected but no SSH public keys found in secret (keys with .sshpub suffix)";
    assert_eq!(judged(&[("a.asc", &key.public)]), Err(asc.into()));
    assert_eq!(judged(&[]), Err(asc.into()));
}

#[test]
fn both_hashes_count_and_another_namespace_does_not() {
    let key = Key::generate("rsa", "2048");
    let keys = [("a.sshpub", key.public.as_str())];
    for hash in ["sha256", "sha512"] {
        let signature = key.sign("content", &["-n", "git", "-O", &format!("hashalg={hash}")]);
        assert_eq!(judged(&signature, &keys), Ok(key.fingerprint.clone()), "{hash}");
    }
    let error = judged(&key.sign("content", &["-n", "file"]), &keys).unwrap_err();
    assert!(
        error.starts_with(NO_MATCH) && error.ends_with("is for the namespace \"file\", not \"git\")"),
        "{error}"
    );
}

#[test]
fn damaged_and_decorated_signatures() {
    let key = Key::generate("ed25519", "256");
    let keys = [("a.sshpub", key.public.as_str())];
    let good = key.sign("content", &["-n", "git"]);
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
            judged(&decorated, &keys),
            Ok(key.fingerprint.clone()),
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
        let error = judged(&damaged, &keys).unwrap_err();
        assert!(
            error.starts_with("unable to verify Git commit SSH signature: unable to unarmor SSH signature: "),
            "{error}"
        );
    }
    // The last bytes are the signature proper.
    let at = body.len() - 12;
    let other = if body.as_bytes()[at] == b'A' { "B" } else { "A" };
    let corrupted = format!("{}{other}{}", &body[..at], &body[at + 1..]);
    let error = judged(&armored(&corrupted), &keys).unwrap_err();
    assert!(error.starts_with(NO_MATCH), "{error}");
}

#[test]
fn a_private_key_in_the_place_of_a_public_one_is_not_shown() {
    let key = Key::generate("ed25519", "256");
    let private = std::fs::read_to_string(Path::new(&key.file())).unwrap();
    let objects = Objects::by_ssh(&key.file());
    let error = objects.judged(&[("a.sshpub", &private)]).unwrap_err();
    assert!(error.ends_with("line 1 is no public key"), "{error}");
}
