//! Stored configurations for destroys without a source: stacks of a namespace share identical files.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::json;
use sluice_api::reference::ObjectName;

use crate::deletion::inner;
use crate::environment::{NAMESPACE, TIMEOUT, TestEnvironment};

/// Random letters, which compress badly.
struct RandomLetters(u64);

impl RandomLetters {
    fn letters(&mut self, length: usize) -> String {
        let mut next = || {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(b'!' + u8::try_from((self.0 >> 33) % 90).unwrap())
        };
        (0..length).map(|_| next()).collect()
    }
}

impl TestEnvironment {
    /// Starts a controller with or without sealing.
    async fn with_sealing(sealed: bool) -> Self {
        let mut env = Self::without_controller().await;
        if sealed {
            env.secret("keys", &[("2026", &"01".repeat(32))]).await;
            env.plan_encryption = Some(ObjectName {
                namespace: NAMESPACE.to_owned(),
                name: "keys".to_owned(),
            });
        }
        env.start(4).await;
        env
    }

    /// Waits for this number of Secrets with files; unowned ones are collected.
    async fn wait_for_files(&self, count: usize, when: &str) {
        let looking = async {
            while self.secrets("tffiles-").await.len() != count {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let found = tokio::time::timeout(TIMEOUT, looking).await;
        assert!(found.is_ok(), "{when}: {:?}", self.secrets("tffiles-").await);
    }

    /// Returns names and versions of the Secrets with files.
    async fn versions(&self) -> Vec<(String, Option<String>)> {
        let api: Api<Secret> = self.api();
        let all = api.list(&ListParams::default()).await.unwrap().items;
        let files = all
            .iter()
            .filter(|secret| secret.name_any().starts_with("tffiles-") && secret.data.is_some());
        files
            .map(|secret| (secret.name_any(), secret.resource_version()))
            .collect()
    }

    /// Returns the size in bytes of the Secrets with this prefix.
    async fn size_of(&self, beginning: &str) -> usize {
        let api: Api<Secret> = self.api();
        let all = api.list(&ListParams::default()).await.unwrap().items;
        let matching = all
            .iter()
            .filter(|secret| secret.name_any().starts_with(beginning));
        let data = matching.flat_map(|secret| secret.data.iter().flat_map(|data| data.values()));
        data.map(|bytes| bytes.0.len()).sum()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn applied_files_are_stored_once_and_only_if_a_deletion_destroys() {
    assert_stored_once(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sealed_applied_files_are_stored_once() {
    assert_stored_once(true).await;
}

async fn assert_stored_once(sealed: bool) {
    let env = TestEnvironment::with_sealing(sealed).await;
    let record_file = env.path("record");
    let (module, mut noise, mut versions) = (inner(&record_file), RandomLetters(1), Vec::new());
    for revision in ["a", "b"] {
        let noise = noise.letters(1_500_000);
        let module =
            format!("{module}resource \"terraform_data\" \"revision\" {{ input = \"{revision}\" }}\n");
        let files = [("main.tf", module.as_str()), ("noise", noise.as_str())];
        env.commit(revision, &files).await;
        for name in ["one", "two", "three", "four", "kept"] {
            if revision == "a" {
                let spec = json!({ "vars": [{ "name": "size", "value": name }], "destroyResourcesOnDeletion": name != "kept" });
                env.stack(name, spec).await;
            }
            env.applied(name, revision).await;
            // Each write of a Secret adds a copy to the history of the API server's database.
            let current = env.versions().await;
            assert!(
                name == "one" || revision == "b" || current == versions,
                "{name}: {current:?} after {versions:?}"
            );
            versions = current;
        }
        let bytes = env.size_of("tffiles-").await + env.size_of("tfapplied-").await;
        assert!((1_200_000..1_500_000 + 5 * 20_000).contains(&bytes), "{bytes}");
        env.wait_for_files(3, "two pieces and their owner").await;
        assert_eq!(env.secrets("tfapplied-").await.len(), 4, "Retain keeps nothing");
    }
    let api: Api<Secret> = env.api();
    for (name, _) in env.versions().await {
        let data = api.get(&name).await.unwrap().data.unwrap();
        assert_eq!(data.contains_key("sealed"), sealed, "{name}");
    }
    env.remove_source().await;
    for name in ["one", "two", "three", "four"] {
        env.wait_for_files(3, name).await;
        env.delete(name).await;
        env.wait_gone(name).await;
        assert_eq!(std::fs::read_to_string(&record_file).unwrap().trim(), name);
    }
    env.wait_for_files(0, "no stack remains").await;
}

/// Files are stored once for any number of stacks, so a few stacks show the cost of 200.
#[tokio::test(flavor = "multi_thread")]
async fn stored_files_of_200_stacks_of_one_repository_of_8_mib_need_less_than_64_mib() {
    const STACKS: usize = 200;
    let names = ["one", "two", "three"];
    let env = TestEnvironment::with_sealing(true).await;
    let module = "output \"size\" { value = length(file(\"../noise\")) }";
    let noise = RandomLetters(7).letters(8 << 20);
    let files = [
        ("a/main.tf", module),
        ("noise", noise.as_str()),
        ("b/main.tf", ""),
    ];
    env.commit("a", &files).await;
    let mut before = 0;
    for (number, name) in names.iter().enumerate() {
        env.stack(name, json!({ "path": "a", "destroyResourcesOnDeletion": true }))
            .await;
        env.applied(name, "a").await;
        let files = env.size_of("tffiles-").await;
        assert!(number == 0 || files == before, "{name}: {files} after {before}");
        before = files;
    }
    let own = env.size_of("tfapplied-").await.div_ceil(names.len());
    let sum = before + STACKS * own;
    println!("files {before} bytes, each stack {own} more: {STACKS} stacks need {sum} bytes");
    assert!(
        before > 6_000_000 && sum < 64 << 20,
        "{before} + {STACKS} x {own}"
    );
}
