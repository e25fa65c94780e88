//! The migration to Sluice.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Migration, Page, pending, ready, shell, tf_controller, tofu_controller, upstream};

const STACKS: [&str; 4] = ["app", "moved", "net", "waits"];
const SECTION: &str = "Step by step";

/// Checks that the objects are those of tofu-controller and can be saved.
pub(super) async fn check_initial_state(migration: &mut Migration) {
    for (stack, next) in [
        ("app", upstream::NextAction::Nothing),
        ("net", upstream::NextAction::Nothing),
        ("moved", upstream::NextAction::Plan),
        (
            "waits",
            upstream::NextAction::ApplyStored(tofu_controller::plan_id(&migration.revision)),
        ),
    ] {
        let object = migration.get(stack).await;
        upstream::assert_compatible(&object);
        assert_eq!(
            upstream::next_action(&object, &migration.revision),
            next,
            "{stack}"
        );
    }
    for field in upstream::OWN_FIELDS
        .iter()
        .filter_map(|field| field.strip_prefix("spec."))
    {
        assert!(Page::text().contains(&format!("\"{field}\":null")), "{field}");
    }
    migration.page.step("Before", 4).await;
    let saved = |file: &str| std::fs::read_to_string(migration.folder.path().join(file)).unwrap();
    let (stacks, states) = (saved("terraforms.yaml"), saved("states.yaml"));
    for stack in STACKS {
        assert!(stacks.contains(&format!("    name: {stack}\n")), "{stacks}");
        assert!(
            states.contains(&format!("name: tfstate-default-{stack}\n")),
            "{states}"
        );
    }
}

/// Runs the steps of the page and checks the result of each.
pub(super) async fn run_steps(migration: &mut Migration) {
    let before = objects(migration).await;
    let output = migration.page.step(SECTION, 1).await;
    assert!(
        output.contains("deployment.apps/tofu-controller scaled"),
        "{output}"
    );
    assert!(output.contains("pod \"net-tf-runner\" deleted"), "{output}");

    migration.page.step(SECTION, 2).await;
    assert_eq!(objects(migration).await, before, "objects do not change");

    migration.page.step(SECTION, 3).await;
    let (mut stacks, _) = tf_controller(&migration.plane, migration.folder.path()).await;
    stacks.start().unwrap();
    migration.stacks = Some(stacks);
    check_first_reconciliation(migration).await;

    let output = migration.page.step(SECTION, 4).await;
    let new = pending(&migration.get("waits").await);
    let expected = format!(
        "pending plan {:?} was created by another program",
        tofu_controller::plan_id(&migration.revision)
    );
    assert!(output.contains(&expected) && output.contains(&new), "{output}");
    for stack in ["app", "net"] {
        assert_eq!(
            migration.get(stack).await["status"],
            before[stack]["status"],
            "{stack}"
        );
    }
    let expected = [
        "moved: PlanAndApply/Revision Succeeded",
        "waits: Plan/Revision Succeeded",
    ];
    assert_eq!(
        migration.runs().await,
        expected,
        "up-to-date stacks are not planned"
    );

    migration.page.step_for(SECTION, 5, "net").await;
    check_unchanged_stack(migration).await;
    approve_new_plan(migration).await;

    migration.page.step(SECTION, 6).await;
    let names = migration.names().await;
    assert!(
        !names.iter().any(|name| name.starts_with("terraform-runner.tls-")),
        "{names:?}"
    );
}

/// Returns spec, status and finalizers of each stack by name.
async fn objects(migration: &Migration) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for stack in STACKS {
        let object = migration.get(stack).await;
        let finalizers = &object["metadata"]["finalizers"];
        let parts = json!({ "spec": object["spec"], "status": object["status"], "finalizers": finalizers });
        all.insert(stack.to_owned(), parts);
    }
    all
}

/// The outdated stack is applied; the approved pending plan is not applied but created again.
async fn check_first_reconciliation(migration: &Migration) {
    migration
        .wait_for_ready(
            "moved",
            &format!(
                "True TerraformAppliedSucceed Applied successfully: {}",
                migration.revision
            ),
        )
        .await;
    assert_eq!(migration.state("moved").await.len(), 2);
    let old = tofu_controller::plan_id(&migration.revision);
    let is_new =
        |object: &Value| pending(object).len() > old.len() && ready(object).contains(&pending(object));
    let waits = migration.wait_for("waits", "a plan of its own", is_new).await;
    assert!(
        ready(&waits).starts_with("Unknown TerraformPlannedWithChanges"),
        "{waits}"
    );
    // The message explains why the existing approval is void.
    assert!(ready(&waits).contains("(approvePlan"), "{}", ready(&waits));
    assert_eq!(
        migration.state("waits").await["it[0]"],
        "one",
        "nothing was applied"
    );
}

/// The first run of an unchanged stack is a plan without changes, after which tofu-controller's plan is deleted.
async fn check_unchanged_stack(migration: &Migration) {
    let is_handled = |object: &Value| {
        let requested = object.pointer("/metadata/annotations/reconcile.fluxcd.io~1requestedAt");
        requested.is_some() && requested == object.pointer("/status/lastHandledReconcileAt")
    };
    let net = migration
        .wait_for("net", "the request is_handled", is_handled)
        .await;
    assert_eq!(migration.runs().await[1], "net: Plan/Request Succeeded");
    assert_eq!(pending(&net), "", "{net}");
    // The Secret is deleted; the readable plan is that of the new plan.
    let names = migration.names().await;
    assert!(!names.contains(&"tfplan-default-net".to_owned()), "{names:?}");
    let get = "kubectl get configmap tfplan-default-net -o json";
    let output = shell(migration.folder.path(), get).await;
    assert!(output.contains("No changes"), "{output}");
    let old = format!(
        "\"savedPlan\": {:?}",
        tofu_controller::plan_id(&migration.revision)
    );
    assert!(!output.contains(&old), "{output}");
}

/// The new plan is applied once its own id is approved.
async fn approve_new_plan(migration: &Migration) {
    let id = pending(&migration.get("waits").await);
    migration.edit("waits", &json!({ "approvePlan": id })).await;
    let applied = |object: &Value| object.pointer("/status/plan/lastApplied") == Some(&json!(id));
    migration
        .wait_for("waits", "the approved plan applied", applied)
        .await;
    migration
        .wait_for_ready("waits", "True TerraformAppliedSucceed")
        .await;
    assert_eq!(migration.state("waits").await["it[0]"], "two");
}
