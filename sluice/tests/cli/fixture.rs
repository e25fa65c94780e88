//! An API with objects, served as `sluice up` serves it, and the program that talks to it.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_embedded::{ApiServer, Store, TlsServer};
use tempfile::TempDir;
use tokio::process::{Child, Command};

const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");
/// Timeout of one command.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);
/// The plan of the stack `app`.
pub(crate) const PLAN: &str = "plan-main-b8e362c206-0123456789abcdef0123456789abcdef01234567";

/// A served API and its kubeconfig.
pub(crate) struct TestEnvironment {
    api: ApiServer,
    serving: TlsServer,
    directory: TempDir,
}

impl TestEnvironment {
    /// Serves an empty API.
    pub(crate) async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let api = ApiServer::builder()
            .crds(sluice_api::crds())
            .store(Store::memory())
            .build()
            .unwrap();
        let address = "127.0.0.1:0".parse().unwrap();
        let serving = api.serve(address, &directory.path().join("api")).await.unwrap();
        Self {
            api,
            serving,
            directory,
        }
    }

    /// Serves an API with one source and the stacks `app` (a plan waits), `db` (failed) and `net` (ready).
    pub(crate) async fn with_stacks() -> Self {
        let environment = Self::start().await;
        environment.create_source("infra", &source_status()).await;
        environment
            .create_stack(
                "net",
                &json!({}),
                &ready("True", "TerraformAppliedSucceed", "Applied"),
            )
            .await;
        environment
            .create_stack(
                "db",
                &json!({"dependsOn": [{"name": "net"}]}),
                &ready("False", "TFExecPlanFailed", "error running Plan: exit status 1"),
            )
            .await;
        let mut waits = ready("Unknown", "TerraformPlannedWithChanges", "Plan generated");
        waits["plan"] = json!({"pending": PLAN});
        environment
            .create_stack("app", &json!({"dependsOn": [{"name": "db"}]}), &waits)
            .await;
        environment.create_run("app", 3).await;
        environment
    }

    /// Returns the client of the administrator.
    pub(crate) fn client(&self) -> Client {
        self.api.client()
    }

    /// Returns the path of the kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.serving.kubeconfig_path.clone()
    }

    /// Changes the kubeconfig.
    pub(crate) fn change_kubeconfig(&self, change: impl FnOnce(&mut Value)) {
        let text = std::fs::read_to_string(self.kubeconfig()).unwrap();
        let mut config: Value = serde_yaml_ng::from_str(&text).unwrap();
        change(&mut config);
        // JSON is YAML.
        std::fs::write(self.kubeconfig(), config.to_string()).unwrap();
    }

    /// Adds a context with the same server and user to the kubeconfig.
    pub(crate) fn add_context(&self, name: &str, namespace: &str) {
        self.change_kubeconfig(|config| {
            let mut context = config["contexts"][0].clone();
            context["name"] = json!(name);
            context["context"]["namespace"] = json!(namespace);
            config["contexts"].as_array_mut().unwrap().push(context);
        });
    }

    /// Returns a directory for the files of a test.
    pub(crate) fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }

    /// Starts the program with its standard output in a pipe. It ends when the child is dropped.
    pub(crate) fn spawn(&self, arguments: &[&str]) -> Child {
        let mut command = command(&self.kubeconfig(), arguments);
        command.stdout(Stdio::piped()).spawn().unwrap()
    }

    /// Runs the program with its output in pipes and without a terminal.
    pub(crate) async fn sluice(&self, arguments: &[&str]) -> Output {
        let mut command = command(&self.kubeconfig(), arguments);
        tokio::time::timeout(TIMEOUT, command.output())
            .await
            .expect("the command ends")
            .unwrap()
    }

    /// Runs the program and returns its standard output; it must succeed.
    pub(crate) async fn stdout(&self, arguments: &[&str]) -> String {
        let output = self.sluice(arguments).await;
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Creates a source with a status that the controller would write for it.
    pub(crate) async fn create_source(&self, name: &str, status: &Value) {
        let spec = json!({"interval": "1m", "url": format!("https://git.example/{name}.git")});
        self.create(&source_kind(), name, &spec, status).await;
    }

    /// Reads a stack.
    pub(crate) async fn stack(&self, name: &str) -> Value {
        serde_json::to_value(self.objects(&stack_kind()).get(name).await.unwrap()).unwrap()
    }

    /// Returns the stacks of the namespace.
    pub(crate) fn stacks(&self) -> Api<DynamicObject> {
        self.objects(&stack_kind())
    }

    /// Creates a stack with a status that the controller would write for it.
    pub(crate) async fn create_stack(&self, name: &str, spec: &Value, status: &Value) {
        let mut all = json!({"interval": "1m", "sourceRef": {"kind": "GitRepository", "name": "infra"}});
        all.as_object_mut()
            .unwrap()
            .extend(spec.as_object().unwrap().clone());
        self.create(&stack_kind(), name, &all, status).await;
    }

    /// Creates the run of a stack that made [`PLAN`]. Returns its name.
    pub(crate) async fn create_run(&self, stack: &str, number: u64) -> String {
        let status = json!({"phase": "Succeeded", "hasChanges": true, "planId": PLAN, "changes": "+1 ~0 -1",
            "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:42Z", "logTail": "$ tofu plan\nPlan: 1 to add, 1 to destroy\n",
            "humanPlan": "Plan: 1 to add, 0 to change, 1 to destroy.",
            "changeEntries": [{"action": "create", "address": "terraform_data.new"}, {"action": "delete", "address": "terraform_data.old"}]});
        let spec = json!({"action": "Plan", "trigger": "Revision"});
        self.create_run_with(stack, number, spec, &status).await
    }

    /// Creates the run of a stack that applies [`PLAN`] at this moment. Returns its name.
    pub(crate) async fn create_apply(&self, stack: &str, number: u64) -> String {
        let spec = json!({"action": "Apply", "trigger": "Approval", "plan": {"id": PLAN, "run": "plan-run"}});
        let status = json!({"phase": "Applying"});
        self.create_run_with(stack, number, spec, &status).await
    }

    async fn create_run_with(&self, stack: &str, number: u64, mut spec: Value, status: &Value) -> String {
        let owner = self.stack(stack).await;
        let uid = owner["metadata"]["uid"].as_str().unwrap();
        let name = sluice_api::terraform::run_name(stack, uid, number);
        spec["attempt"] = json!(1);
        spec["deadline"] = json!("1h");
        spec["terraform"] = json!({"generation": 1, "name": stack, "uid": uid});
        spec["source"] = json!({"kind": "GitRepository", "name": "infra", "namespace": "default",
            "revision": "main@sha1:b8e362c206f0d1c9a7e5b3d1f9e7c5a3b1d9f7e5", "subject": "Add a bucket"});
        let kind = GroupVersionKind::gvk("infra.sluice.dev", "v1alpha1", "TerraformRun");
        let labels = json!({"infra.sluice.dev/terraform": stack});
        let metadata = json!({"name": name, "labels": labels});
        self.write(&self.objects(&kind), &kind, metadata, &spec, status)
            .await;
        name
    }

    /// Sets the phase of a run.
    pub(crate) async fn set_phase(&self, run: &str, phase: &str) {
        self.report(run, &json!({"phase": phase})).await;
    }

    /// Changes the status of a run as its runner does.
    pub(crate) async fn report(&self, run: &str, status: &Value) {
        let patch = Patch::Merge(json!({"status": status}));
        self.runs()
            .patch_status(run, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// Returns the runs of the namespace.
    pub(crate) fn runs(&self) -> Api<DynamicObject> {
        self.objects(&GroupVersionKind::gvk(
            "infra.sluice.dev",
            "v1alpha1",
            "TerraformRun",
        ))
    }

    async fn create(&self, kind: &GroupVersionKind, name: &str, spec: &Value, status: &Value) {
        let objects = self.objects(kind);
        self.write(&objects, kind, json!({"name": name}), spec, status)
            .await;
    }

    async fn write(
        &self,
        objects: &Api<DynamicObject>,
        kind: &GroupVersionKind,
        metadata: Value,
        spec: &Value,
        status: &Value,
    ) {
        let object =
            json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": metadata, "spec": spec});
        let created = objects
            .create(&PostParams::default(), &serde_json::from_value(object).unwrap())
            .await
            .unwrap();
        let patch = Patch::Merge(json!({"status": status}));
        objects
            .patch_status(&created.metadata.name.unwrap(), &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    fn objects(&self, kind: &GroupVersionKind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client(), "default", &resource(kind))
    }
}

/// Returns the command of the program, without a terminal.
pub(crate) fn command(kubeconfig: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(SLUICE);
    command
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        .env_remove("NO_COLOR")
        // It colours the help also in pipes.
        .env_remove("CLICOLOR_FORCE")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// Starts the program with both outputs in pipes.
pub(crate) fn start(kubeconfig: &Path, arguments: &[&str]) -> Child {
    let mut command = command(kubeconfig, arguments);
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Returns the exit code and the standard error of a command that has no data.
pub(crate) async fn stderr_of(kubeconfig: &Path, arguments: &[&str]) -> (i32, String) {
    let mut command = command(kubeconfig, arguments);
    let output = tokio::time::timeout(TIMEOUT, command.output()).await;
    let output = output.expect("the command ends").unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.stdout, b"", "only data goes to standard output: {text}");
    (output.status.code().unwrap(), text)
}

/// The plural of a `GitRepository` is not the default one.
fn resource(kind: &GroupVersionKind) -> ApiResource {
    let plural = match kind.kind.as_str() {
        "GitRepository" => "gitrepositories".to_owned(),
        other => format!("{}s", other.to_lowercase()),
    };
    ApiResource::from_gvk_with_plural(kind, &plural)
}

fn stack_kind() -> GroupVersionKind {
    GroupVersionKind::gvk("infra.contrib.fluxcd.io", "v1alpha2", "Terraform")
}

fn source_kind() -> GroupVersionKind {
    GroupVersionKind::gvk("source.toolkit.fluxcd.io", "v1", "GitRepository")
}

fn source_status() -> Value {
    let mut status = ready(
        "True",
        "Succeeded",
        "stored artifact for revision 'main@sha1:b8e362c206'",
    );
    status["artifact"] = json!({"digest": format!("sha256:{}", "ab".repeat(32)), "lastUpdateTime": "2026-01-01T00:00:00Z",
        "path": "gitrepository/default/infra/b8e3.tar.gz", "revision": "main@sha1:b8e362c206f0d1c9a7e5b3d1f9e7c5a3b1d9f7e5", "url": "http://127.0.0.1/x"});
    status
}

/// A status with `Ready` for the first generation.
pub(crate) fn ready(status: &str, reason: &str, message: &str) -> Value {
    json!({"observedGeneration": 1, "conditions": [{"type": "Ready", "status": status, "reason": reason, "message": message,
        "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
}

/// Replaces ages of some seconds, with the spaces behind them, because they differ from execution to execution.
pub(crate) fn without_ages(text: &str) -> String {
    let ages = regex::Regex::new(r"\b\d{1,3}s\b( *)").unwrap();
    ages.replace_all(text, "(age) ").into_owned()
}
