//! Size limits of plans and of files in the working directory.

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use sluice_tf_core::plan::store::PLAN_LIMIT;

use crate::cli_wrapper::wrap_cli;
use crate::environment::{NAMESPACE, RunSetup, TestEnvironment, archive, assert_ending, ending, status};
use crate::plans::noise;

/// A bundle with a fixed inputs digest, so that other commits do not supersede the plan.
fn sealed_bundle() -> Value {
    json!({ "inputsDigest": "hmac-sha256:11", "planKeys": [{ "id": "a", "key": "01".repeat(32) }] })
}

/// A module file with a random comment, of which compression leaves three quarters.
fn comment(seed: u64, length: usize) -> String {
    format!("{{\"//\": \"{}\"}}\n", noise(seed, length))
}

/// Returns the names of the Secrets of a plan and their total size.
async fn stored_plan(env: &TestEnvironment) -> (Vec<String>, usize) {
    let secrets: Api<Secret> = Api::namespaced(env.client(), NAMESPACE);
    let of_plans = ListParams::default().labels("infra.contrib.fluxcd.io/plan-name=net");
    let found = secrets.list(&of_plans).await.unwrap().items;
    let size = |secret: &Secret| {
        assert_eq!(secret.immutable, Some(true), "{:?}", secret.metadata.name);
        let data = secret.data.iter().flatten();
        data.map(|(_, bytes)| bytes.0.len()).sum::<usize>()
    };
    let names = found.iter().map(ResourceExt::name_any).collect();
    (names, found.iter().map(size).sum())
}

/// The plan file contains the module, so a large comment yields a large plan with a small state and JSON.
#[tokio::test(flavor = "multi_thread")]
async fn plans_below_the_size_limit_are_applied_and_larger_ones_change_nothing() {
    let env = TestEnvironment::new("").await;
    let module = "resource \"terraform_data\" \"it\" { input = \"one\" }\n";
    let (most, more) = (comment(1, 54_000_000), comment(2, 3_500_000));
    let fits = archive(&[("main.tf", module), ("most.tf.json", &most)]);
    let too_much = archive(&[
        ("main.tf", module),
        ("most.tf.json", &most),
        ("more.tf.json", &more),
    ]);

    env.serve_bytes(fits.clone());
    let planned = env.run(RunSetup::plan().with(sealed_bundle())).await;
    assert_ending(&planned, "Succeeded TerraformPlannedWithChanges");
    let (chunks, bytes) = stored_plan(&env).await;
    assert!(
        (PLAN_LIMIT - PLAN_LIMIT / 20..=PLAN_LIMIT).contains(&bytes),
        "{bytes} bytes in {} chunks",
        chunks.len()
    );
    assert!(chunks.len() > 40, "{chunks:?}");

    env.serve_bytes(too_much);
    let refused = env.run(RunSetup::plan().with(sealed_bundle())).await;
    let result = status(&refused);
    assert_eq!(ending(&refused), "Failed TFExecPlanFailed", "{result:?}");
    assert!(
        result.message.starts_with("error saving plan secret: the plan has 4")
            && result.message.ends_with(
                " bytes, more than the limit of 41943040: split the stack into smaller ones, or plan it in parts with targets"
            ),
        "{}",
        result.message
    );
    assert_eq!((result.plan_id.as_str(), result.has_changes), ("", None));
    assert_eq!(
        stored_plan(&env).await,
        (chunks, bytes),
        "what was stored before stays"
    );

    // Only the stored objects exist.
    std::fs::remove_dir_all(env.dir.path().join("work")).unwrap();
    env.serve_bytes(fits);
    let applied = env.run(RunSetup::apply(&planned).with(sealed_bundle())).await;
    assert_ending(&applied, "Succeeded TerraformAppliedSucceed");
    assert!(env.secret("tfstate-default-net").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_errored_state_above_the_limit_stays_in_its_directory() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", "resource \"terraform_data\" \"it\" {}\n")]);
    let size = 256 * 1024 * 1024 + 1;
    let script = format!("if [ \"$1\" = apply ]; then truncate -s {size} errored.tfstate; exit 1; fi");
    let cli = wrap_cli(&env, &script);
    let left = env.work().join("errored.tfstate");
    let message = format!(
        "cannot use the working directory: store the state: errored.tfstate has {size} bytes, more than the limit of \
         268435456; it is the newest state and stays in {}: push it manually (state push), then delete the file",
        env.work().display()
    );
    let failed = env.run_with_path(RunSetup::plan_and_apply(), &cli).await;
    assert_ending(&failed, "Failed TFExecNewFailed");
    assert_eq!(status(&failed).message, message);
    let later = env.run(RunSetup::plan_and_apply()).await;
    assert_eq!(status(&later).message, message, "nothing is done beside it");
    assert_eq!(std::fs::metadata(&left).unwrap().len(), size);
    let names = env.stored().await;
    assert!(
        !names.iter().any(|name| name.starts_with("tferrored-")),
        "{names:?}"
    );
    std::fs::remove_file(&left).unwrap();
    let next = env.run(RunSetup::plan_and_apply()).await;
    assert_ending(&next, "Succeeded TerraformAppliedSucceed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_file_that_is_too_large_ends_the_plan_and_nothing_is_stored() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", "resource \"terraform_data\" \"it\" {}\n")]);
    let real = sluice_harness::cli::terraform().unwrap();
    // After the CLI has read it.
    let script = format!(
        "if [ \"$1\" = show ]; then {} \"$@\"; code=$?; truncate -s 2097153 .terraform.lock.hcl; exit $code; fi",
        real.display()
    );
    let run = env
        .run_with_path(RunSetup::plan_and_apply(), &wrap_cli(&env, &script))
        .await;
    assert_ending(&run, "Failed TFExecNewFailed");
    assert_eq!(
        status(&run).message,
        "cannot use the working directory: read .terraform.lock.hcl: .terraform.lock.hcl has 2097153 bytes, more than the \
         limit of 2097152"
    );
    assert_eq!(stored_plan(&env).await, (Vec::new(), 0));
}
