//! The end of `sluice up` while a run downloads, and while one applies.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sluice_api::run::TerraformRun;
use sluice_api::source::GitRepository;
use sluice_api::terraform::Terraform;
use sluice_harness::cli::search_path;
use sluice_harness::directory::TestDirectory;
use sluice_harness::kubeconfig::connect;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::artifacts::Artifacts;
use crate::environment::{archive, ending};

/// Timeout of every wait.
const LIMIT: Duration = Duration::from_secs(100);
/// Less than a download that is tried again: its retries last three and a half minutes.
const AT_ONCE: Duration = Duration::from_mins(1);

/// `sluice up` with its API.
struct Up {
    program: Child,
    client: Client,
}

impl Up {
    /// Starts the program with the state in a folder. What it prints is in the file `printed`.
    async fn start(folder: &Path) -> Self {
        sluice_runtime::http::install_crypto();
        let printed = std::fs::File::create(folder.join("printed")).unwrap();
        let kubeconfig = folder.join("kubeconfig");
        let mut program = Command::new(env!("CARGO_BIN_EXE_sluice"))
            .args(["up", "--plain", "--state"])
            .arg(folder.join("state"))
            .arg("--kubeconfig-out")
            .arg(&kubeconfig)
            .env("PATH", search_path().unwrap())
            .stdin(Stdio::null())
            .stdout(printed)
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let client = connect(&kubeconfig, &mut program, LIMIT)
            .await
            .expect("the API serves");
        Self { program, client }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Publishes an artifact, as a source-controller does. The source is suspended: that of the program leaves it as it is.
    async fn publish(&self, artifacts: &Artifacts, files: &[(&str, &str)]) {
        let bytes = archive(files);
        let digest = format!("sha256:{}", hex::encode(Sha256::digest(&bytes)));
        *artifacts.current.lock().unwrap() = bytes;
        let source = json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": { "name": "code" },
            "spec": { "interval": "1h", "url": "https://example.invalid/code", "suspend": true } });
        let api: Api<GitRepository> = self.api();
        let source = serde_json::from_value(source).unwrap();
        api.create(&PostParams::default(), &source).await.unwrap();
        let status = json!({ "status": { "artifact": { "digest": digest, "lastUpdateTime": "2026-01-01T00:00:00Z",
            "path": "code.tar.gz", "revision": "main@sha1:0123456789012345678901234567890123456789",
            "url": artifacts.url } } });
        api.patch_status("code", &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
    }

    /// Creates a stack that is applied without an approval.
    async fn create_stack(&self, variables: Value) {
        let stack = json!({ "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
            "metadata": { "name": "net" },
            "spec": { "interval": "1h", "approvePlan": "auto", "vars": variables,
                      "sourceRef": { "kind": "GitRepository", "name": "code" } } });
        let api: Api<Terraform> = self.api();
        let stack = serde_json::from_value(stack).unwrap();
        api.create(&PostParams::default(), &stack).await.unwrap();
    }

    /// Waits until the runs, oldest first, meet a condition.
    async fn wait_for_runs(
        &self,
        what: &str,
        condition: impl Fn(&[TerraformRun]) -> bool,
    ) -> Vec<TerraformRun> {
        let api: Api<TerraformRun> = self.api();
        let waiting = async {
            loop {
                let mut runs = api.list(&ListParams::default()).await.unwrap().items;
                runs.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
                if condition(&runs) {
                    return runs;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let found = timeout(LIMIT, waiting).await;
        found.unwrap_or_else(|_| panic!("no {what} in time"))
    }

    fn signal(&self, signal: Signal) {
        let id = self.program.id().unwrap().cast_signed();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
    }

    /// Waits for the end of the program.
    async fn end(mut self, limit: Duration) {
        let ended = timeout(limit, self.program.wait()).await;
        assert!(ended.expect("sluice up ends in time").unwrap().success());
    }
}

fn message(run: &TerraformRun) -> &str {
    run.status.as_ref().map_or("", |status| status.message.as_str())
}

fn phase(run: &TerraformRun) -> &str {
    run.status.as_ref().map_or("", |status| status.phase.as_str())
}

#[tokio::test(flavor = "multi_thread")]
async fn sluice_up_ends_at_once_while_a_run_downloads_and_repeats_the_run() {
    let (folder, artifacts) = (TestDirectory::create().unwrap(), Artifacts::start());
    // tf-controller reads the inputs, and the runner gets nothing.
    *artifacts.downloads.lock().unwrap() = 1;
    let up = Up::start(folder.path()).await;
    up.publish(
        &artifacts,
        &[("main.tf", "resource \"terraform_data\" \"it\" {}\n")],
    )
    .await;
    up.create_stack(json!([])).await;
    up.wait_for_runs("run without its artifact", |runs| {
        runs.iter()
            .any(|run| message(run).starts_with("waiting for the artifact"))
    })
    .await;
    up.signal(Signal::TERM);
    up.end(AT_ONCE).await;
    *artifacts.downloads.lock().unwrap() = usize::MAX;
    let up = Up::start(folder.path()).await;
    let runs = up
        .wait_for_runs("run that succeeds", |runs| {
            runs.last().is_some_and(|run| phase(run) == "Succeeded")
        })
        .await;
    let ends: Vec<_> = runs.iter().map(ending).collect();
    assert_eq!(
        ends,
        ["Superseded Interrupted", "Succeeded TerraformAppliedSucceed"]
    );
    assert_eq!(runs[1].spec.attempt, 1, "it uses up no retry");
    up.signal(Signal::TERM);
    up.end(LIMIT).await;
}

/// A stack whose apply waits for a file.
struct WaitingApply {
    folder: TestDirectory,
    run: String,
}

impl WaitingApply {
    /// Starts the program and waits until the apply waits.
    async fn start() -> (Self, Up) {
        let (folder, artifacts) = (TestDirectory::create().unwrap(), Artifacts::start());
        let marker = folder.path().join("marker");
        let command = "touch ${var.marker}; until [ -e ${var.marker}.go ]; do sleep 0.05; done";
        let module = format!(
            "variable \"marker\" {{}}\nresource \"terraform_data\" \"slow\" {{\n  \
             provisioner \"local-exec\" {{ command = \"{command}\" }}\n}}\n"
        );
        let up = Up::start(folder.path()).await;
        up.publish(&artifacts, &[("main.tf", &module)]).await;
        up.create_stack(json!([{ "name": "marker", "value": marker }]))
            .await;
        let is_applying =
            |runs: &[TerraformRun]| runs.iter().any(|run| phase(run) == "Applying") && marker.exists();
        let runs = up.wait_for_runs("apply", is_applying).await;
        let run = runs[0].metadata.name.clone().unwrap();
        (Self { folder, run }, up)
    }

    /// Asks the program to end, and waits until it names the run.
    async fn ask_to_end(&self, up: &Up) {
        up.signal(Signal::TERM);
        let notice = format!("Waiting for {} (Applying). ", self.run);
        let printed = self.folder.path().join("printed");
        let named = async {
            while !std::fs::read_to_string(&printed).unwrap().contains(&notice) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(LIMIT, named).await.expect("the run is named");
    }

    /// Asks the program to end. It names the run and waits for its apply, and serves until then.
    async fn check_end(&self, up: Up) {
        self.ask_to_end(&up).await;
        let run = up.api::<TerraformRun>().get(&self.run).await;
        assert_eq!(phase(&run.unwrap()), "Applying", "the API serves the run");
        std::fs::write(self.folder.path().join("marker.go"), "").unwrap();
        up.end(LIMIT).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sluice_up_names_an_apply_and_serves_until_it_has_ended() {
    let (apply, up) = WaitingApply::start().await;
    apply.check_end(up).await;
    let up = Up::start(apply.folder.path()).await;
    let runs = up.wait_for_runs("run", |runs| !runs.is_empty()).await;
    assert_eq!(ending(&runs[0]), "Succeeded TerraformAppliedSucceed");
    up.signal(Signal::TERM);
    up.end(LIMIT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sluice_up_waits_for_an_apply_that_an_earlier_one_left() {
    let (apply, mut up) = WaitingApply::start().await;
    up.program.kill().await.unwrap();
    let next = Up::start(apply.folder.path()).await;
    apply.check_end(next).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_interrupts_an_apply_that_an_earlier_sluice_up_left() {
    let (apply, mut up) = WaitingApply::start().await;
    up.program.kill().await.unwrap();
    let next = Up::start(apply.folder.path()).await;
    apply.ask_to_end(&next).await;
    next.signal(Signal::TERM);
    // The apply would wait forever.
    next.end(LIMIT).await;
    std::fs::write(apply.folder.path().join("marker.go"), "").unwrap();
    let up = Up::start(apply.folder.path()).await;
    let runs = up.wait_for_runs("run", |runs| !runs.is_empty()).await;
    assert_eq!(ending(&runs[0]), "Failed TFExecApplyFailed");
    up.signal(Signal::TERM);
    up.end(LIMIT).await;
}
