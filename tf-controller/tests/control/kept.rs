//! What is kept of applies, for destroys without their source: once for all stacks of a namespace that applied the same.

use crate::deletion::inner;
use crate::world::{DEADLINE, NAMESPACE, World};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::json;
use sluice_tf_controller::inputs::SecretPlace;
use std::time::Duration;

/// Letters by chance: what is compressed of them stays large.
struct Noise(u64);

impl Noise {
    fn letters(&mut self, length: usize) -> String {
        let mut next = || {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(b'!' + u8::try_from((self.0 >> 33) % 90).unwrap())
        };
        (0..length).map(|_| next()).collect()
    }
}

impl World {
    /// With a controller that seals, or one that does not.
    async fn sealing(sealed: bool) -> Self {
        let mut world = Self::without_controller().await;
        if sealed {
            world.secret("keys", &[("2026", &"01".repeat(32))]).await;
            world.plan_encryption = Some(SecretPlace {
                namespace: NAMESPACE.to_owned(),
                name: "keys".to_owned(),
            });
        }
        world.start(4).await;
        world
    }

    /// Waits until there are so many Secrets of files: what nobody owns any more goes by itself.
    async fn files_are(&self, count: usize, when: &str) {
        let looking = async {
            while self.secrets("tffiles-").await.len() != count {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let found = tokio::time::timeout(DEADLINE, looking).await;
        assert!(found.is_ok(), "{when}: {:?}", self.secrets("tffiles-").await);
    }

    /// Names and versions of the Secrets that hold files.
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

    /// Bytes of the Secrets of this namespace whose names begin so.
    async fn bytes_in(&self, beginning: &str) -> usize {
        let api: Api<Secret> = self.api();
        let all = api.list(&ListParams::default()).await.unwrap().items;
        let wanted = all
            .iter()
            .filter(|secret| secret.name_any().starts_with(beginning));
        let data = wanted.flat_map(|secret| secret.data.iter().flat_map(|data| data.values()));
        data.map(|bytes| bytes.0.len()).sum()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stacks_applied_is_kept_once_and_only_where_a_deletion_destroys() {
    kept_once(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stacks_applied_is_kept_once_where_it_is_sealed() {
    kept_once(true).await;
}

async fn kept_once(sealed: bool) {
    let world = World::sealing(sealed).await;
    let told = world.path("told");
    let (module, mut noise, mut versions) = (inner(&told), Noise(1), Vec::new());
    for revision in ["a", "b"] {
        let noise = noise.letters(1_500_000);
        let module =
            format!("{module}resource \"terraform_data\" \"revision\" {{ input = \"{revision}\" }}\n");
        let files = [("main.tf", module.as_str()), ("noise", noise.as_str())];
        world.commit(revision, &files).await;
        for name in ["one", "two", "three", "four", "kept"] {
            if revision == "a" {
                let spec = json!({ "vars": [{ "name": "size", "value": name }], "destroyResourcesOnDeletion": name != "kept" });
                world.stack(name, spec).await;
            }
            world.applied(name, revision).await;
            // Each write of a Secret is a copy in the history of the API server's database.
            let now = world.versions().await;
            assert!(
                name == "one" || revision == "b" || now == versions,
                "{name}: {now:?} after {versions:?}"
            );
            versions = now;
        }
        let bytes = world.bytes_in("tffiles-").await + world.bytes_in("tfapplied-").await;
        assert!((1_200_000..1_500_000 + 5 * 20_000).contains(&bytes), "{bytes}");
        world.files_are(3, "two pieces and their holder").await;
        assert_eq!(world.secrets("tfapplied-").await.len(), 4, "Retain keeps nothing");
    }
    let api: Api<Secret> = world.api();
    for (name, _) in world.versions().await {
        let data = api.get(&name).await.unwrap().data.unwrap();
        assert_eq!(data.contains_key("sealed"), sealed, "{name}");
    }
    world.remove_source().await;
    for name in ["one", "two", "three", "four"] {
        world.files_are(3, name).await;
        world.delete(name).await;
        world.gone(name).await;
        assert_eq!(std::fs::read_to_string(&told).unwrap().trim(), name);
    }
    world.files_are(0, "no stack is left").await;
}

/// Whatever the number of stacks, the files are there once: so a few of them tell what 200 cost.
#[tokio::test(flavor = "multi_thread")]
async fn what_200_stacks_of_one_repository_of_8_mib_keep_is_less_than_64_mib() {
    const STACKS: usize = 200;
    let names = ["one", "two", "three"];
    let world = World::sealing(true).await;
    let module = "output \"size\" { value = length(file(\"../noise\")) }";
    let noise = Noise(7).letters(8 << 20);
    let files = [
        ("a/main.tf", module),
        ("noise", noise.as_str()),
        ("b/main.tf", ""),
    ];
    world.commit("a", &files).await;
    let mut before = 0;
    for (number, name) in names.iter().enumerate() {
        world
            .stack(name, json!({ "path": "a", "destroyResourcesOnDeletion": true }))
            .await;
        world.applied(name, "a").await;
        let files = world.bytes_in("tffiles-").await;
        assert!(number == 0 || files == before, "{name}: {files} after {before}");
        before = files;
    }
    let own = world.bytes_in("tfapplied-").await.div_ceil(names.len());
    let sum = before + STACKS * own;
    println!("files {before} bytes, each stack {own} more: {STACKS} stacks keep {sum} bytes");
    assert!(
        before > 6_000_000 && sum < 64 << 20,
        "{before} + {STACKS} x {own}"
    );
}
