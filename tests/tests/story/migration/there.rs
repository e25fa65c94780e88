//! The way to Sluice.

use super::{Page, Site, left, pending, program, ready, shell, upstream};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const STACKS: [&str; 4] = ["app", "moved", "net", "waits"];
const SECTION: &str = "Step by step";

/// What is there is what tofu-controller takes for its own, and can be saved.
pub(super) async fn before_it_begins(site: &mut Site) {
    for (stack, next) in [
        ("app", upstream::Next::Nothing),
        ("net", upstream::Next::Nothing),
        ("moved", upstream::Next::Plan),
        (
            "waits",
            upstream::Next::ApplyStored(left::plan_id(&site.revision)),
        ),
    ] {
        let object = site.get(stack).await;
        upstream::assert_is_at_home(&object);
        assert_eq!(upstream::next(&object, &site.revision), next, "{stack}");
    }
    for field in upstream::NOT_ITS
        .iter()
        .filter_map(|field| field.strip_prefix("spec."))
    {
        assert!(Page::text().contains(&format!("\"{field}\":null")), "{field}");
    }
    site.page.step("Before", 4).await;
    let saved = |file: &str| std::fs::read_to_string(site.folder.path().join(file)).unwrap();
    let (stacks, states) = (saved("terraforms.yaml"), saved("states.yaml"));
    for stack in STACKS {
        assert!(stacks.contains(&format!("    name: {stack}\n")), "{stacks}");
        assert!(
            states.contains(&format!("name: tfstate-default-{stack}\n")),
            "{states}"
        );
    }
}

/// The steps of the page, and after each what it promises.
pub(super) async fn step_by_step(site: &mut Site) {
    let before = objects(site).await;
    let said = site.page.step(SECTION, 1).await;
    assert!(said.contains("deployment.apps/tofu-controller scaled"), "{said}");
    assert!(said.contains("pod \"net-tf-runner\" deleted"), "{said}");

    site.page.step(SECTION, 2).await;
    assert_eq!(objects(site).await, before, "objects stay as they are");

    site.page.step(SECTION, 3).await;
    let (mut stacks, _) = program(&site.plane, site.folder.path()).await;
    stacks.start().unwrap();
    site.stacks = Some(stacks);
    what_was_left_undone(site).await;

    let said = site.page.step(SECTION, 4).await;
    let new = pending(&site.get("waits").await);
    let told = format!(
        "{:?} that waited was made by another program",
        left::plan_id(&site.revision)
    );
    assert!(said.contains(&told) && said.contains(&new), "{said}");
    for stack in ["app", "net"] {
        assert_eq!(
            site.get(stack).await["status"],
            before[stack]["status"],
            "{stack}"
        );
    }
    let expected = [
        "moved: PlanAndApply/Revision Succeeded",
        "waits: Plan/Revision Succeeded",
    ];
    assert_eq!(
        site.runs().await,
        expected,
        "what is as it should be is not planned"
    );

    site.page.step_for(SECTION, 5, "net").await;
    tried(site).await;
    approved(site).await;

    site.page.step(SECTION, 6).await;
    let names = site.names().await;
    assert!(
        !names.iter().any(|name| name.starts_with("terraform-runner.tls-")),
        "{names:?}"
    );
}

/// Spec, status and finalizers of each stack, by its name.
async fn objects(site: &Site) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for stack in STACKS {
        let object = site.get(stack).await;
        let finalizers = &object["metadata"]["finalizers"];
        let kept = json!({ "spec": object["spec"], "status": object["status"], "finalizers": finalizers });
        all.insert(stack.to_owned(), kept);
    }
    all
}

/// The stack that is behind its source is applied; the plan that waited, although approved, is made anew.
async fn what_was_left_undone(site: &Site) {
    site.ready(
        "moved",
        &format!(
            "True TerraformAppliedSucceed Applied successfully: {}",
            site.revision
        ),
    )
    .await;
    assert_eq!(site.state("moved").await.len(), 2);
    let old = left::plan_id(&site.revision);
    let anew = |object: &Value| pending(object).len() > old.len() && ready(object).contains(&pending(object));
    let waits = site.until("waits", "a plan of its own", anew).await;
    assert!(
        ready(&waits).starts_with("Unknown TerraformPlannedWithChanges"),
        "{waits}"
    );
    // It says why the approval that is there counts for nothing.
    assert!(ready(&waits).contains("(approvePlan"), "{}", ready(&waits));
    assert_eq!(site.state("waits").await["it[0]"], "one", "nothing was applied");
}

/// The first run of an unchanged stack is a plan without changes; then what tofu-controller had planned goes.
async fn tried(site: &Site) {
    let handled = |object: &Value| {
        let asked = object.pointer("/metadata/annotations/reconcile.fluxcd.io~1requestedAt");
        asked.is_some() && asked == object.pointer("/status/lastHandledReconcileAt")
    };
    let net = site.until("net", "the request handled", handled).await;
    assert_eq!(site.runs().await[1], "net: Plan/Request Succeeded");
    assert_eq!(pending(&net), "", "{net}");
    // The Secret went; the text for people is that of the new plan.
    let names = site.names().await;
    assert!(!names.contains(&"tfplan-default-net".to_owned()), "{names:?}");
    let get = "kubectl get configmap tfplan-default-net -o json";
    let shown = shell(site.folder.path(), get).await;
    assert!(shown.contains("No changes"), "{shown}");
    let old = format!("\"savedPlan\": {:?}", left::plan_id(&site.revision));
    assert!(!shown.contains(&old), "{shown}");
}

/// The plan that was made anew is applied once its own id is approved.
async fn approved(site: &Site) {
    let id = pending(&site.get("waits").await);
    site.edit("waits", &json!({ "approvePlan": id })).await;
    let applied = |object: &Value| object.pointer("/status/plan/lastApplied") == Some(&json!(id));
    site.until("waits", "the approved plan applied", applied).await;
    site.ready("waits", "True TerraformAppliedSucceed").await;
    assert_eq!(site.state("waits").await["it[0]"], "two");
}
