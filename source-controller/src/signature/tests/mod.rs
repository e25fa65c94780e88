//! Tests of commits and tags signed by the real `git` with `gpg` and `ssh-keygen`.

mod foreign;
mod openpgp;
mod ssh;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use jiff::Timestamp;
use sluice_harness::git::Repository;
use sluice_harness::gpg::Keyring;

use super::{ObjectKind, SignedObject, TrustedKeys, verify};

/// Returns a raw object as stored by `git`; `Repository::git` would trim the output.
fn raw(repository: &Repository, kind: &str, name: &str) -> Vec<u8> {
    let output = Command::new("git")
        .arg("--git-dir")
        .arg(repository.git_dir())
        .args(["-c", "safe.directory=*", "cat-file", kind, name])
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success());
    output.stdout
}

/// A commit and its annotated tag `v1`, both signed.
struct Objects {
    commit: Vec<u8>,
    tag: Vec<u8>,
}

impl Objects {
    fn signed(configuration: &[String]) -> Self {
        let repository = Repository::create().unwrap();
        repository.write("main.tf", "locals {}\n").unwrap();
        repository.git(["add", "--all"]).unwrap();
        let run = |arguments: &[&str]| {
            let configured = configuration.iter().flat_map(|setting| ["-c", setting.as_str()]);
            repository
                .git(configured.chain(arguments.iter().copied()))
                .unwrap();
        };
        run(&["commit", "--quiet", "-S", "--message", "Subject\n\nBody ä\n"]);
        run(&["tag", "--sign", "--message", "Text\n\nof a tag", "v1"]);
        Self {
            commit: raw(&repository, "commit", "HEAD"),
            tag: raw(&repository, "tag", "v1"),
        }
    }

    fn by_gpg(keyring: &Keyring, key: &str) -> Self {
        Self::by_gpg_program(&keyring.program(), key)
    }

    fn by_gpg_program(program: &Path, key: &str) -> Self {
        Self::signed(&[
            format!("gpg.program={}", program.display()),
            format!("user.signingkey={key}"),
        ])
    }

    fn by_ssh(key: &Path) -> Self {
        Self::signed(&[
            "gpg.format=ssh".into(),
            format!("user.signingkey={}", key.display()),
        ])
    }

    fn parts(&self) -> [(ObjectKind, SignedObject); 2] {
        [
            (ObjectKind::Commit, SignedObject::commit(&self.commit)),
            (ObjectKind::Tag, SignedObject::tag(&self.tag)),
        ]
    }

    /// Verifies both; the results must be equal.
    fn verified(&self, keys: &[(&str, &str)]) -> Result<String, String> {
        self.verified_at(keys, Timestamp::now())
    }

    fn verified_at(&self, keys: &[(&str, &str)], now: Timestamp) -> Result<String, String> {
        let [commit, tag] = self.parts().map(|(kind, signed)| check(&signed, kind, keys, now));
        let tag = tag.map_err(|text| text.replacen("Git tag", "Git commit", 1));
        assert_eq!(commit, tag);
        commit
    }
}

fn check(
    signed: &SignedObject,
    kind: ObjectKind,
    keys: &[(&str, &str)],
    now: Timestamp,
) -> Result<String, String> {
    let keys: BTreeMap<_, _> = keys
        .iter()
        .map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec()))
        .collect();
    verify(signed, kind, &TrustedKeys::new(keys), now).map_err(|error| error.to_string())
}
