//! The audit log of a real API server shows that each controller uses every verb that its roles grant, and that none is missing.
//!
//! Without a node, runs are processes under the account of tf-controller, which has their role too.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_tests::audit::{Request, faults, permissions, requests};
use sluice_tests::scenario::{NAMESPACE, wait_for, wait_until_gone};

use crate::environment::{CONTROLLERS, Origin, TestEnvironment, kubectl, ready};
use crate::features::{FeatureTest, run_scenarios};
use crate::{TEST_TIMEOUT, with_timeout_of, without_cluster};

/// The verbs that no scenario here uses, with the scenario that does.
const UNUSED_BY_TF_CONTROLLER: [(&str, &str, &str); 6] = [
    // Their definitions are not installed: control::foreign_sources::buckets_and_oci_repositories_are_read_in_any_served_version.
    ("source.toolkit.fluxcd.io", "buckets", "get list watch"),
    ("source.toolkit.fluxcd.io", "ocirepositories", "get list watch"),
    // More than twenty runs of a stack: control::run_files::pruned_runs_are_forgotten_by_their_executor.
    ("infra.sluice.dev", "terraformruns", "delete"),
    // A state that could not be written and outlives its stack: control::rescued_states.
    ("infra.sluice.dev", "terraformruns", "patch"),
    // Runs in pods: node::faults.
    ("", "pods", "get"),
    // The lock of a run that was killed: run::locks::a_lock_left_by_init_is_released_by_the_next_run.
    ("coordination.k8s.io", "leases", "list"),
];
const UNUSED_BY_SOURCE_CONTROLLER: [(&str, &str, &str); 1] = [
    // Only while the cache lags behind an own write: sluice_source_controller::reconcile::tests.
    ("source.toolkit.fluxcd.io", "gitrepositories", "get"),
];

/// Returns the roles of the cluster and their bindings.
async fn roles(env: &TestEnvironment) -> Vec<Value> {
    let kinds = "clusterroles,roles,clusterrolebindings,rolebindings";
    let list = kubectl(env.folder.path(), &["get", kinds, "-A", "-o", "json"]).await;
    let list: Value = serde_json::from_str(&list).unwrap();
    list["items"].as_array().unwrap().clone()
}

fn assert_nothing_refused(requests: &[Request]) {
    let refused: Vec<_> = requests.iter().filter(|request| request.is_refused).collect();
    assert!(refused.is_empty(), "the roles lack permissions: {refused:#?}");
}

async fn put_config_map(test: &FeatureTest, size: &str) {
    let maps: Api<ConfigMap> = Api::namespaced(test.client.clone(), NAMESPACE);
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "sizes" }, "data": { "size": size } });
    maps.patch("sizes", &PatchParams::apply("tests"), &Patch::Apply(map))
        .await
        .unwrap();
}

async fn delete_config_map(test: &FeatureTest) {
    let maps: Api<ConfigMap> = Api::namespaced(test.client.clone(), NAMESPACE);
    maps.delete("sizes", &DeleteParams::default()).await.unwrap();
}

/// Waits for a plan other than `before`; returns its id.
async fn wait_for_plan(test: &FeatureTest, name: &str, before: &str) -> String {
    let pending = |object: &Value| {
        let id = object.pointer("/status/plan/pending").and_then(Value::as_str);
        id.unwrap_or_default().to_owned()
    };
    let is_new = |object: &Value| !pending(object).is_empty() && pending(object) != before;
    let found = wait_for(
        &test.scenario.stacks(),
        name,
        "a plan that waits for approval",
        is_new,
    )
    .await;
    pending(&found.unwrap())
}

/// A missing ConfigMap, twice, so that an event is repeated; a readable plan that is replaced; two stacks that share their files.
async fn check_inputs_and_shared_files(test: &FeatureTest, env: &TestEnvironment) {
    let missing = "False VarsGenerationFailed cannot read ConfigMap sizes of varsFrom";
    let fields = json!({ "path": "./app", "approvePlan": "", "storeReadablePlan": "human", "deletionPolicy": "Destroy",
        "varsFrom": [{ "kind": "ConfigMap", "name": "sizes" }] });
    test.stack("one", &fields).await;
    test.wait_for_ready("one", missing, env).await;
    put_config_map(test, "small").await;
    let first = wait_for_plan(test, "one", "").await;
    put_config_map(test, "large").await;
    wait_for_plan(test, "one", &first).await;
    delete_config_map(test).await;
    test.wait_for_ready("one", missing, env).await;
    put_config_map(test, "large").await;
    test.stack("two", &fields).await;
    for name in ["one", "two"] {
        test.edit(name, json!({ "approvePlan": "auto" })).await;
        test.wait_for_ready(name, "True TerraformAppliedSucceed", env)
            .await;
    }
    let stacks = test.scenario.stacks();
    for name in ["one", "two"] {
        stacks.delete(name, &DeleteParams::default()).await.unwrap();
        let gone = wait_until_gone(&stacks, name).await;
        gone.unwrap_or_else(|error| panic!("{error}\n{}", env.logs()));
    }
}

/// A stack that requires an approval: the controller watches the approval, becomes its owner and writes its status; the run lists it.
async fn check_approval(test: &FeatureTest, env: &TestEnvironment) {
    let fields = json!({ "path": "./app", "approval": {}, "vars": [{ "name": "size", "value": "small" }] });
    test.stack("approved", &fields).await;
    let plan = wait_for_plan(test, "approved", "").await;
    let kind = GroupVersionKind::gvk("infra.sluice.dev", "v1alpha1", "PlanApproval");
    let resource = ApiResource::from_gvk(&kind);
    let approvals: Api<DynamicObject> = Api::namespaced_with(test.client.clone(), NAMESPACE, &resource);
    let approval = json!({ "apiVersion": "infra.sluice.dev/v1alpha1", "kind": "PlanApproval", "metadata": { "name": "first" },
        "spec": { "approver": "alice", "planID": plan, "terraformRef": { "name": "approved" } } });
    let approval: DynamicObject = serde_json::from_value(approval).unwrap();
    approvals.create(&PostParams::default(), &approval).await.unwrap();
    test.wait_for_ready("approved", "True TerraformAppliedSucceed", env)
        .await;
    let is_adopted = |object: &Value| {
        object.pointer("/metadata/ownerReferences/0/name") == Some(&json!("approved"))
            && object.pointer("/status/accepted") == Some(&json!(true))
    };
    let found = wait_for(&approvals, "first", "owner and status", is_adopted).await;
    found.unwrap_or_else(|error| panic!("{error}\n{}", env.logs()));
}

/// A source with credentials that are missing, twice, so that an event is repeated.
async fn check_credentials(test: &FeatureTest, origin: &Origin, env: &TestEnvironment) {
    let sources = test.scenario.sources();
    let source = json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
        "metadata": { "name": "private", "namespace": NAMESPACE },
        "spec": { "url": origin.url, "interval": "2s", "ref": { "branch": "main" }, "secretRef": { "name": "login" } } });
    let source: DynamicObject = serde_json::from_value(source).unwrap();
    sources.create(&PostParams::default(), &source).await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(test.client.clone(), NAMESPACE);
    let login = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "login" },
        "stringData": { "username": "git", "password": "hunter2-hunter" } });
    let login: Secret = serde_json::from_value(login).unwrap();
    for round in ["one", "two"] {
        wait_for_source(test, env, "False ").await;
        secrets.create(&PostParams::default(), &login).await.unwrap();
        request(&sources, round).await;
        wait_for_source(test, env, "True ").await;
        secrets.delete("login", &DeleteParams::default()).await.unwrap();
    }
    wait_for_source(test, env, "False ").await;
    sources.delete("private", &DeleteParams::default()).await.unwrap();
    let gone = wait_until_gone(&sources, "private").await;
    gone.unwrap_or_else(|error| panic!("{error}\n{}", env.logs()));
}

/// Requests a reconciliation, which does not wait for the back-off.
async fn request(sources: &Api<DynamicObject>, token: &str) {
    let annotations = json!({ "reconcile.fluxcd.io/requestedAt": token });
    let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
    sources
        .patch("private", &PatchParams::default(), &patch)
        .await
        .unwrap();
}

async fn wait_for_source(test: &FeatureTest, env: &TestEnvironment, expected: &str) {
    let shows = |object: &Value| ready(object).starts_with(expected);
    let found = wait_for(&test.scenario.sources(), "private", "its Ready", shows).await;
    found.unwrap_or_else(|error| panic!("{expected:?}: {error}\n{}", env.logs()));
}

#[test]
fn each_verb_of_a_role_is_used_and_none_is_missing() {
    if without_cluster() {
        return;
    }
    with_timeout_of(3 * TEST_TIMEOUT, async {
        let origin = Origin::start().await;
        let mut env = TestEnvironment::start_with_audit_log().await;
        env.elect_leaders();
        env.seal_plans().await;
        env.start_controllers();
        let test = FeatureTest::new(&env).await;
        run_scenarios(&test, &origin, &env).await;
        check_inputs_and_shared_files(&test, &env).await;
        check_approval(&test, &env).await;
        check_credentials(&test, &origin, &env).await;
        for controller in [&mut env.source_controller, &mut env.tf_controller] {
            controller.end().await.unwrap();
        }
        let requests = requests(&env.plane.audit_log().unwrap()).unwrap();
        assert_nothing_refused(&requests);
        let roles = roles(&env).await;
        for (name, table) in [
            ("tf-controller", UNUSED_BY_TF_CONTROLLER.as_slice()),
            ("source-controller", &UNUSED_BY_SOURCE_CONTROLLER),
        ] {
            let found = faults(
                &roles,
                &requests,
                &format!("{CONTROLLERS}:{name}"),
                &permissions(table),
            );
            assert!(found.is_empty(), "{found:#?}");
        }
    });
}
