//! An installation as a user makes it: `kubectl apply -k` of an overlay.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use sluice_harness::cli;
use sluice_harness::node::Node;
use sluice_harness::skip::without_cluster;
use sluice_tests::scenario::TIMEOUT;
use sluice_tests::wait_for_definitions;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::sync::OnceCell;

use crate::images;

/// The namespace of the controllers.
pub(crate) const NAMESPACE: &str = "sluice-system";

/// The arguments of `kubectl` that wait until all replicas of the controllers are ready.
pub(crate) const WAIT_UNTIL_AVAILABLE: [&str; 7] = [
    "-n",
    NAMESPACE,
    "wait",
    "--for=condition=Available",
    "deployment",
    "--all",
    "--timeout=300s",
];

/// A kubeconfig of the administrator and a folder for manifests.
pub(crate) struct Installation<'n> {
    pub(crate) node: &'n Node,
    folder: TempDir,
}

impl Installation<'static> {
    /// Returns the installation of all tests: both controllers with the job executor.
    pub(crate) async fn shared() -> &'static Self {
        static SHARED: OnceCell<Installation<'static>> = OnceCell::const_new();
        SHARED
            .get_or_init(|| async { Self::standalone(Node::shared().await.unwrap()).await })
            .await
    }

    /// Returns the installation of the overlay `multi-tenant`, on a node of its own that enforces network policies: cluster-wide roles have
    /// fixed names.
    pub(crate) async fn multi_tenant() -> &'static Self {
        static NODE: OnceCell<Node> = OnceCell::const_new();
        static INSTALLED: OnceCell<Installation<'static>> = OnceCell::const_new();
        INSTALLED
            .get_or_init(|| async {
                let node = NODE.get_or_init(|| async { Node::start().await.unwrap() }).await;
                node.enforce_network_policies().unwrap();
                let installation = Self::of_overlay(node, "multi-tenant").await;
                installation.wait_until_available().await;
                installation
            })
            .await
    }
}

impl<'n> Installation<'n> {
    /// Imports the images and installs nothing.
    pub(crate) async fn empty(node: &'n Node) -> Self {
        // Below that of the node, which is removed also after an installation in a static: that is never dropped.
        let folder = tempfile::tempdir_in(node.folder()).unwrap();
        images::import(node).await;
        let installation = Self { node, folder };
        std::fs::write(installation.kubeconfig(), node.admin().kubeconfig()).unwrap();
        installation
    }

    /// Installs the overlay `standalone`.
    pub(crate) async fn standalone(node: &'n Node) -> Self {
        Self::standalone_with(node, &[]).await
    }

    /// As [`Installation::standalone`], with these patches of a user's kustomization.
    pub(crate) async fn standalone_with(node: &'n Node, patches: &[Value]) -> Self {
        let installation = Self::empty(node).await;
        installation.set_up("standalone").await;
        let overlay = config("overlays/standalone");
        if patches.is_empty() {
            installation.kubectl(&["apply", "-k", &overlay]).await;
        } else {
            let overlay = installation.relative(Path::new(&overlay));
            let kustomization = json!({ "resources": [overlay], "patches": patches });
            installation.apply_kustomization("patched", &kustomization).await;
        }
        // As in the overlay of tenants: each run must be able to report under it.
        let policy = config("components/run-admission/policy.yaml");
        installation.kubectl(&["apply", "-f", &policy]).await;
        installation.wait_until_available().await;
        installation
    }

    /// Applies an overlay of the namespace [`NAMESPACE`], and does not wait for its controllers.
    async fn of_overlay(node: &'n Node, name: &str) -> Self {
        let installation = Self::empty(node).await;
        installation.set_up(name).await;
        let overlay = config(&format!("overlays/{name}"));
        installation.kubectl(&["apply", "-k", &overlay]).await;
        installation
    }

    /// Applies the setup of an overlay, and waits until its definitions are served.
    pub(crate) async fn set_up(&self, overlay: &str) {
        let setup = config(&format!("overlays/{overlay}/setup"));
        self.kubectl(&["apply", "-k", &setup]).await;
        let client = self.node.client().await.unwrap();
        wait_for_definitions(client).await.unwrap();
    }

    /// Waits until all replicas of the controllers are ready.
    pub(crate) async fn wait_until_available(&self) {
        self.kubectl(&WAIT_UNTIL_AVAILABLE).await;
    }

    /// Creates the account of the stacks of a namespace, as its owner does.
    pub(crate) async fn create_runner_account(&self, namespace: &str) {
        self.apply_overlay(namespace, namespace, "resources", "runner-account")
            .await;
    }

    /// Creates what the sample of a tenant has, in a namespace with another name.
    pub(crate) async fn apply_sample(&self, namespace: &str) {
        let sample = self.kubectl(&["kustomize", &config("samples/tenant")]).await;
        let copy = sample.replace("team-a", namespace);
        self.node.apply(&copy).await.unwrap();
    }

    /// Adds the objects of a component to the installation.
    pub(crate) async fn add_component(&self, name: &str) {
        let component = format!("components/{name}");
        self.apply_overlay(name, NAMESPACE, "components", &component)
            .await;
    }

    /// Applies a user's overlay of one folder of `config`.
    async fn apply_overlay(&self, name: &str, namespace: &str, field: &str, target: &str) {
        let target = config(target);
        let target = self.relative(Path::new(&target));
        self.apply_kustomization(name, &json!({ "namespace": namespace, field: [target] }))
            .await;
    }

    /// Returns a path as kustomizations of [`Self::apply_kustomization`] have it: kustomize accepts only relative ones.
    pub(crate) fn relative(&self, path: &Path) -> String {
        let up = "../".repeat(self.folder.path().components().count() + 1);
        format!("{up}{}", path.display().to_string().trim_start_matches('/'))
    }

    /// Applies a kustomization with this content, in a folder with this name. Returns the path of the folder.
    pub(crate) async fn apply_kustomization(&self, name: &str, kustomization: &Value) -> String {
        let folder = self.folder.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("kustomization.yaml"), kustomization.to_string()).unwrap();
        let folder = folder.display().to_string();
        self.kubectl(&["apply", "-k", &folder]).await;
        folder
    }

    /// Returns the kubeconfig of the administrator.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("admin")
    }

    /// Runs `kubectl` as administrator and returns its output.
    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> String {
        match self.try_kubectl(arguments).await {
            Ok(output) => output,
            Err(error) => panic!("{error}\n{}", self.describe_pods().await),
        }
    }

    /// As [`Installation::kubectl`], for a caller that continues after a failure.
    pub(crate) async fn try_kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        let failure = |why: String| format!("kubectl {arguments:?}: {why}");
        let child = Command::new(cli::kubectl().unwrap())
            .args(arguments)
            .env("KUBECONFIG", self.kubeconfig())
            .env("KUBECACHEDIR", self.folder.path().join("cache"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failure(error.to_string()))?;
        let output = tokio::time::timeout(TIMEOUT * 2, child.wait_with_output()).await;
        let output = output
            .map_err(|_| failure("timeout".into()))?
            .map_err(|error| failure(error.to_string()))?;
        if !output.status.success() {
            return Err(failure(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Returns what a user would read after a failure.
    pub(crate) async fn describe_pods(&self) -> String {
        let mut text = String::new();
        for arguments in [
            ["get", "pods,jobs", "-A", "-owide"].as_slice(),
            &["get", "events", "-A"],
            &["get", "terraformruns,terraforms,gitrepositories", "-A", "-oyaml"],
            &["-n", NAMESPACE, "logs", "deployment/tf-controller", "--tail=30"],
            &[
                "-n",
                NAMESPACE,
                "logs",
                "deployment/source-controller",
                "--tail=10",
            ],
        ] {
            let bounded = [&["--request-timeout=20s"], arguments].concat();
            let output = self.try_kubectl(&bounded).await;
            text.push_str(&output.unwrap_or_else(|error| error));
        }
        text
    }
}

/// Returns the path of a folder of `config`.
pub(crate) fn config(folder: &str) -> String {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path: PathBuf = here.join("../config").join(folder);
    path.canonicalize().unwrap().display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_folder_of_an_installation_is_removed_with_its_node() {
    if without_cluster().unwrap() {
        return;
    }
    let installation = Installation::shared().await;
    assert!(installation.kubeconfig().starts_with(installation.node.folder()));
}
