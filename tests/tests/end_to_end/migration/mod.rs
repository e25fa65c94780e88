//! Runs the migration page command by command on a real etcd and kube-apiserver, from tofu-controller to Sluice and back. A model
//! of tofu-controller's rules (`upstream`) replaces the controller, which cannot run here.

mod definitions;
mod forward;
mod page;
mod rollback;
mod tofu_controller;
mod upstream;

use std::collections::BTreeMap;
use std::path::Path;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use page::Page;
pub(crate) use page::shell;
use serde_json::{Value, json};
use sluice_harness::cluster::ControlPlane;
use sluice_tests::scenario::{NAMESPACE, Scenario, wait_for};
use sluice_tests::wait_for_definitions;
use tempfile::TempDir;

use crate::environment::{Controller, Origin, controller, free_port, ready, source_controller};
use crate::{with_timeout, without_cluster};

/// The namespace of Flux's controllers.
const FLUX: &str = "flux-system";

/// A control plane with the objects of tofu-controller, and Sluice's source-controller in place of Flux's.
struct Migration {
    scenario: Scenario,
    client: Client,
    page: Page,
    sources: Controller,
    /// tf-controller, once it has started.
    stacks: Option<Controller>,
    /// The current revision of the source.
    revision: String,
    /// The previous revision.
    old: String,
    plane: ControlPlane,
    folder: TempDir,
    _origin: Origin,
}

impl Migration {
    async fn start() -> Self {
        let origin = Origin::start().await;
        let (plane, folder) = install_tofu_controller().await;
        // After the definition: the garbage collector discovers new kinds only twice a minute.
        plane.start_controllers().unwrap();
        let old = origin
            .repository
            .commit_files(&tofu_controller::MODULES, "Stacks")
            .unwrap();
        let now = origin
            .repository
            .commit_files(&[tofu_controller::CHANGE], "A change")
            .unwrap();
        let page = Page::read(folder.path());
        let flux = "mkdir flux && echo '{namespace: flux-system, resources: [../config/source-controller]}' > flux/kustomization.yaml && \
                    kubectl apply -k flux && kubectl apply \
                    -f config/crd/bases/source.toolkit.fluxcd.io_gitrepositories.yaml";
        shell(folder.path(), flux).await;
        let client = plane.admin().client().await.unwrap();
        wait_for_definitions(client).await.unwrap();
        let source = json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": { "name": "code", "namespace": NAMESPACE },
            "spec": { "url": origin.url, "interval": "24h", "ref": { "branch": "main" } } });
        plane.apply(&source.to_string()).await.unwrap();
        let mut sources = source_controller(&plane, FLUX, folder.path()).await;
        sources.start().unwrap();
        let client = plane.client().await.unwrap();
        let migration = Self {
            scenario: Scenario::new(client.clone()),
            client,
            page,
            sources,
            stacks: None,
            revision: format!("main@sha1:{now}"),
            old: format!("main@sha1:{old}"),
            plane,
            folder,
            _origin: origin,
        };
        let has_artifact =
            |object: &Value| object.pointer("/status/artifact/revision") == Some(&json!(migration.revision));
        let result = wait_for(
            &migration.scenario.sources(),
            "code",
            "its artifact",
            has_artifact,
        )
        .await;
        result.unwrap_or_else(|error| panic!("{error}\n{}", migration.sources.tail()));
        tofu_controller::stacks(&migration).await;
        migration
    }

    fn logs(&self) -> String {
        self.stacks.as_ref().map(Controller::tail).unwrap_or_default()
    }

    async fn get(&self, stack: &str) -> Value {
        let object = self.scenario.stacks().get(stack).await.unwrap();
        serde_json::to_value(object).unwrap()
    }

    /// Waits until the stack meets a condition.
    async fn wait_for(&self, stack: &str, what: &'static str, pass: impl Fn(&Value) -> bool) -> Value {
        let result = wait_for(&self.scenario.stacks(), stack, what, pass).await;
        result.unwrap_or_else(|error| panic!("{error}\n{}", self.logs()))
    }

    /// Waits until `Ready` of the current generation contains this text.
    async fn wait_for_ready(&self, stack: &str, text: &str) -> Value {
        let shows = |object: &Value| {
            let observed = object.pointer("/status/observedGeneration");
            observed == object.pointer("/metadata/generation") && ready(object).contains(text)
        };
        let result = wait_for(&self.scenario.stacks(), stack, "its Ready", shows).await;
        result.unwrap_or_else(|error| panic!("{text:?}: {error}\n{}", self.logs()))
    }

    /// Changes a spec with kubectl.
    async fn edit(&self, stack: &str, spec: &Value) {
        let patch = json!({ "spec": spec });
        let command = format!("kubectl -n default patch terraform {stack} --type=merge -p '{patch}'");
        shell(self.folder.path(), &command).await;
    }

    /// Returns `stack: action/trigger phase` of all runs, sorted.
    async fn runs(&self) -> Vec<String> {
        let runs = self.scenario.runs().await.unwrap();
        let stack = |name: &str| name.split('-').next().unwrap_or_default().to_owned();
        let mut lines: Vec<_> = runs
            .iter()
            .map(|run| {
                format!(
                    "{}: {}/{} {}",
                    stack(&run.name),
                    run.action,
                    run.trigger,
                    run.phase
                )
            })
            .collect();
        lines.sort();
        lines
    }

    async fn secrets(&self, labels: &str) -> Vec<Secret> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        api.list(&ListParams::default().labels(labels))
            .await
            .unwrap()
            .items
    }

    /// Returns the names of all Secrets and ConfigMaps.
    async fn names(&self) -> Vec<String> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), NAMESPACE);
        let maps = maps.list(&ListParams::default()).await.unwrap().items;
        let secrets = self.secrets("").await;
        let mut names: Vec<_> = secrets.iter().map(ResourceExt::name_any).collect();
        names.extend(maps.iter().map(|map| format!("ConfigMap {}", map.name_any())));
        names.retain(|name| name != "ConfigMap kube-root-ca.crt");
        names.sort();
        names
    }

    /// Returns the inputs of a stack's resources by address, from its state.
    async fn state(&self, stack: &str) -> BTreeMap<String, String> {
        let name = format!("tfstate-default-{stack}");
        let api: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let packed = api
            .get(&name)
            .await
            .unwrap()
            .data
            .unwrap()
            .remove("tfstate")
            .unwrap();
        let state: Value = serde_json::from_reader(flate2::read::GzDecoder::new(&packed.0[..])).unwrap();
        let mut inputs = BTreeMap::new();
        for resource in state["resources"].as_array().unwrap() {
            let name = resource["name"].as_str().unwrap();
            for instance in resource["instances"].as_array().unwrap() {
                let input = instance["attributes"]["input"]["value"].as_str().unwrap();
                inputs.insert(format!("{name}[{}]", instance["index_key"]), input.to_owned());
            }
        }
        inputs
    }
}

/// Creates a control plane with tofu-controller's definition and objects, and a folder with the administrator's kubeconfig.
async fn install_tofu_controller() -> (ControlPlane, TempDir) {
    let plane = ControlPlane::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("admin"), plane.admin().kubeconfig()).unwrap();
    let definition = sluice_harness::tofu_controller::definition().unwrap().to_string();
    std::fs::write(folder.path().join("tofu-controller.crds.yaml"), &definition).unwrap();
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "flux-system" } });
    plane.apply(&namespace.to_string()).await.unwrap();
    plane.apply(&definition).await.unwrap();
    for object in tofu_controller::installation() {
        plane.apply(&object.to_string()).await.unwrap();
    }
    (plane, folder)
}

/// Returns tf-controller with the arguments of its Deployment, except those that need a pod, and its port for probes. Without a node,
/// runs are its child processes, so its account gets the permissions of runs.
async fn tf_controller(plane: &ControlPlane, folder: &Path) -> (Controller, u16) {
    let bind = "kubectl create clusterrolebinding runs-as-processes --clusterrole=sluice-tf-runner \
                --serviceaccount=flux-system:tf-controller";
    shell(folder, bind).await;
    let command = "kubectl -n flux-system get deployment tf-controller -o json";
    let deployment: Value = serde_json::from_str(&shell(folder, command).await).unwrap();
    let arguments_json = deployment
        .pointer("/spec/template/spec/containers/0/args")
        .unwrap();
    let mut arguments: Vec<String> = serde_json::from_value(arguments_json.clone()).unwrap();
    let port = free_port();
    arguments.extend(tofu_controller::ARGUMENTS.map(str::to_owned));
    arguments.extend([
        "--executor=process".to_owned(),
        "--runtime-namespace=flux-system".to_owned(),
        "--events-addr=".to_owned(),
        "--metrics-addr=0".to_owned(),
        format!("--health-addr=127.0.0.1:{port}"),
        format!("--work-root={}", folder.join("work").display()),
    ]);
    (
        controller(plane, (FLUX, "tf-controller"), arguments, folder).await,
        port,
    )
}

/// Returns the id of the pending plan.
fn pending(object: &Value) -> String {
    let id = object.pointer("/status/plan/pending").and_then(Value::as_str);
    id.unwrap_or_default().to_owned()
}

#[test]
fn the_page_migrates_from_tofu_controller_and_back() {
    if without_cluster() {
        return;
    }
    with_timeout(async {
        let mut migration = Migration::start().await;
        forward::check_initial_state(&mut migration).await;
        forward::run_steps(&mut migration).await;
        rollback::use_sluice_features(&migration).await;
        rollback::run_steps(&mut migration).await;
        rollback::check_result(&migration).await;
        rollback::act_as_tofu_controller(&migration).await;
        migration.page.assert_all_run();
        let log = migration.stacks.as_ref().unwrap().log();
        let refused: Vec<_> = log.lines().filter(|line| line.contains("forbidden")).collect();
        assert!(
            refused.is_empty(),
            "the roles in config lack permissions: {refused:#?}"
        );
        migration.sources.end().await.unwrap();
    });
}
