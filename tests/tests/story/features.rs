//! What stacks can do beyond the story of the README, on a real etcd and kube-apiserver: the point is that the definitions keep
//! every field, and that the rights that `config` gives are enough.

use crate::{
    within_deadline, without_cluster,
    world::{Origin, World, ready},
};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Secret};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use sluice_tests::story::{NAMESPACE, Story, until, until_gone};

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

/// One telling of it.
struct Telling {
    client: Client,
    story: Story,
}

impl Telling {
    async fn source(&self, origin: &Origin) -> String {
        let files = [("net/main.tf", NET), ("app/main.tf", APP), ("old/main.tf", OLD)];
        let hash = origin.repository.commit_files(&files, "Three stacks").unwrap();
        let source = json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": { "name": "code", "namespace": NAMESPACE },
            "spec": { "url": origin.url, "interval": "2s", "ref": { "branch": "main" } } });
        let source: DynamicObject = serde_json::from_value(source).unwrap();
        self.story
            .sources()
            .create(&PostParams::default(), &source)
            .await
            .unwrap();
        format!("main@sha1:{hash}")
    }

    async fn stack(&self, name: &str, more: &Value) -> DynamicObject {
        let mut spec = json!({ "interval": "10m", "retryInterval": "2s", "path": format!("./{name}"), "approvePlan": "auto",
            "sourceRef": { "kind": "GitRepository", "name": "code" } });
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        let stack = json!({ "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
            "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec });
        let stack: DynamicObject = serde_json::from_value(stack).unwrap();
        let stacks = self.story.stacks();
        stacks.create(&PostParams::default(), &stack).await.unwrap()
    }

    async fn edit(&self, name: &str, spec: Value) {
        let (patch, params) = (Patch::Merge(json!({ "spec": spec })), PatchParams::default());
        self.story.stacks().patch(name, &params, &patch).await.unwrap();
    }

    /// Waits until `Ready`, of the generation of now, contains this.
    async fn ready(&self, name: &str, text: &str, world: &World) -> Value {
        let shows = |object: &Value| {
            let now = &object["metadata"]["generation"]
                == object
                    .pointer("/status/observedGeneration")
                    .unwrap_or(&Value::Null);
            now && ready(object).contains(text)
        };
        let seen = until(&self.story.stacks(), name, "its Ready", shows).await;
        seen.unwrap_or_else(|error| panic!("{text:?}: {error}\n{}", world.logs()))
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// The keys of the Secrets with this label.
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

/// Applied in order, held by the policy, approved; plans and what was applied are sealed.
async fn two_stacks(at: &Telling, world: &World) {
    let policy = json!({ "allow": ["create", "update"], "hold": ["delete", "replace"], "maxChanges": 5 });
    let below = json!([{ "name": "net" }]);
    let from = json!([{ "kind": "Secret", "name": "net-outputs" }]);
    at.stack(
        "app",
        &json!({ "dependsOn": below, "varsFrom": from, "deletionPolicy": "Destroy" }),
    )
    .await;
    at.stack(
        "net",
        &json!({ "autoApply": policy, "vars": [{ "name": "copies", "value": 2 }],
            "writeOutputsToSecret": { "name": "net-outputs" }, "deletionPolicy": "Destroy", "enableInventory": true }),
    )
    .await;
    at.ready("net", "True TerraformOutputsWritten", world).await;
    at.ready("app", "True TerraformAppliedSucceed", world).await;
    at.edit("net", json!({ "vars": [{ "name": "copies", "value": 1 }] }))
        .await;
    let held = at.ready("net", "1 delete (autoApply.hold)", world).await;
    let id = held["status"]["plan"]["pending"].as_str().unwrap().to_owned();
    assert_eq!(
        at.keys_of("infra.contrib.fluxcd.io/plan-name=net").await,
        ["sealed"]
    );
    assert_eq!(at.keys_of("infra.sluice.dev/applied=net").await, ["sealed"]);
    at.edit("net", json!({ "approvePlan": id })).await;
    let applied = |object: &Value| {
        object.pointer("/status/plan/lastApplied") == Some(&json!(id)) && ready(object).starts_with("True ")
    };
    let done = until(&at.story.stacks(), "net", "the approved plan applied", applied).await;
    let done = done.unwrap_or_else(|error| panic!("{error}\n{}", world.logs()));
    assert_eq!(
        done["status"]["inventory"]["entries"].as_array().map(Vec::len),
        Some(1),
        "{done}"
    );
    at.edit("net", json!({ "approvePlan": "auto" })).await;
    at.ready("net", "True ", world).await;
}

/// A lock of somebody else is released when it is named.
async fn a_lock(at: &Telling, world: &World) {
    let leases: Api<Lease> = Api::namespaced(at.client.clone(), NAMESPACE);
    let info = json!({ "ID": LOCK, "Operation": "OperationTypeApply", "Info": "", "Who": "somebody@elsewhere",
        "Version": "1.11.4", "Created": "2026-01-01T00:00:00Z", "Path": "" });
    let held = json!({ "metadata": { "annotations": { "app.terraform.io/lock-info": info.to_string() } },
        "spec": { "holderIdentity": LOCK } });
    let name = "lock-tfstate-default-app";
    leases
        .patch(name, &PatchParams::default(), &Patch::Merge(held))
        .await
        .unwrap();
    at.edit(
        "app",
        json!({ "vars": [{ "name": "size", "value": "two" }], "varsFrom": null }),
    )
    .await;
    at.ready("app", "False TFExecPlanFailed", world).await;
    at.edit(
        "app",
        json!({ "tfstate": { "forceUnlock": "yes", "lockIdentifier": LOCK } }),
    )
    .await;
    at.ready("app", "True TerraformAppliedSucceed", world).await;
    let runs = at.story.runs().await.unwrap();
    assert!(
        runs.iter()
            .any(|run| run.action == "Unlock" && run.phase == "Succeeded"),
        "{runs:?}"
    );
}

/// An object that tofu-controller applied, with its finalizer and its stored plan, goes on.
async fn a_takeover(at: &Telling, revision: &str, world: &World) {
    let made = at.stack("old", &json!({ "suspend": true })).await;
    let finalizer = json!({ "metadata": { "finalizers": ["finalizers.tf.contrib.fluxcd.io"] } });
    let stacks = at.story.stacks();
    let params = PatchParams::default();
    stacks
        .patch("old", &params, &Patch::Merge(finalizer))
        .await
        .unwrap();
    let then = "2026-01-01T00:00:00Z";
    let told = |kind: &str, reason: &str| {
        json!({ "type": kind, "status": "True", "reason": reason, "message": "Applied successfully",
        "lastTransitionTime": then, "observedGeneration": 1 })
    };
    let status = json!({ "status": { "observedGeneration": 1, "lastAppliedRevision": revision, "lastAttemptedRevision": revision,
        "lastPlannedRevision": revision, "lastPlannedGeneration": 1, "lastPlanAt": then, "lastSuccessfulReconcileAt": then,
        "plan": { "lastApplied": "plan-main-aaaaaaaaaa", "pending": "" },
        "conditions": [told("Ready", "TerraformAppliedSucceed"), told("Apply", "TerraformAppliedSucceed")] } });
    stacks
        .patch_status("old", &params, &Patch::Merge(status))
        .await
        .unwrap();
    let plan = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "tfplan-default-old",
            "labels": { "infra.contrib.fluxcd.io/plan-name": "old", "infra.contrib.fluxcd.io/plan-workspace": "default" },
            "annotations": { "encoding": "gzip", "savedPlan": "plan-main-aaaaaaaaaa" },
            "ownerReferences": [{ "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform", "name": "old",
                "uid": made.uid().unwrap() }] },
        "stringData": { "tfplan": "not ours" } });
    let plan: Secret = serde_json::from_value(plan).unwrap();
    at.secrets().create(&PostParams::default(), &plan).await.unwrap();
    at.edit("old", json!({ "suspend": false })).await;
    at.ready("old", "True TerraformAppliedSucceed", world).await;
    assert!(
        at.secrets()
            .get_opt("tfplan-default-old")
            .await
            .unwrap()
            .is_none(),
        "the other program's plan went"
    );
    // Its resources stay, its state goes: the policy is one that an older definition would have dropped.
    at.edit("old", json!({ "deletionPolicy": "Orphan" })).await;
    at.ready("old", "True ", world).await;
    stacks.delete("old", &DeleteParams::default()).await.unwrap();
    until_gone(&stacks, "old").await.unwrap();
    assert!(
        at.secrets()
            .get_opt("tfstate-default-old")
            .await
            .unwrap()
            .is_none()
    );
}

/// What others need is destroyed last, whoever is deleted first.
async fn an_end(at: &Telling, world: &World) {
    let stacks = at.story.stacks();
    stacks.delete("net", &DeleteParams::default()).await.unwrap();
    at.ready("net", "Please delete app to resume", world).await;
    stacks.delete("app", &DeleteParams::default()).await.unwrap();
    for name in ["app", "net"] {
        let gone = until_gone(&stacks, name).await;
        gone.unwrap_or_else(|error| panic!("{error}\n{}", world.logs()));
        let state = at
            .secrets()
            .get(&format!("tfstate-default-{name}"))
            .await
            .unwrap();
        let packed = state.data.unwrap().remove("tfstate").unwrap().0;
        let state: Value = serde_json::from_reader(flate2::read::GzDecoder::new(&packed[..])).unwrap();
        assert_eq!(state["resources"], json!([]), "{name}");
    }
}

#[test]
fn guard_rails_order_locks_and_sealed_plans_on_a_real_api_server() {
    if without_cluster() {
        return;
    }
    within_deadline(async {
        let origin = Origin::start().await;
        let mut world = World::start().await;
        world.seal_plans().await;
        world.start_controllers();
        let client = world.plane.client().await.unwrap();
        let at = Telling {
            story: world.story().await,
            client,
        };
        let revision = at.source(&origin).await;
        two_stacks(&at, &world).await;
        a_lock(&at, &world).await;
        a_takeover(&at, &revision, &world).await;
        an_end(&at, &world).await;
        for controller in [&mut world.sources, &mut world.stacks] {
            controller.end().await.unwrap();
            let log = controller.log();
            let refused: Vec<_> = log.lines().filter(|line| line.contains("forbidden")).collect();
            assert!(
                refused.is_empty(),
                "the roles in config are too narrow: {refused:#?}"
            );
        }
    });
}
