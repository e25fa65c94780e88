//! Stacks that use the same provider: the runs of all of them download it once.

use crate::world::World;
use serde_json::json;
use sluice_harness::trial::{Mirror, Trial};
use sluice_tf_controller::executor::provider_cache;
use std::path::PathBuf;

async fn world() -> (World, Trial, Mirror) {
    let trial = Trial::create().unwrap();
    let mirror = trial.mirror().await.unwrap();
    let mut world = World::without_controller().await;
    for (name, file) in [
        ("TF_CLI_CONFIG_FILE", mirror.cli_config()),
        ("SSL_CERT_FILE", mirror.authority()),
    ] {
        world
            .environment
            .insert(name.to_owned(), file.display().to_string());
    }
    let this = std::env::current_exe().unwrap().display().to_string();
    let runner = [&this, "as_runner", "--exact", "--nocapture", "--"].map(str::to_owned);
    let cache = provider_cache(&cache(&world), 1 << 30);
    world.runner = Some(runner.into_iter().chain(cache).collect());
    world.start(2).await;
    (world, trial, mirror)
}

fn cache(world: &World) -> PathBuf {
    world.path("providers")
}

/// Asks for a look, and waits until it was taken.
async fn look(world: &World, stack: &str, token: &str) {
    world.request(stack, token).await;
    world
        .until(stack, "a look", |stack| {
            stack.status.as_ref().unwrap().last_handled_reconcile_at == token
        })
        .await;
    world.ready(stack, "True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_stacks_and_five_runs_download_a_provider_once_and_a_poisoned_one_is_refused() {
    let (world, trial, mirror) = world().await;
    let lock = mirror.lock_file();
    let module = |name: &str| {
        format!(
            "{}resource \"trial_thing\" \"it\" {{\n  name    = {name:?}\n  content = \"one\"\n}}\n",
            trial.module_head()
        )
    };
    let (net, web) = (module("net"), module("web"));
    let files = [
        ("net/main.tf", net.as_str()),
        ("net/.terraform.lock.hcl", &lock),
        ("web/main.tf", &web),
        ("web/.terraform.lock.hcl", &lock),
    ];
    world.commit("a", &files).await;
    world.stack("net", json!({ "path": "net" })).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    world.at_rest().await;
    let once = mirror.downloads();
    look(&world, "net", "1").await;
    world.stack("web", json!({ "path": "web" })).await;
    world.ready("web", "True TerraformAppliedSucceed").await;
    look(&world, "web", "1").await;
    look(&world, "net", "2").await;
    assert_eq!(trial.things().unwrap(), ["net", "web"]);
    assert_eq!(
        (
            world.runs("net").await.len() + world.runs("web").await.len(),
            mirror.downloads() - once
        ),
        (5, 0)
    );

    // The code of any run may write into the cache, since runs are processes of one user.
    world.at_rest().await;
    let mut poisoned = 0;
    for package in std::fs::read_dir(cache(&world)).unwrap() {
        for program in std::fs::read_dir(package.unwrap().path()).unwrap() {
            std::fs::write(program.unwrap().path(), "#!/bin/sh\nexit 1\n").unwrap();
            poisoned += 1;
        }
    }
    assert_eq!(poisoned, 1);
    look(&world, "web", "2").await;
    assert_eq!(mirror.downloads() - once, once, "it is downloaded again");
    world.at_rest().await;
    look(&world, "net", "3").await;
    assert_eq!(mirror.downloads() - once, once);
}
