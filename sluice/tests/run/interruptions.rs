//! Runs that are stopped, killed, or disconnected from the API during their apply.

use std::time::Duration;

use serde_json::json;
use sluice_harness::trial::TrialProvider;
use sluice_tf_core::process_lock::is_locked;
use tokio_util::sync::CancellationToken;

use crate::cli_wrapper::wrap_cli;
use crate::environment::{
    NAMESPACE, RunSetup, TestEnvironment, assert_ending, ending, status, terminate, wait_for_file, wait_until,
};

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_apply_saves_its_state_and_releases_its_lock() {
    let env = TestEnvironment::new("auto").await;
    let (marker, setup) = RunSetup::slow(&env);
    let name = env.prepare(setup.clone()).await;
    let stop = CancellationToken::new();
    let interference = async {
        wait_for_file(&marker).await;
        stop.cancel();
    };
    tokio::join!(
        env.execute_run(&name, env.context(&name), stop.clone()),
        interference
    );
    let run = env.get(&name).await;
    assert_ending(&run, "Failed TFExecApplyFailed");
    assert!(
        status(&run).message.contains("the runner was terminated"),
        "{}",
        status(&run).message
    );
    std::fs::write(marker.with_extension("go"), "").unwrap();
    let next = env.run(setup).await;
    assert_ending(&next, "Succeeded TerraformAppliedSucceed");
    assert_eq!(
        status(&next).changes,
        "+1 ~0 -1",
        "the interrupted one is tainted in the state"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_ignores_interrupts_is_killed_and_the_next_run_continues() {
    let env = TestEnvironment::new("auto").await;
    let trial = TrialProvider::create().unwrap();
    let thing = "resource \"trial_thing\" \"it\" {\n  name = \"it\"\n}\n";
    env.commit(&[("main.tf", &format!("{}{thing}", trial.provider_block()))]);
    let stubborn = json!({ "ignoreInterrupts": true, "steps": { "create it": { "hang": true } } });
    trial.set_behaviour(&stubborn).unwrap();
    let own = json!({ "graceSeconds": 2, "environment": { "TF_CLI_CONFIG_FILE": trial.cli_config() } });
    let name = env.prepare(RunSetup::plan_and_apply().with(own.clone())).await;
    let stop = CancellationToken::new();
    let interference = async {
        wait_until(|| trial.calls().contains(&"create it".to_owned())).await;
        stop.cancel();
        std::time::Instant::now()
    };
    let (_, stopped) = tokio::join!(
        env.execute_run(&name, env.context(&name), stop.clone()),
        interference
    );
    assert!(
        stopped.elapsed() >= Duration::from_secs(2),
        "the grace period is respected"
    );
    let run = env.get(&name).await;
    assert_ending(&run, "Failed TFExecApplyFailed");
    assert!(trial.resources().unwrap().is_empty());
    // The killed CLI left the state lock of a dead run.
    trial.set_behaviour(&json!({})).unwrap();
    let next = env.run(RunSetup::plan_and_apply().with(own)).await;
    assert_ending(&next, "Succeeded TerraformAppliedSucceed");
    assert_eq!(trial.resources().unwrap(), ["it"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_lock_is_retained_and_reported() {
    let env = TestEnvironment::new("auto").await;
    let (marker, setup) = RunSetup::slow(&env);
    let name = env.prepare(setup.clone()).await;
    let running = async {
        env.execute_run(&name, env.context(&name), CancellationToken::new())
            .await
    };
    let other = async {
        wait_for_file(&marker).await;
        // Another machine with its own directory, so that only the state lock is shared.
        let second = env.prepare(RunSetup::plan().with(setup.bundle.clone())).await;
        let mut context = env.context(&second);
        context.settings.work_root = Some(env.dir.path().join("elsewhere"));
        context.identity.who = "other@elsewhere".into();
        env.execute_run(&second, context, CancellationToken::new()).await;
        std::fs::write(marker.with_extension("go"), "").unwrap();
        env.get(&second).await
    };
    let (_, locked) = tokio::join!(running, other);
    assert_eq!(ending(&locked), "Failed TFExecPlanFailed");
    let lock = status(&locked).lock.unwrap();
    assert!(
        !lock.id.is_empty() && lock.operation == "OperationTypeApply",
        "{lock:?}"
    );
    assert_eq!(ending(&env.get(&name).await), "Succeeded TerraformAppliedSucceed");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_errored_state_is_saved_and_pushed() {
    let env = TestEnvironment::new("auto").await;
    let (marker, setup) = RunSetup::slow(&env);
    let name = env.prepare(setup.clone()).await;
    let context = env.context(&name);
    let interference = async {
        wait_for_file(&marker).await;
        // The API server stops for the CLI during the apply; the client of the runner is in this process.
        let address = env.stop_api().await;
        std::fs::write(marker.with_extension("go"), "").unwrap();
        address
    };
    let (_, address) = tokio::join!(
        env.execute_run(&name, context, CancellationToken::new()),
        interference
    );
    let run = env.get(&name).await;
    assert_ending(&run, "Failed TFExecApplyFailed");
    assert!(
        env.stored()
            .await
            .iter()
            .any(|name| name.starts_with("tferrored-default-net-"))
    );
    env.restart_api(address).await;
    let next = env.run(setup).await;
    assert_eq!(
        ending(&next),
        "Succeeded TerraformPlannedNoChanges",
        "nothing is applied twice: {:?}",
        next.status
    );
    assert!(
        !env.stored()
            .await
            .iter()
            .any(|name| name.starts_with("tferrored-"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deadline_ends_a_run() {
    let env = TestEnvironment::new("auto").await;
    let (_, setup) = RunSetup::slow(&env);
    let name = env.prepare_with_deadline(setup, "5s").await;
    let mut context = env.context(&name);
    context.settings.grace = Duration::from_secs(20);
    env.execute_run(&name, context, CancellationToken::new()).await;
    let run = env.get(&name).await;
    assert_eq!(ending(&run), "Failed TFExecApplyFailed");
    assert!(
        status(&run).message.contains("deadline"),
        "{}",
        status(&run).message
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_runner_leaves_its_cli_to_finish() {
    let env = TestEnvironment::new("auto").await;
    let (marker, setup) = RunSetup::slow(&env);
    let name = env.prepare(setup.clone()).await;
    let (mut runner, lock) = env.spawn(&name);
    wait_for_file(&marker).await;
    runner.kill().unwrap();
    runner.wait().unwrap();
    assert!(
        is_locked(&lock).unwrap(),
        "the CLI is still alive: no other may start"
    );
    assert_eq!(status(&env.get(&name).await).phase.as_str(), "Applying");
    let go = marker.with_extension("go");
    let next = env.prepare(setup).await;
    let release = async {
        let holder = format!("the CLI of run {name} (process ");
        let message = env.wait_for_message(&next, &holder).await;
        std::fs::write(go, "").unwrap();
        message
    };
    let context = env.context(&next);
    let (_, message) = tokio::join!(env.execute_run(&next, context, CancellationToken::new()), release);
    assert!(
        message.starts_with("waiting for the working directory of the stack: ")
            && message.ends_with(") uses it"),
        "{message}"
    );
    let next = env.get(&next).await;
    assert!(!is_locked(&lock).unwrap());
    assert_eq!(
        ending(&next),
        "Succeeded TerraformPlannedNoChanges",
        "nothing is applied twice: {:?}",
        next.status
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leftover_process_of_a_provisioner_holds_no_lock() {
    let env = TestEnvironment::new("auto").await;
    let marker = env.dir.path().join("marker");
    // It ends with the directory of the test.
    let module = format!(
        "resource \"terraform_data\" \"it\" {{\n  provisioner \"local-exec\" {{\n    command = \"echo $PPID > {0}.cli; \
         touch {0}; while [ -e {0} ]; do sleep 0.05; done\"\n  }}\n}}\n",
        marker.display(),
    );
    env.commit(&[("main.tf", &module)]);
    let name = env.prepare(RunSetup::plan_and_apply()).await;
    let (mut runner, lock) = env.spawn(&name);
    wait_for_file(&marker).await;
    let cli = std::fs::read_to_string(marker.with_extension("cli")).unwrap();
    let cli = rustix::process::Pid::from_raw(cli.trim().parse().unwrap()).unwrap();
    runner.kill().unwrap();
    runner.wait().unwrap();
    assert!(is_locked(&lock).unwrap(), "the CLI lives");
    rustix::process::kill_process(cli, rustix::process::Signal::KILL).unwrap();
    wait_until(|| !is_locked(&lock).unwrap()).await;
    // The shell of the provisioner still runs, with the inherited files of the CLI.
    env.commit(&[("main.tf", "resource \"terraform_data\" \"it\" {}\n")]);
    let next = env.run(RunSetup::plan_and_apply()).await;
    assert_ending(&next, "Succeeded TerraformAppliedSucceed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminated_runner_reports_the_interrupted_command() {
    let env = TestEnvironment::new("auto").await;
    let (marker, setup) = RunSetup::slow(&env);
    let name = env.prepare(setup).await;
    let (runner, lock) = env.spawn(&name);
    wait_for_file(&marker).await;
    assert_eq!(terminate(runner).await, Some(1));
    assert_eq!(ending(&env.get(&name).await), "Failed TFExecApplyFailed");
    assert!(!is_locked(&lock).unwrap());
    let stale: Vec<_> = env
        .stored()
        .await
        .into_iter()
        .filter(|name| name.starts_with("lock-"))
        .collect();
    assert!(stale.is_empty(), "{stale:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_continues_during_an_api_outage_and_reports_later() {
    let env = TestEnvironment::new("auto").await;
    let (marker, mut setup) = RunSetup::slow(&env);
    setup.bundle["backend"] = json!("terraform {\n  backend \"local\" {}\n}\n");
    let name = env.prepare(setup).await;
    let (mut runner, _) = env.spawn(&name);
    wait_for_file(&marker).await;
    let address = env.stop_api().await;
    std::fs::write(marker.with_extension("go"), "").unwrap();
    let logs = env
        .dir
        .path()
        .join("work")
        .join(format!(".{NAMESPACE}_net.logs"))
        .join(&name);
    wait_until(|| {
        let entries = std::fs::read_dir(&logs).unwrap();
        let words = entries.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok());
        words.into_iter().any(|words| words.contains("Apply complete!"))
    })
    .await;
    assert_eq!(
        status(&env.get(&name).await).phase.as_str(),
        "Applying",
        "it had no chance to say more"
    );
    env.restart_api(address).await;
    let code = tokio::task::spawn_blocking(move || runner.wait().unwrap().code())
        .await
        .unwrap();
    assert_eq!(code, Some(0));
    assert_eq!(ending(&env.get(&name).await), "Succeeded TerraformAppliedSucceed");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_that_cannot_reach_its_backend_is_repeated_and_its_approval_counts() {
    let env = TestEnvironment::new("").await;
    let (made, marker) = (env.dir.path().join("made"), env.dir.path().join("apply"));
    let module = format!(
        "resource \"terraform_data\" \"it\" {{\n  provisioner \"local-exec\" {{ command = \"echo once >> {}\" }}\n}}\n",
        made.display()
    );
    env.commit(&[("main.tf", &module)]);
    let planned = env.run(RunSetup::plan()).await;
    let setup = RunSetup::apply(&planned);
    // Each apply reports its start, waits for a file the first time, and reports its result.
    let cli = wrap_cli(
        &env,
        &format!(
            "if [ \"$1\" = apply ]; then\n  touch {marker}; until [ -e {marker}.go ]; do sleep 0.05; done\n  \
             {real} \"$@\"; code=$?; echo $code >> {marker}.ended; exit $code\nfi",
            marker = marker.display(),
            real = sluice_harness::cli::terraform().unwrap().display()
        ),
    );
    let interference = async {
        wait_for_file(&marker).await;
        let address = env.stop_api().await;
        std::fs::write(marker.with_extension("go"), "").unwrap();
        wait_for_file(&marker.with_extension("ended")).await;
        env.restart_api(address).await;
    };
    let (run, ()) = tokio::join!(env.run_with_path(setup, &cli), interference);
    assert_ending(&run, "Succeeded TerraformAppliedSucceed");
    let ended = std::fs::read_to_string(marker.with_extension("ended")).unwrap();
    let codes: Vec<_> = ended.lines().collect();
    assert!(
        codes.len() > 1 && codes[0] == "1" && codes[codes.len() - 1] == "0",
        "{codes:?}"
    );
    assert_eq!(std::fs::read_to_string(&made).unwrap(), "once\n");
}
