//! Break the glass: what a person finds in the directory, and what is left there.

use std::process::Output;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use sluice_api::run::TerraformRun;
use tokio_util::sync::CancellationToken;

use crate::brought::state;
use crate::world::{NAMESPACE, STACK, Wish, World, comes_true, ending, status};

/// Holds a session in which a person sources the door and runs this script; it ends with the script.
pub(crate) async fn session(world: &World, bundle: Value, script: &str) -> (TerraformRun, Output) {
    let wish = Wish {
        action: "BreakTheGlass",
        trigger: "Request",
        ..Wish::plan().with(bundle)
    };
    let name = world.prepare(wish).await;
    let door = world
        .dir
        .path()
        .join(format!("work/.{NAMESPACE}_{STACK}.break-glass"));
    let person = async {
        let is_whole = || std::fs::read_to_string(&door).is_ok_and(|text| text.ends_with("'\n"));
        comes_true(is_whole).await;
        let shell = std::process::Command::new("/bin/sh")
            .args(["-c", &format!(". \"$0\" && {script}")])
            .arg(&door)
            .env_clear()
            .output()
            .unwrap();
        // However it went, the session ends.
        let _ = std::fs::remove_file(&door);
        shell
    };
    let (_, shell) = tokio::join!(
        world.carry_out(&name, world.context(&name), CancellationToken::new()),
        person
    );
    (world.get(&name).await, shell)
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_breaks_the_glass_has_the_arguments_of_the_backend() {
    let world = World::new("auto").await;
    let state = world.dir.path().join("it's a state.tfstate");
    world.commit(&[("main.tf", "resource \"terraform_data\" \"it\" {}\n")]);
    let bundle = json!({ "backend": "terraform {\n  backend \"local\" {}\n}\n",
        "surroundings": { "backendArguments": { "path": state.display().to_string() } } });
    let script = "rm -r .terraform && $(command -v terraform || command -v tofu) init >&2 && rm \"$0\"";
    let (run, shell) = session(&world, bundle, script).await;
    assert!(shell.status.success(), "{shell:?}");
    assert_eq!(ending(&run), "Succeeded BreakTheGlassEnded", "{:?}", run.status);
}

/// The directory of a pod goes with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_a_session_could_not_write_is_kept_when_it_ends() {
    let world = World::new("auto").await;
    world.commit(&[(
        "main.tf",
        "resource \"terraform_data\" \"it\" { input = \"old\" }\n",
    )]);
    let script = format!("printf '%s' '{}' > errored.tfstate", state());
    let (run, shell) = session(&world, json!({}), &script).await;
    assert!(shell.status.success(), "{shell:?}");
    assert_eq!(ending(&run), "Succeeded BreakTheGlassEnded", "{:?}", run.status);
    let secrets: Api<Secret> = Api::namespaced(world.client(), NAMESPACE);
    let label = ListParams::default().labels("infra.sluice.dev/errored-state=net");
    assert_eq!(secrets.list(&label).await.unwrap().items.len(), 1);
    assert!(
        !world.work().join("errored.tfstate").exists(),
        "nobody keeps it a second time"
    );

    std::fs::remove_dir_all(world.dir.path().join("work")).unwrap();
    let next = world.run(Wish::plan()).await;
    assert_eq!(
        ending(&next),
        "Succeeded TerraformPlannedNoChanges",
        "{:?}",
        next.status
    );
    assert!(secrets.list(&label).await.unwrap().items.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_state_that_the_cli_refuses_stays_and_is_named() {
    let world = World::new("auto").await;
    world.commit(&[("main.tf", "resource \"terraform_data\" \"it\" {}\n")]);
    let applied = world.run(Wish::plan_and_apply()).await;
    assert_eq!(ending(&applied), "Succeeded TerraformAppliedSucceed");
    // Of another lineage than the stack's.
    let script = format!("printf '%s' '{}' > errored.tfstate", state());
    session(&world, json!({}), &script).await;
    let kept = || async {
        let names = world.stored().await;
        let mut kept = names.into_iter().filter(|name| name.starts_with("tferrored-"));
        kept.next().unwrap()
    };
    let name = kept().await;
    let refused = world.run(Wish::plan()).await;
    assert_eq!(
        ending(&refused),
        "Failed TFExecInitFailed",
        "{:?}",
        refused.status
    );
    let message = status(&refused).message;
    assert!(message.contains(&name), "{message}");
    assert_eq!(kept().await, name);
}
