//! Sizes: plans up to their limit and beyond it, and files of the working directory that are more than is read.

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use sluice_tf_core::plan::store::PLAN_LIMIT;

use crate::backends::wrapped;
use crate::plans::noise;
use crate::world::{NAMESPACE, Wish, World, archive, ending, status};

/// A bundle whose inputs do not count, so that a plan may be applied after another commit came and went.
fn sealed() -> Value {
    json!({ "inputsDigest": "hmac-sha256:11", "planKeys": [{ "id": "a", "key": "01".repeat(32) }] })
}

/// A file of a module that says nothing: a comment by chance, of which compression leaves three quarters.
fn comment(seed: u64, length: usize) -> String {
    format!("{{\"//\": \"{}\"}}\n", noise(seed, length))
}

/// The names of a plan's Secrets, and the bytes in them.
async fn kept(world: &World) -> (Vec<String>, usize) {
    let secrets: Api<Secret> = Api::namespaced(world.client(), NAMESPACE);
    let of_plans = ListParams::default().labels("infra.contrib.fluxcd.io/plan-name=net");
    let found = secrets.list(&of_plans).await.unwrap().items;
    let held = |secret: &Secret| {
        assert_eq!(secret.immutable, Some(true), "{:?}", secret.metadata.name);
        let data = secret.data.iter().flatten();
        data.map(|(_, bytes)| bytes.0.len()).sum::<usize>()
    };
    let names = found.iter().map(ResourceExt::name_any).collect();
    (names, found.iter().map(held).sum())
}

/// The plan file holds the module's text: a large comment makes a large plan, and neither state nor JSON of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_just_below_the_limit_is_applied_and_one_above_it_is_refused_and_takes_nothing_away() {
    let world = World::new("").await;
    let module = "resource \"terraform_data\" \"it\" { input = \"one\" }\n";
    let (most, more) = (comment(1, 54_000_000), comment(2, 3_500_000));
    let fits = archive(&[("main.tf", module), ("most.tf.json", &most)]);
    let too_much = archive(&[
        ("main.tf", module),
        ("most.tf.json", &most),
        ("more.tf.json", &more),
    ]);

    world.serve_bytes(fits.clone());
    let planned = world.run(Wish::plan().with(sealed())).await;
    assert_eq!(
        ending(&planned),
        "Succeeded TerraformPlannedWithChanges",
        "{:?}",
        planned.status
    );
    let (chunks, bytes) = kept(&world).await;
    assert!(
        (PLAN_LIMIT - PLAN_LIMIT / 20..=PLAN_LIMIT).contains(&bytes),
        "{bytes} bytes in {} chunks",
        chunks.len()
    );
    assert!(chunks.len() > 40, "{chunks:?}");

    world.serve_bytes(too_much);
    let refused = world.run(Wish::plan().with(sealed())).await;
    let said = status(&refused);
    assert_eq!(ending(&refused), "Failed TFExecPlanFailed", "{said:?}");
    assert!(
        said.message.starts_with("error saving plan secret: the plan has 4")
            && said.message.ends_with(
                " bytes, more than the 41943040 that are stored: split the stack into smaller ones, or plan it in parts with targets"
            ),
        "{}",
        said.message
    );
    assert_eq!((said.plan_id.as_str(), said.has_changes), ("", None));
    assert_eq!(
        kept(&world).await,
        (chunks, bytes),
        "what was stored before stays"
    );

    // Nothing is there but what was stored.
    std::fs::remove_dir_all(world.dir.path().join("work")).unwrap();
    world.serve_bytes(fits);
    let applied = world.run(Wish::apply(&planned).with(sealed())).await;
    assert_eq!(
        ending(&applied),
        "Succeeded TerraformAppliedSucceed",
        "{:?}",
        applied.status
    );
    assert!(world.secret("tfstate-default-net").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_is_too_large_to_be_kept_stays_until_somebody_took_it() {
    let world = World::new("auto").await;
    world.commit(&[("main.tf", "resource \"terraform_data\" \"it\" {}\n")]);
    let size = 256 * 1024 * 1024 + 1;
    let script = format!("if [ \"$1\" = apply ]; then truncate -s {size} errored.tfstate; exit 1; fi");
    let cli = wrapped(&world, &script);
    let left = world.work().join("errored.tfstate");
    let told = format!(
        "cannot use the working directory: keep the state: errored.tfstate has {size} bytes, more than the 268435456 that are \
         read; it is the newest state and stays in {}: push it by hand (state push), then remove the file",
        world.work().display()
    );
    let failed = world.run_with_path(Wish::plan_and_apply(), &cli).await;
    assert_eq!(ending(&failed), "Failed TFExecNewFailed", "{:?}", failed.status);
    assert_eq!(status(&failed).message, told);
    let later = world.run(Wish::plan_and_apply()).await;
    assert_eq!(status(&later).message, told, "nothing is done beside it");
    assert_eq!(std::fs::metadata(&left).unwrap().len(), size);
    let names = world.stored().await;
    assert!(
        !names.iter().any(|name| name.starts_with("tferrored-")),
        "{names:?}"
    );
    std::fs::remove_file(&left).unwrap();
    let next = world.run(Wish::plan_and_apply()).await;
    assert_eq!(
        ending(&next),
        "Succeeded TerraformAppliedSucceed",
        "{:?}",
        next.status
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_file_that_is_too_large_ends_the_plan_and_nothing_is_stored() {
    let world = World::new("auto").await;
    world.commit(&[("main.tf", "resource \"terraform_data\" \"it\" {}\n")]);
    let real = sluice_harness::cli::terraform().unwrap();
    // Once the CLI needs it no more.
    let script = format!(
        "if [ \"$1\" = show ]; then {} \"$@\"; code=$?; truncate -s 2097153 .terraform.lock.hcl; exit $code; fi",
        real.display()
    );
    let run = world
        .run_with_path(Wish::plan_and_apply(), &wrapped(&world, &script))
        .await;
    assert_eq!(ending(&run), "Failed TFExecNewFailed", "{:?}", run.status);
    assert_eq!(
        status(&run).message,
        "cannot use the working directory: read .terraform.lock.hcl: .terraform.lock.hcl has 2097153 bytes, more than the \
         2097152 that are read"
    );
    assert_eq!(kept(&world).await, (Vec::new(), 0));
}
