//! A namespace of a tenant: its account, a source and stacks.

use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_harness::git::{GitServer, Repository};
use sluice_harness::node::Node;
use sluice_harness::trial::TrialProvider;
use sluice_tests::scenario::{ScenarioError, wait_for};

/// A stack without a provider.
const MODULE: &str = "resource \"terraform_data\" \"it\" {}\n";
/// A stack in the directory `large`, whose plan takes hundreds of megabytes.
const LARGE_MODULE: &str = r#"
locals {
  line  = join("", [for i in range(1024) : "0123456789abcdef"])
  lines = [for i in range(1024) : "${local.line}${i}"]
  all   = [for i in range(16) : join("", [for line in local.lines : "${line}${i}"])]
}

resource "terraform_data" "it" {
  input = sha256(join("", local.all))
}
"#;

/// A stack in the directory `verbose`, whose plan prints more than the end of a log that a run keeps.
const VERBOSE_MODULE: &str = r#"
resource "terraform_data" "line" {
  count = 100
  input = "line ${count.index}"
}
"#;

/// A stack in the directory `held`, whose apply lasts while `hold` is true.
const HELD_MODULE: &str = r#"
variable "hold" {}

resource "terraform_data" "held" {
  provisioner "local-exec" {
    command = var.hold ? "sleep 1000" : "true"
  }
}
"#;

/// A namespace with a source.
pub(crate) struct Tenant<'n> {
    namespace: String,
    node: &'n Node,
    client: Client,
    /// The sources, until the end of the test.
    served: Vec<(GitServer, Repository)>,
}

impl<'n> Tenant<'n> {
    /// Creates the namespace with the account `tf-runner`, which has the role of runs, and the source `code`.
    pub(crate) async fn new(node: &'n Node, namespace: &str) -> Self {
        let tenant = Self::without_role(node, namespace).await;
        tenant.add_account("tf-runner").await;
        tenant
    }

    /// Creates the namespace, an account that may do nothing, and the source.
    pub(crate) async fn without_role(node: &'n Node, namespace: &str) -> Self {
        let files = [
            ("main.tf", MODULE),
            ("large/main.tf", LARGE_MODULE),
            ("verbose/main.tf", VERBOSE_MODULE),
            ("held/main.tf", HELD_MODULE),
        ];
        Self::with_files(node, namespace, &files).await
    }

    /// As [`Tenant::without_role`], with these files in the source.
    pub(crate) async fn with_files(node: &'n Node, namespace: &str, files: &[(&str, &str)]) -> Self {
        let repository = Repository::create().unwrap();
        repository.commit_files(files, "A stack").unwrap();
        let mut tenant = Self {
            namespace: namespace.to_owned(),
            node,
            client: node.client().await.unwrap(),
            served: Vec::new(),
        };
        tenant
            .apply(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }))
            .await;
        tenant.apply(&account(namespace, "tf-runner")).await;
        tenant.add_source("code", repository).await;
        tenant
    }

    /// Serves a repository, and creates its source.
    pub(crate) async fn add_source(&mut self, name: &str, repository: Repository) {
        let server = GitServer::start().await.unwrap();
        let url = server.serve(name, &repository);
        let (_, rest) = url.split_once("://").unwrap();
        let (address, path) = rest.split_once('/').unwrap();
        let exposed = self.node.expose(address.parse().unwrap()).unwrap();
        let source = json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": { "name": name, "namespace": self.namespace },
            "spec": { "interval": "10m", "url": format!("http://{exposed}/{path}"), "ref": { "branch": "main" } },
        });
        self.apply(&source).await;
        self.served.push((server, repository));
    }

    /// Returns the Git server of the source `code`.
    pub(crate) fn server(&self) -> &GitServer {
        &self.served[0].0
    }

    /// Requests a reconciliation of the source `code`, and waits until it is answered and the source ready. Returns the artifact.
    pub(crate) async fn poll_source(&self, token: &str) -> Result<Value, ScenarioError> {
        let sources = self.api("source.toolkit.fluxcd.io", "v1", "GitRepository");
        let annotations = json!({ "reconcile.fluxcd.io/requestedAt": token });
        let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
        sources
            .patch("code", &PatchParams::default(), &patch)
            .await
            .unwrap();
        let is_answered = |source: &Value| {
            source["status"]["lastHandledReconcileAt"] == token && ready_text(source, "status") == "True"
        };
        let source = wait_for(&sources, "code", "an answer of source-controller", is_answered).await?;
        Ok(source["status"]["artifact"].clone())
    }

    /// Applies a manifest as administrator.
    pub(crate) async fn apply(&self, manifest: &Value) {
        self.node.apply(&manifest.to_string()).await.unwrap();
    }

    /// Creates an account with the role of runs.
    pub(crate) async fn add_account(&self, name: &str) {
        for manifest in account_with_role(&self.namespace, name) {
            self.apply(&manifest).await;
        }
    }

    /// Creates a stack of the module, with these fields of its spec.
    pub(crate) async fn add_stack(&self, name: &str, fields: &Value) {
        // A drift check is due at a random offset in the interval, which no test may reach.
        let mut spec = json!({ "interval": "240h", "retryInterval": "10m", "path": "./",
            "sourceRef": { "kind": "GitRepository", "name": "code" } });
        spec.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        let stack = json!({ "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
            "metadata": { "name": name, "namespace": self.namespace }, "spec": spec });
        self.apply(&stack).await;
    }

    /// Edits fields of a stack's spec.
    pub(crate) async fn edit(&self, stack: &str, fields: &Value) {
        let patch = Patch::Merge(json!({ "spec": fields }));
        self.stacks()
            .patch(stack, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// Waits until the message of the stack's Ready condition contains all texts; returns the message.
    pub(crate) async fn wait_for_message(
        &self,
        stack: &str,
        texts: &[&str],
    ) -> Result<String, ScenarioError> {
        let has_all = |object: &Value| texts.iter().all(|text| ready_message(object).contains(text));
        let found = wait_for(&self.stacks(), stack, "the message in Ready", has_all).await?;
        Ok(ready_message(&found).to_owned())
    }

    /// Waits until a plan of the stack waits for its approval.
    pub(crate) async fn wait_for_plan(&self, stack: &str) -> Result<(), ScenarioError> {
        let has_plan = |object: &Value| {
            let pending = object.pointer("/status/plan/pending").and_then(Value::as_str);
            pending.is_some_and(|id| !id.is_empty())
        };
        wait_for(&self.stacks(), stack, "a plan that waits for approval", has_plan)
            .await
            .map(drop)
    }

    /// Requests a run of the stack, and waits until it has ended.
    pub(crate) async fn request_run(&self, stack: &str, token: &str) -> Result<(), ScenarioError> {
        let annotations = json!({ "reconcile.fluxcd.io/requestedAt": token });
        let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
        self.stacks()
            .patch(stack, &PatchParams::default(), &patch)
            .await
            .unwrap();
        let is_handled = |object: &Value| object["status"]["lastHandledReconcileAt"] == token;
        wait_for(&self.stacks(), stack, "the end of the requested run", is_handled)
            .await
            .map(drop)
    }

    /// Returns the stack's runs in the order of their names, as `phase reason`.
    pub(crate) async fn runs(&self, stack: &str) -> Vec<String> {
        let selector = ListParams::default().labels(&format!("infra.sluice.dev/terraform={stack}"));
        let runs = self
            .api("infra.sluice.dev", "v1alpha1", "TerraformRun")
            .list(&selector)
            .await
            .unwrap();
        let mut found: Vec<_> = runs
            .items
            .iter()
            .map(|run| (run.metadata.name.clone(), run.data["status"].clone()))
            .collect();
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        let text = |status: &Value, field: &str| status[field].as_str().unwrap_or_default().to_owned();
        found
            .iter()
            .map(|(_, status)| format!("{} {}", text(status, "phase"), text(status, "reason")))
            .collect()
    }

    /// Returns the names of the Jobs.
    pub(crate) async fn jobs(&self) -> Vec<String> {
        let jobs = self
            .api("batch", "v1", "Job")
            .list(&ListParams::default())
            .await
            .unwrap();
        jobs.items
            .into_iter()
            .filter_map(|job| job.metadata.name)
            .collect()
    }

    fn stacks(&self) -> Api<DynamicObject> {
        self.api("infra.contrib.fluxcd.io", "v1alpha2", "Terraform")
    }

    fn api(&self, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }
}

fn account(namespace: &str, name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name, "namespace": namespace } })
}

/// Returns an account, and the binding that gives it the role of runs.
pub(crate) fn account_with_role(namespace: &str, name: &str) -> [Value; 2] {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": name, "namespace": namespace },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "sluice-tf-runner" },
        "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": namespace }],
    });
    [account(namespace, name), binding]
}

/// Returns `runnerPodTemplate` of runs that use the provider, which must be open to pods: its folder is a volume of the pod.
pub(crate) fn pods_with_provider(provider: &TrialProvider) -> Value {
    let config = provider.cli_config();
    let folder = config.parent().map(|folder| folder.display().to_string());
    json!({ "spec": {
        "env": [{ "name": "TF_CLI_CONFIG_FILE", "value": config.display().to_string() }],
        "volumes": [{ "name": "provider", "hostPath": { "path": folder } }],
        "volumeMounts": [{ "name": "provider", "mountPath": folder }],
    } })
}

fn ready_message(stack: &Value) -> &str {
    ready_text(stack, "message")
}

/// Returns a field of the Ready condition.
fn ready_text<'o>(object: &'o Value, field: &str) -> &'o str {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    let ready = conditions.find(|condition| condition["type"] == "Ready");
    ready.and_then(|ready| ready[field].as_str()).unwrap_or_default()
}
