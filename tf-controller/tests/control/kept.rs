//! What is kept of applies, for destroys without their source: once for all stacks of a namespace that applied the same.

use crate::deletion::inner;
use crate::world::{DEADLINE, NAMESPACE, World};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::json;
use sluice_tf_controller::inputs::SecretPlace;

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
    let (module, mut noise) = (inner(&told), Noise(1));
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
        }
        let bytes = world.bytes_in("tffiles-").await + world.bytes_in("tfapplied-").await;
        assert!((1_200_000..1_500_000 + 5 * 20_000).contains(&bytes), "{bytes}");
        assert_eq!(world.secrets("tffiles-").await.len(), 2, "two pieces");
        assert_eq!(world.secrets("tfapplied-").await.len(), 4, "Retain keeps nothing");
    }
    let api: Api<Secret> = world.api();
    for name in world.secrets("tffiles-").await {
        let data = api.get(&name).await.unwrap().data.unwrap();
        assert_eq!(data.contains_key("sealed"), sealed, "{name}");
    }
    world.remove_source().await;
    for name in ["one", "two", "three", "four"] {
        assert_eq!(world.secrets("tffiles-").await.len(), 2, "before {name}");
        world.delete(name).await;
        world.gone(name).await;
        assert_eq!(std::fs::read_to_string(&told).unwrap().trim(), name);
    }
    for name in world.secrets("tffiles-").await {
        let gone = kube::runtime::wait::await_condition(api.clone(), &name, |found: Option<&Secret>| {
            found.is_none()
        });
        tokio::time::timeout(DEADLINE, gone).await.unwrap().unwrap();
    }
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
