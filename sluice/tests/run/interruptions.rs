//! Runs that are stopped, killed, or cut off from the API while their apply is under way.

use std::time::Duration;

use serde_json::json;
use sluice_harness::trial::TrialProvider;
use sluice_tf_core::process_lock::is_locked;
use tokio_util::sync::CancellationToken;

use crate::backends::wrapped;
use crate::world::{NAMESPACE, Wish, World, appears, comes_true, ending, status};

const SLOW: &str = r#"
variable "marker" {}
resource "terraform_data" "slow" {
  provisioner "local-exec" { command = "touch ${var.marker}; until [ -e ${var.marker}.go ]; do sleep 0.05; done" }
}
"#;

fn slow(world: &World) -> (std::path::PathBuf, serde_json::Value) {
    world.commit(&[("main.tf", SLOW)]);
    let marker = world.dir.path().join("marker");
    let variables = json!({ "marker": marker }).to_string();
    (marker, json!({ "variables": variables }))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_apply_saves_its_state_and_releases_its_lock() {
    let world = World::new("auto").await;
    let (marker, bundle) = slow(&world);
    let name = world.prepare(Wish::plan_and_apply().with(bundle.clone())).await;
    let stop = CancellationToken::new();
    let meddler = async {
        appears(&marker).await;
        stop.cancel();
    };
    tokio::join!(
        world.carry_out(&name, world.context(&name), stop.clone()),
        meddler
    );
    let run = world.get(&name).await;
    assert_eq!(ending(&run), "Failed TFExecApplyFailed", "{:?}", run.status);
    assert!(
        status(&run).message.contains("told to stop"),
        "{}",
        status(&run).message
    );
    std::fs::write(marker.with_extension("go"), "").unwrap();
    let next = world.run(Wish::plan_and_apply().with(bundle)).await;
    assert_eq!(
        ending(&next),
        "Succeeded TerraformAppliedSucceed",
        "{:?}",
        next.status
    );
    assert_eq!(
        status(&next).changes,
        "+1 ~0 -1",
        "the interrupted one is tainted in the state"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_ignores_interrupts_is_killed_after_the_grace_and_the_next_run_goes_on() {
    let world = World::new("auto").await;
    let trial = TrialProvider::create().unwrap();
    let thing = "resource \"trial_thing\" \"it\" {\n  name = \"it\"\n}\n";
    world.commit(&[("main.tf", &format!("{}{thing}", trial.provider_block()))]);
    let stubborn = json!({ "ignoreInterrupts": true, "steps": { "create it": { "hang": true } } });
    trial.set_behaviour(&stubborn).unwrap();
    let own = json!({ "graceSeconds": 2, "environment": { "TF_CLI_CONFIG_FILE": trial.cli_config() } });
    let name = world.prepare(Wish::plan_and_apply().with(own.clone())).await;
    let stop = CancellationToken::new();
    let meddler = async {
        comes_true(|| trial.calls().contains(&"create it".to_owned())).await;
        stop.cancel();
        std::time::Instant::now()
    };
    let (_, told) = tokio::join!(
        world.carry_out(&name, world.context(&name), stop.clone()),
        meddler
    );
    assert!(told.elapsed() >= Duration::from_secs(2), "the grace is given");
    let run = world.get(&name).await;
    assert_eq!(ending(&run), "Failed TFExecApplyFailed", "{:?}", run.status);
    assert!(trial.resources().unwrap().is_empty());
    // The lock that the killed CLI left is that of a dead run of ours.
    trial.set_behaviour(&json!({})).unwrap();
    let next = world.run(Wish::plan_and_apply().with(own)).await;
    assert_eq!(
        ending(&next),
        "Succeeded TerraformAppliedSucceed",
        "{:?}",
        next.status
    );
    assert_eq!(trial.resources().unwrap(), ["it"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_lock_stands_and_is_told() {
    let world = World::new("auto").await;
    let (marker, bundle) = slow(&world);
    let name = world.prepare(Wish::plan_and_apply().with(bundle.clone())).await;
    let running = async {
        world
            .carry_out(&name, world.context(&name), CancellationToken::new())
            .await
    };
    let other = async {
        appears(&marker).await;
        // Another machine: a directory of its own, so that only the state lock stands between the two.
        let second = world.prepare(Wish::plan().with(bundle.clone())).await;
        let mut context = world.context(&second);
        context.settings.work_root = Some(world.dir.path().join("elsewhere"));
        context.identity.who = "somebody@elsewhere".into();
        world.carry_out(&second, context, CancellationToken::new()).await;
        std::fs::write(marker.with_extension("go"), "").unwrap();
        world.get(&second).await
    };
    let (_, locked) = tokio::join!(running, other);
    assert_eq!(ending(&locked), "Failed TFExecPlanFailed");
    let lock = status(&locked).lock.unwrap();
    assert!(
        !lock.id.is_empty() && lock.operation == "OperationTypeApply",
        "{lock:?}"
    );
    assert_eq!(
        ending(&world.get(&name).await),
        "Succeeded TerraformAppliedSucceed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_could_not_be_written_is_kept_and_pushed() {
    let world = World::new("auto").await;
    let (marker, bundle) = slow(&world);
    let name = world.prepare(Wish::plan_and_apply().with(bundle.clone())).await;
    let context = world.context(&name);
    let meddler = async {
        appears(&marker).await;
        // The API goes away for the CLI while it applies; the runner's own client stays in process.
        let address = world.go_away().await;
        std::fs::write(marker.with_extension("go"), "").unwrap();
        address
    };
    let (_, address) = tokio::join!(world.carry_out(&name, context, CancellationToken::new()), meddler);
    let run = world.get(&name).await;
    assert_eq!(ending(&run), "Failed TFExecApplyFailed", "{:?}", run.status);
    assert!(
        world
            .stored()
            .await
            .iter()
            .any(|name| name.starts_with("tferrored-default-net-"))
    );
    world.come_back(address).await;
    let next = world.run(Wish::plan_and_apply().with(bundle)).await;
    assert_eq!(
        ending(&next),
        "Succeeded TerraformPlannedNoChanges",
        "nothing is applied twice: {:?}",
        next.status
    );
    assert!(
        !world
            .stored()
            .await
            .iter()
            .any(|name| name.starts_with("tferrored-"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deadline_ends_a_run() {
    let world = World::new("auto").await;
    let (_, bundle) = slow(&world);
    let name = world
        .prepare_with_deadline(Wish::plan_and_apply().with(bundle), "5s")
        .await;
    let mut context = world.context(&name);
    context.settings.grace = Duration::from_secs(20);
    world.carry_out(&name, context, CancellationToken::new()).await;
    let run = world.get(&name).await;
    assert_eq!(ending(&run), "Failed TFExecApplyFailed");
    assert!(
        status(&run).message.contains("deadline"),
        "{}",
        status(&run).message
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_runner_leaves_its_cli_to_finish() {
    let world = World::new("auto").await;
    let (marker, bundle) = slow(&world);
    let name = world.prepare(Wish::plan_and_apply().with(bundle.clone())).await;
    let (mut runner, lock) = world.spawn(&name);
    appears(&marker).await;
    runner.kill().unwrap();
    runner.wait().unwrap();
    assert!(
        is_locked(&lock).unwrap(),
        "the CLI still works: nobody may start another"
    );
    assert_eq!(status(&world.get(&name).await).phase.as_str(), "Applying");
    let go = marker.with_extension("go");
    let next = async { world.run(Wish::plan_and_apply().with(bundle)).await };
    let release = async { std::fs::write(go, "").unwrap() };
    let (next, ()) = tokio::join!(next, release);
    assert!(!is_locked(&lock).unwrap());
    assert_eq!(
        ending(&next),
        "Succeeded TerraformPlannedNoChanges",
        "nothing is applied twice: {:?}",
        next.status
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_a_provisioner_left_behind_holds_no_lock() {
    let world = World::new("auto").await;
    let marker = world.dir.path().join("marker");
    let over = marker.with_extension("over");
    let module = format!(
        "resource \"terraform_data\" \"it\" {{\n  provisioner \"local-exec\" {{\n    command = \"echo $PPID > {0}.cli; \
         touch {0}; until [ -e {1} ]; do sleep 0.05; done\"\n  }}\n}}\n",
        marker.display(),
        over.display()
    );
    world.commit(&[("main.tf", &module)]);
    let name = world.prepare(Wish::plan_and_apply()).await;
    let (mut runner, lock) = world.spawn(&name);
    appears(&marker).await;
    let cli = std::fs::read_to_string(marker.with_extension("cli")).unwrap();
    let cli = rustix::process::Pid::from_raw(cli.trim().parse().unwrap()).unwrap();
    runner.kill().unwrap();
    runner.wait().unwrap();
    assert!(is_locked(&lock).unwrap(), "the CLI lives");
    rustix::process::kill_process(cli, rustix::process::Signal::KILL).unwrap();
    comes_true(|| !is_locked(&lock).unwrap()).await;
    // The shell of the provisioner, which has all that the CLI had, still waits.
    world.commit(&[("main.tf", "resource \"terraform_data\" \"it\" {}\n")]);
    let next = world.run(Wish::plan_and_apply()).await;
    assert_eq!(
        ending(&next),
        "Succeeded TerraformAppliedSucceed",
        "{:?}",
        next.status
    );
    std::fs::write(over, "").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminated_runner_reports_what_it_interrupted() {
    let world = World::new("auto").await;
    let (marker, bundle) = slow(&world);
    let name = world.prepare(Wish::plan_and_apply().with(bundle)).await;
    let (mut runner, lock) = world.spawn(&name);
    appears(&marker).await;
    let pid = rustix::process::Pid::from_raw(i32::try_from(runner.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let code = tokio::task::spawn_blocking(move || runner.wait().unwrap().code())
        .await
        .unwrap();
    assert_eq!(code, Some(1));
    assert_eq!(ending(&world.get(&name).await), "Failed TFExecApplyFailed");
    assert!(!is_locked(&lock).unwrap());
    let stale: Vec<_> = world
        .stored()
        .await
        .into_iter()
        .filter(|name| name.starts_with("lock-"))
        .collect();
    assert!(stale.is_empty(), "{stale:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_goes_on_while_the_api_is_away_and_reports_later() {
    let world = World::new("auto").await;
    let (marker, mut bundle) = slow(&world);
    bundle["backend"] = json!("terraform {\n  backend \"local\" {}\n}\n");
    let name = world.prepare(Wish::plan_and_apply().with(bundle)).await;
    let (mut runner, _) = world.spawn(&name);
    appears(&marker).await;
    let address = world.go_away().await;
    std::fs::write(marker.with_extension("go"), "").unwrap();
    let logs = world
        .dir
        .path()
        .join("work")
        .join(format!(".{NAMESPACE}_net.logs"))
        .join(&name);
    comes_true(|| {
        let entries = std::fs::read_dir(&logs).unwrap();
        let words = entries.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok());
        words.into_iter().any(|words| words.contains("Apply complete!"))
    })
    .await;
    assert_eq!(
        status(&world.get(&name).await).phase.as_str(),
        "Applying",
        "it had no chance to say more"
    );
    world.come_back(address).await;
    let code = tokio::task::spawn_blocking(move || runner.wait().unwrap().code())
        .await
        .unwrap();
    assert_eq!(code, Some(0));
    assert_eq!(
        ending(&world.get(&name).await),
        "Succeeded TerraformAppliedSucceed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_that_cannot_reach_its_backend_is_repeated_and_its_approval_counts() {
    let world = World::new("").await;
    let (made, marker) = (world.dir.path().join("made"), world.dir.path().join("apply"));
    let module = format!(
        "resource \"terraform_data\" \"it\" {{\n  provisioner \"local-exec\" {{ command = \"echo once >> {}\" }}\n}}\n",
        made.display()
    );
    world.commit(&[("main.tf", &module)]);
    let planned = world.run(Wish::plan()).await;
    let wish = Wish::apply(&planned);
    // Each apply tells that it comes, and waits for leave the first time; then it tells how it went.
    let cli = wrapped(
        &world,
        &format!(
            "if [ \"$1\" = apply ]; then\n  touch {marker}; until [ -e {marker}.go ]; do sleep 0.05; done\n  \
             {real} \"$@\"; code=$?; echo $code >> {marker}.ended; exit $code\nfi",
            marker = marker.display(),
            real = sluice_harness::cli::terraform().unwrap().display()
        ),
    );
    let meddler = async {
        appears(&marker).await;
        let address = world.go_away().await;
        std::fs::write(marker.with_extension("go"), "").unwrap();
        appears(&marker.with_extension("ended")).await;
        world.come_back(address).await;
    };
    let (run, ()) = tokio::join!(world.run_with_path(wish, &cli), meddler);
    assert_eq!(
        ending(&run),
        "Succeeded TerraformAppliedSucceed",
        "{:?}",
        run.status
    );
    let ended = std::fs::read_to_string(marker.with_extension("ended")).unwrap();
    let codes: Vec<_> = ended.lines().collect();
    assert!(
        codes.len() > 1 && codes[0] == "1" && codes[codes.len() - 1] == "0",
        "{codes:?}"
    );
    assert_eq!(std::fs::read_to_string(&made).unwrap(), "once\n");
}
