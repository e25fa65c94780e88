//! The test environment of runs: an API server, an artifact server and a directory, on loopback and in temporary directories.

mod program;
mod run_setup;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
pub(crate) use program::terminate;
pub(crate) use run_setup::RunSetup;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sluice_api::run::{TerraformRun, TerraformRunStatus};
use sluice_api::terraform::Terraform;
use sluice_embedded::{ApiServer, TlsServer};
use sluice_harness::cli;
use sluice_runtime::artifact::Fetcher;
use sluice_runtime::http;
use sluice_tf_core::bundle::{self, Bundle};
use sluice_tf_runner::run::{Context, Identity, RunOutcome, Settings, execute};
use tokio_util::sync::CancellationToken;

use crate::artifacts::Artifacts;

pub(crate) const NAMESPACE: &str = "team";
pub(crate) const STACK: &str = "net";
/// Time limit of a run, sufficient for the largest plan on a loaded machine.
const DEADLINE: Duration = Duration::from_secs(400);

/// The servers and directories of a test.
pub(crate) struct TestEnvironment {
    pub(crate) embedded: ApiServer,
    pub(crate) serving: Mutex<Option<TlsServer>>,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) kubeconfig: PathBuf,
    artifacts: Artifacts,
    uid: String,
    sequence: Mutex<u32>,
}

impl TestEnvironment {
    pub(crate) async fn new(approve: &str) -> Self {
        http::install_crypto();
        let dir = tempfile::tempdir().unwrap();
        let embedded = ApiServer::builder().crds(sluice_api::crds()).build().unwrap();
        let serving = embedded
            .serve("127.0.0.1:0".parse().unwrap(), &dir.path().join("api"))
            .await
            .unwrap();
        let kubeconfig = serving.kubeconfig_path.clone();
        let client = embedded.client();
        let namespace: Namespace =
            serde_json::from_value(json!({ "metadata": { "name": NAMESPACE } })).unwrap();
        Api::all(client.clone())
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap();
        let terraform: Terraform = serde_json::from_value(json!({
            "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform", "metadata": { "name": STACK },
            "spec": { "interval": "1h", "approvePlan": approve,
                      "sourceRef": { "kind": "GitRepository", "name": "source" } }
        }))
        .unwrap();
        let api: Api<Terraform> = Api::namespaced(client, NAMESPACE);
        let uid = api
            .create(&PostParams::default(), &terraform)
            .await
            .unwrap()
            .uid()
            .unwrap();
        let serving = Mutex::new(Some(serving));
        Self {
            embedded,
            serving,
            dir,
            kubeconfig,
            artifacts: Artifacts::start(),
            uid,
            sequence: Mutex::new(0),
        }
    }

    pub(crate) fn client(&self) -> Client {
        self.embedded.client()
    }

    /// Serves a `tar.gz` of these files as the source of the stack.
    pub(crate) fn commit(&self, files: &[(&str, &str)]) {
        self.serve_bytes(archive(files));
    }

    pub(crate) fn serve_bytes(&self, bytes: Vec<u8>) {
        *self.artifacts.current.lock().unwrap() = bytes;
    }

    /// Creates a run with its bundle and executes it.
    pub(crate) async fn run(&self, setup: RunSetup) -> TerraformRun {
        let name = self.prepare(setup).await;
        self.execute_run(&name, self.context(&name), CancellationToken::new())
            .await;
        self.get(&name).await
    }

    /// As [`TestEnvironment::run`], with the CLI in a directory.
    pub(crate) async fn run_with_path(&self, setup: RunSetup, cli: &Path) -> TerraformRun {
        let name = self.prepare(setup).await;
        let mut context = self.context(&name);
        let path = context.environment.get_mut("PATH").unwrap();
        *path = format!("{}:{path}", cli.display());
        self.execute_run(&name, context, CancellationToken::new()).await;
        self.get(&name).await
    }

    /// Stops the API server except for clients in this process. Returns its address.
    pub(crate) async fn stop_api(&self) -> std::net::SocketAddr {
        let serving = self.serving.lock().unwrap().take().unwrap();
        let address = serving.addr;
        serving.stop().await;
        address
    }

    /// Starts the API server again.
    pub(crate) async fn restart_api(&self, address: std::net::SocketAddr) {
        let serving = self
            .embedded
            .serve(address, &self.dir.path().join("api"))
            .await
            .unwrap();
        *self.serving.lock().unwrap() = Some(serving);
    }

    pub(crate) async fn execute_run(
        &self,
        name: &str,
        context: Context,
        stop: CancellationToken,
    ) -> RunOutcome {
        let ending = tokio::time::timeout(DEADLINE, Box::pin(execute(&context, stop))).await;
        ending
            .unwrap_or_else(|_| panic!("{name} takes too long"))
            .unwrap()
    }

    /// Approves a plan as a user.
    async fn approve(&self, id: &str) {
        let api: Api<Terraform> = Api::namespaced(self.client(), NAMESPACE);
        if api.get(STACK).await.unwrap().spec.approve_plan == "auto" {
            return;
        }
        let body = json!({ "spec": { "approvePlan": id } });
        api.patch(STACK, &PatchParams::default(), &Patch::Merge(body))
            .await
            .unwrap();
    }

    /// Creates a run with its bundle.
    pub(crate) async fn prepare(&self, setup: RunSetup) -> String {
        self.prepare_with_deadline(setup, "10m").await
    }

    pub(crate) async fn prepare_with_deadline(&self, setup: RunSetup, deadline: &str) -> String {
        let name = {
            let mut sequence = self.sequence.lock().unwrap();
            *sequence += 1;
            format!("{STACK}-{}-{}", &self.uid[..4], *sequence)
        };
        let bytes = self.artifacts.current.lock().unwrap().clone();
        let digest = format!("sha256:{}", hex::encode(Sha256::digest(&bytes)));
        let bundle = self.bundle(&digest, &setup.bundle);
        let packed = bundle.pack().unwrap();
        if let Some((id, ..)) = &setup.plan {
            self.approve(id).await;
        }
        let generation = self.set_destroy(setup.destroy).await;
        let mut spec = json!({
            "action": setup.action, "attempt": 1, "deadline": deadline, "destroy": setup.destroy, "trigger": setup.trigger,
            "inputsDigest": bundle.inputs_digest, "bundleDigest": packed.digest(), "bundleSecrets": packed.count(),
            "source": { "kind": "GitRepository", "name": "source", "namespace": NAMESPACE, "digest": digest,
                        "revision": bundle.artifact.revision, "url": bundle.artifact.url },
            "terraform": { "name": STACK, "uid": self.uid, "generation": generation }
        });
        if let Some((id, run, digest)) = setup.plan {
            spec["plan"] = json!({ "id": id, "run": run, "digest": digest });
        }
        let run: TerraformRun = serde_json::from_value(json!({
            "apiVersion": "infra.sluice.dev/v1alpha1", "kind": "TerraformRun", "spec": spec,
            "metadata": { "name": name, "labels": { "infra.sluice.dev/terraform": STACK } }
        }))
        .unwrap();
        let runs: Api<TerraformRun> = Api::namespaced(self.client(), NAMESPACE);
        let created = runs.create(&PostParams::default(), &run).await.unwrap();
        let secrets: Api<Secret> = Api::namespaced(self.client(), NAMESPACE);
        for secret in packed.secrets(&name, &created.uid().unwrap()) {
            secrets.create(&PostParams::default(), &secret).await.unwrap();
        }
        name
    }

    /// Sets `spec.destroy` of the object. Returns its generation.
    async fn set_destroy(&self, destroy: bool) -> i64 {
        let api: Api<Terraform> = Api::namespaced(self.client(), NAMESPACE);
        let body = Patch::Merge(json!({ "spec": { "destroy": destroy } }));
        let stack = api.patch(STACK, &PatchParams::default(), &body).await.unwrap();
        stack.metadata.generation.unwrap()
    }

    fn bundle(&self, digest: &str, changes: &Value) -> Bundle {
        let backend = format!(
            "terraform {{\n  backend \"kubernetes\" {{\n    secret_suffix = \"{STACK}\"\n    in_cluster_config = false\n    \
             namespace = \"{NAMESPACE}\"\n  }}\n}}\n"
        );
        let mut value = json!({
            "version": 1, "stack": { "namespace": NAMESPACE, "name": STACK, "uid": self.uid },
            "artifact": { "url": self.artifacts.url, "digest": digest, "revision": "main@sha1:0123456789abcdef" },
            "path": "", "workspace": "default", "backend": backend, "variables": "{}",
            "options": { "planLock": true, "upgradeOnInit": true }, "inputsDigest": digest, "key": "ab".repeat(32)
        });
        for (name, member) in changes.as_object().unwrap() {
            value[name] = member.clone();
        }
        Bundle::decode(value.to_string().as_bytes()).unwrap()
    }

    pub(crate) fn context(&self, run: &str) -> Context {
        let mut fetcher = Fetcher::new(http::client(&http::Settings::default()).unwrap());
        fetcher.retries = 0;
        let environment = BTreeMap::from([("PATH".to_owned(), cli::search_path().unwrap())]);
        Context {
            client: self.client(),
            fetcher,
            identity: Identity::of_this_process(None, &environment),
            environment,
            kubeconfig: Some(self.kubeconfig.clone()),
            backend_kubeconfig: None,
            pod_log: None,
            bundle: None,
            run: None,
            settings: Settings {
                work_root: Some(self.dir.path().join("work")),
                directory_wait: Duration::from_secs(20),
                api_timeout: Duration::from_mins(1),
                ..Settings::new(NAMESPACE, run)
            },
        }
    }

    pub(crate) async fn get(&self, run: &str) -> TerraformRun {
        Api::namespaced(self.client(), NAMESPACE).get(run).await.unwrap()
    }

    /// Waits until the message of an active run contains a text, and returns the message.
    pub(crate) async fn wait_for_message(&self, run: &str, text: &str) -> String {
        let waiting = async {
            loop {
                let message = self.get(run).await.status.unwrap_or_default().message;
                if message.contains(text) {
                    return message;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(DEADLINE, waiting).await.unwrap()
    }

    pub(crate) async fn secret(&self, name: &str) -> Option<BTreeMap<String, String>> {
        let api: Api<Secret> = Api::namespaced(self.client(), NAMESPACE);
        let data = api.get_opt(name).await.unwrap()?.data.unwrap_or_default();
        Some(
            data.into_iter()
                .map(|(key, bytes)| (key, String::from_utf8_lossy(&bytes.0).into_owned()))
                .collect(),
        )
    }

    /// Returns the names of Secrets and ConfigMaps except for bundles.
    pub(crate) async fn stored(&self) -> Vec<String> {
        let secrets: Api<Secret> = Api::namespaced(self.client(), NAMESPACE);
        let maps: Api<ConfigMap> = Api::namespaced(self.client(), NAMESPACE);
        let mut names: Vec<String> = secrets
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .iter()
            .map(ResourceExt::name_any)
            .collect();
        names.extend(
            maps.list(&ListParams::default())
                .await
                .unwrap()
                .items
                .iter()
                .map(ResourceExt::name_any),
        );
        names.retain(|name| !name.ends_with(&bundle::secret_name("")) && !name.starts_with("kube-root-ca"));
        names
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().join("work").join(format!("{NAMESPACE}_{STACK}"))
    }
}

/// Returns a `tar.gz` of these files.
pub(crate) fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    let source = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = source.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let out = Command::new("tar")
        .arg("-czf")
        .arg("-")
        .arg("-C")
        .arg(source.path())
        .arg(".")
        .output()
        .unwrap();
    assert!(out.status.success(), "{:?}", out.status);
    out.stdout
}

/// Returns the status of an ended run.
pub(crate) fn status(run: &TerraformRun) -> TerraformRunStatus {
    run.status.clone().unwrap()
}

/// Returns `phase reason` of an ended run.
pub(crate) fn ending(run: &TerraformRun) -> String {
    let status = status(run);
    format!("{} {}", status.phase.as_str(), status.reason)
}

/// Asserts `phase reason` of an ended run. A failure shows its status.
#[track_caller]
pub(crate) fn assert_ending(run: &TerraformRun, expected: &str) {
    assert_eq!(ending(run), expected, "{:?}", run.status);
}

/// Waits until a file exists.
pub(crate) async fn wait_for_file(path: &Path) {
    wait_until(|| path.exists()).await;
}

/// Waits until a condition holds, within the time limit of a run.
pub(crate) async fn wait_until(holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, waiting).await.unwrap();
}
