//! Runs that say that they live, and runs that somebody else has declared lost meanwhile.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use sluice_api::run::{Phase, TerraformRun};
use sluice_tf_runner::run::Ending;
use tokio_util::sync::CancellationToken;

use crate::world::{NAMESPACE, Wish, World, appears, ending, status};

const SLOW: &str = r#"
variable "marker" {}
resource "terraform_data" "slow" {
  provisioner "local-exec" { command = "touch ${var.marker}; until [ -e ${var.marker}.go ]; do sleep 0.05; done" }
}
"#;

fn slow(world: &World) -> (PathBuf, Wish) {
    world.commit(&[("main.tf", SLOW)]);
    let marker = world.dir.path().join("marker");
    let variables = json!({ "marker": marker }).to_string();
    (
        marker,
        Wish::plan_and_apply().with(json!({ "variables": variables })),
    )
}

/// As a controller does that has not heard of the run for long.
async fn declare_lost(world: &World, name: &str) {
    let api: Api<TerraformRun> = Api::namespaced(world.client(), NAMESPACE);
    let lost = json!({ "status": { "phase": "Lost", "reason": "RunLost", "message": "not heard of" } });
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(lost))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_says_that_it_lives_until_it_has_ended() {
    let world = World::new("auto").await;
    let (marker, wish) = slow(&world);
    let name = world.prepare(wish).await;
    let mut context = world.context(&name);
    context.settings.heartbeat = Duration::from_millis(100);
    let listener = async {
        appears(&marker).await;
        let mut heard = Vec::new();
        while heard.len() < 4 {
            let run = world.get(&name).await;
            let beat = status(&run).heartbeat_at;
            if beat.is_some() && !heard.contains(&beat) {
                heard.push(beat);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        std::fs::write(marker.with_extension("go"), "").unwrap();
    };
    let listening = tokio::time::timeout(Duration::from_secs(60), listener);
    let (_, heard) = tokio::join!(
        world.carry_out(&name, context, CancellationToken::new()),
        listening
    );
    heard.unwrap();
    assert_eq!(
        ending(&world.get(&name).await),
        "Succeeded TerraformAppliedSucceed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_whose_run_was_declared_lost_is_interrupted_and_its_end_not_written_over_that() {
    let world = World::new("auto").await;
    let (marker, wish) = slow(&world);
    let name = world.prepare(wish.clone()).await;
    let mut context = world.context(&name);
    context.settings.heartbeat = Duration::from_millis(100);
    let meddler = async {
        appears(&marker).await;
        declare_lost(&world, &name).await;
    };
    let (ended, ()) = tokio::join!(world.carry_out(&name, context, CancellationToken::new()), meddler);
    assert_eq!(ended, Ending::Failed);
    assert_eq!(ending(&world.get(&name).await), "Lost RunLost");
    let leases: Api<Lease> = Api::namespaced(world.client(), NAMESPACE);
    let lock = leases.get("lock-tfstate-default-net").await.unwrap();
    assert_eq!(
        lock.spec
            .unwrap()
            .holder_identity
            .filter(|holder| !holder.is_empty()),
        None
    );
    std::fs::write(marker.with_extension("go"), "").unwrap();
    let next = world.run(wish).await;
    assert_eq!(
        (ending(&next).as_str(), status(&next).changes.as_str()),
        ("Succeeded TerraformAppliedSucceed", "+1 ~0 -1"),
        "what it did is in the state"
    );
}

/// A CLI that waits before it plans.
fn hesitant(folder: &Path) -> PathBuf {
    let place = folder.join("cli");
    std::fs::create_dir(&place).unwrap();
    let cli = sluice_harness::cli::terraform().unwrap();
    let text = format!(
        "#!/bin/bash\nif [ \"$1\" = plan ]; then touch {0}/planning; until [ -e {0}/go ]; do sleep 0.05; done; fi\n\
         exec {1} \"$@\"\n",
        folder.display(),
        cli.display()
    );
    let script = place.join(cli.file_name().unwrap());
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    place
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_declared_lost_while_it_planned_applies_nothing() {
    let world = World::new("auto").await;
    let (marker, wish) = slow(&world);
    // Should it apply all the same, that ends.
    std::fs::write(marker.with_extension("go"), "").unwrap();
    let name = world.prepare(wish).await;
    let mut context = world.context(&name);
    // No sign of life tells it: it hears of it when it says what it has planned.
    context.settings.heartbeat = Duration::from_secs(600);
    let path = context.environment.get_mut("PATH").unwrap();
    *path = format!("{}:{path}", hesitant(world.dir.path()).display());
    let meddler = async {
        appears(&world.dir.path().join("planning")).await;
        declare_lost(&world, &name).await;
        std::fs::write(world.dir.path().join("go"), "").unwrap();
    };
    let (ended, ()) = tokio::join!(world.carry_out(&name, context, CancellationToken::new()), meddler);
    assert_eq!(ended, Ending::Failed);
    let run = world.get(&name).await;
    assert_eq!(status(&run).phase, Phase::Lost);
    assert!(!status(&run).attempted_apply);
    assert!(!marker.exists(), "nothing was applied");
}
