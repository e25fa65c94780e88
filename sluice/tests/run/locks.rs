//! State locks that the commands of a run left behind, since the response to the request was lost.

use std::path::PathBuf;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use sluice_api::run::TerraformRun;
use tokio_util::sync::CancellationToken;

use crate::cli_wrapper::wrap_cli;
use crate::environment::{
    NAMESPACE, RunSetup, TestEnvironment, assert_ending, ending, status, wait_for_file,
};

const ID: &str = "11111111-2222-3333-4444-555555555555";
const MODULE: &str = "resource \"terraform_data\" \"it\" { input = 1 }";

/// A wrapper of the CLI whose first matching command waits until the lock is held, and fails.
struct LostResponseCli {
    folder: PathBuf,
    marker: PathBuf,
}

/// The error of a command that acquired the lock but did not receive the response.
const NO_ANSWER: &str =
    "Error: Error acquiring the state lock\\n\\nError message: Put \"https://127.0.0.1:1/\": EOF\\n";

impl LostResponseCli {
    fn at(env: &TestEnvironment, words: &str) -> Self {
        Self::ending(env, words, NO_ANSWER, 1)
    }

    fn ending(env: &TestEnvironment, words: &str, error: &str, code: u8) -> Self {
        let marker = env.dir.path().join("asked");
        let (asked, go) = (marker.display(), marker.with_extension("go"));
        let before = format!(
            "case \"$*\" in {words}*)\n  if ! test -e {asked}; then\n    touch {asked}\n    \
             until test -e {go}; do sleep 0.05; done\n    \
             printf '\\n{error}' >&2\n    \
             exit {code}\n  fi;;\nesac",
            go = go.display()
        );
        let folder = wrap_cli(env, &before);
        Self { folder, marker }
    }

    /// Executes a run with the wrapper while `who` acquires the state lock of the workspace.
    async fn run(&self, env: &TestEnvironment, setup: RunSetup, workspace: &str, who: &str) -> TerraformRun {
        let name = env.prepare(setup).await;
        let mut context = env.context(&name);
        let path = context.environment.get_mut("PATH").unwrap();
        *path = format!("{}:{path}", self.folder.display());
        let taking = async {
            wait_for_file(&self.marker).await;
            acquire(env, workspace, who).await;
            std::fs::write(self.marker.with_extension("go"), "").unwrap();
        };
        let running = Box::pin(env.execute_run(&name, context, CancellationToken::new()));
        tokio::join!(running, taking);
        env.get(&name).await
    }
}

/// Acquires the Lease of a state as the CLI does.
async fn acquire(env: &TestEnvironment, workspace: &str, who: &str) {
    let now = jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%S%.9fZ")
        .to_string();
    let info = json!({ "ID": ID, "Operation": "OperationTypeApply", "Info": "", "Who": who, "Version": "1.11.4",
        "Created": now, "Path": "" });
    let lease = json!({ "metadata": { "name": format!("lock-tfstate-{workspace}-net"), "namespace": NAMESPACE,
            "labels": { "tfstate": "true", "tfstateSecretSuffix": "net", "tfstateWorkspace": workspace,
                "app.kubernetes.io/managed-by": "terraform" },
            "annotations": { "app.terraform.io/lock-info": info.to_string() } },
        "spec": { "holderIdentity": ID } });
    let lease: Lease = serde_json::from_value(lease).unwrap();
    let api: Api<Lease> = Api::namespaced(env.client(), NAMESPACE);
    let name = lease.metadata.name.as_deref().unwrap();
    if api.get_opt(name).await.unwrap().is_some() {
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }
    api.create(&PostParams::default(), &lease).await.unwrap();
}

fn own_user(env: &TestEnvironment) -> String {
    env.context("any").identity.who
}

/// Asserts that the next run releases the leftover lock and applies.
async fn assert_next_applies(env: &TestEnvironment, setup: RunSetup) {
    let next = env.run(setup).await;
    assert_ending(&next, "Succeeded TerraformAppliedSucceed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_whose_response_was_lost_belongs_to_the_apply() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", MODULE)]);
    let cli = LostResponseCli::at(&env, "apply");
    let run = cli
        .run(&env, RunSetup::plan_and_apply(), "default", &own_user(&env))
        .await;
    assert_ending(&run, "Succeeded TerraformAppliedSucceed");
    assert_eq!(status(&run).lock, None);
    let released = status(&run).released_lock.unwrap();
    assert_eq!((released.id.as_str(), released.run), (ID, run.name_any()));
    assert_eq!(
        released.proof,
        "the command of this run that acquired it has ended"
    );
}

/// Setups in which the holder's name is a sensitive value, or there are more sensitive values than the limit.
fn with_sensitive_holder(env: &TestEnvironment) -> [serde_json::Value; 2] {
    let many: Vec<_> = (0..=10_000).map(|n| format!("value-{n:05}")).collect();
    [json!({ "secrets": [own_user(env)] }), json!({ "secrets": many })]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runs_own_lock_is_recognized_if_its_holder_is_redacted() {
    for number in 0..2 {
        let env = TestEnvironment::new("auto").await;
        env.commit(&[("main.tf", MODULE)]);
        let cli = LostResponseCli::at(&env, "apply");
        let setup = RunSetup::plan_and_apply().with(with_sensitive_holder(&env)[number].clone());
        let run = cli.run(&env, setup, "default", &own_user(&env)).await;
        let ended = ending(&run);
        assert_eq!(ended, "Succeeded TerraformAppliedSucceed", "{:?}", run.status);
        assert_eq!(status(&run).lock, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_runs_lock_is_released_if_its_holder_is_redacted() {
    for number in 0..2 {
        let env = TestEnvironment::new("auto").await;
        env.commit(&[("main.tf", MODULE)]);
        let hiding = with_sensitive_holder(&env)[number].clone();
        let mut blue = json!({ "workspace": "blue" });
        let cli = LostResponseCli::at(&env, "workspace\\ new");
        let dead = cli
            .run(
                &env,
                RunSetup::plan_and_apply().with(blue.clone()),
                "blue",
                &own_user(&env),
            )
            .await;
        assert_ending(&dead, "Failed SelectWorkspaceFailed");
        blue["secrets"] = hiding["secrets"].clone();
        let next = env.run(RunSetup::plan_and_apply().with(blue)).await;
        let ended = ending(&next);
        assert_eq!(ended, "Succeeded TerraformAppliedSucceed", "{:?}", next.status);
        assert_eq!(status(&next).released_lock.unwrap().run, dead.name_any());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reported_lock_holder_is_redacted() {
    const CANARY: &str = "canary-of-the-holder";
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", MODULE)]);
    acquire(&env, "default", &format!("{CANARY}@elsewhere")).await;
    let name = env
        .prepare(RunSetup::plan().with(json!({ "secrets": [CANARY] })))
        .await;
    let log = env.log_with(&name, ("RUST_LOG", "debug")).await;
    let run = env.get(&name).await;
    assert_ending(&run, "Failed TFExecInitFailed");
    let lock = status(&run).lock.unwrap();
    assert_eq!(
        (lock.id.as_str(), lock.who.as_str()),
        (ID, "(sensitive)@elsewhere")
    );
    let text = serde_json::to_string(&run).unwrap();
    assert!(!text.contains(CANARY) && !log.contains(CANARY), "{text}\n{log}");
    let logs = env.work().with_file_name(format!(".{NAMESPACE}_net.logs"));
    for entry in std::fs::read_dir(logs.join(&name)).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains(CANARY), "{}: {text}", path.display());
    }
}

/// A user on this machine with the same user name as the runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_users_lock_is_retained_if_the_run_had_released_its_own() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", MODULE)]);
    let cli = LostResponseCli::ending(&env, "output", "Error: something else\\n", 1);
    let outputs = json!({ "outputs": { "name": "net-outputs" } });
    let failed = cli
        .run(
            &env,
            RunSetup::plan_and_apply().with(outputs),
            "default",
            &own_user(&env),
        )
        .await;
    assert_ending(&failed, "Failed TFExecOutputFailed");
    assert_eq!(status(&failed).possible_lock_windows, Some(Vec::new()));
    let next = env.run(RunSetup::plan()).await;
    assert_ending(&next, "Failed TFExecPlanFailed");
    assert_eq!(status(&next).lock.unwrap().id, ID);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_acquired_by_a_user_in_the_meantime_is_retained() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", MODULE)]);
    let cli = LostResponseCli::at(&env, "apply");
    let run = cli
        .run(&env, RunSetup::plan_and_apply(), "default", "other@elsewhere")
        .await;
    assert_ending(&run, "Failed TFExecApplyFailed");
    assert_eq!(status(&run).lock.unwrap().id, ID);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_acquired_during_workspace_selection_is_retained() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", MODULE)]);
    let blue = || RunSetup::plan_and_apply().with(json!({ "workspace": "blue" }));
    let first = env.run(blue()).await;
    assert_eq!(ending(&first), "Succeeded TerraformAppliedSucceed");
    env.commit(&[("main.tf", &MODULE.replace('1', "2"))]);
    let cli = LostResponseCli::ending(&env, "workspace\\ new", "Workspace \"blue\" already exists\\n", 1);
    // A user on this machine with the same user name as the runs.
    let run = cli.run(&env, blue(), "blue", &own_user(&env)).await;
    assert_ending(&run, "Failed TFExecPlanFailed");
    assert_eq!(status(&run).lock.unwrap().id, ID);
}

/// A crash ends the CLI without an error about the lock.
#[tokio::test(flavor = "multi_thread")]
async fn the_lock_of_a_crashed_cli_is_released_by_the_next_run() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", MODULE)]);
    let cli = LostResponseCli::ending(&env, "apply", "panic: runtime error\\n", 11);
    let run = cli
        .run(&env, RunSetup::plan_and_apply(), "default", &own_user(&env))
        .await;
    assert_ending(&run, "Failed TFExecApplyFailed");
    assert_next_applies(&env, RunSetup::plan_and_apply()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_left_by_workspace_creation_is_released_by_the_next_run() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", MODULE)]);
    let blue = || RunSetup::plan_and_apply().with(json!({ "workspace": "blue" }));
    let cli = LostResponseCli::at(&env, "workspace\\ new");
    let run = cli.run(&env, blue(), "blue", &own_user(&env)).await;
    assert_ending(&run, "Failed SelectWorkspaceFailed");
    assert_next_applies(&env, blue()).await;
}

/// `init` creates the first state under a lock. Its error contains the request of the backend and does not mention the lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_left_by_init_is_released_by_the_next_run() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", MODULE)]);
    let no_answer =
        "Error: Post \"https://127.0.0.1:1/apis/coordination.k8s.io/v1/namespaces/team/leases\": EOF\\n";
    let cli = LostResponseCli::ending(&env, "init", no_answer, 1);
    let run = cli
        .run(&env, RunSetup::plan_and_apply(), "default", &own_user(&env))
        .await;
    assert_ending(&run, "Failed TFExecInitFailed");
    assert_next_applies(&env, RunSetup::plan_and_apply()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_lock_that_blocks_a_new_workspace_is_reported() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", MODULE)]);
    acquire(&env, "blue", "other@elsewhere").await;
    let run = env
        .run(RunSetup::plan().with(json!({ "workspace": "blue" })))
        .await;
    assert_ending(&run, "Failed SelectWorkspaceFailed");
    assert_eq!(status(&run).lock.unwrap().id, ID);
    assert!(
        status(&run).message.contains("other@elsewhere"),
        "{}",
        status(&run).message
    );
}
