//! Backends as the CLI sees them: where its arguments stand, plans that it cannot save, states that belong elsewhere.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::world::{Wish, World, appears, ending, status};

const MODULE: &str = "variable \"size\" { default = \"one\" }\nresource \"terraform_data\" \"it\" { input = var.size }\n\
    output \"size\" { value = terraform_data.it.output }\n";

/// A directory with a program of the real CLI's name: `before` runs first, then the real one.
pub(crate) fn wrapped(world: &World, before: &str) -> PathBuf {
    let real = sluice_harness::cli::terraform().unwrap();
    let folder = world.dir.path().join("wrapped");
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join(real.file_name().unwrap());
    let text = format!("#!/bin/sh\n{before}\nexec {} \"$@\"\n", real.display());
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// A CLI that, like those that ask a service, saves no plans.
fn saves_nothing(world: &World) -> PathBuf {
    let refusal = "for word in \"$@\"; do case \"$word\" in -out=*|tfplan)\n  \
        printf '\\nError: Saving a generated plan is currently not supported\\n' >&2; exit 1;;\nesac; done";
    wrapped(world, refusal)
}

/// A module with a backend of its own, in a directory of the test.
fn own_backend(world: &World, module: &str) -> (String, PathBuf) {
    let state = world.dir.path().join("own.tfstate");
    let path = state.display();
    let text = format!("terraform {{\n  backend \"local\" {{ path = \"{path}\" }}\n}}\n{module}");
    (text, state)
}

fn off(more: &Value) -> Value {
    let mut bundle = json!({ "backend": null, "surroundings": { "backendOff": true } });
    bundle
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    bundle
}

fn resources(state: &Path) -> usize {
    let state: Value = serde_json::from_slice(&std::fs::read(state).unwrap()).unwrap();
    state["resources"].as_array().unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_backend_of_ours_an_approved_plan_is_still_a_file_and_a_destroy_destroys() {
    let world = World::new("auto").await;
    let (module, state) = own_backend(&world, MODULE);
    world.commit(&[("main.tf", &module)]);
    let planned = world.run(Wish::plan().with(off(&json!({})))).await;
    assert_eq!(
        ending(&planned),
        "Succeeded TerraformPlannedWithChanges",
        "{:?}",
        planned.status
    );
    let applied = world.run(Wish::apply(&planned).with(off(&json!({})))).await;
    assert_eq!(
        ending(&applied),
        "Succeeded TerraformAppliedSucceed",
        "{:?}",
        applied.status
    );
    assert_eq!(resources(&state), 1);
    let again = world.run(Wish::apply(&planned).with(off(&json!({})))).await;
    assert_eq!(
        ending(&again),
        "Failed PlanStale",
        "the file is what is applied: {:?}",
        again.status
    );
    let wish = Wish {
        destroy: true,
        ..Wish::plan_and_apply().with(off(&json!({})))
    };
    let destroyed = world.run(wish).await;
    assert_eq!(
        status(&destroyed).message,
        "Destroy applied successfully",
        "{:?}",
        destroyed.status
    );
    assert_eq!(resources(&state), 0);
    assert!(world.secret("tfstate-default-net").await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_cannot_be_saved_is_applied_only_if_it_still_shows_the_same() {
    let world = World::new("auto").await;
    let cli = saves_nothing(&world);
    let (module, state) = own_backend(&world, MODULE);
    world.commit(&[("main.tf", &module)]);
    let planned = world
        .run_with_path(Wish::plan().with(off(&json!({}))), &cli)
        .await;
    assert_eq!(
        ending(&planned),
        "Succeeded TerraformPlannedWithChanges",
        "{:?}",
        planned.status
    );
    let said = status(&planned);
    assert_eq!(said.changes, "+1 ~0 -0", "read from its headings");
    assert!(
        said.human_plan.starts_with("Note: this plan cannot be saved"),
        "{}",
        said.human_plan
    );
    let twice = world
        .run_with_path(Wish::plan().with(off(&json!({}))), &cli)
        .await;
    assert_eq!(
        status(&twice).effect_digest,
        said.effect_digest,
        "the same plan has the same id"
    );

    let applied = world
        .run_with_path(Wish::apply(&twice).with(off(&json!({}))), &cli)
        .await;
    assert_eq!(
        ending(&applied),
        "Succeeded TerraformAppliedSucceed",
        "{:?}",
        applied.status
    );
    assert_eq!(resources(&state), 1);
    let changed = off(&json!({ "variables": "{\"size\":\"two\"}" }));
    let planned = world
        .run_with_path(Wish::plan().with(changed.clone()), &cli)
        .await;
    std::fs::remove_file(&state).unwrap();
    let other = world
        .run_with_path(Wish::apply(&planned).with(changed), &cli)
        .await;
    assert_eq!(ending(&other), "Failed TFExecApplyFailed", "{:?}", other.status);
    assert!(
        status(&other).message.contains("another effect"),
        "{}",
        status(&other).message
    );
    assert!(
        !status(&other).attempted_apply && !state.exists(),
        "nothing was applied"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_saved_is_applied_and_destroyed_in_auto_all_the_same() {
    let world = World::new("auto").await;
    let cli = saves_nothing(&world);
    let (module, state) = own_backend(&world, MODULE);
    world.commit(&[("main.tf", &module)]);
    let bundle = off(&json!({ "outputs": { "name": "net-outputs" } }));
    let applied = world
        .run_with_path(Wish::plan_and_apply().with(bundle.clone()), &cli)
        .await;
    assert_eq!(
        ending(&applied),
        "Succeeded TerraformOutputsWritten",
        "{:?}",
        applied.status
    );
    assert_eq!(world.secret("net-outputs").await.unwrap()["size"], "one");
    let wish = Wish {
        destroy: true,
        ..Wish::plan_and_apply().with(bundle)
    };
    let destroyed = world.run_with_path(wish, &cli).await;
    assert_eq!(
        status(&destroyed).message,
        "Destroy applied successfully",
        "{:?}",
        destroyed.status
    );
    assert_eq!(
        (status(&destroyed).changes.as_str(), resources(&state)),
        ("+0 ~0 -1", 0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_does_not_last_is_told_before_and_after() {
    let world = World::new("auto").await;
    world.commit(&[("main.tf", MODULE)]);
    let planned = world.run(Wish::plan().with(off(&json!({})))).await;
    let text = status(&planned).human_plan;
    assert!(
        text.starts_with("Note: the state of this stack lies in its working directory"),
        "{text}"
    );
    let applied = world.run(Wish::apply(&planned).with(off(&json!({})))).await;
    assert_eq!(
        ending(&applied),
        "Succeeded TerraformAppliedSucceed",
        "{:?}",
        applied.status
    );
    let message = status(&applied).message;
    assert!(message.starts_with("Applied successfully. Note: "), "{message}");
    let kept = world.run(Wish::plan_and_apply()).await;
    assert_eq!(status(&kept).message, "Applied successfully");
    assert!(!status(&kept).human_plan.contains("Note: "));
}

#[tokio::test(flavor = "multi_thread")]
async fn proxies_of_the_runner_reach_the_cli_and_a_stack_may_set_its_own() {
    let world = World::new("auto").await;
    let module = "resource \"terraform_data\" \"it\" {\n  provisioner \"local-exec\" {\n    \
        command = \"printenv HTTPS_PROXY NO_PROXY > $TOLD\"\n  }\n}\n";
    world.commit(&[("main.tf", module)]);
    let told = world.dir.path().join("told");
    for (given, expected) in [
        (json!({}), "http://proxy.invalid\nlocalhost,127.0.0.1\n"),
        (
            json!({ "HTTPS_PROXY": "http://own.invalid" }),
            "http://own.invalid\nlocalhost,127.0.0.1\n",
        ),
    ] {
        let mut environment = json!({ "TOLD": told });
        environment
            .as_object_mut()
            .unwrap()
            .extend(given.as_object().unwrap().clone());
        // Each time a state of its own, so that there is something to apply.
        let off = off(&json!({ "environment": environment }));
        let name = world.prepare(Wish::plan_and_apply().with(off)).await;
        let mut context = world.context(&name);
        let proxies = [
            ("HTTPS_PROXY", "http://proxy.invalid"),
            ("NO_PROXY", "localhost,127.0.0.1"),
        ];
        context
            .environment
            .extend(proxies.map(|(name, value)| (name.to_owned(), value.to_owned())));
        world.carry_out(&name, context, CancellationToken::new()).await;
        let run = world.get(&name).await;
        assert_eq!(
            ending(&run),
            "Succeeded TerraformAppliedSucceed",
            "{:?}",
            run.status
        );
        assert_eq!(std::fs::read_to_string(&told).unwrap(), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_backend_of_ours_a_plan_that_cannot_be_saved_is_a_failure() {
    let world = World::new("auto").await;
    let cli = saves_nothing(&world);
    world.commit(&[("main.tf", MODULE)]);
    let failed = world.run_with_path(Wish::plan_and_apply(), &cli).await;
    assert_eq!(ending(&failed), "Failed TFExecPlanFailed", "{:?}", failed.status);
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_of_the_backend_reach_init_and_stand_in_no_command_line() {
    let world = World::new("auto").await;
    let log = world.dir.path().join("words");
    let cli = wrapped(&world, &format!("echo \"$@\" >> {}", log.display()));
    let state = world.dir.path().join("it's a state.tfstate");
    world.commit(&[("main.tf", MODULE)]);
    let bundle = json!({ "backend": "terraform {\n  backend \"local\" {}\n}\n",
        "surroundings": { "backendArguments": { "path": state.display().to_string() } },
        "options": { "planLock": true, "upgradeOnInit": false } });
    let applied = world
        .run_with_path(Wish::plan_and_apply().with(bundle), &cli)
        .await;
    assert_eq!(
        ending(&applied),
        "Succeeded TerraformAppliedSucceed",
        "{:?}",
        applied.status
    );
    assert_eq!(resources(&state), 1);
    let words = std::fs::read_to_string(log).unwrap();
    assert!(
        !words.contains("a state") && words.contains("init") && words.contains("-upgrade=false"),
        "{words}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_could_not_be_written_is_pushed_to_its_own_backend_only() {
    let world = World::new("auto").await;
    let marker = world.dir.path().join("marker");
    let go = marker.with_extension("go");
    let wait = format!(
        "touch {}; while ! test -e {}; do sleep 0.05; done",
        marker.display(),
        go.display()
    );
    let module = format!(
        "resource \"terraform_data\" \"it\" {{\n  provisioner \"local-exec\" {{ command = \"{wait}\" }}\n}}\n"
    );
    world.commit(&[("main.tf", &module)]);
    let here = json!({ "surroundings": { "statePlace": "here" } });
    let name = world.prepare(Wish::plan_and_apply().with(here.clone())).await;
    let context = world.context(&name);
    let meddler = async {
        appears(&marker).await;
        let address = world.go_away().await;
        std::fs::write(&go, "").unwrap();
        address
    };
    let (_, address) = tokio::join!(world.carry_out(&name, context, CancellationToken::new()), meddler);
    world.come_back(address).await;
    let backend = "terraform {\n  backend \"kubernetes\" {\n    secret_suffix = \"other\"\n    namespace = \"team\"\n  }\n}\n";
    let there = json!({ "backend": backend, "surroundings": { "statePlace": "there" } });
    let refused = world.run(Wish::plan_and_apply().with(there)).await;
    assert_eq!(
        ending(&refused),
        "Failed TFExecInitFailed",
        "{:?}",
        refused.status
    );
    assert!(
        status(&refused).message.contains("backend of before"),
        "{}",
        status(&refused).message
    );
    let pushed = world.run(Wish::plan_and_apply().with(here)).await;
    assert_eq!(
        ending(&pushed),
        "Succeeded TerraformPlannedNoChanges",
        "{:?}",
        pushed.status
    );
}
