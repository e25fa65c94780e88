//! What voids an approval and what does not, with real plans; plans that are sealed.

use crate::looks::{condition, pending};
use crate::world::{NAMESPACE, SOURCE, World};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use sluice_api::source::GitRepository;
use sluice_tf_controller::inputs::SecretPlace;

const WAITS: &str = "Unknown TerraformPlannedWithChanges Plan generated: set";

/// A module in which each part can be changed by itself.
fn module(changes: &[(&str, &str)]) -> String {
    let mut text = r#"
variable "size" { default = "one" }
resource "terraform_data" "a" {
  input = var.size
  provisioner "local-exec" { command = "echo made" }
}
resource "terraform_data" "b" { input = "behind ${terraform_data.a.id}" }
resource "terraform_data" "c" {
  input            = "c"
  triggers_replace = "now"
}
data "terraform_remote_state" "other" {
  backend  = "local"
  config   = { path = "${path.module}/other.tfstate" }
  defaults = { zone = "x" }
}
output "size" { value = var.size }
"#
    .to_owned();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replacen(from, to, 1);
    }
    text
}

const STATE: &str =
    r#"{"version":4,"terraform_version":"1.0.0","serial":1,"lineage":"x","outputs":{},"resources":[]}"#;

const LOCK: &str = r#"provider "registry.terraform.io/hashicorp/null" {
  version = "3.2.0"
}
"#;

/// What is changed in the module, and how.
const CHANGES: [(&str, &str, &str); 7] = [
    ("a provisioner's command", "echo made", "echo done"),
    (
        "a template of what is known after the apply",
        "behind $",
        "before $",
    ),
    ("an argument of a provider's data", "zone = \"x\"", "zone = \"y\""),
    (
        "an attribute",
        "input            = \"c\"",
        "input            = \"d\"",
    ),
    (
        "an address",
        "\"terraform_data\" \"c\"",
        "\"terraform_data\" \"d\"",
    ),
    (
        "an output",
        "output \"size\" { value = var.size",
        "output \"size\" { value = \"x\"",
    ),
    ("what replaces", "\"now\"", "\"later\""),
];

/// Publishes the module with a lock beside it, and a file that it does not read.
async fn commit(world: &World, mark: &str, text: &str, lock: &str, other: &str) -> String {
    let files = [
        ("infra/main.tf", text),
        ("infra/other.tfstate", STATE),
        ("infra/.terraform.lock.hcl", lock),
        ("other/README.md", other),
    ];
    world.commit(mark, &files).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_is_void_as_soon_as_anything_differs_and_only_then() {
    let world = World::new().await;
    commit(&world, "0", &module(&[]), LOCK, "one").await;
    // Without newer providers the lock is kept as it was committed.
    let spec = json!({ "approvePlan": "", "path": "infra", "upgradeOnInit": false });
    world.stack("net", spec).await;
    let mut seen = vec![pending(&world.ready("net", WAITS).await)];
    Box::pin(keeps_its_id(&world, &seen[0])).await;

    for (index, (what, from, to)) in CHANGES.iter().enumerate() {
        let mark = ["2", "3", "4", "5", "6", "7", "8"][index];
        let revision = commit(&world, mark, &module(&[(from, to)]), LOCK, "two").await;
        seen.push(next_id(&world, &revision, &seen, what).await);
    }
    let newer = LOCK.replace("3.2.0", "3.2.1");
    let revision = commit(&world, "9", &module(&[]), &newer, "two").await;
    seen.push(next_id(&world, &revision, &seen, "a provider's version in the lock").await);
    let revision = commit(&world, "a", &module(&[]), LOCK, "two").await;
    // The way back has the effect of the first plan, and its id but for the revision.
    let back = next_id(&world, &revision, &[], "the way back").await;
    assert_eq!(back.rsplit('-').next(), seen[0].rsplit('-').next());
    let size = json!({ "vars": [{ "name": "size", "value": "two" }] });
    world.edit("net", size).await;
    seen.push(next_id(&world, &revision, &[&seen[..], &[back]].concat(), "a variable").await);
    world.edit("net", json!({ "destroy": true })).await;
    let nothing = world.ready("net", "True TerraformPlannedNoChanges").await;
    assert_eq!(
        pending(&nothing),
        "",
        "another action: nothing is there to be destroyed"
    );
}

/// A commit that the stack does not read keeps the plan and its id, and runs nothing.
async fn keeps_its_id(world: &World, id: &str) {
    let unrelated = commit(world, "1", &module(&[]), LOCK, "two").await;
    let kept = world
        .until("net", "the unrelated revision", |stack| {
            let status = stack.status.as_ref();
            status.is_some_and(|status| status.last_attempted_revision == unrelated)
        })
        .await;
    assert_eq!(pending(&kept), id);
    assert_eq!(world.runs("net").await.len(), 1);
}

/// The id of the plan that waits for this revision; its digest is none of those seen.
async fn next_id(world: &World, revision: &str, seen: &[String], what: &str) -> String {
    let stack = world
        .until("net", what, |stack| {
            let status = stack.status.as_ref().unwrap();
            let observed = status.observed_generation == stack.metadata.generation;
            observed
                && status.last_attempted_revision == revision
                && condition(stack, "Ready").starts_with(WAITS)
                && !seen.contains(&pending(stack))
        })
        .await;
    let id = pending(&stack);
    let digest = |id: &str| id.rsplit('-').next().unwrap().to_owned();
    assert!(
        seen.iter().all(|old| digest(old) != digest(&id)),
        "{what} voids nothing"
    );
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_drift_twice_needs_two_approvals() {
    let world = World::new().await;
    world
        .commit(
            "a",
            &[(
                "main.tf",
                "resource \"terraform_data\" \"it\" { input = \"one\" }",
            )],
        )
        .await;
    world.stack("net", json!({})).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    world.edit("net", json!({ "approvePlan": "" })).await;
    let mut ids = Vec::new();
    for round in ["first", "second"] {
        world
            .edit_state("net", |state| {
                state["resources"][0]["instances"][0]["attributes"]["input"]["value"] = json!("by hand");
            })
            .await;
        world.request("net", round).await;
        let drifted = world
            .until("net", "drift", |stack| {
                condition(stack, "Ready").starts_with("False DriftDetected") && !ids.contains(&pending(stack))
            })
            .await;
        let id = pending(&drifted);
        assert!(id.starts_with("plan-main-aaaaaaaaaa-"), "{id}");
        world.edit("net", json!({ "approvePlan": id })).await;
        world.ready("net", "True TerraformAppliedSucceed").await;
        ids.push(id);
    }
    assert_ne!(
        ids[0], ids[1],
        "the first approval does not count for the second drift"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_alone_shows_as_a_move() {
    let world = World::new().await;
    let old = "resource \"terraform_data\" \"old\" { input = \"one\" }";
    let new = "resource \"terraform_data\" \"new\" { input = \"one\" }\nmoved {\n  from = terraform_data.old\n  to = terraform_data.new\n}";
    world.commit("a", &[("main.tf", old)]).await;
    world.stack("net", json!({})).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    world
        .edit("net", json!({ "approvePlan": "", "storeReadablePlan": "human" }))
        .await;
    world.observed("net").await;
    world.commit("b", &[("main.tf", new)]).await;
    let waiting = world.ready("net", WAITS).await;
    assert!(pending(&waiting).starts_with("plan-main-bbbbbbbbbb-"));
    let runs = world.runs("net").await;
    let status = runs.last().unwrap().status.clone().unwrap();
    assert_eq!(status.changes, "+0 ~0 -0 =1");
    assert_eq!(status.change_entries[0].action, "move");
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = world.api();
    let text = maps.get("tfplan-default-net").await.unwrap().data.unwrap()["tfplan"].clone();
    assert!(text.contains("* terraform_data.new: no-op\n"), "{text}");
    assert!(
        text.contains("    # previous_address: \"terraform_data.old\"\n"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_plans_are_sealed_where_the_controller_has_keys() {
    let mut world = World::without_controller().await;
    world.plan_encryption = Some(SecretPlace {
        namespace: NAMESPACE.to_owned(),
        name: "plan-keys".to_owned(),
    });
    world.start(4).await;
    world
        .commit(
            "a",
            &[(
                "main.tf",
                "resource \"terraform_data\" \"it\" { input = \"one\" }",
            )],
        )
        .await;
    world.stack("net", json!({ "approvePlan": "" })).await;
    let failed = world.ready("net", "False PlanEncryptionFailed").await;
    assert!(
        condition(&failed, "Ready")
            .contains("cannot use the Secret team/plan-keys of --plan-encryption-secret")
    );
    assert_eq!(
        world.runs("net").await.len(),
        0,
        "nothing is planned that would be stored in clear"
    );

    let first = "0123456789abcdef".repeat(4);
    world.secret("plan-keys", &[("2026-01", &first)]).await;
    let id = pending(&world.ready("net", WAITS).await);
    let plans = ListParams::default().labels("infra.contrib.fluxcd.io/plan-name=net");
    let secrets: Api<Secret> = world.api();
    for secret in secrets.list(&plans).await.unwrap().items {
        assert_eq!(secret.data.unwrap().into_keys().collect::<Vec<_>>(), ["sealed"]);
    }
    // After a rotation the plan that waits is still opened, and its approval still counts.
    secrets
        .delete("plan-keys", &DeleteParams::default())
        .await
        .unwrap();
    world
        .secret(
            "plan-keys",
            &[("2026-01", &first), ("2026-02", &"fedcba9876543210".repeat(4))],
        )
        .await;
    world.edit("net", json!({ "approvePlan": id })).await;
    let done = world.ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(done.status.unwrap().plan.unwrap().last_applied, id);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_applied_last_is_sealed_too_and_destroys_after_a_rotation() {
    let mut world = World::without_controller().await;
    world.plan_encryption = Some(SecretPlace {
        namespace: NAMESPACE.to_owned(),
        name: "plan-keys".to_owned(),
    });
    let first = "0123456789abcdef".repeat(4);
    world.secret("plan-keys", &[("2026-01", &first)]).await;
    world.start(4).await;
    let states = world.path("states");
    let backend = format!(
        "backend \"local\" {{ workspace_dir = {:?} }}",
        states.display().to_string()
    );
    let told = world.path("told");
    let module = format!(
        "variable \"size\" {{}}\nresource \"terraform_data\" \"it\" {{\n  input = var.size\n  provisioner \"local-exec\" \
         {{\n    when = destroy\n    command = \"echo ${{self.input}} > {}\"\n  }}\n}}\n",
        told.display()
    );
    world.commit("a", &[("main.tf", &module)]).await;
    // A name that is none of an object: those of the Secrets are made of it all the same.
    let spec = json!({ "workspace": "Blue_1", "backendConfig": { "customConfiguration": backend },
        "vars": [{ "name": "size", "value": "canary-large" }], "destroyResourcesOnDeletion": true });
    world.stack("net", spec).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    let secrets: Api<Secret> = world.api();
    let kept = ListParams::default().labels("infra.sluice.dev/applied=net");
    let kept = secrets.list(&kept).await.unwrap().items;
    assert_eq!(kept.len(), 1);
    let data = kept[0].data.as_ref().unwrap();
    assert_eq!(data.keys().collect::<Vec<_>>(), ["sealed"]);
    assert_eq!(
        kept[0].metadata.annotations.as_ref().unwrap()["infra.sluice.dev/plan-sealed-with"],
        "2026-01"
    );

    let second = "fedcba9876543210".repeat(4);
    let rotated = json!({ "stringData": { "2026-01": first, "2026-02": second } });
    secrets
        .patch("plan-keys", &PatchParams::default(), &Patch::Merge(rotated))
        .await
        .unwrap();
    let sources: Api<GitRepository> = world.api();
    sources.delete(SOURCE, &DeleteParams::default()).await.unwrap();
    world.delete("net").await;
    world.gone("net").await;
    assert_eq!(std::fs::read_to_string(told).unwrap().trim(), "canary-large");
}
