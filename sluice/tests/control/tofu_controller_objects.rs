//! Takes over the objects of tofu-controller 0.16.5 (`tests/assets/tofu-controller-0.16.5`) one by one; afterwards they are still valid
//! by that controller's own definition.

use std::collections::BTreeMap;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use sluice_api::annotation::NON_SENSITIVE_OUTPUTS;
use sluice_api::run::Action;
use sluice_api::source::GitRepository;
use sluice_api::terraform::outputs_secret::non_sensitive_keys;
use sluice_harness::tofu_controller::{
    APPLIED, COMMIT, MODULES, PLAN_ID, SOURCE, WAITING, create, create_stacks, definition, objects, source,
    stacks,
};

use crate::artifacts::{digest, pack};
use crate::environment::{NAMESPACE, TestEnvironment};
use crate::observe::{condition, number, pending};

/// Creates all objects.
async fn create_all(env: &TestEnvironment) {
    let mut source = source().unwrap();
    let bytes = pack(&MODULES);
    let (size, digest) = (bytes.len(), digest(&bytes));
    env.artifacts.put("left.tar.gz", bytes);
    let artifact = &mut source["status"]["artifact"];
    artifact["url"] = json!(format!("{}/left.tar.gz", env.artifacts.url));
    (artifact["size"], artifact["digest"]) = (json!(size), json!(digest));
    source["metadata"]["finalizers"] = json!([]);
    let sources = objects(
        &env.client,
        NAMESPACE,
        "source.toolkit.fluxcd.io",
        "GitRepository",
    );
    create(&sources, &source).await.unwrap();
    let sources: Api<GitRepository> = env.api();
    assert!(
        sources
            .get(SOURCE)
            .await
            .unwrap()
            .status
            .unwrap()
            .artifact
            .is_some()
    );
    create_stacks(&env.client, NAMESPACE, COMMIT).await.unwrap();
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
            pending(stack).len() > PLAN_ID.len()
        })
        .await;
    env.wait_event(name, "TerraformPlanReplaced").await;
    env.edit(name, json!({ "approvePlan": PLAN_ID })).await;
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

    for name in WAITING {
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
    assert_outputs_retained(&env, &outputs).await;
    let current = secrets(&env, "tfstate-").await;
    for (name, state) in &states {
        let applied = WAITING.iter().any(|stack| name.ends_with(stack));
        assert!(applied || current[name] == *state, "{name}");
    }
    Box::pin(assert_rollback_possible(&env)).await;
}

/// Outputs Secrets are as before, but for the annotation of Sluice, which a first run adds. tofu-controller ignores it.
async fn assert_outputs_retained(env: &TestEnvironment, before: &BTreeMap<String, Value>) {
    let api: Api<Secret> = env.api();
    for (name, before) in before {
        let secret = api.get(name).await.unwrap();
        assert!(non_sensitive_keys(&secret).is_some(), "{name}");
        let mut annotations = secret.annotations().clone();
        annotations.remove(NON_SENSITIVE_OUTPUTS);
        let parts = json!([secret.data, secret.labels(), annotations]);
        assert_eq!(
            parts.as_array().unwrap()[..],
            before.as_array().unwrap()[1..],
            "{name}"
        );
    }
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
    let other = TestEnvironment::with_definitions(&[definition().unwrap()]).await;
    let api = objects(&other.client, NAMESPACE, "infra.contrib.fluxcd.io", "Terraform");
    // Untyped, since types omit empty fields.
    let ours = objects(&env.client, NAMESPACE, "infra.contrib.fluxcd.io", "Terraform");
    for source in stacks(COMMIT).unwrap() {
        let name = source["metadata"]["name"].as_str().unwrap();
        let current = serde_json::to_value(ours.get(name).await.unwrap()).unwrap();
        assert_eq!(
            current["metadata"]["finalizers"], source["metadata"]["finalizers"],
            "{name}"
        );
        let mut moved = current.clone();
        moved["metadata"] = json!({ "name": name, "finalizers": current["metadata"]["finalizers"] });
        let back = serde_json::to_value(create(&api, &moved).await.unwrap()).unwrap();
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
            assert_eq!(back["status"]["plan"]["lastApplied"], json!(PLAN_ID), "{name}");
            assert_eq!(
                back["status"]["observedGeneration"], source["status"]["observedGeneration"],
                "{name}"
            );
        }
    }
}
