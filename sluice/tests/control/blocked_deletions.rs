//! Deletions that cannot destroy say why and what to do, and continue once it is done. A missing ServiceAccount may have a replacement.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use sluice_api::terraform::Terraform;
use sluice_runtime::schedule::ObjectKey;
use sluice_tf_controller::executor::{
    Executor, ExecutorError, IsGone, Launch, Liveness, PendingReason, ProcessExecutor, RunRef,
};

use crate::deletion::inner;
use crate::environment::{NAMESPACE, TestEnvironment};
use crate::observe::condition;

const SIMPLE: &str = r#"resource "terraform_data" "it" { input = "x" }"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_destroy_reports_missing_inputs_and_remedies() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", SIMPLE)]).await;
    env.stack("net", json!({ "destroyResourcesOnDeletion": true }))
        .await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    let secrets: Api<Secret> = env.api();
    for name in env.secrets("tfapplied-").await {
        secrets.delete(&name, &DeleteParams::default()).await.unwrap();
    }
    env.remove_source().await;
    env.delete("net").await;
    let stuck = env
        .wait_for("net", "stuck", |stack| {
            condition(stack, "Ready").starts_with("False ArtifactFailed cannot destroy: ")
        })
        .await;
    let text = condition(&stuck, "Ready");
    assert!(
        text.contains(
            "GitRepository.source.toolkit.fluxcd.io \"code\" not found; no last applied record exists"
        ) && text.contains("deletionPolicy: Retain"),
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
        let remedies = "no last applied record exists: restore the missing objects, or abandon the resources";
        assert!(ready.contains(remedies), "{ready}");
        env.edit(name, json!({ "destroyResourcesOnDeletion": false }))
            .await;
        env.wait_gone(name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destroy_in_a_deleted_namespace_says_how_to_end_the_wait() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", SIMPLE)]).await;
    env.stack("net", json!({ "destroyResourcesOnDeletion": true }))
        .await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    let namespaces: Api<Namespace> = Api::all(env.client.clone());
    namespaces
        .delete(NAMESPACE, &DeleteParams::default())
        .await
        .unwrap();
    env.delete("net").await;
    let stuck = env
        .wait_for("net", "stuck", |stack| {
            condition(stack, "Ready").starts_with("False ArtifactFailed cannot destroy: ")
        })
        .await;
    // The source and the last applied record go with the namespace.
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

    fn delete_account(&self, name: &str) {
        assert!(self.accounts.lock().unwrap().remove(name));
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

    fn liveness(&self, run: RunRef, lock_domain: String) -> BoxFuture<'_, Result<Liveness, ExecutorError>> {
        let account = self.waiting.lock().unwrap().get(&run.name).cloned();
        let Some(account) = account else {
            return self.processes.liveness(run, lock_domain);
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

/// Starts a controller whose runs need one of these accounts, and applies a stack under `tf-runner` whose destroy writes its name to
/// a file.
async fn applied_stack(env: &mut TestEnvironment, name: &str, accounts: &[&str]) -> Arc<AccountExecutor> {
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
    executor.delete_account("tf-runner");
    env.delete("net").await;
    env.wait_gone("net").await;
    let record = std::fs::read_to_string(env.path("record")).unwrap();
    assert_eq!(record.trim(), "net");
    assert_eq!(executor.started(), ["tf-runner", "destroyer"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destroy_without_its_account_waits_until_the_stack_names_another() {
    let mut env = TestEnvironment::without_controller().await;
    let executor = applied_stack(&mut env, "net", &["tf-runner", "deployer"]).await;
    executor.delete_account("tf-runner");
    env.delete("net").await;
    let waits = |stack: &Terraform| {
        let ready = condition(stack, "Ready");
        ready.contains("serviceaccount \"tf-runner\" not found")
            && ready.contains("; or abandon the resources with deletionPolicy: Retain")
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
    executor.delete_account("tf-runner");
    env.delete("net").await;
    env.wait_for("net", "the missing account", |stack| {
        condition(stack, "Ready").contains("serviceaccount \"tf-runner\" not found")
    })
    .await;
    env.edit("net", json!({ "destroyResourcesOnDeletion": false }))
        .await;
    env.wait_gone("net").await;
    assert!(!env.path("record").exists(), "nothing was destroyed");
    assert!(env.state("net").await.contains("terraform_data"));
}
