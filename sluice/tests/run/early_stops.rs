//! Runs that are asked to end before they plan or apply: they end at once, and the next run does all of it.

use std::time::Duration;

use kube::api::{Api, Patch, PatchParams};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use sluice_api::annotation::CANCEL;
use sluice_api::run::{Phase, TerraformRun};
use sluice_tf_core::process_lock::is_locked;
use sluice_tf_runner::run::{Context, RunOutcome, RunStop, execute};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::cli_wrapper::wrap_cli;
use crate::environment::{NAMESPACE, RunSetup, TestEnvironment, ending, status, wait_for_file};

/// Less than a download that is tried again: its retries last three and a half minutes.
const AT_ONCE: Duration = Duration::from_mins(1);
/// Retries of a download, as in the program.
const RETRIES: u32 = 9;

/// Carries out a run until it is asked to end at this moment, and returns its outcome.
async fn execute_until(context: &Context, stop: RunStop, asked: impl Future<Output = ()>) -> RunOutcome {
    let both = async { tokio::join!(Box::pin(execute(context, stop)), asked) };
    let (outcome, ()) = timeout(AT_ONCE, both).await.expect("the run ends at once");
    outcome.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminated_download_ends_at_once_and_is_no_failure() {
    let env = TestEnvironment::new("").await;
    let name = env.prepare(RunSetup::plan()).await;
    let mut context = env.context(&name);
    context.fetcher.retries = RETRIES;
    let program = CancellationToken::new();
    let asked = async {
        env.wait_for_message(&name, "waiting for the artifact").await;
        program.cancel();
    };
    let outcome = execute_until(&context, program.clone().into(), asked).await;
    assert_eq!(outcome, RunOutcome::Superseded);
    let run = env.get(&name).await;
    assert_eq!(ending(&run), "Superseded Interrupted", "{:?}", run.status);
    let message = status(&run).message;
    assert!(
        message.starts_with("the run was asked to end before its work began, and is repeated: "),
        "{message}"
    );
}

/// Cancels a run as a user does.
async fn cancel(env: &TestEnvironment, run: &str) {
    let api: Api<TerraformRun> = Api::namespaced(env.client(), NAMESPACE);
    let request = Patch::Merge(json!({ "metadata": { "annotations": { CANCEL: "now" } } }));
    api.patch(run, &PatchParams::default(), &request).await.unwrap();
}

/// Checks that the run ended because a user cancelled it.
fn assert_cancelled(run: &TerraformRun) {
    assert_eq!(status(run).phase, Phase::Failed, "{:?}", run.status);
    let message = status(run).message;
    assert!(message.starts_with("the run was cancelled: "), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_download_fails() {
    let env = TestEnvironment::new("").await;
    let name = env.prepare(RunSetup::plan()).await;
    let mut context = env.context(&name);
    context.fetcher.retries = RETRIES;
    context.settings.heartbeat = Duration::from_millis(100);
    let asked = async {
        env.wait_for_message(&name, "waiting for the artifact").await;
        cancel(&env, &name).await;
    };
    let outcome = execute_until(&context, CancellationToken::new().into(), asked).await;
    assert_eq!(outcome, RunOutcome::Failed);
    assert_cancelled(&env.get(&name).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_cancelled_just_before_the_request_to_end_is_not_repeated() {
    let env = TestEnvironment::new("").await;
    let name = env.prepare(RunSetup::plan()).await;
    let mut context = env.context(&name);
    context.fetcher.retries = RETRIES;
    // No write of the status tells the runner about it.
    context.settings.heartbeat = Duration::from_hours(1);
    let program = CancellationToken::new();
    let asked = async {
        env.wait_for_message(&name, "waiting for the artifact").await;
        cancel(&env, &name).await;
        program.cancel();
    };
    let outcome = execute_until(&context, program.clone().into(), asked).await;
    assert_eq!(outcome, RunOutcome::Failed);
    assert_cancelled(&env.get(&name).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_is_asked_early_reports_and_ends() {
    let env = TestEnvironment::new("").await;
    let name = env.prepare(RunSetup::plan()).await;
    let (mut runner, lock) = env.spawn(&name);
    env.wait_for_message(&name, "waiting for the artifact").await;
    let pid = Pid::from_raw(i32::try_from(runner.id()).unwrap()).unwrap();
    kill_process(pid, Signal::USR1).unwrap();
    let ended = tokio::task::spawn_blocking(move || runner.wait().unwrap().code());
    let code = timeout(AT_ONCE, ended).await.expect("the runner ends at once");
    assert_eq!(code.unwrap(), Some(2));
    assert_eq!(ending(&env.get(&name).await), "Superseded Interrupted");
    assert!(!is_locked(&lock).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_init_ends_at_once_and_the_next_run_applies_the_same_plan() {
    let env = TestEnvironment::new("").await;
    env.commit(&[("main.tf", "resource \"terraform_data\" \"it\" {}\n")]);
    let planned = env.run(RunSetup::plan()).await;
    let setup = RunSetup::apply(&planned);
    let name = env.prepare(setup.clone()).await;
    let marker = env.dir.path().join("init");
    let waits = format!(
        "if [ \"$1\" = init ]; then touch {}; exec sleep 600; fi",
        marker.display()
    );
    let mut context = env.context(&name);
    let path = context.environment.get_mut("PATH").unwrap();
    *path = format!("{}:{path}", wrap_cli(&env, &waits).display());
    // The parent of the tests may ignore interrupts, and so does `sleep` then.
    context.settings.grace = Duration::from_secs(1);
    let stop = RunStop::from(CancellationToken::new());
    let asked = async {
        wait_for_file(&marker).await;
        stop.stop_unless_begun();
    };
    let outcome = execute_until(&context, stop.clone(), asked).await;
    assert_eq!(outcome, RunOutcome::Superseded);
    assert_eq!(ending(&env.get(&name).await), "Superseded Interrupted");
    let applied = env.run(setup).await;
    assert_eq!(
        ending(&applied),
        "Succeeded TerraformAppliedSucceed",
        "{:?}",
        applied.status
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_goes_on_when_the_runner_is_asked_to_end_early() {
    let env = TestEnvironment::new("auto").await;
    let marker = env.dir.path().join("marker");
    let command = "touch ${var.marker}; until [ -e ${var.marker}.go ]; do sleep 0.05; done";
    let module = format!(
        "variable \"marker\" {{}}\nresource \"terraform_data\" \"slow\" {{\n  \
         provisioner \"local-exec\" {{ command = \"{command}\" }}\n}}\n"
    );
    env.commit(&[("main.tf", &module)]);
    let variables = json!({ "marker": marker }).to_string();
    let setup = RunSetup::plan_and_apply().with(json!({ "variables": variables }));
    let name = env.prepare(setup).await;
    let (mut runner, _) = env.spawn(&name);
    wait_for_file(&marker).await;
    let pid = Pid::from_raw(i32::try_from(runner.id()).unwrap()).unwrap();
    kill_process(pid, Signal::USR1).unwrap();
    std::fs::write(marker.with_extension("go"), "").unwrap();
    let ended = tokio::task::spawn_blocking(move || runner.wait().unwrap().code());
    let code = timeout(AT_ONCE, ended).await.expect("the apply ends");
    assert_eq!(code.unwrap(), Some(0));
    assert_eq!(ending(&env.get(&name).await), "Succeeded TerraformAppliedSucceed");
}
