//! Stacks with the same provider: their runs download it once.

use std::path::PathBuf;

use serde_json::json;
use sluice_harness::trial::{Mirror, TrialProvider};
use sluice_tf_controller::executor::provider_cache;

use crate::environment::TestEnvironment;

/// Creates an environment with this number of concurrent runs, whose cache is empty.
async fn env(runs: u16) -> (TestEnvironment, TrialProvider, Mirror) {
    let trial = TrialProvider::create().unwrap();
    let mirror = trial.mirror().await.unwrap();
    let mut env = TestEnvironment::without_controller().await;
    for (name, file) in [
        ("TF_CLI_CONFIG_FILE", mirror.cli_config()),
        ("SSL_CERT_FILE", mirror.authority()),
    ] {
        env.environment
            .insert(name.to_owned(), file.display().to_string());
    }
    let this = std::env::current_exe().unwrap().display().to_string();
    let runner = [&this, "as_runner", "--exact", "--nocapture", "--"].map(str::to_owned);
    let cache = provider_cache(&cache(&env), 1 << 30);
    env.runner = Some(runner.into_iter().chain(cache).collect());
    env.start(runs).await;
    (env, trial, mirror)
}

fn cache(env: &TestEnvironment) -> PathBuf {
    env.path("providers")
}

/// Requests drift detection and waits for it.
async fn request_check(env: &TestEnvironment, stack: &str, token: &str) {
    env.request(stack, token).await;
    env.wait_for(stack, "drift detection", |stack| {
        stack.status.as_ref().unwrap().last_handled_reconcile_at == token
    })
    .await;
    env.wait_ready(stack, "True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn five_runs_of_two_stacks_download_a_provider_once_and_a_tampered_one_is_refused() {
    let (env, trial, mirror) = env(2).await;
    let lock = mirror.lock_file();
    let module = |name: &str| {
        format!(
            "{}resource \"trial_thing\" \"it\" {{\n  name    = {name:?}\n  content = \"one\"\n}}\n",
            trial.provider_block()
        )
    };
    let (net, web) = (module("net"), module("web"));
    let files = [
        ("net/main.tf", net.as_str()),
        ("net/.terraform.lock.hcl", &lock),
        ("web/main.tf", &web),
        ("web/.terraform.lock.hcl", &lock),
    ];
    env.commit("a", &files).await;
    env.stack("net", json!({ "path": "net" })).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    env.wait_until_idle().await;
    let first_downloads = mirror.downloads();
    request_check(&env, "net", "1").await;
    env.stack("web", json!({ "path": "web" })).await;
    env.wait_ready("web", "True TerraformAppliedSucceed").await;
    request_check(&env, "web", "1").await;
    request_check(&env, "net", "2").await;
    assert_eq!(trial.resources().unwrap(), ["net", "web"]);
    assert_eq!(
        (
            env.runs("net").await.len() + env.runs("web").await.len(),
            mirror.downloads() - first_downloads
        ),
        (5, 0)
    );

    // The code of any run may write into the cache, since all runs are processes of one user.
    env.wait_until_idle().await;
    let mut poisoned = 0;
    for package in std::fs::read_dir(cache(&env)).unwrap() {
        let package = package.unwrap();
        if package.file_name() == ".verified" {
            continue;
        }
        for program in std::fs::read_dir(package.path()).unwrap() {
            std::fs::write(program.unwrap().path(), "#!/bin/sh\nexit 1\n").unwrap();
            poisoned += 1;
        }
    }
    assert_eq!(poisoned, 1);
    request_check(&env, "web", "2").await;
    assert_eq!(
        mirror.downloads() - first_downloads,
        first_downloads,
        "it is downloaded again"
    );
    env.wait_until_idle().await;
    request_check(&env, "net", "3").await;
    assert_eq!(mirror.downloads() - first_downloads, first_downloads);
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_stacks_that_start_at_once_fill_the_cache_and_then_download_nothing() {
    let (env, trial, mirror) = env(10).await;
    let module = format!(
        "variable \"name\" {{}}\n{}resource \"trial_thing\" \"it\" {{\n  name    = var.name\n  content = \"one\"\n}}\n",
        trial.provider_block()
    );
    let lock = mirror.lock_file();
    let files = [("main.tf", module.as_str()), (".terraform.lock.hcl", &lock)];
    env.commit("a", &files).await;
    let names: Vec<_> = (0..10).map(|number| format!("stack{number}x")).collect();
    for name in &names {
        let vars = json!([{ "name": "name", "value": name }]);
        env.stack(name, json!({ "vars": vars })).await;
    }
    for name in &names {
        env.wait_ready(name, "True TerraformAppliedSucceed").await;
    }
    assert_eq!(trial.resources().unwrap(), names);
    env.wait_until_idle().await;
    let packages = std::fs::read_dir(cache(&env)).unwrap();
    let packages = packages.filter(|entry| entry.as_ref().unwrap().file_name() != ".verified");
    assert_eq!(packages.count(), 1, "one package, and nothing unfinished");
    let first_downloads = mirror.downloads();
    assert!(first_downloads > 0);
    for name in &names {
        env.request(name, "1").await;
    }
    for name in &names {
        env.wait_for(name, "drift detection", |stack| {
            stack.status.as_ref().unwrap().last_handled_reconcile_at == "1"
        })
        .await;
        env.wait_ready(name, "True").await;
    }
    assert_eq!(mirror.downloads(), first_downloads);
}
