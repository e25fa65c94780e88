//! The test environment: a repository on a real Git server and, for tests on a cluster, a control plane with both controllers as processes.

mod process;

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use serde_json::{Value, json};
use sluice_harness::cli;
use sluice_harness::cluster::ControlPlane;
use sluice_harness::directory::TestDirectory;
use sluice_harness::git::{GitServer, Repository};
use sluice_tests::scenario::{Commit, NAMESPACE, Scenario};
use sluice_tests::wait_for_definitions;
use tokio::process::Command;

pub(crate) use self::process::{Controller, assert_no_refusal, controller};

/// The namespace of the controllers.
pub(crate) const CONTROLLERS: &str = "sluice-system";
/// Runs are processes of tf-controller.
const PROCESSES: &str = "--executor=process";

/// A repository with the first commit, served over HTTP.
pub(crate) struct Origin {
    pub(crate) repository: Repository,
    pub(crate) url: String,
    _server: GitServer,
}

impl Origin {
    pub(crate) async fn start() -> Self {
        let repository = Repository::create().unwrap();
        Commit::First.create(&repository).unwrap();
        let server = GitServer::start().await.unwrap();
        let url = server.serve("shop", &repository);
        Self {
            repository,
            url,
            _server: server,
        }
    }
}

/// Returns the command lines of processes that mention this folder.
pub(crate) fn remaining_processes(folder: &Path) -> Vec<String> {
    let folder = folder.display().to_string();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(&folder))
        .collect()
}

/// Returns a free port of loopback.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// A control plane with the objects of `config`, and both controllers.
pub(crate) struct TestEnvironment {
    pub(crate) source_controller: Controller,
    pub(crate) tf_controller: Controller,
    pub(crate) plane: ControlPlane,
    pub(crate) folder: TestDirectory,
    /// The namespace of the controllers.
    pub(crate) namespace: &'static str,
}

impl TestEnvironment {
    /// Installs both controllers for all namespaces.
    pub(crate) async fn start() -> Self {
        let overlay = json!({ "namespace": CONTROLLERS, "resources": ["config/overlays/standalone"],
            "components": ["config/components/process-executor"] });
        Self::install(CONTROLLERS, &overlay).await
    }

    /// As [`Self::start`], with an audit log and with tokens of `ServiceAccounts` for source-controller.
    pub(crate) async fn start_with_audit_log() -> Self {
        let components = [
            "config/components/process-executor",
            "config/components/workload-identity",
        ];
        let overlay = json!({ "namespace": CONTROLLERS, "resources": ["config/overlays/standalone"], "components": components });
        let plane = ControlPlane::start_with_audit_log().await.unwrap();
        let mut env = Self::install_on(plane, CONTROLLERS, &overlay).await;
        let gate = "--feature-gates=ObjectLevelWorkloadIdentity=true";
        env.source_controller.arguments.push(gate.to_owned());
        env
    }

    /// Installs both controllers for tenants, of which `team-a` is one, with an audit log. Without a node, runs are child processes of
    /// tf-controller, so its account gets the permissions of runs; kustomize refuses the component `process-executor` for tenants.
    pub(crate) async fn start_for_tenants() -> Self {
        let overlay = json!({ "namespace": CONTROLLERS, "resources": ["config/overlays/multi-tenant"] });
        let plane = ControlPlane::start_with_audit_log().await.unwrap();
        let mut env = Self::install_on(plane, CONTROLLERS, &overlay).await;
        let account = format!("--serviceaccount={CONTROLLERS}:tf-controller");
        let bind = [
            "create",
            "clusterrolebinding",
            "runs-as-processes",
            "--clusterrole=sluice-tf-runner",
            &account,
        ];
        kubectl(env.folder.path(), &bind).await;
        kubectl(env.folder.path(), &["apply", "-k", &config("samples/tenant")]).await;
        let flags = [
            "--no-cross-namespace-refs=true",
            "--default-service-account=tf-runner",
        ];
        env.tf_controller.arguments.extend(flags.map(str::to_owned));
        env
    }

    /// Installs both controllers, and the optional repo-controller without its definition. With an audit log.
    pub(crate) async fn start_with_repo_controller() -> (Self, Controller) {
        let overlay = json!({ "namespace": CONTROLLERS, "resources": ["config/overlays/standalone"],
            "components": ["config/components/process-executor", "config/components/repo-controller"] });
        let plane = ControlPlane::start_with_audit_log().await.unwrap();
        let env = Self::install_on(plane, CONTROLLERS, &overlay).await;
        let controller = env.repo_controller().await;
        (env, controller)
    }

    /// As [`Self::start_in_single_namespace`], with the optional repo-controller without its definition.
    pub(crate) async fn start_with_repo_controller_in_single_namespace() -> (Self, Controller) {
        let components = ["config/components/repo-controller-single-namespace"];
        let mut env = Self::install_in_single_namespace(&components).await;
        // With the flag that names the namespace.
        env.elect_leaders();
        let mut controller = env.repo_controller().await;
        controller
            .arguments
            .push("--watch-all-namespaces=false".to_owned());
        (env, controller)
    }

    /// Returns the repo-controller with its account, which is not started.
    async fn repo_controller(&self) -> Controller {
        let arguments =
            ["--metrics-addr=0", "--health-addr=0", "--enable-leader-election"].map(str::to_owned);
        let runtime = format!("--runtime-namespace={}", self.namespace);
        let arguments = arguments.into_iter().chain([runtime]).collect();
        let name = (self.namespace, "repo-controller");
        controller(&self.plane, name, arguments, self.folder.path()).await
    }

    /// Applies the definition of `Repo`, as the guide does.
    pub(crate) async fn apply_repo_definition(&self) {
        let definition = config("components/repo-controller/crd");
        let apply = ["apply", "--server-side", "--force-conflicts", "-k", &definition];
        kubectl(self.folder.path(), &apply).await;
        wait_for_definitions(self.plane.admin().client().await.unwrap())
            .await
            .unwrap();
    }

    /// Installs both controllers in and for the namespace of the stacks, with an audit log. Without a node, runs are child processes of
    /// tf-controller, so its account gets the permissions of runs.
    pub(crate) async fn start_in_single_namespace() -> Self {
        Self::install_in_single_namespace(&[]).await
    }

    async fn install_in_single_namespace(components: &[&str]) -> Self {
        let overlay = json!({ "namespace": NAMESPACE, "resources": ["config/overlays/single-namespace"],
            "components": components });
        let plane = ControlPlane::start_with_audit_log().await.unwrap();
        let mut env = Self::install_on(plane, NAMESPACE, &overlay).await;
        let account = format!("--serviceaccount={NAMESPACE}:tf-controller");
        let bind = [
            "-n",
            NAMESPACE,
            "create",
            "rolebinding",
            "runs-as-processes",
            "--role=sluice-tf-runner",
            &account,
        ];
        kubectl(env.folder.path(), &bind).await;
        for controller in [&mut env.source_controller, &mut env.tf_controller] {
            controller
                .arguments
                .push("--watch-all-namespaces=false".to_owned());
        }
        env.tf_controller
            .arguments
            .push("--no-cross-namespace-refs=true".to_owned());
        env
    }

    /// Installs both controllers. Each run is a Job, and the Job controller of Kubernetes creates its pod: the test plays the kubelet. With
    /// an audit log.
    pub(crate) async fn start_with_jobs() -> Self {
        let overlay = json!({ "namespace": CONTROLLERS, "resources": ["config/overlays/standalone"] });
        let plane = ControlPlane::start_with_audit_log().await.unwrap();
        let mut env = Self::install_on(plane, CONTROLLERS, &overlay).await;
        env.plane.start_job_controller().unwrap();
        let arguments = &mut env.tf_controller.arguments;
        arguments.retain(|argument| argument != PROCESSES);
        // No image can have this name (RFC 6761), and nothing pulls it.
        let jobs = ["--executor=job", "--runner-image=sluice.invalid/tf-runner:0.1.0"];
        arguments.extend(jobs.map(str::to_owned));
        env
    }

    /// Installs as a user does: `kubectl apply -k` of the setup of `standalone`, and of this overlay. The Deployments create no pods,
    /// since there is no node; the processes replace them.
    async fn install(namespace: &'static str, overlay: &Value) -> Self {
        Self::install_on(ControlPlane::start().await.unwrap(), namespace, overlay).await
    }

    async fn install_on(plane: ControlPlane, namespace: &'static str, overlay: &Value) -> Self {
        let folder = TestDirectory::create().unwrap();
        std::fs::write(folder.path().join("admin"), plane.admin().kubeconfig()).unwrap();
        let setup = config("overlays/standalone/setup");
        kubectl(folder.path(), &["apply", "-k", &setup]).await;
        let overlay = user_overlay(folder.path(), overlay);
        kubectl(folder.path(), &["apply", "-k", &overlay]).await;
        wait_for_definitions(plane.admin().client().await.unwrap())
            .await
            .unwrap();
        // After the definitions: the garbage collector discovers new kinds only twice a minute.
        plane.start_controllers().unwrap();
        let source_controller = source_controller(&plane, namespace, folder.path()).await;
        let tf_controller = tf_controller(&plane, namespace, folder.path()).await;
        Self {
            source_controller,
            tf_controller,
            plane,
            folder,
            namespace,
        }
    }

    /// Enables leader election in both controllers, as in the Deployments of `config`. Not for tests with kills: a successor waits for
    /// the Lease to expire.
    pub(crate) fn elect_leaders(&mut self) {
        for controller in [&mut self.source_controller, &mut self.tf_controller] {
            let namespace = format!("--runtime-namespace={}", self.namespace);
            let flags = ["--enable-leader-election".to_owned(), namespace];
            controller.arguments.extend(flags);
        }
    }

    /// Returns another tf-controller with the same flags and its own working directory. It is not started.
    pub(crate) async fn standby_tf_controller(&self) -> Controller {
        let folder = self.folder.path().join("standby");
        std::fs::create_dir(&folder).unwrap();
        let mut standby = tf_controller(&self.plane, self.namespace, &folder).await;
        let is_own = |argument: &&String| argument.starts_with("--work-root=");
        let own: Vec<_> = standby.arguments.iter().filter(is_own).cloned().collect();
        let shared = self.tf_controller.arguments.iter();
        let shared = shared.filter(|argument| !is_own(argument)).cloned();
        standby.arguments = shared.chain(own).collect();
        standby
    }

    /// Enables sealing of stored plans with a key in the namespace of the controllers.
    pub(crate) async fn seal_plans(&mut self) {
        let key = format!("--from-literal=2026-01={}", "0123456789abcdef".repeat(4));
        let arguments = [
            "-n",
            CONTROLLERS,
            "create",
            "secret",
            "generic",
            "plan-keys",
            &key,
        ];
        kubectl(self.folder.path(), &arguments).await;
        let flags = [
            "--plan-encryption-secret=plan-keys",
            "--runtime-namespace=sluice-system",
        ];
        self.tf_controller.arguments.extend(flags.map(str::to_owned));
    }

    pub(crate) fn start_controllers(&mut self) {
        self.source_controller.start().unwrap();
        self.tf_controller.start().unwrap();
    }

    /// Returns the scenario with administrator permissions.
    pub(crate) async fn scenario(&self) -> Scenario {
        Scenario::new(self.plane.client().await.unwrap())
    }

    pub(crate) fn logs(&self) -> String {
        format!("{}\n{}", self.source_controller.tail(), self.tf_controller.tail())
    }
}

pub(crate) async fn source_controller(plane: &ControlPlane, namespace: &str, folder: &Path) -> Controller {
    let storage = folder.join("artifacts");
    std::fs::create_dir(&storage).unwrap();
    let arguments = vec![
        format!("--storage-path={}", storage.display()),
        format!("--storage-addr=127.0.0.1:{}", free_port()),
        "--metrics-addr=0".to_owned(),
        "--health-addr=0".to_owned(),
    ];
    controller(plane, (namespace, "source-controller"), arguments, folder).await
}

async fn tf_controller(plane: &ControlPlane, namespace: &str, folder: &Path) -> Controller {
    let arguments = vec![
        PROCESSES.to_owned(),
        format!("--work-root={}", folder.join("work").display()),
        "--metrics-addr=0".to_owned(),
        "--health-addr=0".to_owned(),
    ];
    controller(plane, (namespace, "tf-controller"), arguments, folder).await
}

/// Writes a user's overlay; returns its path.
pub(crate) fn user_overlay(folder: &Path, kustomization: &Value) -> String {
    let overlay = folder.join("overlay");
    std::fs::create_dir(&overlay).unwrap();
    // Kustomize accepts only relative paths.
    std::os::unix::fs::symlink(config(""), overlay.join("config")).unwrap();
    std::fs::write(overlay.join("kustomization.yaml"), kustomization.to_string()).unwrap();
    overlay.display().to_string()
}

/// Returns a folder below `config`.
pub(crate) fn config(folder: &str) -> String {
    format!("{}/../config/{folder}", env!("CARGO_MANIFEST_DIR"))
}

/// Runs the real kubectl as administrator.
pub(crate) async fn kubectl(folder: &Path, arguments: &[&str]) -> String {
    let program = cli::kubectl().unwrap();
    let output = Command::new(program)
        .args(arguments)
        .env("KUBECONFIG", folder.join("admin"))
        .output()
        .await
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "kubectl {arguments:?}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// Returns `status reason message` of `Ready`.
pub(crate) fn ready(object: &Value) -> String {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let found = conditions
        .into_iter()
        .flatten()
        .find(|one| one["type"] == "Ready");
    found.map_or_else(String::new, |one| {
        ["status", "reason", "message"]
            .map(|field| one[field].as_str().unwrap_or_default())
            .join(" ")
    })
}
