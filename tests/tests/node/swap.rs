//! Flux's source-controller and the objects of tofu-controller are taken over in place on a node, and given back.
//!
//! Flux's controller is the real one. tofu-controller is only what it left: it cannot be built here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use jiff::Timestamp;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sluice_harness::git::{GitServer, Repository};
use sluice_harness::gobuild::{self, Tool};
use sluice_harness::node::Node;
use sluice_harness::skip::without_cluster;
use sluice_harness::tofu_controller::{
    self, APPLIED, MODULES, NAMESPACE, PLAN_ID, SOURCE, WAITING, create_stacks, objects,
};
use sluice_images::archive::{self, ImageConfig, Reference};
use sluice_images::layer::Layer;
use sluice_tests::scenario::wait_for;
use sluice_tests::wait_for_definitions;

use crate::install::{Installation, config};

/// The namespace of Flux.
const FLUX: &str = "flux-system";
const FLUX_IMAGE: (&str, &str) = ("sluice.invalid/flux-source-controller", "1.9.4");
const OWN_IMAGE: &str = "sluice.invalid/source-controller:0.1.0";
/// The sources: a branch, a commit with exclusions, and one that includes the first.
const SOURCES: [&str; 3] = [SOURCE, "pinned", "including"];

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
        import_flux(node).await;
        installation.kubectl(&["create", "namespace", FLUX]).await;
        let manifests = gobuild::package_folder(Tool::FluxSourceController)
            .unwrap()
            .join("config");
        let volume = json!([{ "op": "replace", "path": "/spec/template/spec/volumes/0",
            "value": { "name": "data", "hostPath": { "path": storage } } }]);
        let resources =
            ["crd", "rbac", "manager"].map(|folder| installation.relative(&manifests.join(folder)));
        let kustomization = json!({
            "namespace": FLUX,
            "resources": resources,
            "images": [{ "name": "fluxcd/source-controller", "newName": FLUX_IMAGE.0, "newTag": FLUX_IMAGE.1 }],
            "patches": [{ "target": { "kind": "Deployment" }, "patch": volume.to_string() }],
        });
        installation.apply_kustomization("flux", &kustomization).await;
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
    async fn request_sources(&self) -> BTreeMap<&'static str, (Value, String)> {
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
        let deployment = "deployment/source-controller";
        for arguments in [
            ["set", "image", deployment, &image],
            ["rollout", "status", deployment, "--timeout=120s"],
        ] {
            let all = [&["-n", FLUX], arguments.as_slice()].concat();
            self.installation.kubectl(&all).await;
        }
    }

    /// As docs/guides/migrating-from-tofu-controller.md says.
    async fn install_tf_controller(&self) {
        let definitions = [
            "infra.contrib.fluxcd.io_terraforms",
            "infra.sluice.dev_terraformruns",
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
        let rollout = [
            "-n",
            FLUX,
            "rollout",
            "status",
            "deployment/tf-controller",
            "--timeout=120s",
        ];
        self.installation.kubectl(&rollout).await;
    }

    /// Returns the stacks that have runs.
    async fn stacks_with_runs(&self) -> BTreeSet<String> {
        let label = "infra.sluice.dev/terraform";
        let path = format!(
            "-ojsonpath={{.items[*].metadata.labels.{}}}",
            label.replace('.', "\\.")
        );
        let query = ["-n", NAMESPACE, "get", "terraformruns", &path];
        let names = self.installation.kubectl(&query).await;
        names.split_whitespace().map(str::to_owned).collect()
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
        let with_runs = self.stacks_with_runs().await;
        for name in APPLIED {
            assert!(!with_runs.contains(name), "{with_runs:?}");
            let stack = stacks.get(name).await.unwrap();
            let stack = serde_json::to_value(stack).unwrap();
            assert!(ready(&stack).starts_with("True"), "{name}: {}", ready(&stack));
        }
        let jobs = self
            .installation
            .kubectl(&["-n", NAMESPACE, "get", "jobs", "-oname"])
            .await;
        assert!(jobs.contains("waiting"), "{jobs}");
    }

    /// A requested check finds the state of an applied stack, and an approved plan is applied.
    async fn check_work(&self) {
        let stacks = self.stacks();
        let time = request(&stacks, "applied-auto").await;
        let is_answered = |stack: &Value| stack["status"]["lastHandledReconcileAt"] == time;
        let stack = self
            .wait_for(&stacks, "applied-auto", "an answer", is_answered)
            .await;
        assert!(ready(&stack).starts_with("True"), "{}", ready(&stack));
        let runs = [
            "-n",
            NAMESPACE,
            "get",
            "terraformruns",
            "-linfra.sluice.dev/terraform=applied-auto",
            "-ojsonpath={.items[*].status.reason}",
        ];
        let reasons = self.installation.kubectl(&runs).await;
        assert_eq!(reasons, "TerraformPlannedNoChanges");
        let waiting = serde_json::to_value(stacks.get("waiting").await.unwrap()).unwrap();
        let approval = json!({ "spec": { "approvePlan": waiting["status"]["plan"]["pending"] } });
        let (params, patch) = (PatchParams::default(), Patch::Merge(approval));
        stacks.patch("waiting", &params, &patch).await.unwrap();
        let is_applied = |stack: &Value| ready(stack) == "True TerraformAppliedSucceed";
        self.wait_for(&stacks, "waiting", "the apply", is_applied).await;
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
    }
}

/// Imports an image of Flux's source-controller.
async fn import_flux(node: &Node) {
    let program = gobuild::build(Tool::FluxSourceController, &mut |line| eprintln!("{line}")).unwrap();
    let folder = node.folder();
    let mut layer = Layer::default();
    layer.file("/source-controller", &program).unwrap();
    let layer = layer.write(&folder.join("flux-layer.tar")).unwrap();
    let image = ImageConfig {
        user: 65534,
        entrypoint: "/source-controller".to_owned(),
        environment: BTreeMap::new(),
        labels: BTreeMap::new(),
    };
    let name = Reference::new(FLUX_IMAGE.0, FLUX_IMAGE.1).unwrap();
    let file = folder.join("flux.tar");
    archive::write(&name, &image, &[&layer], Timestamp::UNIX_EPOCH, &file).unwrap();
    node.import(&file).await.unwrap();
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

    flux.set_image(OWN_IMAGE).await;
    assert_eq!(flux.request_sources().await, of_flux, "the artifacts stay");
    flux.install_tf_controller().await;
    flux.check_stacks().await;
    flux.check_work().await;

    flux.stop_tf_controller().await;
    let (name, tag) = FLUX_IMAGE;
    flux.set_image(&format!("{name}:{tag}")).await;
    assert_eq!(
        flux.request_sources().await,
        of_flux,
        "the artifacts stay for Flux"
    );
    let next = flux
        .repository
        .commit_files(&[("base/more.tf", "locals {}\n")], "Another file")
        .unwrap();
    let changed = flux.request_sources().await;
    assert_eq!(changed[SOURCE].0["revision"], format!("main@sha1:{next}"));
    assert_eq!(changed["pinned"], of_flux["pinned"]);
    flux.set_image(OWN_IMAGE).await;
    assert_eq!(
        flux.request_sources().await,
        changed,
        "the artifacts stay the second time"
    );
}
