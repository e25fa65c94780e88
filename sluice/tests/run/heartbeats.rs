//! Heartbeats of runs, runs that a user cancels, and runs that a controller marked as lost.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use sluice_api::annotation::CANCEL;
use sluice_api::run::{Phase, TerraformRun};
use sluice_api::terraform::Terraform;
use sluice_tf_runner::run::RunOutcome;
use tokio_util::sync::CancellationToken;

use crate::environment::{
    NAMESPACE, RunSetup, STACK, TestEnvironment, assert_ending, ending, status, wait_for_file,
};

/// Marks a run as lost, as a controller does without a heartbeat.
async fn declare_lost(env: &TestEnvironment, name: &str) {
    let api: Api<TerraformRun> = Api::namespaced(env.client(), NAMESPACE);
    let lost = json!({ "status": { "phase": "Lost", "reason": "RunLost", "message": "not heard of" } });
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(lost))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_sends_heartbeats_until_its_end() {
    let env = TestEnvironment::new("auto").await;
    let (marker, setup) = RunSetup::slow(&env);
    let name = env.prepare(setup).await;
    let mut context = env.context(&name);
    context.settings.heartbeat = Duration::from_millis(100);
    let listener = async {
        wait_for_file(&marker).await;
        let mut heard = Vec::new();
        while heard.len() < 4 {
            let run = env.get(&name).await;
            let beat = status(&run).heartbeat_at;
            if beat.is_some() && !heard.contains(&beat) {
                heard.push(beat);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        std::fs::write(marker.with_extension("go"), "").unwrap();
    };
    let listening = tokio::time::timeout(Duration::from_mins(1), listener);
    let (_, heard) = tokio::join!(
        env.execute_run(&name, context, CancellationToken::new()),
        listening
    );
    heard.unwrap();
    assert_eq!(ending(&env.get(&name).await), "Succeeded TerraformAppliedSucceed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_apply_is_interrupted_and_saves_its_state() {
    let env = TestEnvironment::new("auto").await;
    let (marker, setup) = RunSetup::slow(&env);
    let name = env.prepare(setup.clone()).await;
    let mut context = env.context(&name);
    context.settings.heartbeat = Duration::from_millis(100);
    let user = async {
        wait_for_file(&marker).await;
        let api: Api<TerraformRun> = Api::namespaced(env.client(), NAMESPACE);
        let request = json!({ "metadata": { "annotations": { CANCEL: "now" } } });
        api.patch(&name, &PatchParams::default(), &Patch::Merge(request))
            .await
            .unwrap();
    };
    tokio::join!(env.execute_run(&name, context, CancellationToken::new()), user);
    let run = env.get(&name).await;
    assert_ending(&run, "Failed TFExecApplyFailed");
    let message = status(&run).message;
    assert!(message.starts_with("the run was cancelled: "), "{message}");
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
async fn the_apply_of_a_lost_run_is_interrupted_and_the_run_stays_lost() {
    let env = TestEnvironment::new("auto").await;
    let (marker, setup) = RunSetup::slow(&env);
    let name = env.prepare(setup.clone()).await;
    let mut context = env.context(&name);
    context.settings.heartbeat = Duration::from_millis(100);
    let interference = async {
        wait_for_file(&marker).await;
        declare_lost(&env, &name).await;
    };
    let (ended, ()) = tokio::join!(
        env.execute_run(&name, context, CancellationToken::new()),
        interference
    );
    assert_eq!(ended, RunOutcome::Failed);
    assert_eq!(ending(&env.get(&name).await), "Lost RunLost");
    let leases: Api<Lease> = Api::namespaced(env.client(), NAMESPACE);
    let lock = leases.get("lock-tfstate-default-net").await.unwrap();
    assert_eq!(
        lock.spec
            .unwrap()
            .holder_identity
            .filter(|holder| !holder.is_empty()),
        None
    );
    std::fs::write(marker.with_extension("go"), "").unwrap();
    let next = env.run(setup).await;
    assert_eq!(
        (ending(&next).as_str(), status(&next).changes.as_str()),
        ("Succeeded TerraformAppliedSucceed", "+1 ~0 -1"),
        "what it did is in the state"
    );
}

/// A wrapper of the CLI that waits before a plan, or before the text of a plan.
fn slow_cli(folder: &Path, command: &str) -> PathBuf {
    let place = folder.join("cli");
    std::fs::create_dir(&place).unwrap();
    let cli = sluice_harness::cli::terraform().unwrap();
    let text = format!(
        "#!/bin/bash\nif [[ \"$*\" = \"{command} \"* ]]; then touch {0}/waiting; until [ -e {0}/go ]; do sleep 0.05; done; fi\n\
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
    let env = TestEnvironment::new("auto").await;
    let (marker, setup) = RunSetup::slow(&env);
    // If it applies nevertheless, the apply ends.
    std::fs::write(marker.with_extension("go"), "").unwrap();
    let name = env.prepare(setup).await;
    let mut context = env.context(&name);
    // It sends no heartbeat: it notices when it writes the result of its plan.
    context.settings.heartbeat = Duration::from_mins(10);
    let path = context.environment.get_mut("PATH").unwrap();
    *path = format!("{}:{path}", slow_cli(env.dir.path(), "plan").display());
    let interference = async {
        wait_for_file(&env.dir.path().join("waiting")).await;
        declare_lost(&env, &name).await;
        std::fs::write(env.dir.path().join("go"), "").unwrap();
    };
    let (ended, ()) = tokio::join!(
        env.execute_run(&name, context, CancellationToken::new()),
        interference
    );
    assert_eq!(ended, RunOutcome::Failed);
    let run = env.get(&name).await;
    assert_eq!(status(&run).phase, Phase::Lost);
    assert!(!status(&run).attempted_apply);
    assert!(!marker.exists(), "nothing was applied");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_that_is_withdrawn_before_the_cli_starts_is_not_used() {
    let env = TestEnvironment::new("auto").await;
    let (marker, setup) = RunSetup::slow(&env);
    // If it applies nevertheless, the apply ends.
    std::fs::write(marker.with_extension("go"), "").unwrap();
    let name = env.prepare(setup).await;
    let mut context = env.context(&name);
    // Shorter than the time in which the CLI shows a plan.
    context.settings.heartbeat = Duration::from_millis(10);
    // The text of the plan is the last thing before the apply. The run has checked the approval before.
    let cli = slow_cli(env.dir.path(), "show -no-color");
    let path = context.environment.get_mut("PATH").unwrap();
    *path = format!("{}:{path}", cli.display());
    context
        .environment
        .insert("LOG_HUMAN_READABLE_PLAN".to_owned(), "1".to_owned());
    let user = async {
        wait_for_file(&env.dir.path().join("waiting")).await;
        let stacks: Api<Terraform> = Api::namespaced(env.client(), NAMESPACE);
        let manual = json!({ "spec": { "approvePlan": "" } });
        stacks
            .patch(STACK, &PatchParams::default(), &Patch::Merge(manual))
            .await
            .unwrap();
        std::fs::write(env.dir.path().join("go"), "").unwrap();
    };
    let (ended, ()) = tokio::join!(env.execute_run(&name, context, CancellationToken::new()), user);
    assert_eq!(ended, RunOutcome::Superseded);
    let run = env.get(&name).await;
    assert_eq!(status(&run).phase, Phase::Superseded, "{:?}", run.status);
    assert!(!status(&run).attempted_apply, "no approval is used up");
    assert!(!marker.exists(), "nothing was applied");
}
