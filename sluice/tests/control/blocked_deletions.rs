//! Deletions that cannot destroy say why and what to do, and continue once it is done. A missing ServiceAccount may have a replacement.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, ServiceAccount};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use sluice_api::run::{TerraformRun, Trigger};
use sluice_api::terraform::Terraform;
use sluice_runtime::schedule::ObjectKey;
use sluice_tf_controller::executor::{
    Executor, ExecutorError, IsGone, Launch, Liveness, PendingReason, ProcessExecutor, RunRef, RunnerRef,
};

use crate::deletion::inner;
use crate::environment::{NAMESPACE, TestEnvironment};
use crate::observe::condition;

const SIMPLE: &str = r#"resource "terraform_data" "it" { input = "x" }"#;

/// Creates an environment with the applied stack `net`, whose deletion destroys.
async fn environment_with_stack() -> TestEnvironment {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", SIMPLE)]).await;
    env.stack("net", json!({ "destroyResourcesOnDeletion": true }))
        .await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    env
}

/// Waits until the deletion of `net` cannot destroy because its source is gone.
async fn wait_until_blocked(env: &TestEnvironment) -> Terraform {
    env.wait_for("net", "a blocked destroy", |stack| {
        condition(stack, "Ready").starts_with("False ArtifactFailed cannot destroy: ")
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_destroy_reports_missing_inputs_and_remedies() {
    let env = environment_with_stack().await;
    let secrets: Api<Secret> = env.api();
    for name in env.secrets("tfapplied-").await {
        secrets.delete(&name, &DeleteParams::default()).await.unwrap();
    }
    env.remove_source().await;
    env.delete("net").await;
    let stuck = wait_until_blocked(&env).await;
    let text = condition(&stuck, "Ready");
    assert!(
        text.contains(
            "GitRepository.source.toolkit.fluxcd.io \"code\" not found; no last applied record exists"
        ) && text.contains("abandon the resources with destroyResourcesOnDeletion: false"),
        "{text}"
    );
    env.wait_event("net", "Warning ArtifactFailed").await;
    env.edit("net", json!({ "destroyResourcesOnDeletion": false }))
        .await;
    env.wait_gone("net").await;
    assert!(env.state("net").await.contains("terraform_data"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destroy_without_its_secret_or_config_map_names_it_and_the_remedies() {
    let env = TestEnvironment::new().await;
    env.commit(
        "a",
        &[(
            "main.tf",
            "variable \"size\" {}\nresource \"terraform_data\" \"it\" { input = var.size }",
        )],
    )
    .await;
    env.secret("sizes", &[("size", "large")]).await;
    let map = json!({ "metadata": { "name": "sizes" }, "data": { "size": "large" } });
    let maps: Api<ConfigMap> = env.api();
    maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap())
        .await
        .unwrap();
    for (name, kind) in [("one", "Secret"), ("other", "ConfigMap")] {
        let from = json!([{ "kind": kind, "name": "sizes" }]);
        env.stack(
            name,
            json!({ "destroyResourcesOnDeletion": true, "varsFrom": from }),
        )
        .await;
        env.wait_ready(name, "True TerraformAppliedSucceed").await;
    }
    let secrets: Api<Secret> = env.api();
    for name in env.secrets("tfapplied-").await {
        secrets.delete(&name, &DeleteParams::default()).await.unwrap();
    }
    secrets.delete("sizes", &DeleteParams::default()).await.unwrap();
    maps.delete("sizes", &DeleteParams::default()).await.unwrap();
    for (name, kind) in [("one", "Secret"), ("other", "ConfigMap")] {
        env.delete(name).await;
        let text =
            format!("False VarsGenerationFailed cannot destroy: cannot read {kind} sizes of varsFrom: ");
        let stuck = env
            .wait_for(name, "stuck", |stack| {
                condition(stack, "Ready").starts_with(&text)
            })
            .await;
        let ready = condition(&stuck, "Ready");
        let remedies = "no last applied record exists: restore the missing objects, or abandon the resources with \
                        destroyResourcesOnDeletion: false";
        assert!(ready.contains(remedies), "{ready}");
        env.edit(name, json!({ "destroyResourcesOnDeletion": false }))
            .await;
        env.wait_gone(name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destroy_in_a_deleted_namespace_says_how_to_end_the_wait() {
    let env = environment_with_stack().await;
    let namespaces: Api<Namespace> = Api::all(env.client.clone());
    namespaces
        .delete(NAMESPACE, &DeleteParams::default())
        .await
        .unwrap();
    env.delete("net").await;
    let stuck = wait_until_blocked(&env).await;
    // The source and the last applied record are deleted with the namespace.
    let text = condition(&stuck, "Ready");
    assert!(
        text.contains("no last applied record exists") && text.contains("abandon the resources with"),
        "{text}"
    );
    env.edit("net", json!({ "destroyResourcesOnDeletion": false }))
        .await;
    env.wait_gone("net").await;
}

/// Starts a run only if the ServiceAccount of its pod exists, as Jobs do.
struct AccountExecutor {
    processes: Arc<ProcessExecutor>,
    accounts: Mutex<BTreeSet<String>>,
    /// The account of each run that waits for it.
    waiting: Mutex<BTreeMap<String, String>>,
    /// The accounts of the runs that were started, in order.
    started: Mutex<Vec<String>>,
}

impl AccountExecutor {
    fn new(processes: Arc<ProcessExecutor>, accounts: &[&str]) -> Arc<Self> {
        Arc::new(Self {
            processes,
            accounts: Mutex::new(accounts.iter().map(|&name| name.to_owned()).collect()),
            waiting: Mutex::default(),
            started: Mutex::default(),
        })
    }

    /// Deletes the account, also for pods.
    async fn delete_account(&self, env: &TestEnvironment, name: &str) {
        self.lose_account(name);
        let accounts: Api<ServiceAccount> = env.api();
        accounts.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// From now on, pods do not find the account, which exists: the last attempt to create one was before that.
    fn lose_account(&self, name: &str) {
        assert!(self.accounts.lock().unwrap().remove(name));
    }

    fn find_account(&self, name: &str) {
        self.accounts.lock().unwrap().insert(name.to_owned());
    }

    fn started(&self) -> Vec<String> {
        self.started.lock().unwrap().clone()
    }
}

impl Executor for AccountExecutor {
    fn passes_bundles(&self) -> bool {
        false
    }

    fn start<'a>(&'a self, launch: Launch<'a>) -> BoxFuture<'a, Result<(), ExecutorError>> {
        let (run, account) = (RunRef::of(launch.run).name, launch.account.to_owned());
        if self.accounts.lock().unwrap().contains(&account) {
            self.started.lock().unwrap().push(account);
            return self.processes.start(launch);
        }
        self.waiting.lock().unwrap().insert(run, account);
        Box::pin(async { Ok(()) })
    }

    fn cancel(&self, run: RunRef) -> BoxFuture<'_, Result<(), ExecutorError>> {
        self.waiting.lock().unwrap().remove(&run.name);
        self.processes.cancel(run)
    }

    fn liveness(&self, runner: RunnerRef) -> BoxFuture<'_, Result<Liveness, ExecutorError>> {
        let account = self.waiting.lock().unwrap().get(&runner.run.name).cloned();
        let Some(account) = account else {
            return self.processes.liveness(runner);
        };
        Box::pin(async move {
            Ok(Liveness::Pending(Some(PendingReason {
                reason: "FailedCreate".to_owned(),
                message: format!(
                    "error looking up service account team/{account}: serviceaccount \"{account}\" not found"
                ),
            })))
        })
    }

    fn forget(&self, run: RunRef) -> BoxFuture<'_, Result<(), ExecutorError>> {
        self.processes.forget(run)
    }

    fn list_runs(&self) -> BoxFuture<'_, Result<Vec<RunRef>, ExecutorError>> {
        self.processes.list_runs()
    }

    fn forget_stack(&self, stack: ObjectKey, is_gone: IsGone) {
        self.processes.forget_stack(stack, is_gone);
    }

    fn list_stacks(&self) -> BoxFuture<'_, Result<Vec<ObjectKey>, ExecutorError>> {
        self.processes.list_stacks()
    }
}

async fn create_account(env: &TestEnvironment, name: &str) {
    let accounts: Api<ServiceAccount> = env.api();
    let account = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
}

/// Creates these accounts, starts a controller whose runs need one of them, and applies a stack under `tf-runner` whose destroy writes its name to
/// a file.
async fn applied_stack(env: &mut TestEnvironment, name: &str, accounts: &[&str]) -> Arc<AccountExecutor> {
    for account in accounts {
        create_account(env, account).await;
    }
    let (processes, ended) = env.executor();
    let executor = AccountExecutor::new(processes, accounts);
    env.start_with(Arc::clone(&executor), ended, 4).await;
    let module = inner(&env.path("record"));
    env.commit("a", &[("main.tf", module.as_str())]).await;
    let vars = json!([{ "name": "size", "value": name }]);
    env.stack(name, json!({ "destroyResourcesOnDeletion": true, "vars": vars }))
        .await;
    env.wait_ready(name, "True TerraformAppliedSucceed").await;
    executor
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destroy_without_its_account_has_the_one_that_the_policy_names() {
    let mut env = TestEnvironment::without_controller().await;
    env.destroy_account = Some("destroyer".to_owned());
    let executor = applied_stack(&mut env, "net", &["tf-runner", "destroyer"]).await;
    executor.delete_account(&env, "tf-runner").await;
    env.delete("net").await;
    env.wait_gone("net").await;
    let record = std::fs::read_to_string(env.path("record")).unwrap();
    assert_eq!(record.trim(), "net");
    assert_eq!(executor.started(), ["tf-runner", "destroyer"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_a_past_event_nor_the_code_of_a_module_changes_the_account_of_a_destroy() {
    let mut env = TestEnvironment::without_controller().await;
    env.destroy_account = Some("destroyer".to_owned());
    let executor = applied_stack(&mut env, "net", &["tf-runner", "destroyer"]).await;
    executor.lose_account("tf-runner");
    env.delete("net").await;
    env.wait_for("net", "the past event", |stack| {
        condition(stack, "Ready").contains("serviceaccount \"tf-runner\" not found")
    })
    .await;
    let is_destroy = |run: &TerraformRun| run.spec.trigger == Trigger::Deletion;
    let first = env.wait_run("net", "the destroy", is_destroy).await;
    // As the account of runs may.
    let status = json!({ "status": { "phase": "Superseded", "reason": "ServiceAccountNotFound" } });
    let runs: Api<TerraformRun> = env.api();
    runs.patch_status(&first.name_any(), &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
    let is_next = |run: &TerraformRun| is_destroy(run) && run.name_any() != first.name_any();
    let next = env.wait_run("net", "the next destroy", is_next).await;
    for run in [&first, &next] {
        assert_eq!(run.spec.service_account_name, "");
    }
    executor.find_account("tf-runner");
    executor.cancel(RunRef::of(&next)).await.unwrap();
    env.wait_gone("net").await;
    assert_eq!(executor.started(), ["tf-runner", "tf-runner"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destroy_does_not_wait_for_a_run_before_the_deletion() {
    let mut env = TestEnvironment::without_controller().await;
    let executor = applied_stack(&mut env, "net", &["tf-runner", "other"]).await;
    executor.lose_account("tf-runner");
    env.commit("b", &[("main.tf", &format!("{}\n", inner(&env.path("record"))))])
        .await;
    let waiting = env
        .wait_run("net", "a run that waits", |run| {
            run.spec.trigger == Trigger::Revision
                && run.status.as_ref().is_some_and(|s| s.reason == "FailedCreate")
        })
        .await;
    env.delete("net").await;
    env.wait_run("net", "the end of that run", |run| {
        run.name_any() == waiting.name_any() && run.status.as_ref().is_some_and(|s| s.reason == "Deleted")
    })
    .await;
    let destroy = env
        .wait_run("net", "the destroy", |run| run.spec.trigger == Trigger::Deletion)
        .await;
    executor.find_account("tf-runner");
    executor.cancel(RunRef::of(&destroy)).await.unwrap();
    env.wait_gone("net").await;
    assert!(env.path("record").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destroy_without_its_account_waits_until_the_stack_names_another() {
    let mut env = TestEnvironment::without_controller().await;
    let executor = applied_stack(&mut env, "net", &["tf-runner", "deployer"]).await;
    executor.delete_account(&env, "tf-runner").await;
    env.delete("net").await;
    let waits = |stack: &Terraform| {
        let ready = condition(stack, "Ready");
        ready.contains("serviceaccount \"tf-runner\" not found")
            && ready.contains("; or abandon the resources with destroyResourcesOnDeletion: false")
    };
    env.wait_for("net", "the missing account", waits).await;
    env.edit("net", json!({ "serviceAccountName": "deployer" })).await;
    env.wait_gone("net").await;
    assert!(env.path("record").exists());
    assert_eq!(executor.started(), ["tf-runner", "deployer"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destroy_without_its_account_can_be_abandoned() {
    let mut env = TestEnvironment::without_controller().await;
    let executor = applied_stack(&mut env, "net", &["tf-runner"]).await;
    executor.delete_account(&env, "tf-runner").await;
    // The policy takes precedence, so the other field alone would end nothing.
    env.edit(
        "net",
        json!({ "deletionPolicy": "Destroy", "destroyResourcesOnDeletion": null }),
    )
    .await;
    env.delete("net").await;
    env.wait_for("net", "the missing account", |stack| {
        let ready = condition(stack, "Ready");
        ready.contains("serviceaccount \"tf-runner\" not found")
            && ready.ends_with("; or abandon the resources with deletionPolicy: Retain")
    })
    .await;
    env.edit("net", json!({ "deletionPolicy": "Retain" })).await;
    env.wait_gone("net").await;
    assert!(!env.path("record").exists(), "nothing was destroyed");
    assert!(env.state("net").await.contains("terraform_data"));
}
