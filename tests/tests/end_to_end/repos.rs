//! `Repo` objects on a real etcd and kube-apiserver: the optional repo-controller under its own account, real Git, the real CLI.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_harness::git::{GitServer, Repository};
use sluice_tests::scenario::{NAMESPACE, TIMEOUT, wait_for, wait_until_gone};
use sluice_tests::wait_for_definitions;

use crate::audit::{assert_only_definitions_are_refused, assert_repo_controller_uses_its_roles};
use crate::environment::{Controller, TestEnvironment, kubectl};
use crate::{with_timeout, without_cluster};

const MODULE: &str = "resource \"terraform_data\" \"it\" { input = \"one\" }\n";
const FAILING: &str = "resource \"terraform_data\" \"it\" { input = file(\"missing.txt\") }\n";

/// A repository as in 2019: one branch, master, with the module at its root.
fn repository(module: &str) -> Repository {
    let repository = Repository::create_with(&["--initial-branch=master"]).unwrap();
    repository
        .commit_files(&[("main.tf", module)], "The module")
        .unwrap();
    repository
}

struct Repos {
    client: Client,
    api: Api<DynamicObject>,
    env: TestEnvironment,
    controller: Controller,
}

fn resource(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

impl Repos {
    async fn start() -> Self {
        let mut repos = Self::install().await;
        repos.start_controllers().await;
        repos
    }

    /// As [`Self::start`], with the permissions of one namespace.
    async fn start_in_single_namespace() -> Self {
        let environment = TestEnvironment::start_with_repo_controller_in_single_namespace().await;
        let mut repos = Self::new(environment).await;
        repos.start_controllers().await;
        repos
    }

    /// Applies the definition of `Repo`, and starts the controllers.
    async fn start_controllers(&mut self) {
        self.env.apply_repo_definition().await;
        self.env.start_controllers();
        self.controller.start().unwrap();
    }

    /// Installs everything but the definition of `Repo`, and starts nothing.
    async fn install() -> Self {
        Self::new(TestEnvironment::start_with_repo_controller().await).await
    }

    async fn new((env, controller): (TestEnvironment, Controller)) -> Self {
        let client = env.plane.client().await.unwrap();
        let resource = resource("terraform.gitops.k8s.io", "v1alpha1", "Repo");
        Self {
            api: Api::namespaced_with(client.clone(), NAMESPACE, &resource),
            client,
            env,
            controller,
        }
    }

    /// Returns the end of the log of a run, as a user reads it.
    async fn log_tail(&self, run: &str) -> String {
        let path = "jsonpath={.status.logTail}";
        let arguments = ["-n", NAMESPACE, "get", "terraformrun", run, "-o", path];
        kubectl(self.env.folder.path(), &arguments).await
    }

    /// Creates a `Repo` as in 2019, with nothing but a URL; then lets the test wait for 2 s instead of 30.
    async fn create(&self, name: &str, url: &str) {
        let repo = json!({ "apiVersion": "terraform.gitops.k8s.io/v1alpha1", "kind": "Repo",
            "metadata": { "name": name, "namespace": NAMESPACE }, "spec": { "url": url } });
        let repo: DynamicObject = serde_json::from_value(repo).unwrap();
        self.api.create(&PostParams::default(), &repo).await.unwrap();
        let created = wait_for(&self.sources(), name, "the source", |_| true).await;
        let created = created.unwrap_or_else(|error| panic!("{error}\n{}", self.logs()));
        assert_eq!(created["spec"]["interval"], "30s");
        let interval: Patch<Value> = Patch::Merge(json!({ "spec": { "interval": "2s" } }));
        self.sources()
            .patch(name, &PatchParams::default(), &interval)
            .await
            .unwrap();
    }

    fn sources(&self) -> Api<DynamicObject> {
        let resource = resource("source.toolkit.fluxcd.io", "v1", "GitRepository");
        Api::namespaced_with(self.client.clone(), NAMESPACE, &resource)
    }

    fn stacks(&self) -> Api<DynamicObject> {
        let resource = resource("infra.contrib.fluxcd.io", "v1alpha2", "Terraform");
        Api::namespaced_with(self.client.clone(), NAMESPACE, &resource)
    }

    fn logs(&self) -> String {
        format!("{}\n{}", self.env.logs(), self.controller.tail())
    }

    /// Ends the controllers and asserts that the API server refused none of their requests: the role of the component suffices.
    async fn end_without_refusal(mut self) {
        for controller in [
            &mut self.env.source_controller,
            &mut self.env.tf_controller,
            &mut self.controller,
        ] {
            controller.end_without_refusal().await;
        }
    }

    /// Waits until the row has this commit and state.
    async fn wait_for_row(&self, name: &str, commit: &str, status: &str) -> Value {
        let is_row = |object: &Value| {
            let row = &object["status"];
            row["gitSHA"] == commit && row["runStatus"] == status
        };
        let row = wait_for(&self.api, name, "its row", is_row).await;
        row.unwrap_or_else(|error| panic!("{name} {commit} {status}: {error}\n{}", self.logs()))
    }

    /// Returns lineage and serial of the state of a stack.
    async fn state(&self, name: &str) -> (String, u64) {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let secret = secrets.get(&format!("tfstate-default-{name}")).await.unwrap();
        let packed = secret.data.unwrap().remove("tfstate").unwrap().0;
        let state: Value = serde_json::from_reader(flate2::read::GzDecoder::new(&packed[..])).unwrap();
        let lineage = state["lineage"].as_str().unwrap().to_owned();
        (lineage, state["serial"].as_u64().unwrap())
    }
}

/// The values of `runStatus` that a watch has seen, without repetitions.
#[derive(Clone, Default)]
struct StatusTrace(Arc<Mutex<Vec<String>>>);

impl StatusTrace {
    fn follow(repos: Api<DynamicObject>) -> Self {
        let trace = Self::default();
        let seen = trace.clone();
        tokio::spawn(async move {
            let changes = watcher(repos, watcher::Config::default()).default_backoff();
            let mut changes = changes.applied_objects().boxed();
            while let Some(change) = changes.next().await {
                let Ok(object) = change else { continue };
                let status = object
                    .data
                    .pointer("/status/runStatus")
                    .and_then(Value::as_str)
                    .map(str::to_owned);
                let mut seen = seen.0.lock().unwrap();
                if status.is_some() && seen.last() != status.as_ref() {
                    seen.extend(status);
                }
            }
        });
        trace
    }

    /// Asserts that the states were seen in this order; a watch may miss short ones.
    fn assert_order(&self, expected: &[&str]) {
        let seen = self.0.lock().unwrap().clone();
        let mut rest = expected.iter();
        let in_order = seen.iter().all(|status| rest.any(|next| next == status));
        assert!(in_order, "{seen:?} is not part of {expected:?}");
        for state in ["New", "Running"] {
            assert!(seen.iter().any(|status| status == state), "{state}: {seen:?}");
        }
    }
}

#[test]
fn a_repo_of_2019_on_a_real_api_server() {
    if without_cluster() {
        return;
    }
    with_timeout(async {
        let git = GitServer::start().await.unwrap();
        let (app, other) = (repository(MODULE), repository(""));
        let (app_url, other_url) = (git.serve("app", &app), git.serve("other", &other));
        let repos = Repos::start().await;
        let trace = StatusTrace::follow(repos.api.clone());

        repos.create("app", &app_url).await;
        let first = app.head().unwrap();
        let row = repos.wait_for_row("app", &first, "Completed").await;
        trace.assert_order(&["New", "Pending", "Running", "Completed"]);
        assert_eq!(row["status"]["conditions"][0]["status"], "True", "{row}");
        let (lineage, serial) = repos.state("app").await;

        // Two of one URL.
        repos.create("copy", &app_url).await;
        repos.wait_for_row("copy", &first, "Completed").await;
        assert_ne!(repos.state("copy").await.0, lineage);

        let failing = app.commit_files(&[("main.tf", FAILING)], "Read a file").unwrap();
        for name in ["app", "copy"] {
            let row = repos.wait_for_row(name, &failing, "Failed").await;
            let log = repos.log_tail(row["status"]["runName"].as_str().unwrap()).await;
            assert!(log.contains("missing.txt"), "{log}");
        }

        // The URL of an empty module: the resources of the state are not in it.
        other
            .commit_files(&[("main.tf", "output \"it\" { value = 1 }\n")], "One output")
            .unwrap();
        let edit: Patch<Value> = Patch::Merge(json!({ "spec": { "url": other_url } }));
        repos
            .api
            .patch("app", &PatchParams::default(), &edit)
            .await
            .unwrap();
        repos
            .wait_for_row("app", &other.head().unwrap(), "Completed")
            .await;
        let after = repos.state("app").await;
        assert_eq!(after.0, lineage, "the state is kept");
        assert!(after.1 > serial);

        // An edit that is one of the stack.
        let edit: Patch<Value> = Patch::Merge(json!({ "spec": { "approval": "Manual" } }));
        repos
            .api
            .patch("copy", &PatchParams::default(), &edit)
            .await
            .unwrap();
        let needs_approval = |object: &Value| object["spec"]["approvePlan"] != "auto";
        let edited = wait_for(&repos.stacks(), "copy", "the edit", needs_approval).await;
        edited.unwrap_or_else(|error| panic!("{error}\n{}", repos.logs()));

        let state = repos.state("copy").await;
        repos.api.delete("copy", &DeleteParams::default()).await.unwrap();
        for api in [repos.stacks(), repos.sources()] {
            wait_until_gone(&api, "copy")
                .await
                .unwrap_or_else(|error| panic!("{error}\n{}", repos.logs()));
        }
        assert_eq!(repos.state("copy").await, state, "nothing is destroyed");
        assert_repo_controller_uses_its_roles(&repos.env).await;
        repos.end_without_refusal().await;
    });
}

/// Without any cluster-wide permission, so that the definition is checked in the `OpenAPI` document.
#[test]
fn a_repo_with_the_permissions_of_one_namespace() {
    if without_cluster() {
        return;
    }
    with_timeout(async {
        let git = GitServer::start().await.unwrap();
        let (app, other) = (repository(MODULE), repository(""));
        let (url, other_url) = (git.serve("app", &app), git.serve("other", &other));
        let repos = Repos::start_in_single_namespace().await;
        repos.create("app", &url).await;
        repos.wait_for_row("app", &app.head().unwrap(), "Completed").await;
        // An edit of the stack, and then of the source.
        let edit: Patch<Value> = Patch::Merge(json!({ "spec": { "approval": "Manual", "url": other_url } }));
        repos
            .api
            .patch("app", &PatchParams::default(), &edit)
            .await
            .unwrap();
        let is_edited = |object: &Value| object["spec"]["url"] == other_url;
        let edited = wait_for(&repos.sources(), "app", "the edit", is_edited).await;
        edited.unwrap_or_else(|error| panic!("{error}\n{}", repos.logs()));
        assert_repo_controller_uses_its_roles(&repos.env).await;
        assert_only_definitions_are_refused(&repos.env);
        repos.end_without_refusal().await;
    });
}

/// The definition of 2019, as far as an API server of today accepts it: structural, but as then without pruning, defaults and status.
const DEFINITION_OF_2019: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: repos.terraform.gitops.k8s.io
  annotations: {api-approved.kubernetes.io: unapproved}
spec:
  group: terraform.gitops.k8s.io
  names: {kind: Repo, plural: repos, singular: repo}
  scope: Namespaced
  versions:
    - name: v1alpha1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          x-kubernetes-preserve-unknown-fields: true
          properties:
            spec: {type: object, required: [url], properties: {url: {type: string}}}
";

#[test]
fn the_definition_of_2019_is_reported_and_replaced() {
    if without_cluster() {
        return;
    }
    with_timeout(async {
        let git = GitServer::start().await.unwrap();
        let app = repository(MODULE);
        let url = git.serve("app", &app);
        let mut repos = Repos::install().await;
        let folder = repos.env.folder.path().to_owned();
        let file = folder.join("2019.yaml");
        std::fs::write(&file, DEFINITION_OF_2019).unwrap();
        // Not with kubectl apply, whose fields a server-side apply takes over without a conflict.
        kubectl(&folder, &["create", "-f", &file.display().to_string()]).await;
        wait_for_definitions(repos.client.clone()).await.unwrap();
        let object = json!({ "apiVersion": "terraform.gitops.k8s.io/v1alpha1", "kind": "Repo",
            "metadata": { "name": "app", "namespace": NAMESPACE }, "spec": { "url": url },
            "status": { "gitSHA": "abc", "runStatus": "Completed" } });
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        repos.api.create(&PostParams::default(), &object).await.unwrap();

        repos.env.start_controllers();
        repos.controller.start().unwrap();
        let reported = async {
            while !repos
                .controller
                .log()
                .contains("does not declare the subresource status; apply it: ")
            {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let reported = tokio::time::timeout(TIMEOUT, reported).await;
        reported.unwrap_or_else(|_| panic!("{}", repos.logs()));
        assert!(repos.sources().get_opt("app").await.unwrap().is_none());

        repos.env.apply_repo_definition().await;
        repos.wait_for_row("app", &app.head().unwrap(), "Completed").await;
        repos.end_without_refusal().await;
    });
}
