//! What voids an approval and what does not, with real plans; sealed plans.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use sluice_api::reference::ObjectName;
use sluice_api::source::GitRepository;

use crate::environment::{NAMESPACE, SOURCE, TestEnvironment};
use crate::observe::{condition, pending};

const WAITS: &str = "Unknown TerraformPlannedWithChanges Plan generated: set";

/// Returns a module in which each part can be changed separately.
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

/// Changes of the module.
const CHANGES: [(&str, &str, &str); 7] = [
    ("a provisioner's command", "echo made", "echo done"),
    (
        "a template of a value known after the apply",
        "behind $",
        "before $",
    ),
    (
        "an argument of a provider's data source",
        "zone = \"x\"",
        "zone = \"y\"",
    ),
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

/// Publishes the module with a lock file, and with a file that it does not read.
async fn commit(env: &TestEnvironment, mark: &str, text: &str, lock: &str, other: &str) -> String {
    let files = [
        ("infra/main.tf", text),
        ("infra/other.tfstate", STATE),
        ("infra/.terraform.lock.hcl", lock),
        ("other/README.md", other),
    ];
    env.commit(mark, &files).await
}

#[tokio::test(flavor = "multi_thread")]
async fn any_difference_voids_an_approval_and_nothing_else_does() {
    let env = TestEnvironment::new().await;
    commit(&env, "0", &module(&[]), LOCK, "one").await;
    // Without provider upgrades the committed lock file is used.
    let spec = json!({ "approvePlan": "", "path": "infra", "upgradeOnInit": false });
    env.stack("net", spec).await;
    let mut previous = vec![pending(&env.wait_ready("net", WAITS).await)];
    Box::pin(assert_same_id(&env, &previous[0])).await;

    for (index, (what, from, to)) in CHANGES.iter().enumerate() {
        let mark = ["2", "3", "4", "5", "6", "7", "8"][index];
        let revision = commit(&env, mark, &module(&[(from, to)]), LOCK, "two").await;
        previous.push(next_id(&env, &revision, &previous, what).await);
    }
    let newer = LOCK.replace("3.2.0", "3.2.1");
    let revision = commit(&env, "9", &module(&[]), &newer, "two").await;
    previous.push(
        next_id(
            &env,
            &revision,
            &previous,
            "a provider's version in the lock file",
        )
        .await,
    );
    let revision = commit(&env, "a", &module(&[]), LOCK, "two").await;
    // Reverting gives the effect of the first plan, and its id except for the revision.
    let reverted = next_id(&env, &revision, &[], "the reverted change").await;
    assert_eq!(reverted.rsplit('-').next(), previous[0].rsplit('-').next());
    let size = json!({ "vars": [{ "name": "size", "value": "two" }] });
    env.edit("net", size).await;
    previous.push(
        next_id(
            &env,
            &revision,
            &[&previous[..], &[reverted]].concat(),
            "a variable",
        )
        .await,
    );
    env.edit("net", json!({ "destroy": true })).await;
    let nothing = env.wait_ready("net", "True TerraformPlannedNoChanges").await;
    assert_eq!(
        pending(&nothing),
        "",
        "another action: nothing exists to be destroyed"
    );
}

/// A commit that does not touch the inputs keeps the plan and its id, and runs nothing.
async fn assert_same_id(env: &TestEnvironment, id: &str) {
    let unrelated = commit(env, "1", &module(&[]), LOCK, "two").await;
    let stored = env
        .wait_for("net", "the unrelated revision", |stack| {
            let status = stack.status.as_ref();
            status.is_some_and(|status| status.last_attempted_revision == unrelated)
        })
        .await;
    assert_eq!(pending(&stored), id);
    assert_eq!(env.runs("net").await.len(), 1);
}

/// Returns the id of the pending plan of this revision; its digest must differ from those seen.
async fn next_id(env: &TestEnvironment, revision: &str, previous: &[String], what: &str) -> String {
    let stack = env
        .wait_for("net", what, |stack| {
            let status = stack.status.as_ref().unwrap();
            let observed = status.observed_generation == stack.metadata.generation;
            observed
                && status.last_attempted_revision == revision
                && condition(stack, "Ready").starts_with(WAITS)
                && !previous.contains(&pending(stack))
        })
        .await;
    let id = pending(&stack);
    let digest = |id: &str| id.rsplit('-').next().unwrap().to_owned();
    assert!(
        previous.iter().all(|old| digest(old) != digest(&id)),
        "{what} voids nothing"
    );
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_drift_twice_needs_two_approvals() {
    let env = TestEnvironment::new().await;
    env.commit(
        "a",
        &[(
            "main.tf",
            "resource \"terraform_data\" \"it\" { input = \"one\" }",
        )],
    )
    .await;
    env.stack("net", json!({})).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    env.edit("net", json!({ "approvePlan": "" })).await;
    let mut ids = Vec::new();
    for round in ["first", "second"] {
        env.edit_state("net", |state| {
            state["resources"][0]["instances"][0]["attributes"]["input"]["value"] = json!("by hand");
        })
        .await;
        env.request("net", round).await;
        let drifted = env
            .wait_for("net", "drift", |stack| {
                condition(stack, "Ready").starts_with("False DriftDetected") && !ids.contains(&pending(stack))
            })
            .await;
        let id = pending(&drifted);
        assert!(id.starts_with("plan-main-aaaaaaaaaa-"), "{id}");
        env.edit("net", json!({ "approvePlan": id })).await;
        env.wait_ready("net", "True TerraformAppliedSucceed").await;
        ids.push(id);
    }
    assert_ne!(
        ids[0], ids[1],
        "the first approval does not count for the second drift"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_with_only_a_move_shows_the_move() {
    let env = TestEnvironment::new().await;
    let old = "resource \"terraform_data\" \"old\" { input = \"one\" }";
    let new = "resource \"terraform_data\" \"new\" { input = \"one\" }\nmoved {\n  from = terraform_data.old\n  to = terraform_data.new\n}";
    env.commit("a", &[("main.tf", old)]).await;
    env.stack("net", json!({})).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    env.edit("net", json!({ "approvePlan": "", "storeReadablePlan": "human" }))
        .await;
    env.wait_observed("net").await;
    env.commit("b", &[("main.tf", new)]).await;
    let waiting = env.wait_ready("net", WAITS).await;
    assert!(pending(&waiting).starts_with("plan-main-bbbbbbbbbb-"));
    let runs = env.runs("net").await;
    let status = runs.last().unwrap().status.clone().unwrap();
    assert_eq!(status.changes, "+0 ~0 -0 =1");
    assert_eq!(status.change_entries[0].action, "move");
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = env.api();
    let text = maps.get("tfplan-default-net").await.unwrap().data.unwrap()["tfplan"].clone();
    assert!(text.contains("* terraform_data.new: no-op\n"), "{text}");
    assert!(
        text.contains("    # previous_address: \"terraform_data.old\"\n"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_plans_are_sealed_if_the_controller_has_keys() {
    let mut env = TestEnvironment::without_controller().await;
    env.plan_encryption = Some(ObjectName {
        namespace: NAMESPACE.to_owned(),
        name: "plan-keys".to_owned(),
    });
    env.start(4).await;
    env.commit(
        "a",
        &[(
            "main.tf",
            "resource \"terraform_data\" \"it\" { input = \"one\" }",
        )],
    )
    .await;
    env.stack("net", json!({ "approvePlan": "" })).await;
    let failed = env.wait_ready("net", "False PlanEncryptionFailed").await;
    assert!(
        condition(&failed, "Ready")
            .contains("cannot use the Secret team/plan-keys of --plan-encryption-secret")
    );
    assert_eq!(
        env.runs("net").await.len(),
        0,
        "no plan is created that would be stored unsealed"
    );

    let first = "0123456789abcdef".repeat(4);
    env.secret("plan-keys", &[("2026-01", &first)]).await;
    let id = pending(&env.wait_ready("net", WAITS).await);
    let plans = ListParams::default().labels("infra.contrib.fluxcd.io/plan-name=net");
    let secrets: Api<Secret> = env.api();
    for secret in secrets.list(&plans).await.unwrap().items {
        assert_eq!(secret.data.unwrap().into_keys().collect::<Vec<_>>(), ["sealed"]);
    }
    // After a rotation the pending plan can still be opened, and its approval stays valid.
    secrets
        .delete("plan-keys", &DeleteParams::default())
        .await
        .unwrap();
    env.secret(
        "plan-keys",
        &[("2026-01", &first), ("2026-02", &"fedcba9876543210".repeat(4))],
    )
    .await;
    env.edit("net", json!({ "approvePlan": id })).await;
    let done = env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(done.status.unwrap().plan.unwrap().last_applied, id);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_applied_configuration_is_sealed_and_destroys_after_a_rotation() {
    let mut env = TestEnvironment::without_controller().await;
    env.plan_encryption = Some(ObjectName {
        namespace: NAMESPACE.to_owned(),
        name: "plan-keys".to_owned(),
    });
    let first = "0123456789abcdef".repeat(4);
    env.secret("plan-keys", &[("2026-01", &first)]).await;
    env.start(4).await;
    let states = env.path("states");
    let backend = format!(
        "backend \"local\" {{ workspace_dir = {:?} }}",
        states.display().to_string()
    );
    let record_file = env.path("record");
    let module = format!(
        "variable \"size\" {{}}\nresource \"terraform_data\" \"it\" {{\n  input = var.size\n  provisioner \"local-exec\" \
         {{\n    when = destroy\n    command = \"echo ${{self.input}} > {}\"\n  }}\n}}\n",
        record_file.display()
    );
    env.commit("a", &[("main.tf", &module)]).await;
    // A name that objects cannot have: the names of the Secrets are derived from it all the same.
    let spec = json!({ "workspace": "Blue_1", "backendConfig": { "customConfiguration": backend },
        "vars": [{ "name": "size", "value": "canary-large" }], "destroyResourcesOnDeletion": true });
    env.stack("net", spec).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    let secrets: Api<Secret> = env.api();
    let stored = ListParams::default().labels("infra.sluice.dev/applied=net");
    let stored = secrets.list(&stored).await.unwrap().items;
    assert_eq!(stored.len(), 1);
    let data = stored[0].data.as_ref().unwrap();
    assert_eq!(data.keys().collect::<Vec<_>>(), ["sealed"]);
    assert_eq!(
        stored[0].metadata.annotations.as_ref().unwrap()["infra.sluice.dev/plan-sealed-with"],
        "2026-01"
    );

    let second = "fedcba9876543210".repeat(4);
    let rotated = json!({ "stringData": { "2026-01": first, "2026-02": second } });
    secrets
        .patch("plan-keys", &PatchParams::default(), &Patch::Merge(rotated))
        .await
        .unwrap();
    let sources: Api<GitRepository> = env.api();
    sources.delete(SOURCE, &DeleteParams::default()).await.unwrap();
    env.delete("net").await;
    env.wait_gone("net").await;
    assert_eq!(
        std::fs::read_to_string(record_file).unwrap().trim(),
        "canary-large"
    );
}
