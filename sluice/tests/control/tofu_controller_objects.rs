//! Takes over the objects of tofu-controller 0.16.5 (`tests/assets/tofu-controller-0.16.5`) one by one; afterwards they are still valid
//! by that controller's own definition.

use std::collections::BTreeMap;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde::Deserialize as _;
use serde_json::{Value, json};
use sluice_api::run::Action;
use sluice_api::source::GitRepository;

use crate::artifacts::{digest, pack};
use crate::environment::{NAMESPACE, TestEnvironment};
use crate::observe::{condition, number, pending};

const STACKS: &str = include_str!("../../../tests/assets/tofu-controller-0.16.5/terraforms.yaml");
const SOURCE: &str = include_str!("../../../tests/assets/tofu-controller-0.16.5/gitrepository.yaml");
const DEFINITION: &str = include_str!("../../../tests/assets/tofu-controller-0.16.5/crd.yaml");
/// All other objects by kind.
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
/// The applied and unchanged stacks.
const APPLIED: [&str; 5] = ["applied-auto", "applied-manual", "base", "dependent", "suffixed"];
/// The id of every plan of tofu-controller.
const OLD_PLAN_ID: &str = "plan-main-8444f5e8a2";

fn documents(text: &str) -> Vec<Value> {
    let documents = serde_yaml_ng::Deserializer::from_str(text);
    documents
        .map(|document| Value::deserialize(document).unwrap())
        .collect()
}

fn objects(env: &TestEnvironment, group: &str, kind: &str) -> Api<DynamicObject> {
    let version = match group {
        "infra.contrib.fluxcd.io" => "v1alpha2",
        _ => "v1",
    };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(env.client.clone(), NAMESPACE, &resource)
}

/// Creates an object with its status, without server-set fields, and with an edit for each generation.
async fn create(api: &Api<DynamicObject>, source: &Value) -> DynamicObject {
    let mut created = source.clone();
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
        created["metadata"].as_object_mut().unwrap().remove(field);
    }
    let generation = source["metadata"]["generation"].as_i64().unwrap_or(1);
    if generation > 1 {
        created["spec"]["interval"] = json!("59m");
    }
    let name = source["metadata"]["name"].as_str().unwrap();
    let created: DynamicObject = serde_json::from_value(created).unwrap();
    let mut object = api.create(&PostParams::default(), &created).await.unwrap();
    if generation > 1 {
        assert_eq!(generation, 2, "one edit suffices");
        let edit = Patch::Merge(json!({ "spec": { "interval": source["spec"]["interval"] } }));
        object = api.patch(name, &PatchParams::default(), &edit).await.unwrap();
    }
    if let Some(status) = source.get("status") {
        let status = Patch::Merge(json!({ "status": status }));
        object = api
            .patch_status(name, &PatchParams::default(), &status)
            .await
            .unwrap();
    }
    object
}

/// Returns the stacks with the current time as their last success: nothing is due.
fn stacks() -> Vec<Value> {
    let current = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let recorded = STACKS.split('\n').map(|line| match line.find("2026-11-22T") {
        Some(at) => line.replacen(&line[at..at + current.len()], &current, 1),
        None => line.to_owned(),
    });
    documents(&recorded.collect::<Vec<_>>().join("\n"))
}

/// Creates all objects.
async fn create_all(env: &TestEnvironment) {
    let mut source = documents(SOURCE).remove(0);
    let bytes = pack(&MODULES);
    let (size, digest) = (bytes.len(), digest(&bytes));
    env.artifacts.put("left.tar.gz", bytes);
    let artifact = &mut source["status"]["artifact"];
    artifact["url"] = json!(format!("{}/left.tar.gz", env.artifacts.url));
    (artifact["size"], artifact["digest"]) = (json!(size), json!(digest));
    source["metadata"]["finalizers"] = json!([]);
    create(
        &objects(env, "source.toolkit.fluxcd.io", "GitRepository"),
        &source,
    )
    .await;
    let sources: Api<GitRepository> = env.api();
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
    let api = objects(env, "infra.contrib.fluxcd.io", "Terraform");
    for stack in stacks() {
        let created = create(&api, &stack).await;
        uids.insert(
            stack["metadata"]["uid"].as_str().unwrap().to_owned(),
            created.uid().unwrap(),
        );
    }
    for (group, kind, text) in OTHERS {
        let text = uids
            .iter()
            .fold(text.to_owned(), |text, (old, new)| text.replace(old, new));
        for source in documents(&text) {
            create(&objects(env, group, kind), &source).await;
        }
    }
}

/// Returns version, data and labels of the Secrets whose names begin or end with `part`.
async fn secrets(env: &TestEnvironment, part: &str) -> BTreeMap<String, Value> {
    let api: Api<Secret> = env.api();
    let secrets = api.list(&ListParams::default()).await.unwrap().items;
    let generation = secrets
        .into_iter()
        .filter(|secret| secret.name_any().starts_with(part) || secret.name_any().ends_with(part));
    let parts = |secret: &Secret| {
        let version = secret.resource_version();
        json!([version, secret.data, secret.labels(), secret.annotations()])
    };
    generation
        .map(|secret| (secret.name_any(), parts(&secret)))
        .collect()
}

/// The first run is a requested one, and finds the existing state.
async fn assert_no_run(env: &TestEnvironment, name: &str) {
    assert_eq!(env.history(name).await, "", "{name}");
    env.request(name, "first").await;
    env.wait_run(name, "the requested check", |run| {
        number(run) == 1 && run.status.as_ref().is_some_and(|status| status.phase.is_final())
    })
    .await;
    // Its dependents read its status, not its run.
    env.wait_for(name, "an answer", |stack| {
        let status = stack.status.as_ref();
        status.is_some_and(|status| status.last_handled_reconcile_at == "first")
    })
    .await;
    assert_eq!(
        env.history(name).await,
        "1 Plan Request 1: Succeeded TerraformPlannedNoChanges +0 ~0 -0",
        "{name}"
    );
}

/// A pending plan is created again; its old id approves nothing, the new one does.
async fn assert_pending_again(env: &TestEnvironment, name: &str) {
    let stack = env
        .wait_for(name, "a plan of ours", |stack| {
            pending(stack).len() > OLD_PLAN_ID.len()
        })
        .await;
    env.wait_event(name, "TerraformPlanReplaced").await;
    env.edit(name, json!({ "approvePlan": OLD_PLAN_ID })).await;
    let refused = env
        .wait_for(name, "the old id refused", |stack| {
            condition(stack, "Ready").contains("(approvePlan")
        })
        .await;
    assert_eq!(pending(&refused), pending(&stack), "{name}");
    let runs = env.runs(name).await;
    assert!(runs.iter().all(|run| run.spec.action == Action::Plan), "{name}");
    env.edit(name, json!({ "approvePlan": pending(&stack) })).await;
    env.wait_ready(name, "True TerraformAppliedSucceed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_object_of_tofu_controller_is_taken_over_and_stays_valid_for_it() {
    let mut env = TestEnvironment::without_controller().await;
    create_all(&env).await;
    let outputs = secrets(&env, "-outputs").await;
    let states = secrets(&env, "tfstate-").await;
    assert!(outputs.len() == 2 && states.len() >= 6, "{:?}", states.keys());
    env.start(3).await;

    for name in ["waiting", "waiting-json"] {
        Box::pin(assert_pending_again(&env, name)).await;
    }
    let drifted = env
        .wait_for("drifted", "a plan that waits", |stack| !pending(stack).is_empty())
        .await;
    assert_eq!(env.runs("drifted").await.len(), 1, "{:?}", drifted.status);
    env.wait_ready("failed", "False TFExec").await;
    env.wait_run("plan-only", "a plan", |run| {
        run.status.as_ref().is_some_and(|status| status.phase.is_final())
    })
    .await;
    assert!(
        env.runs("plan-only")
            .await
            .iter()
            .all(|run| run.spec.action == Action::Plan)
    );
    for name in APPLIED {
        Box::pin(assert_no_run(&env, name)).await;
    }
    assert_eq!(env.history("old-version").await, "", "it is suspended");
    assert_eq!(secrets(&env, "-outputs").await, outputs, "none is written");
    let current = secrets(&env, "tfstate-").await;
    for (name, state) in &states {
        let applied = ["waiting", "waiting-json"]
            .iter()
            .any(|stack| name.ends_with(stack));
        assert!(applied || current[name] == *state, "{name}");
    }
    Box::pin(assert_rollback_possible(&env)).await;
}

/// The rollback: each object is valid by the other definition, which keeps all fields that tofu-controller needs.
async fn assert_rollback_possible(env: &TestEnvironment) {
    let leases: Api<Lease> = env.api();
    for lease in leases.list(&ListParams::default()).await.unwrap().items {
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
        assert!(
            holder.is_none_or(|holder| holder.is_empty()),
            "{}",
            lease.name_any()
        );
    }
    let other = TestEnvironment::with_definitions(&documents(DEFINITION)).await;
    let api = objects(&other, "infra.contrib.fluxcd.io", "Terraform");
    // Untyped, since types omit empty fields.
    let ours = objects(env, "infra.contrib.fluxcd.io", "Terraform");
    for source in stacks() {
        let name = source["metadata"]["name"].as_str().unwrap();
        let current = serde_json::to_value(ours.get(name).await.unwrap()).unwrap();
        assert_eq!(
            current["metadata"]["finalizers"], source["metadata"]["finalizers"],
            "{name}"
        );
        let mut moved = current.clone();
        moved["metadata"] = json!({ "name": name, "finalizers": current["metadata"]["finalizers"] });
        let back = serde_json::to_value(create(&api, &moved).await).unwrap();
        let mut spec = source["spec"].clone();
        if name.starts_with("waiting") {
            spec["approvePlan"] = current["spec"]["approvePlan"].clone();
        }
        assert_eq!(back["spec"], spec, "{name}");
        if APPLIED.contains(&name) {
            for field in [
                "lastAppliedRevision",
                "lastPlannedRevision",
                "availableOutputs",
                "inventory",
            ] {
                assert_eq!(back["status"][field], source["status"][field], "{name}: {field}");
            }
            assert_eq!(
                back["status"]["plan"]["lastApplied"],
                json!(OLD_PLAN_ID),
                "{name}"
            );
            assert_eq!(
                back["status"]["observedGeneration"], source["status"]["observedGeneration"],
                "{name}"
            );
        }
    }
}
