//! From tofu-controller and back, as the page about it says, command by command, on a real etcd and kube-apiserver. What
//! tofu-controller itself would do is told by its rules (`upstream`): it cannot run here.

mod back;
mod early;
mod left;
mod page;
mod there;
mod upstream;

use crate::{
    within_deadline, without_cluster,
    world::{Controller, Origin, controller, free_port, ready, source_controller},
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client, ResourceExt, api::ListParams};
use page::{Page, shell};
use serde_json::{Value, json};
use sluice_harness::cluster::ControlPlane;
use sluice_tests::{
    binary,
    story::{NAMESPACE, Story, until},
};
use std::{collections::BTreeMap, path::Path};
use tempfile::TempDir;

/// A control plane with what tofu-controller left, and Sluice's source-controller in the place of Flux's.
struct Site {
    story: Story,
    client: Client,
    page: Page,
    sources: Controller,
    /// Once it was started.
    stacks: Option<Controller>,
    /// The revision of the source now.
    revision: String,
    /// The one before.
    old: String,
    plane: ControlPlane,
    folder: TempDir,
    _origin: Origin,
}

impl Site {
    async fn start() -> Self {
        let origin = Origin::start().await;
        let (plane, folder) = installed().await;
        // Now that the kind is there: the garbage collector looks for new ones only twice a minute.
        plane.start_controllers().unwrap();
        let old = origin.repository.commit_files(&left::MODULES, "Stacks").unwrap();
        let now = origin.repository.commit_files(&[left::NEWS], "News").unwrap();
        let page = Page::read(folder.path());
        let flux = "mkdir flux && echo '{namespace: flux-system, resources: [../config/source-controller]}' > flux/kustomization.yaml && \
                    kubectl apply -k flux && kubectl apply \
                    -f config/crd/bases/source.toolkit.fluxcd.io_gitrepositories.yaml && \
                    kubectl wait --for=condition=Established crd --all --timeout=60s";
        shell(folder.path(), flux).await;
        let source = json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": { "name": "code", "namespace": NAMESPACE },
            "spec": { "url": origin.url, "interval": "24h", "ref": { "branch": "main" } } });
        plane.apply(&source.to_string()).await.unwrap();
        let mut sources = source_controller(&plane, folder.path()).await;
        sources.start().unwrap();
        let client = plane.client().await.unwrap();
        let site = Self {
            story: Story::new(client.clone()),
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
        let there =
            |object: &Value| object.pointer("/status/artifact/revision") == Some(&json!(site.revision));
        let seen = until(&site.story.sources(), "code", "its artifact", there).await;
        seen.unwrap_or_else(|error| panic!("{error}\n{}", site.sources.tail()));
        left::stacks(&site).await;
        site
    }

    fn logs(&self) -> String {
        self.stacks.as_ref().map(Controller::tail).unwrap_or_default()
    }

    async fn get(&self, stack: &str) -> Value {
        let object = self.story.stacks().get(stack).await.unwrap();
        serde_json::to_value(object).unwrap()
    }

    /// Waits until the stack passes.
    async fn until(&self, stack: &str, what: &'static str, pass: impl Fn(&Value) -> bool) -> Value {
        let seen = until(&self.story.stacks(), stack, what, pass).await;
        seen.unwrap_or_else(|error| panic!("{error}\n{}", self.logs()))
    }

    /// Waits until `Ready`, of the generation of now, contains this.
    async fn ready(&self, stack: &str, text: &str) -> Value {
        let shows = |object: &Value| {
            let observed = object.pointer("/status/observedGeneration");
            observed == object.pointer("/metadata/generation") && ready(object).contains(text)
        };
        let seen = until(&self.story.stacks(), stack, "its Ready", shows).await;
        seen.unwrap_or_else(|error| panic!("{text:?}: {error}\n{}", self.logs()))
    }

    /// Edits a spec, as a person does.
    async fn edit(&self, stack: &str, spec: &Value) {
        let patch = json!({ "spec": spec });
        let command = format!("kubectl -n default patch terraform {stack} --type=merge -p '{patch}'");
        shell(self.folder.path(), &command).await;
    }

    /// `stack: action/trigger phase` of all runs, in the order of their names.
    async fn runs(&self) -> Vec<String> {
        let runs = self.story.runs().await.unwrap();
        let stack = |name: &str| name.split('-').next().unwrap_or_default().to_owned();
        let mut told: Vec<_> = runs
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
        told.sort();
        told
    }

    async fn secrets(&self, labels: &str) -> Vec<Secret> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        api.list(&ListParams::default().labels(labels))
            .await
            .unwrap()
            .items
    }

    /// The names of all Secrets and ConfigMaps beside the stacks.
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

    /// The state of a stack: the inputs of its resources by address.
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
        let mut held = BTreeMap::new();
        for resource in state["resources"].as_array().unwrap() {
            let name = resource["name"].as_str().unwrap();
            for instance in resource["instances"].as_array().unwrap() {
                let input = instance["attributes"]["input"]["value"].as_str().unwrap();
                held.insert(format!("{name}[{}]", instance["index_key"]), input.to_owned());
            }
        }
        held
    }
}

/// A control plane with tofu-controller's definition and its own objects, and the folder with the administrator's kubeconfig.
async fn installed() -> (ControlPlane, TempDir) {
    let plane = ControlPlane::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("admin"), plane.admin().kubeconfig()).unwrap();
    let definition = left::definition().to_string();
    std::fs::write(folder.path().join("tofu-controller.crds.yaml"), &definition).unwrap();
    let space = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "flux-system" } });
    plane.apply(&space.to_string()).await.unwrap();
    plane.apply(&definition).await.unwrap();
    for object in left::installation() {
        plane.apply(&object.to_string()).await.unwrap();
    }
    (plane, folder)
}

/// The program as the Deployment in the cluster starts it, but for what only a pod has; with its port for probes.
async fn program(plane: &ControlPlane, folder: &Path) -> (Controller, u16) {
    let command = "kubectl -n flux-system get deployment tf-controller -o json";
    let deployment: Value = serde_json::from_str(&shell(folder, command).await).unwrap();
    let given = deployment
        .pointer("/spec/template/spec/containers/0/args")
        .unwrap();
    let mut arguments: Vec<String> = serde_json::from_value(given.clone()).unwrap();
    let port = free_port();
    arguments.extend(left::ARGUMENTS.map(str::to_owned));
    arguments.extend([
        "--runtime-namespace=flux-system".to_owned(),
        "--events-addr=".to_owned(),
        "--metrics-addr=0".to_owned(),
        format!("--health-addr=127.0.0.1:{port}"),
        format!("--runner={}", binary("tf-runner").unwrap().display()),
        format!("--work-root={}", folder.join("work").display()),
    ]);
    (controller(plane, "tf-controller", arguments, folder).await, port)
}

/// The id of the plan that waits.
fn pending(object: &Value) -> String {
    let id = object.pointer("/status/plan/pending").and_then(Value::as_str);
    id.unwrap_or_default().to_owned()
}

#[test]
fn the_page_leads_from_tofu_controller_and_back() {
    if without_cluster() {
        return;
    }
    within_deadline(async {
        let mut site = Site::start().await;
        there::before_it_begins(&mut site).await;
        there::step_by_step(&mut site).await;
        back::with_guard_rails(&site).await;
        back::step_by_step(&mut site).await;
        back::as_tofu_controller_finds_it(&site).await;
        back::what_tofu_controller_does(&site).await;
        site.page.assert_all_run();
        let log = site.stacks.as_ref().unwrap().log();
        let refused: Vec<_> = log.lines().filter(|line| line.contains("forbidden")).collect();
        assert!(
            refused.is_empty(),
            "the roles in config are too narrow: {refused:#?}"
        );
        site.sources.end().await.unwrap();
    });
}
