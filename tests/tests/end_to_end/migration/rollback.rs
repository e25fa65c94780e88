//! The rollback to tofu-controller.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use sluice_tests::scenario::{NAMESPACE, wait_until_gone};
use upstream::NextAction;

use super::{Migration, pending, ready, shell, tofu_controller, upstream};

const SECTION: &str = "Roll back";

/// Uses Sluice's features: a delete is held, and a field is set that tofu-controller does not know.
pub(super) async fn use_sluice_features(migration: &Migration) {
    migration
        .edit("app", &json!({ "deletionPolicy": "Retain" }))
        .await;
    migration.wait_for_ready("app", "True ").await;
    let policy = json!({ "allow": ["create", "update"], "hold": ["delete"] });
    let fewer = json!([{ "name": "copies", "value": 1 }]);
    migration
        .edit("net", &json!({ "autoApply": policy, "vars": fewer }))
        .await;
    migration.wait_for_ready("net", "1 delete (autoApply.hold)").await;
}

/// Runs the steps of the page and checks the result of each.
pub(super) async fn run_steps(migration: &mut Migration) {
    let output = migration.page.step(SECTION, 1).await;
    assert!(
        output.contains("No resources found"),
        "no rescued state remains: {output}"
    );
    let running = |line: &String| !line.ends_with(" Succeeded");
    assert!(
        !migration.runs().await.iter().any(running),
        "{:?}",
        migration.runs().await
    );

    let output = migration.page.step(SECTION, 2).await;
    assert!(
        output.contains("deployment.apps/tf-controller scaled"),
        "{output}"
    );
    migration.stacks.as_mut().unwrap().end().await.unwrap();

    let pending_id = pending(&migration.get("net").await);
    for stack in ["app", "net"] {
        let output = migration.page.step_for(SECTION, 3, stack).await;
        let rows: Vec<_> = output
            .lines()
            .filter(|line| line.contains("Retain") || line.contains("map["))
            .collect();
        let fields = if stack == "app" { 2 } else { 1 };
        assert_eq!(rows.len(), fields, "{output}");
    }
    migration.edit("net", &json!({ "approvePlan": "" })).await;

    let output = migration.page.step_for(SECTION, 4, "net").await;
    assert!(output.contains(&pending_id), "{output}");

    let before = migration.get("waits").await;
    migration.page.step(SECTION, 5).await;
    assert_eq!(migration.get("waits").await, before, "objects do not change");
    check_older_definition(migration).await;

    let output = migration.page.step(SECTION, 6).await;
    assert!(
        output.contains("deployment.apps/tofu-controller scaled"),
        "{output}"
    );
    migration.page.step(SECTION, 7).await;
}

/// Unknown fields are dropped silently from a patch, and refused by server-side apply as Flux uses it.
async fn check_older_definition(migration: &Migration) {
    let stack = json!({ "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
        "metadata": { "name": "app", "namespace": NAMESPACE }, "spec": { "tool": { "name": "tofu" } } });
    let api = migration.scenario.stacks();
    let params = PatchParams::apply("flux").dry_run();
    // The server uses a definition with a short delay after accepting it.
    let refused = loop {
        match api.patch("app", &params, &Patch::Apply(&stack)).await {
            Ok(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            Err(refused) => break refused,
        }
    };
    let text = refused.to_string();
    assert!(
        text.contains(".spec.tool: field not declared in schema"),
        "{text}"
    );
    let (params, patch) = (
        PatchParams::default(),
        json!({ "spec": { "deletionPolicy": "Retain" } }),
    );
    api.patch("app", &params, &Patch::Merge(patch)).await.unwrap();
    assert_eq!(migration.get("app").await.pointer("/spec/deletionPolicy"), None);
}

/// Checks that the objects are in a state that tofu-controller accepts.
pub(super) async fn check_result(migration: &Migration) {
    for (stack, action) in [
        // It creates the held plan again and waits for approval.
        ("net", NextAction::Plan),
        // Its spec was changed.
        ("app", NextAction::Plan),
        ("moved", NextAction::Nothing),
        ("waits", NextAction::Nothing),
    ] {
        let object = migration.get(stack).await;
        upstream::assert_compatible(&object);
        assert_eq!(
            upstream::next_action(&object, &migration.revision),
            action,
            "{stack}: {object}"
        );
    }
    let finalizers = json!(["finalizers.tf.contrib.fluxcd.io", "tf.dependency.of.app"]);
    assert_eq!(migration.get("net").await["metadata"]["finalizers"], finalizers);
    let resources = ["app", "moved", "net", "waits"];
    for (stack, count) in resources.into_iter().zip([1, 2, 2, 1]) {
        assert_eq!(migration.state(stack).await.len(), count, "{stack}");
    }
    for namespace in [NAMESPACE, "flux-system"] {
        let leases: Api<Lease> = Api::namespaced(migration.client.clone(), namespace);
        for lease in leases.list(&ListParams::default()).await.unwrap() {
            let holder = lease.spec.unwrap_or_default().holder_identity.unwrap_or_default();
            assert_eq!(holder, "", "{:?} is held", lease.metadata.name);
        }
    }
    let names = migration.names().await;
    let is_own =
        |name: &&String| name.contains("sluice") || name.contains("tfapplied") || name.ends_with("-bundle");
    assert_eq!(names.iter().find(is_own), None, "{names:?}");
    shell(
        migration.folder.path(),
        "! kubectl get crd terraformruns.infra.sluice.dev",
    )
    .await;
    // Both versions are served.
    shell(
        migration.folder.path(),
        "kubectl get terraforms.v1alpha1.infra.contrib.fluxcd.io net",
    )
    .await;
}

/// Performs tofu-controller's operations on the objects: each write is accepted, and no finalizer blocks a deletion.
pub(super) async fn act_as_tofu_controller(migration: &Migration) {
    let (api, params) = (migration.scenario.stacks(), PatchParams::default());
    // It finds the plans of a stack by their labels, deletes them and stores its own.
    let labels = "infra.contrib.fluxcd.io/plan-name=net,infra.contrib.fluxcd.io/plan-workspace=default";
    let found = migration.secrets(labels).await;
    let secrets: Api<Secret> = Api::namespaced(migration.client.clone(), NAMESPACE);
    let id = found[0].metadata.annotations.as_ref().unwrap()["savedPlan"].clone();
    assert!(!upstream::stored_plan(&found, &id).is_empty());
    for plan in &found {
        let name = plan.metadata.name.as_ref().unwrap();
        secrets.delete(name, &DeleteParams::default()).await.unwrap();
    }
    assert!(migration.secrets(labels).await.is_empty());
    let waiting = json!({ "status": { "plan": { "pending": tofu_controller::plan_id(&migration.revision) }, "observedGeneration": 9,
        "lastPlannedRevision": migration.revision, "lastAttemptedRevision": migration.revision, "reconciliationFailures": 0 } });
    api.patch_status("net", &params, &Patch::Merge(waiting))
        .await
        .unwrap();
    assert!(ready(&migration.get("net").await).starts_with("Unknown "));

    // The deletion of a stack removes its finalizers; the garbage collector deletes owned objects. The state stays.
    for (stack, dependency) in [("app", Some("net")), ("net", None)] {
        api.delete(stack, &DeleteParams::default()).await.unwrap();
        let own = json!({ "metadata": { "finalizers": ["finalizers.tf.contrib.fluxcd.io"] } });
        let none = json!({ "metadata": { "finalizers": null } });
        for (name, finalizers) in dependency
            .map(|name| (name, own))
            .into_iter()
            .chain([(stack, none)])
        {
            let patch: Patch<Value> = Patch::Merge(finalizers);
            api.patch(name, &params, &patch).await.unwrap();
        }
        wait_until_gone(&api, stack).await.unwrap();
    }
    let expected = ["tfstate-default-app", "tfstate-default-net"];
    let is_related = |name: &String| name.contains("app") || name.contains("net");
    for _ in 0..300 {
        let mut names = migration.names().await;
        names.retain(is_related);
        if names == expected {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("not deleted: {:?}", migration.names().await);
}
