//! The way back.

use super::{Site, left, pending, ready, shell, upstream};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Secret};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use sluice_tests::story::{NAMESPACE, until_gone};
use std::time::Duration;
use upstream::Next;

const SECTION: &str = "Roll back";

/// Sluice is used: a delete is held back, and a policy is set that tofu-controller does not know.
pub(super) async fn with_guard_rails(site: &Site) {
    site.edit("app", &json!({ "deletionPolicy": "Retain" })).await;
    site.ready("app", "True ").await;
    let policy = json!({ "allow": ["create", "update"], "hold": ["delete"] });
    let fewer = json!([{ "name": "copies", "value": 1 }]);
    site.edit("net", &json!({ "autoApply": policy, "vars": fewer }))
        .await;
    site.ready("net", "1 delete (autoApply.hold)").await;
}

/// The steps of the page, and after each what it promises.
pub(super) async fn step_by_step(site: &mut Site) {
    let said = site.page.step(SECTION, 1).await;
    assert!(said.contains("No resources found"), "no state is kept: {said}");
    let running = |line: &String| !line.ends_with(" Succeeded");
    assert!(!site.runs().await.iter().any(running), "{:?}", site.runs().await);

    let said = site.page.step(SECTION, 2).await;
    assert!(said.contains("deployment.apps/tf-controller scaled"), "{said}");
    site.stacks.as_mut().unwrap().end().await.unwrap();

    let held = pending(&site.get("net").await);
    for stack in ["app", "net"] {
        let said = site.page.step_for(SECTION, 3, stack).await;
        let rows: Vec<_> = said
            .lines()
            .filter(|line| line.contains("Retain") || line.contains("map["))
            .collect();
        let left = if stack == "app" { 2 } else { 1 };
        assert_eq!(rows.len(), left, "{said}");
    }
    site.edit("net", &json!({ "approvePlan": "" })).await;

    let said = site.page.step_for(SECTION, 4, "net").await;
    assert!(said.contains(&held), "{said}");

    let before = site.get("waits").await;
    site.page.step(SECTION, 5).await;
    assert_eq!(site.get("waits").await, before, "objects stay as they are");
    what_the_older_definition_refuses(site).await;

    let said = site.page.step(SECTION, 6).await;
    assert!(said.contains("deployment.apps/tofu-controller scaled"), "{said}");
    site.page.step(SECTION, 7).await;
}

/// Fields that it does not know are dropped without a word from a patch, and refused where they are applied as Flux does.
async fn what_the_older_definition_refuses(site: &Site) {
    let stack = json!({ "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
        "metadata": { "name": "app", "namespace": NAMESPACE }, "spec": { "tool": { "name": "tofu" } } });
    let api = site.story.stacks();
    let params = PatchParams::apply("flux").dry_run();
    // The server takes up a definition a moment after it has accepted it.
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
    assert_eq!(site.get("app").await.pointer("/spec/deletionPolicy"), None);
}

/// What is left is what it knows, in the form in which it reads it.
pub(super) async fn as_tofu_controller_finds_it(site: &Site) {
    for (stack, begins) in [
        // The plan that was held is made anew, and waits for a person.
        ("net", Next::Plan),
        // Its spec was edited.
        ("app", Next::Plan),
        ("moved", Next::Nothing),
        ("waits", Next::Nothing),
    ] {
        let object = site.get(stack).await;
        upstream::assert_is_at_home(&object);
        assert_eq!(
            upstream::next(&object, &site.revision),
            begins,
            "{stack}: {object}"
        );
    }
    let finalizers = json!(["finalizers.tf.contrib.fluxcd.io", "tf.dependency.of.app"]);
    assert_eq!(site.get("net").await["metadata"]["finalizers"], finalizers);
    let resources = ["app", "moved", "net", "waits"];
    for (stack, count) in resources.into_iter().zip([1, 2, 2, 1]) {
        assert_eq!(site.state(stack).await.len(), count, "{stack}");
    }
    for space in [NAMESPACE, "flux-system"] {
        let leases: Api<Lease> = Api::namespaced(site.client.clone(), space);
        for lease in leases.list(&ListParams::default()).await.unwrap() {
            let holder = lease.spec.unwrap_or_default().holder_identity.unwrap_or_default();
            assert_eq!(holder, "", "{:?} is held", lease.metadata.name);
        }
    }
    let names = site.names().await;
    let ours =
        |name: &&String| name.contains("sluice") || name.contains("tfapplied") || name.ends_with("-bundle");
    assert_eq!(names.iter().find(ours), None, "{names:?}");
    shell(
        site.folder.path(),
        "! kubectl get crd terraformruns.infra.sluice.dev",
    )
    .await;
    // It reads both versions.
    shell(
        site.folder.path(),
        "kubectl get terraforms.v1alpha1.infra.contrib.fluxcd.io net",
    )
    .await;
}

/// What it does to the objects then: each of its writes is taken, and nothing keeps an object that it lets go.
pub(super) async fn what_tofu_controller_does(site: &Site) {
    let (api, params) = (site.story.stacks(), PatchParams::default());
    // It finds the plans of a stack by their labels, deletes them and stores its own.
    let labels = "infra.contrib.fluxcd.io/plan-name=net,infra.contrib.fluxcd.io/plan-workspace=default";
    let found = site.secrets(labels).await;
    let secrets: Api<Secret> = Api::namespaced(site.client.clone(), NAMESPACE);
    let id = found[0].metadata.annotations.as_ref().unwrap()["savedPlan"].clone();
    assert!(!upstream::stored_plan(&found, &id).is_empty());
    for plan in &found {
        let name = plan.metadata.name.as_ref().unwrap();
        secrets.delete(name, &DeleteParams::default()).await.unwrap();
    }
    assert!(site.secrets(labels).await.is_empty());
    let waiting = json!({ "status": { "plan": { "pending": left::plan_id(&site.revision) }, "observedGeneration": 9,
        "lastPlannedRevision": site.revision, "lastAttemptedRevision": site.revision, "reconciliationFailures": 0 } });
    api.patch_status("net", &params, &Patch::Merge(waiting))
        .await
        .unwrap();
    assert!(ready(&site.get("net").await).starts_with("Unknown "));

    // A stack that is deleted takes its finalizers off, and what it owns goes with it. The state stays.
    for (stack, below) in [("app", Some("net")), ("net", None)] {
        api.delete(stack, &DeleteParams::default()).await.unwrap();
        let own = json!({ "metadata": { "finalizers": ["finalizers.tf.contrib.fluxcd.io"] } });
        let none = json!({ "metadata": { "finalizers": null } });
        for (name, finalizers) in below.map(|name| (name, own)).into_iter().chain([(stack, none)]) {
            let patch: Patch<Value> = Patch::Merge(finalizers);
            api.patch(name, &params, &patch).await.unwrap();
        }
        until_gone(&api, stack).await.unwrap();
    }
    let kept = ["tfstate-default-app", "tfstate-default-net"];
    let of_both = |name: &String| name.contains("app") || name.contains("net");
    for _ in 0..300 {
        let mut names = site.names().await;
        names.retain(of_both);
        if names == kept {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("left behind: {:?}", site.names().await);
}
