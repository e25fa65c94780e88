//! What the released tofu-controller 0.16.5 left in a cluster (`tests/assets/tofu-controller-0.16.5`) is taken over, object by
//! object, and still fits that controller's own definition afterwards.

use crate::artifacts::{digest, pack};
use crate::looks::{condition, number, pending};
use crate::world::{NAMESPACE, World};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Secret};
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams},
};
use serde::Deserialize as _;
use serde_json::{Value, json};
use sluice_api::{run::Action, source::GitRepository};
use std::collections::BTreeMap;

const STACKS: &str = include_str!("../../../tests/assets/tofu-controller-0.16.5/terraforms.yaml");
const SOURCE: &str = include_str!("../../../tests/assets/tofu-controller-0.16.5/gitrepository.yaml");
const DEFINITION: &str = include_str!("../../../tests/assets/tofu-controller-0.16.5/crd.yaml");
/// Everything else, by its kind.
const OTHERS: [(&str, &str, &str); 3] = [
    (
        "",
        "Secret",
        include_str!("../../../tests/assets/tofu-controller-0.16.5/secrets.yaml"),
    ),
    (
        "",
        "ConfigMap",
        include_str!("../../../tests/assets/tofu-controller-0.16.5/configmaps.yaml"),
    ),
    (
        "coordination.k8s.io",
        "Lease",
        include_str!("../../../tests/assets/tofu-controller-0.16.5/leases.yaml"),
    ),
];
const MODULES: [(&str, &str); 3] = [
    (
        "app/main.tf",
        include_str!("../../../tests/assets/tofu-controller-0.16.5/modules/app/main.tf"),
    ),
    (
        "bad/main.tf",
        include_str!("../../../tests/assets/tofu-controller-0.16.5/modules/bad/main.tf"),
    ),
    (
        "base/main.tf",
        include_str!("../../../tests/assets/tofu-controller-0.16.5/modules/base/main.tf"),
    ),
];
/// Applied and unchanged.
const APPLIED: [&str; 5] = ["applied-auto", "applied-manual", "base", "dependent", "suffixed"];
/// The id of every plan that was left.
const OLD: &str = "plan-main-8444f5e8a2";

fn documents(text: &str) -> Vec<Value> {
    let documents = serde_yaml_ng::Deserializer::from_str(text);
    documents
        .map(|document| Value::deserialize(document).unwrap())
        .collect()
}

fn objects(world: &World, group: &str, kind: &str) -> Api<DynamicObject> {
    let version = match group {
        "infra.contrib.fluxcd.io" => "v1alpha2",
        _ => "v1",
    };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(world.client.clone(), NAMESPACE, &resource)
}

/// Creates an object as it was left, with its status: without what a server gives, and with an edit for each generation.
async fn create(api: &Api<DynamicObject>, left: &Value) -> DynamicObject {
    let mut made = left.clone();
    for given in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
        made["metadata"].as_object_mut().unwrap().remove(given);
    }
    let wanted = left["metadata"]["generation"].as_i64().unwrap_or(1);
    if wanted > 1 {
        made["spec"]["interval"] = json!("59m");
    }
    let name = left["metadata"]["name"].as_str().unwrap();
    let made: DynamicObject = serde_json::from_value(made).unwrap();
    let mut object = api.create(&PostParams::default(), &made).await.unwrap();
    if wanted > 1 {
        assert_eq!(wanted, 2, "one edit is enough");
        let edit = Patch::Merge(json!({ "spec": { "interval": left["spec"]["interval"] } }));
        object = api.patch(name, &PatchParams::default(), &edit).await.unwrap();
    }
    if let Some(status) = left.get("status") {
        let status = Patch::Merge(json!({ "status": status }));
        object = api
            .patch_status(name, &PatchParams::default(), &status)
            .await
            .unwrap();
    }
    object
}

/// The stacks as they were left a moment ago: nothing is due.
fn stacks() -> Vec<Value> {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let recorded = STACKS.split('\n').map(|line| match line.find("2026-11-22T") {
        Some(at) => line.replacen(&line[at..at + now.len()], &now, 1),
        None => line.to_owned(),
    });
    documents(&recorded.collect::<Vec<_>>().join("\n"))
}

/// Creates everything that was left.
async fn leave(world: &World) {
    let mut source = documents(SOURCE).remove(0);
    let bytes = pack(&MODULES);
    let (size, digest) = (bytes.len(), digest(&bytes));
    world.artifacts.put("left.tar.gz", bytes);
    let artifact = &mut source["status"]["artifact"];
    artifact["url"] = json!(format!("{}/left.tar.gz", world.artifacts.url));
    (artifact["size"], artifact["digest"]) = (json!(size), json!(digest));
    source["metadata"]["finalizers"] = json!([]);
    create(
        &objects(world, "source.toolkit.fluxcd.io", "GitRepository"),
        &source,
    )
    .await;
    let sources: Api<GitRepository> = world.api();
    assert!(
        sources
            .get("stacks")
            .await
            .unwrap()
            .status
            .unwrap()
            .artifact
            .is_some()
    );
    let mut uids = BTreeMap::new();
    let api = objects(world, "infra.contrib.fluxcd.io", "Terraform");
    for stack in stacks() {
        let made = create(&api, &stack).await;
        uids.insert(
            stack["metadata"]["uid"].as_str().unwrap().to_owned(),
            made.uid().unwrap(),
        );
    }
    for (group, kind, text) in OTHERS {
        let text = uids
            .iter()
            .fold(text.to_owned(), |text, (old, new)| text.replace(old, new));
        for left in documents(&text) {
            create(&objects(world, group, kind), &left).await;
        }
    }
}

/// Version, data and labels of the Secrets whose names begin or end so.
async fn secrets(world: &World, part: &str) -> BTreeMap<String, Value> {
    let api: Api<Secret> = world.api();
    let secrets = api.list(&ListParams::default()).await.unwrap().items;
    let wanted = secrets
        .into_iter()
        .filter(|secret| secret.name_any().starts_with(part) || secret.name_any().ends_with(part));
    let shown = |secret: &Secret| {
        let version = secret.resource_version();
        json!([version, secret.data, secret.labels(), secret.annotations()])
    };
    wanted.map(|secret| (secret.name_any(), shown(&secret))).collect()
}

/// The first run is the one that somebody asks for, and it finds the state that was left.
async fn goes_on_without_a_run(world: &World, name: &str) {
    assert_eq!(world.history(name).await, "", "{name}");
    world.request(name, "first").await;
    world
        .run(name, "the check that was asked for", |run| {
            number(run) == 1 && run.status.as_ref().is_some_and(|status| status.phase.is_final())
        })
        .await;
    // Its dependants look at what it says, not at its run.
    world
        .until(name, "an answer", |stack| {
            let status = stack.status.as_ref();
            status.is_some_and(|status| status.last_handled_reconcile_at == "first")
        })
        .await;
    assert_eq!(
        world.history(name).await,
        "1 Plan Request 1: Succeeded TerraformPlannedNoChanges +0 ~0 -0",
        "{name}"
    );
}

/// A plan that waited is made again; its old id approves nothing, the new one does.
async fn waits_again(world: &World, name: &str) {
    let stack = world
        .until(name, "a plan of ours", |stack| pending(stack).len() > OLD.len())
        .await;
    world.event(name, "TerraformPlanReplaced").await;
    world.edit(name, json!({ "approvePlan": OLD })).await;
    let refused = world
        .until(name, "the old id is refused", |stack| {
            condition(stack, "Ready").contains("(approvePlan")
        })
        .await;
    assert_eq!(pending(&refused), pending(&stack), "{name}");
    let runs = world.runs(name).await;
    assert!(runs.iter().all(|run| run.spec.action == Action::Plan), "{name}");
    world.edit(name, json!({ "approvePlan": pending(&stack) })).await;
    world.ready(name, "True TerraformAppliedSucceed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_released_controller_left_is_taken_over_object_by_object_and_fits_it_again() {
    let mut world = World::without_controller().await;
    leave(&world).await;
    let outputs = secrets(&world, "-outputs").await;
    let states = secrets(&world, "tfstate-").await;
    assert!(outputs.len() == 2 && states.len() >= 6, "{:?}", states.keys());
    world.start(3).await;

    for name in ["waiting", "waiting-json"] {
        Box::pin(waits_again(&world, name)).await;
    }
    let drifted = world
        .until("drifted", "a plan that waits", |stack| !pending(stack).is_empty())
        .await;
    assert_eq!(world.runs("drifted").await.len(), 1, "{:?}", drifted.status);
    world.ready("failed", "False TFExec").await;
    world
        .run("plan-only", "a plan", |run| {
            run.status.as_ref().is_some_and(|status| status.phase.is_final())
        })
        .await;
    assert!(
        world
            .runs("plan-only")
            .await
            .iter()
            .all(|run| run.spec.action == Action::Plan)
    );
    for name in APPLIED {
        Box::pin(goes_on_without_a_run(&world, name)).await;
    }
    assert_eq!(world.history("old-version").await, "", "it is suspended");
    assert_eq!(secrets(&world, "-outputs").await, outputs, "none is written");
    let now = secrets(&world, "tfstate-").await;
    for (name, state) in &states {
        let applied = ["waiting", "waiting-json"]
            .iter()
            .any(|stack| name.ends_with(stack));
        assert!(applied || now[name] == *state, "{name}");
    }
    Box::pin(fits_the_other_again(&world)).await;
}

/// The way back: each object is valid by the other's definition, which keeps of it what the other controller goes on from.
async fn fits_the_other_again(world: &World) {
    let leases: Api<Lease> = world.api();
    for lease in leases.list(&ListParams::default()).await.unwrap().items {
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
        assert!(
            holder.is_none_or(|holder| holder.is_empty()),
            "{}",
            lease.name_any()
        );
    }
    let other = World::serving(&documents(DEFINITION)).await;
    let api = objects(&other, "infra.contrib.fluxcd.io", "Terraform");
    // Untyped: types leave out what is empty.
    let ours = objects(world, "infra.contrib.fluxcd.io", "Terraform");
    for left in stacks() {
        let name = left["metadata"]["name"].as_str().unwrap();
        let now = serde_json::to_value(ours.get(name).await.unwrap()).unwrap();
        assert_eq!(
            now["metadata"]["finalizers"], left["metadata"]["finalizers"],
            "{name}"
        );
        let mut moved = now.clone();
        moved["metadata"] = json!({ "name": name, "finalizers": now["metadata"]["finalizers"] });
        let back = serde_json::to_value(create(&api, &moved).await).unwrap();
        let mut spec = left["spec"].clone();
        if name.starts_with("waiting") {
            spec["approvePlan"] = now["spec"]["approvePlan"].clone();
        }
        assert_eq!(back["spec"], spec, "{name}");
        if APPLIED.contains(&name) {
            for kept in [
                "lastAppliedRevision",
                "lastPlannedRevision",
                "availableOutputs",
                "inventory",
            ] {
                assert_eq!(back["status"][kept], left["status"][kept], "{name}: {kept}");
            }
            assert_eq!(back["status"]["plan"]["lastApplied"], json!(OLD), "{name}");
            assert_eq!(
                back["status"]["observedGeneration"], left["status"]["observedGeneration"],
                "{name}"
            );
        }
    }
}
