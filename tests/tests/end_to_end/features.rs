//! Features beyond the main scenario on a real etcd and kube-apiserver: the definitions must keep every field, and the permissions
//! in `config` must suffice.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use sluice_tests::scenario::{NAMESPACE, Scenario, wait_for, wait_until_gone};

use crate::environment::{Origin, TestEnvironment, ready};
use crate::{with_timeout, without_cluster};

const LOCK: &str = "11111111-2222-3333-4444-555555555555";
const NET: &str = r#"
variable "copies" { type = number }
variable "size" { default = "one" }
resource "terraform_data" "it" {
  count = var.copies
  input = var.size
}
output "size" { value = var.size }
"#;
const APP: &str = "variable \"size\" {}\nresource \"terraform_data\" \"it\" { input = var.size }\n";
const OLD: &str = "resource \"terraform_data\" \"it\" { input = \"one\" }\n";

/// The API and the scenario.
pub(crate) struct FeatureTest {
    pub(crate) client: Client,
    pub(crate) scenario: Scenario,
}

impl FeatureTest {
    pub(crate) async fn new(env: &TestEnvironment) -> Self {
        Self {
            client: env.plane.client().await.unwrap(),
            scenario: env.scenario().await,
        }
    }

    pub(crate) async fn source(&self, origin: &Origin) -> String {
        let files = [("net/main.tf", NET), ("app/main.tf", APP), ("old/main.tf", OLD)];
        let hash = origin.repository.commit_files(&files, "Three stacks").unwrap();
        let source = json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": { "name": "code", "namespace": NAMESPACE },
            "spec": { "url": origin.url, "interval": "2s", "ref": { "branch": "main" } } });
        let source: DynamicObject = serde_json::from_value(source).unwrap();
        self.scenario
            .sources()
            .create(&PostParams::default(), &source)
            .await
            .unwrap();
        format!("main@sha1:{hash}")
    }

    pub(crate) async fn stack(&self, name: &str, more: &Value) -> DynamicObject {
        let mut spec = json!({ "interval": "10m", "retryInterval": "2s", "path": format!("./{name}"), "approvePlan": "auto",
            "sourceRef": { "kind": "GitRepository", "name": "code" } });
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        let stack = json!({ "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
            "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec });
        let stack: DynamicObject = serde_json::from_value(stack).unwrap();
        let stacks = self.scenario.stacks();
        stacks.create(&PostParams::default(), &stack).await.unwrap()
    }

    pub(crate) async fn edit(&self, name: &str, spec: Value) {
        let (patch, params) = (Patch::Merge(json!({ "spec": spec })), PatchParams::default());
        self.scenario.stacks().patch(name, &params, &patch).await.unwrap();
    }

    /// Waits until `Ready` of the current generation contains this text.
    pub(crate) async fn wait_for_ready(&self, name: &str, text: &str, env: &TestEnvironment) -> Value {
        let shows = |object: &Value| {
            let now = &object["metadata"]["generation"]
                == object
                    .pointer("/status/observedGeneration")
                    .unwrap_or(&Value::Null);
            now && ready(object).contains(text)
        };
        let ready = wait_for(&self.scenario.stacks(), name, "its Ready", shows).await;
        ready.unwrap_or_else(|error| panic!("{text:?}: {error}\n{}", env.logs()))
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Returns the keys of the Secrets with this label.
    async fn keys_of(&self, label: &str) -> Vec<String> {
        let found = self
            .secrets()
            .list(&ListParams::default().labels(label))
            .await
            .unwrap();
        let data = found
            .items
            .into_iter()
            .flat_map(|secret| secret.data.unwrap_or_default());
        data.map(|(key, _)| key).collect()
    }
}

/// Applied in order of dependencies, held by the policy, approved; plans and applied configurations are sealed.
async fn check_dependent_stacks(test: &FeatureTest, env: &TestEnvironment) {
    let policy = json!({ "allow": ["create", "update"], "hold": ["delete", "replace"], "maxChanges": 5 });
    let below = json!([{ "name": "net" }]);
    let from = json!([{ "kind": "Secret", "name": "net-outputs" }]);
    test.stack(
        "app",
        &json!({ "dependsOn": below, "varsFrom": from, "deletionPolicy": "Destroy" }),
    )
    .await;
    test.stack(
        "net",
        &json!({ "autoApply": policy, "vars": [{ "name": "copies", "value": 2 }],
            "writeOutputsToSecret": { "name": "net-outputs" }, "deletionPolicy": "Destroy", "enableInventory": true }),
    )
    .await;
    test.wait_for_ready("net", "True TerraformOutputsWritten", env)
        .await;
    test.wait_for_ready("app", "True TerraformAppliedSucceed", env)
        .await;
    test.edit("net", json!({ "vars": [{ "name": "copies", "value": 1 }] }))
        .await;
    let held_stack = test.wait_for_ready("net", "1 delete (autoApply.hold)", env).await;
    let id = held_stack["status"]["plan"]["pending"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        test.keys_of("infra.contrib.fluxcd.io/plan-name=net").await,
        ["sealed"]
    );
    assert_eq!(test.keys_of("infra.sluice.dev/applied=net").await, ["sealed"]);
    test.edit("net", json!({ "approvePlan": id })).await;
    let applied = |object: &Value| {
        object.pointer("/status/plan/lastApplied") == Some(&json!(id)) && ready(object).starts_with("True ")
    };
    let done = wait_for(
        &test.scenario.stacks(),
        "net",
        "the approved plan applied",
        applied,
    )
    .await;
    let done = done.unwrap_or_else(|error| panic!("{error}\n{}", env.logs()));
    assert_eq!(
        done["status"]["inventory"]["entries"].as_array().map(Vec::len),
        Some(1),
        "{done}"
    );
    test.edit("net", json!({ "approvePlan": "auto" })).await;
    test.wait_for_ready("net", "True ", env).await;
}

/// A foreign lock is released by naming it.
async fn check_force_unlock(test: &FeatureTest, env: &TestEnvironment) {
    let leases: Api<Lease> = Api::namespaced(test.client.clone(), NAMESPACE);
    let info = json!({ "ID": LOCK, "Operation": "OperationTypeApply", "Info": "", "Who": "user@other-host",
        "Version": "1.11.4", "Created": "2026-01-01T00:00:00Z", "Path": "" });
    let held_stack = json!({ "metadata": { "annotations": { "app.terraform.io/lock-info": info.to_string() } },
        "spec": { "holderIdentity": LOCK } });
    let name = "lock-tfstate-default-app";
    leases
        .patch(name, &PatchParams::default(), &Patch::Merge(held_stack))
        .await
        .unwrap();
    test.edit(
        "app",
        json!({ "vars": [{ "name": "size", "value": "two" }], "varsFrom": null }),
    )
    .await;
    test.wait_for_ready("app", "False TFExecPlanFailed", env).await;
    test.edit(
        "app",
        json!({ "tfstate": { "forceUnlock": "yes", "lockIdentifier": LOCK } }),
    )
    .await;
    test.wait_for_ready("app", "True TerraformAppliedSucceed", env)
        .await;
    let runs = test.scenario.runs().await.unwrap();
    assert!(
        runs.iter()
            .any(|run| run.action == "Unlock" && run.phase == "Succeeded"),
        "{runs:?}"
    );
}

/// A stack that tofu-controller applied, with its finalizer and its stored plan, is taken over.
async fn check_takeover(test: &FeatureTest, revision: &str, env: &TestEnvironment) {
    let created = test.stack("old", &json!({ "suspend": true })).await;
    let finalizer = json!({ "metadata": { "finalizers": ["finalizers.tf.contrib.fluxcd.io"] } });
    let stacks = test.scenario.stacks();
    let params = PatchParams::default();
    stacks
        .patch("old", &params, &Patch::Merge(finalizer))
        .await
        .unwrap();
    let then = "2026-01-01T00:00:00Z";
    let condition = |kind: &str, reason: &str| {
        json!({ "type": kind, "status": "True", "reason": reason, "message": "Applied successfully",
        "lastTransitionTime": then, "observedGeneration": 1 })
    };
    let status = json!({ "status": { "observedGeneration": 1, "lastAppliedRevision": revision, "lastAttemptedRevision": revision,
        "lastPlannedRevision": revision, "lastPlannedGeneration": 1, "lastPlanAt": then, "lastSuccessfulReconcileAt": then,
        "plan": { "lastApplied": "plan-main-aaaaaaaaaa", "pending": "" },
        "conditions": [condition("Ready", "TerraformAppliedSucceed"), condition("Apply", "TerraformAppliedSucceed")] } });
    stacks
        .patch_status("old", &params, &Patch::Merge(status))
        .await
        .unwrap();
    let plan = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "tfplan-default-old",
            "labels": { "infra.contrib.fluxcd.io/plan-name": "old", "infra.contrib.fluxcd.io/plan-workspace": "default" },
            "annotations": { "encoding": "gzip", "savedPlan": "plan-main-aaaaaaaaaa" },
            "ownerReferences": [{ "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform", "name": "old",
                "uid": created.uid().unwrap() }] },
        "stringData": { "tfplan": "not ours" } });
    let plan: Secret = serde_json::from_value(plan).unwrap();
    test.secrets()
        .create(&PostParams::default(), &plan)
        .await
        .unwrap();
    test.edit("old", json!({ "suspend": false })).await;
    test.wait_for_ready("old", "True TerraformAppliedSucceed", env)
        .await;
    assert!(
        test.secrets()
            .get_opt("tfplan-default-old")
            .await
            .unwrap()
            .is_none(),
        "the plan of tofu-controller was deleted"
    );
    // Orphan: its resources stay, its state is deleted. An older definition would have dropped this field.
    test.edit("old", json!({ "deletionPolicy": "Orphan" })).await;
    test.wait_for_ready("old", "True ", env).await;
    stacks.delete("old", &DeleteParams::default()).await.unwrap();
    wait_until_gone(&stacks, "old").await.unwrap();
    assert!(
        test.secrets()
            .get_opt("tfstate-default-old")
            .await
            .unwrap()
            .is_none()
    );
}

/// Dependencies are destroyed last, whatever the order of deletion.
async fn check_deletion_order(test: &FeatureTest, env: &TestEnvironment) {
    let stacks = test.scenario.stacks();
    stacks.delete("net", &DeleteParams::default()).await.unwrap();
    test.wait_for_ready("net", "Please delete app to resume", env)
        .await;
    stacks.delete("app", &DeleteParams::default()).await.unwrap();
    for name in ["app", "net"] {
        let result = wait_until_gone(&stacks, name).await;
        result.unwrap_or_else(|error| panic!("{error}\n{}", env.logs()));
        let state = test
            .secrets()
            .get(&format!("tfstate-default-{name}"))
            .await
            .unwrap();
        let packed = state.data.unwrap().remove("tfstate").unwrap().0;
        let state: Value = serde_json::from_reader(flate2::read::GzDecoder::new(&packed[..])).unwrap();
        assert_eq!(state["resources"], json!([]), "{name}");
    }
}

/// Runs all scenarios of this file, from the source to the deletion of the stacks.
pub(crate) async fn run_scenarios(test: &FeatureTest, origin: &Origin, env: &TestEnvironment) {
    let revision = test.source(origin).await;
    check_dependent_stacks(test, env).await;
    check_force_unlock(test, env).await;
    check_takeover(test, &revision, env).await;
    check_deletion_order(test, env).await;
}

#[test]
fn guard_rails_order_locks_and_sealed_plans_on_a_real_api_server() {
    if without_cluster() {
        return;
    }
    with_timeout(async {
        let origin = Origin::start().await;
        let mut env = TestEnvironment::start().await;
        env.seal_plans().await;
        env.start_controllers();
        let test = FeatureTest::new(&env).await;
        run_scenarios(&test, &origin, &env).await;
        for controller in [&mut env.source_controller, &mut env.tf_controller] {
            controller.end_without_refusal().await;
        }
    });
}
