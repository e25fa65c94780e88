//! Flux's source-controller and the objects of tofu-controller are taken over in place on a node, and given back.
//!
//! Flux's controller is the real one. tofu-controller is only what it left: it cannot be built here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sluice_harness::git::{GitServer, Repository};
use sluice_harness::node::Node;
use sluice_harness::skip::without_cluster;
use sluice_harness::tofu_controller::{
    self, APPLIED, MODULES, NAMESPACE, PLAN_ID, SOURCE, WAITING, create_stacks, objects,
};
use sluice_tests::scenario::wait_for;
use sluice_tests::wait_for_definitions;

use crate::flux::{self, NAMESPACE as FLUX, volume_patch};
use crate::install::{Installation, config};

const OWN_IMAGE: &str = "sluice.invalid/source-controller:0.1.0";
/// The sources: a branch, a commit with exclusions, and one that includes the first.
const SOURCES: [&str; 3] = [SOURCE, "pinned", "including"];

/// The artifact of each source in its status, and its digest on the volume.
type Artifacts = BTreeMap<&'static str, (Value, String)>;

/// A node with Flux's source-controller, its sources, and the objects of tofu-controller.
struct Flux<'n> {
    installation: Installation<'n>,
    client: Client,
    /// The storage of source-controller, as on a persistent volume.
    storage: PathBuf,
    repository: Repository,
    commit: String,
    _server: GitServer,
}

impl<'n> Flux<'n> {
    async fn start(node: &'n Node) -> Self {
        let installation = Installation::empty(node).await;
        let storage = node.folder().join("flux-storage");
        fs::create_dir(&storage).unwrap();
        fs::set_permissions(&storage, Permissions::from_mode(0o777)).unwrap();
        flux::install(&installation, &storage).await;
        let definition = tofu_controller::definition().unwrap().to_string();
        node.apply(&definition).await.unwrap();
        let client = node.client().await.unwrap();
        wait_for_definitions(client.clone()).await.unwrap();

        let repository = Repository::create().unwrap();
        let commit = repository.commit_files(&MODULES, "Stacks").unwrap();
        let server = GitServer::start().await.unwrap();
        let url = server.serve("stacks", &repository);
        let (address, path) = url.trim_start_matches("http://").split_once('/').unwrap();
        let exposed = node.expose(address.parse().unwrap()).unwrap();
        installation.kubectl(&["create", "namespace", NAMESPACE]).await;
        let flux = Self {
            installation,
            client,
            storage,
            repository,
            commit,
            _server: server,
        };
        flux.create_sources(&format!("http://{exposed}/{path}")).await;
        flux
    }

    async fn create_sources(&self, url: &str) {
        let specs = [
            json!({ "ref": { "branch": "main" } }),
            json!({ "ref": { "commit": self.commit }, "ignore": "/bad" }),
            json!({ "ref": { "branch": "main" }, "include": [{ "repository": { "name": SOURCE }, "toPath": "included" }] }),
        ];
        for (name, mut spec) in SOURCES.into_iter().zip(specs) {
            spec["url"] = json!(url);
            spec["interval"] = json!("60m");
            let source = json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
                "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec });
            self.installation.node.apply(&source.to_string()).await.unwrap();
        }
    }

    fn api(&self, group: &str, kind: &str) -> Api<DynamicObject> {
        objects(&self.client, NAMESPACE, group, kind)
    }

    fn sources(&self) -> Api<DynamicObject> {
        self.api("source.toolkit.fluxcd.io", "GitRepository")
    }

    fn stacks(&self) -> Api<DynamicObject> {
        self.api("infra.contrib.fluxcd.io", "Terraform")
    }

    async fn wait_for(
        &self,
        api: &Api<DynamicObject>,
        name: &str,
        what: &'static str,
        pass: impl Fn(&Value) -> bool,
    ) -> Value {
        match wait_for(api, name, what, pass).await {
            Ok(object) => object,
            Err(error) => panic!("{error}\n{}", self.installation.describe_pods().await),
        }
    }

    /// Requests each source, and waits until the present controller has answered. Returns the artifact of each in its status, and its
    /// digest on the volume.
    async fn request_sources(&self) -> Artifacts {
        let mut artifacts = BTreeMap::new();
        for name in SOURCES {
            let time = request(&self.sources(), name).await;
            // Flux writes conditions and answer first, and artifact and observed generation a moment later.
            let is_answered = |source: &Value| {
                let status = &source["status"];
                status["lastHandledReconcileAt"] == time
                    && status["observedGeneration"] == source["metadata"]["generation"]
                    && ready(source).starts_with("True")
            };
            let source = self
                .wait_for(&self.sources(), name, "an answer", is_answered)
                .await;
            let artifact = source["status"]["artifact"].clone();
            let Some(path) = artifact["path"].as_str() else {
                panic!("{name} is Ready without an artifact: {source:#}");
            };
            let bytes = fs::read(self.storage.join(path)).unwrap();
            let digest = format!("sha256:{}", hex::encode(Sha256::digest(bytes)));
            assert_eq!(artifact["digest"], digest, "{name}");
            artifacts.insert(name, (artifact, digest));
        }
        artifacts
    }

    /// Replaces the image of source-controller, and nothing else.
    async fn set_image(&self, image: &str) {
        let image = format!("manager={image}");
        let set = ["-n", FLUX, "set", "image", "deployment/source-controller", &image];
        self.installation.kubectl(&set).await;
        self.wait_for_rollout("source-controller").await;
    }

    async fn wait_for_rollout(&self, controller: &str) {
        let deployment = format!("deployment/{controller}");
        let wait = ["-n", FLUX, "rollout", "status", &deployment, "--timeout=300s"];
        self.installation.kubectl(&wait).await;
    }

    /// As docs/guides/migrating-from-tofu-controller.md says.
    async fn install_tf_controller(&self) {
        let definitions = [
            "infra.contrib.fluxcd.io_terraforms",
            "infra.sluice.dev_terraformruns",
            "infra.sluice.dev_planapprovals",
        ];
        for definition in definitions {
            let file = config(&format!("crd/bases/{definition}.yaml"));
            let apply = ["apply", "--server-side", "--force-conflicts", "-f", &file];
            self.installation.kubectl(&apply).await;
        }
        wait_for_definitions(self.client.clone()).await.unwrap();
        let overlay = config("overlays/with-flux");
        self.installation.kubectl(&["apply", "-k", &overlay]).await;
        self.installation.create_runner_account(NAMESPACE).await;
        self.wait_for_rollout("tf-controller").await;
    }

    /// Returns the runs of the applied stacks, each as the name of its stack, its own name and its reason.
    async fn runs_of_applied(&self) -> BTreeSet<String> {
        let columns = "-ocustom-columns=S:.spec.terraform.name,R:.metadata.name,W:.status.reason";
        let query = ["-n", NAMESPACE, "get", "terraformruns", "--no-headers", columns];
        let runs = self.installation.kubectl(&query).await;
        let rows = runs.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
        rows.filter(|row| row.first().is_some_and(|stack| APPLIED.contains(stack)))
            .map(|row| row.join(" "))
            .collect()
    }

    /// The waiting plans are made again by Jobs, and nothing runs for what is applied.
    async fn check_stacks(&self) {
        let old = PLAN_ID.replace(&tofu_controller::COMMIT[..10], &self.commit[..10]);
        let stacks = self.stacks();
        for name in WAITING {
            let has_new_plan = |stack: &Value| {
                let pending = stack["status"]["plan"]["pending"].as_str().unwrap_or_default();
                !pending.is_empty() && pending != old
            };
            self.wait_for(&stacks, name, "a new plan", has_new_plan).await;
        }
        let failed = |stack: &Value| ready(stack).starts_with("False TFExec");
        self.wait_for(&stacks, "failed", "its error", failed).await;
        // Before Flux had its first artifact, a stack may have found none.
        let is_ready = |stack: &Value| ready(stack).starts_with("True");
        for name in APPLIED {
            self.wait_for(&stacks, name, "its readiness", is_ready).await;
        }
        let runs = self.runs_of_applied().await;
        assert!(runs.is_empty(), "{runs:?}");
        let jobs = self
            .installation
            .kubectl(&["-n", NAMESPACE, "get", "jobs", "-oname"])
            .await;
        assert!(jobs.contains("waiting"), "{jobs}");
    }

    /// After source-controller was replaced: the artifacts are the same, in the status and on the volume, a requested check finds the state of
    /// an applied stack, and no other one has had a run.
    async fn check_swap(&self, artifacts: &Artifacts, checked: &str, runs_before: &BTreeSet<String>) {
        assert_eq!(self.request_sources().await, *artifacts, "the artifacts stay");
        let stacks = self.stacks();
        let time = request(&stacks, checked).await;
        let is_answered = |stack: &Value| stack["status"]["lastHandledReconcileAt"] == time;
        let stack = self.wait_for(&stacks, checked, "an answer", is_answered).await;
        assert!(ready(&stack).starts_with("True"), "{}", ready(&stack));
        let runs = self.runs_of_applied().await;
        let new: Vec<_> = runs.difference(runs_before).collect();
        let is_check = |run: &str| {
            run.starts_with(&format!("{checked} ")) && run.ends_with(" TerraformPlannedNoChanges")
        };
        assert!(new.len() == 1 && is_check(new[0]), "{checked}: {new:?}");
    }

    /// An approved plan is applied.
    async fn check_approval(&self) {
        let stacks = self.stacks();
        let waiting = serde_json::to_value(stacks.get("waiting").await.unwrap()).unwrap();
        let approval = json!({ "spec": { "approvePlan": waiting["status"]["plan"]["pending"] } });
        let (params, patch) = (PatchParams::default(), Patch::Merge(approval));
        stacks.patch("waiting", &params, &patch).await.unwrap();
        let is_applied = |stack: &Value| ready(stack) == "True TerraformAppliedSucceed";
        self.wait_for(&stacks, "waiting", "the apply", is_applied).await;
    }

    /// Applies the overlay `replace-flux` over Flux's manifests, with their volume, as docs/get-started/replace-flux.md says.
    async fn install_source_controller(&self) {
        let installation = &self.installation;
        let setup = config("overlays/replace-flux/setup");
        let apply = ["apply", "--server-side", "--force-conflicts", "-k", &setup];
        installation.kubectl(&apply).await;
        wait_for_definitions(self.client.clone()).await.unwrap();
        let target = json!({ "kind": "Deployment", "name": "source-controller" });
        let patch = json!([volume_patch(&self.storage)]);
        let kustomization = json!({
            "namespace": FLUX,
            "resources": [installation.relative(Path::new(&config("overlays/replace-flux")))],
            "patches": [{ "target": target, "patch": patch.to_string() }],
        });
        installation
            .apply_kustomization("replace-flux", &kustomization)
            .await;
        let image = "-ojsonpath={.spec.template.spec.containers[0].image}";
        let query = ["-n", FLUX, "get", "deployment/source-controller", image];
        assert_eq!(installation.kubectl(&query).await, OWN_IMAGE);
        self.wait_for_rollout("source-controller").await;
    }

    /// tofu-controller can continue with each applied stack: its definition accepts the object, and spec, finalizers and what that
    /// controller reads in the status are as it left them.
    async fn check_rollback(&self) {
        let left = tofu_controller::stacks(&self.commit).unwrap();
        for name in APPLIED {
            request(&self.stacks(), name).await;
            let stack = serde_json::to_value(self.stacks().get(name).await.unwrap()).unwrap();
            assert!(ready(&stack).starts_with("True"), "{name}: {}", ready(&stack));
            let left = left.iter().find(|left| left["metadata"]["name"] == name).unwrap();
            assert_eq!(
                stack["metadata"]["finalizers"], left["metadata"]["finalizers"],
                "{name}"
            );
            for (field, value) in left["spec"].as_object().unwrap() {
                assert_eq!(stack["spec"][field], *value, "{name}: {field}");
            }
            for field in [
                "/lastAppliedRevision",
                "/lastPlannedRevision",
                "/availableOutputs",
                "/inventory",
                "/plan/lastApplied",
            ] {
                let of = |object: &Value| object["status"].pointer(field).cloned();
                assert_eq!(of(&stack), of(left), "{name}: {field}");
            }
        }
    }

    /// As the section "Roll back" of that page.
    async fn stop_tf_controller(&self) {
        let scale = ["-n", FLUX, "scale", "deployment/tf-controller", "--replicas=0"];
        self.installation.kubectl(&scale).await;
        let definition = self.storage.with_file_name("tofu-controller.crds.yaml");
        let text = tofu_controller::definition().unwrap().to_string();
        fs::write(&definition, text).unwrap();
        let file = definition.display().to_string();
        let apply = ["apply", "--server-side", "--force-conflicts", "-f", &file];
        self.installation.kubectl(&apply).await;
        wait_for_definitions(self.client.clone()).await.unwrap();
    }
}

/// Requests a reconciliation. Returns the time that the answer names.
async fn request(api: &Api<DynamicObject>, name: &str) -> String {
    let time = Timestamp::now().to_string();
    let annotations = json!({ "reconcile.fluxcd.io/requestedAt": time });
    let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
    api.patch(name, &PatchParams::default(), &patch).await.unwrap();
    time
}

/// Returns status and reason of `Ready`.
fn ready(object: &Value) -> String {
    let conditions = object["status"]["conditions"].as_array();
    let ready = conditions.and_then(|all| all.iter().find(|condition| condition["type"] == "Ready"));
    let text = |field: &str| ready.and_then(|ready| ready[field].as_str()).unwrap_or_default();
    format!("{} {}", text("status"), text("reason"))
}

#[tokio::test(flavor = "multi_thread")]
async fn both_controllers_are_replaced_in_place_and_return() {
    if without_cluster().unwrap() {
        return;
    }
    let node = Node::start().await.unwrap();
    let flux = Flux::start(&node).await;
    let of_flux = flux.request_sources().await;
    create_stacks(&flux.client, NAMESPACE, &flux.commit)
        .await
        .unwrap();
    let image_of_flux = format!("{}:{}", flux::IMAGE.0, flux::IMAGE.1);

    // Beside Flux.
    flux.install_tf_controller().await;
    flux.check_stacks().await;
    let runs = flux.runs_of_applied().await;
    flux.set_image(OWN_IMAGE).await;
    flux.check_swap(&of_flux, "applied-auto", &runs).await;
    flux.check_approval().await;

    flux.set_image(&image_of_flux).await;
    assert_eq!(flux.request_sources().await, of_flux, "they stay for Flux");
    let runs = flux.runs_of_applied().await;
    flux.install_source_controller().await;
    flux.check_swap(&of_flux, "applied-manual", &runs).await;

    let runs = flux.runs_of_applied().await;
    flux.set_image(&image_of_flux).await;
    flux.check_swap(&of_flux, "suffixed", &runs).await;
    flux.stop_tf_controller().await;
    flux.check_rollback().await;
    let next = flux
        .repository
        .commit_files(&[("base/more.tf", "locals {}\n")], "Another file")
        .unwrap();
    let changed = flux.request_sources().await;
    assert_eq!(changed[SOURCE].0["revision"], format!("main@sha1:{next}"));
    assert_eq!(changed["pinned"], of_flux["pinned"]);
}
