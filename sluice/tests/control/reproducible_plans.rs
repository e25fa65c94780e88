//! The same inputs always give the same plan id, on any controller; and drift is reported by its classes.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use serde_json::json;
use sluice_api::terraform::Terraform;

use crate::environment::TestEnvironment;
use crate::observe::{condition, pending};

const WAITS: &str = "Unknown TerraformPlannedWithChanges Plan generated: set";

/// Contains values that differ in each run and values that do not; a file, a module, and a sensitive value.
const VOLATILE: &str = r#"
variable "token" { sensitive = true }
module "below" { source = "./below" }
resource "terraform_data" "one" {
  input = { when = timestamp(), id = uuid(), hash = bcrypt("x"), token = var.token, text = file("text") }
}
resource "terraform_data" "two" { input = "behind ${terraform_data.one.id} ${module.below.it}" }
output "when" { value = timestamp() }
"#;
const BELOW: &str = "resource \"terraform_data\" \"it\" { input = path.module }\noutput \"it\" { value = path.cwd != \"\" }\n";

/// Copies the key of another machine's object with this name, as if it were the same object.
async fn same_key(env: &TestEnvironment) {
    let stacks: Api<Terraform> = env.api();
    let uid = stacks.get("net").await.unwrap().uid().unwrap();
    let key = k8s_openapi::ByteString(vec![7; 32]);
    let secret = json!({ "metadata": { "name": "net-sluice-key", "ownerReferences": [{ "apiVersion": "infra.contrib.fluxcd.io/v1alpha2",
        "kind": "Terraform", "name": "net", "uid": uid }] }, "data": { "key": key }, "immutable": true });
    let secrets: Api<Secret> = env.api();
    secrets
        .create(&PostParams::default(), &serde_json::from_value(secret).unwrap())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_plans_by_two_controllers_in_separate_directories_have_one_id() {
    let (mut ids, mut plans) = (BTreeSet::new(), 0);
    for _ in 0..2 {
        let env = TestEnvironment::new().await;
        let files = [
            ("main.tf", VOLATILE),
            ("below/main.tf", BELOW),
            ("text", "as it is"),
        ];
        env.commit("a", &files).await;
        env.secret("given", &[("token", "hidden")]).await;
        let from = json!([{ "kind": "Secret", "name": "given" }]);
        env.stack(
            "net",
            json!({ "approvePlan": "", "suspend": true, "varsFrom": from }),
        )
        .await;
        same_key(&env).await;
        env.edit("net", json!({ "suspend": false })).await;
        for number in 1..=5 {
            let ended = env
                .wait_run("net", "another plan", |run| {
                    let ended = run.status.as_ref().is_some_and(|status| status.phase.is_final());
                    ended && run.name_any().ends_with(&format!("-{number}"))
                })
                .await;
            let id = ended.status.unwrap().plan_id;
            plans += 1;
            let waiting = env.wait_ready("net", WAITS).await;
            assert_eq!(pending(&waiting), id);
            // Each request for a new plan is another edit: a longer prefix of the id.
            let wish = format!("replan-{}", &id[..8 + number]);
            env.edit("net", json!({ "approvePlan": wish })).await;
            ids.insert(id);
        }
    }
    assert_eq!(plans, 10);
    assert_eq!(ids.len(), 1, "{ids:?}");
}

/// External files simulate drift, one for each class.
const CLASSES: &str = r#"
variable "outside" {}
resource "terraform_data" "changed" { input = fileexists("${var.outside}/changed") }
resource "terraform_data" "replaced" { triggers_replace = fileexists("${var.outside}/replaced") }
resource "terraform_data" "deleted" { count = fileexists("${var.outside}/deleted") ? 0 : 1 }
resource "terraform_data" "created" { count = fileexists("${var.outside}/created") ? 1 : 0 }
output "expected" { value = fileexists("${var.outside}/expected") }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_reported_by_the_classes_of_the_real_plan() {
    let env = TestEnvironment::new().await;
    let outside = env.path("outside");
    std::fs::create_dir(&outside).unwrap();
    env.commit("a", &[("main.tf", CLASSES)]).await;
    let vars = json!([{ "name": "outside", "value": outside.display().to_string() }]);
    env.stack("net", json!({ "vars": vars })).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    env.edit("net", json!({ "approvePlan": "" })).await;
    env.wait_ready("net", "True").await;
    for (files, expected) in [
        (&["expected"][..], "(1 output-only)"),
        (&["changed"], "(1 in-place)"),
        (&["created"], "(1 in-place, 1 create)"),
        (&["replaced"], "(1 replace, 1 in-place, 1 create)"),
        (&["deleted"], "(1 delete, 1 replace, 1 in-place, 1 create)"),
    ] {
        for file in files {
            std::fs::write(outside.join(file), "").unwrap();
        }
        env.request("net", expected).await;
        let drifted = env
            .wait_for("net", expected, |stack| {
                let handled = stack
                    .status
                    .as_ref()
                    .map(|status| &status.last_handled_reconcile_at);
                handled.is_some_and(|handled| handled == expected)
                    && condition(stack, "Ready").starts_with("False DriftDetected")
                    && condition(stack, "Ready").contains(expected)
            })
            .await;
        assert!(!pending(&drifted).is_empty(), "{expected}");
        env.wait_event("net", "Warning DriftDetected").await;
    }
}
