//! Tests of signature verification. Keys and signatures are made by the real programs.

mod failures;
mod modes;
mod repetition;

use std::time::Duration;

use serde_json::{Value, json};
use sluice_harness::gpg::Keyring;
use sluice_harness::ssh_key::SshKey;

use super::environment::TestEnvironment;

/// An environment whose repository can be signed with gpg or ssh, with a Secret `keys` that contains both keys.
struct Signing {
    env: TestEnvironment,
    keyring: Keyring,
    gpg: String,
    ssh: SshKey,
}

impl Signing {
    async fn new() -> Self {
        let keyring = Keyring::create().unwrap();
        let (gpg, ssh) = (
            keyring.generate("ed25519").unwrap(),
            SshKey::generate("ed25519", 256).unwrap(),
        );
        let mut env = TestEnvironment::new().await;
        env.label(&gpg[gpg.len() - 16..], "gpg");
        env.label(ssh.fingerprint(), "ssh");
        // The clock stands still while gpg's continues: signatures must not be in the future.
        env.clock.advance(Duration::from_hours(1));
        let created = Self {
            env,
            keyring,
            gpg,
            ssh,
        };
        let keys = json!({ "a.asc": created.ring(), "b.sshpub": created.ssh.public() });
        created.env.secret("keys", keys).await;
        created
    }

    fn ring(&self) -> String {
        self.keyring.export(&self.gpg).unwrap()
    }

    /// Replaces the Secret `keys`.
    async fn keys(&self, entries: Value) {
        self.env.delete_secret("keys").await;
        self.env.secret("keys", entries).await;
    }

    /// Configures the signing of further commits and annotated tags; `None` disables it.
    fn sign(&self, by: Option<Signer>) {
        let set = |key: &str, value: &str| drop(self.env.repository.git(["config", key, value]).unwrap());
        set("commit.gpgsign", if by.is_some() { "true" } else { "false" });
        set("tag.gpgsign", if by.is_some() { "true" } else { "false" });
        match by {
            Some(Signer::Gpg) => {
                set("gpg.format", "openpgp");
                set("gpg.program", self.keyring.program().to_str().unwrap());
                set("user.signingkey", &self.gpg);
            }
            Some(Signer::Ssh) => {
                set("gpg.format", "ssh");
                set("user.signingkey", self.ssh.file().to_str().unwrap());
            }
            None => {}
        }
    }

    /// Creates a signed commit, shown as `<label>`.
    fn commit(&mut self, by: Option<Signer>, label: &str) -> String {
        self.sign(by);
        self.env.commit(label, &[("main.tf", label)])
    }

    /// Creates a signed, annotated tag at the last commit; its object is shown as `<label>`.
    fn tag(&mut self, by: Option<Signer>, name: &str, label: &str) {
        self.sign(by);
        let id = self.env.repository.annotated_tag(name, "text").unwrap();
        self.env.label(id, label);
    }

    /// Creates an object with this mode and reference, and reconciles it.
    async fn table(&self, name: &str, mode: &str, reference: Value) -> String {
        self.create(name, mode, reference).await;
        self.env.reconcile(name).await;
        self.env.table(name).await
    }

    async fn create(&self, name: &str, mode: &str, reference: Value) {
        let verify = json!({ "mode": mode, "secretRef": { "name": "keys" } });
        // The fields are merged: remove the default branch unless it is set.
        let mut expected = json!({ "branch": null });
        expected
            .as_object_mut()
            .unwrap()
            .extend(reference.as_object().unwrap().clone());
        self.env
            .create(name, json!({ "ref": expected, "verify": verify }))
            .await;
    }

    /// Returns the condition `SourceVerified`.
    async fn verified(&self, name: &str) -> String {
        let table = self.env.table(name).await;
        table
            .lines()
            .skip_while(|line| !line.starts_with("SourceVerified"))
            .take_while(|line| line.starts_with("SourceVerified") || line.starts_with('\t'))
            .collect::<Vec<_>>()
            .join("\n")
    }
}

#[derive(Clone, Copy)]
enum Signer {
    Gpg,
    Ssh,
}
