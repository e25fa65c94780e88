//! Signatures decide whether a commit becomes an artifact. Keys and signatures are made by the real programs.

mod again;
mod modes;
mod refusals;

use std::time::Duration;

use serde_json::{Value, json};
use sluice_harness::gpg::Keyring;
use sluice_harness::ssh_key::SshKey;

use super::world::World;

/// A world whose repository is signed in, by gpg or by ssh, with a Secret `keys` that holds the keys of both.
struct Signing {
    world: World,
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
        let mut world = World::new().await;
        world.label(&gpg[gpg.len() - 16..], "gpg");
        world.label(ssh.fingerprint(), "ssh");
        // The clock stands still, and gpg's goes on: what it signs must not come from the future.
        world.clock.advance(Duration::from_secs(3600));
        let made = Self {
            world,
            keyring,
            gpg,
            ssh,
        };
        let keys = json!({ "a.asc": made.ring(), "b.sshpub": made.ssh.public() });
        made.world.secret("keys", keys).await;
        made
    }

    fn ring(&self) -> String {
        self.keyring.export(&self.gpg).unwrap()
    }

    /// Replaces the Secret `keys`.
    async fn keys(&self, entries: Value) {
        self.world.delete_secret("keys").await;
        self.world.secret("keys", entries).await;
    }

    /// From now on, commits and annotated tags are signed so; by nobody without an argument.
    fn sign(&self, by: Option<By>) {
        let set = |key: &str, value: &str| drop(self.world.repository.git(["config", key, value]).unwrap());
        set("commit.gpgsign", if by.is_some() { "true" } else { "false" });
        set("tag.gpgsign", if by.is_some() { "true" } else { "false" });
        match by {
            Some(By::Gpg) => {
                set("gpg.format", "openpgp");
                set("gpg.program", self.keyring.program().to_str().unwrap());
                set("user.signingkey", &self.gpg);
            }
            Some(By::Ssh) => {
                set("gpg.format", "ssh");
                set("user.signingkey", self.ssh.file().to_str().unwrap());
            }
            None => {}
        }
    }

    /// A commit that is signed so; shown as `<label>`.
    fn commit(&mut self, by: Option<By>, label: &str) -> String {
        self.sign(by);
        self.world.commit(label, &[("main.tf", label)])
    }

    /// An annotated tag at the last commit, signed so; its object is shown as `<label>`.
    fn tag(&mut self, by: Option<By>, name: &str, label: &str) {
        self.sign(by);
        let id = self.world.repository.annotated_tag(name, "text").unwrap();
        self.world.label(id, label);
    }

    /// Creates an object with this mode and reference, and lets a pass over it go.
    async fn table(&self, name: &str, mode: &str, reference: Value) -> String {
        self.create(name, mode, reference).await;
        self.world.pass(name).await;
        self.world.table(name).await
    }

    async fn create(&self, name: &str, mode: &str, reference: Value) {
        let verify = json!({ "mode": mode, "secretRef": { "name": "keys" } });
        // A merge: the branch of the world's objects goes unless it is given.
        let mut wanted = json!({ "branch": null });
        wanted
            .as_object_mut()
            .unwrap()
            .extend(reference.as_object().unwrap().clone());
        self.world
            .create(name, json!({ "ref": wanted, "verify": verify }))
            .await;
    }

    /// The line of the condition `SourceVerified`.
    async fn verified(&self, name: &str) -> String {
        let table = self.world.table(name).await;
        table
            .lines()
            .skip_while(|line| !line.starts_with("SourceVerified"))
            .take_while(|line| line.starts_with("SourceVerified") || line.starts_with('\t'))
            .collect::<Vec<_>>()
            .join("\n")
    }
}

#[derive(Clone, Copy)]
enum By {
    Gpg,
    Ssh,
}
