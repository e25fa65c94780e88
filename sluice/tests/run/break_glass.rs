//! Break-glass sessions: the contents of the directory during and after a session.

use std::process::Output;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use sluice_api::run::TerraformRun;
use tokio_util::sync::CancellationToken;

use crate::committed_files::state;
use crate::environment::{
    NAMESPACE, RunSetup, STACK, TestEnvironment, assert_ending, ending, status, wait_until,
};

/// Runs a session in which a user enters the directory and runs this script. The session ends with the script.
pub(crate) async fn session(env: &TestEnvironment, bundle: Value, script: &str) -> (TerraformRun, Output) {
    let setup = RunSetup {
        action: "BreakTheGlass",
        trigger: "Request",
        ..RunSetup::plan().with(bundle)
    };
    let name = env.prepare(setup).await;
    let environment_file = env
        .dir
        .path()
        .join(format!("work/.{NAMESPACE}_{STACK}.break-glass"));
    let user = async {
        let is_whole = || std::fs::read_to_string(&environment_file).is_ok_and(|text| text.ends_with("'\n"));
        wait_until(is_whole).await;
        let shell = std::process::Command::new("/bin/sh")
            .args(["-c", &format!(". \"$0\" && {script}")])
            .arg(&environment_file)
            .env_clear()
            .output()
            .unwrap();
        // Ends the session in any case.
        let _ = std::fs::remove_file(&environment_file);
        shell
    };
    let (_, shell) = tokio::join!(
        env.execute_run(&name, env.context(&name), CancellationToken::new()),
        user
    );
    (env.get(&name).await, shell)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_break_glass_session_has_the_backend_arguments() {
    let env = TestEnvironment::new("auto").await;
    let state = env.dir.path().join("it's a state.tfstate");
    env.commit(&[("main.tf", "resource \"terraform_data\" \"it\" {}\n")]);
    let bundle = json!({ "backend": "terraform {\n  backend \"local\" {}\n}\n",
        "surroundings": { "backendArguments": { "path": state.display().to_string() } } });
    let script = "rm -r .terraform && $(command -v terraform || command -v tofu) init >&2 && rm \"$0\"";
    let (run, shell) = session(&env, bundle, script).await;
    assert!(shell.status.success(), "{shell:?}");
    assert_ending(&run, "Succeeded BreakTheGlassEnded");
}

/// The directory of a pod is removed with the pod.
#[tokio::test(flavor = "multi_thread")]
async fn an_errored_state_of_a_session_is_saved_at_its_end() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[(
        "main.tf",
        "resource \"terraform_data\" \"it\" { input = \"old\" }\n",
    )]);
    let script = format!("printf '%s' '{}' > errored.tfstate", state());
    let (run, shell) = session(&env, json!({}), &script).await;
    assert!(shell.status.success(), "{shell:?}");
    assert_ending(&run, "Succeeded BreakTheGlassEnded");
    let secrets: Api<Secret> = Api::namespaced(env.client(), NAMESPACE);
    let label = ListParams::default().labels("infra.sluice.dev/errored-state=net");
    assert_eq!(secrets.list(&label).await.unwrap().items.len(), 1);
    assert!(
        !env.work().join("errored.tfstate").exists(),
        "it is not stored a second time"
    );

    std::fs::remove_dir_all(env.dir.path().join("work")).unwrap();
    let next = env.run(RunSetup::plan()).await;
    assert_ending(&next, "Succeeded TerraformPlannedNoChanges");
    assert!(secrets.list(&label).await.unwrap().items.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_errored_state_is_retained_and_reported() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", "resource \"terraform_data\" \"it\" {}\n")]);
    let applied = env.run(RunSetup::plan_and_apply()).await;
    assert_eq!(ending(&applied), "Succeeded TerraformAppliedSucceed");
    // Another lineage than that of the stack.
    let script = format!("printf '%s' '{}' > errored.tfstate", state());
    session(&env, json!({}), &script).await;
    let errored_state = || async {
        let names = env.stored().await;
        let mut errored_state = names.into_iter().filter(|name| name.starts_with("tferrored-"));
        errored_state.next().unwrap()
    };
    let name = errored_state().await;
    let refused = env.run(RunSetup::plan()).await;
    assert_ending(&refused, "Failed TFExecInitFailed");
    let message = status(&refused).message;
    assert!(message.contains(&name), "{message}");
    assert_eq!(errored_state().await, name);
}
