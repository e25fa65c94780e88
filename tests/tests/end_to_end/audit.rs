//! The audit log of a real API server shows that each controller uses every verb that its roles grant, and that none is missing.
//!
//! Without a node, runs are processes under the account of tf-controller, which has their role too.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_harness::closed_port::ClosedPort;
use sluice_tests::audit::{
    CONFLICTS, Exception, FIND_STALE_LOCKS, Permission, READ_BUCKETS, READ_OCI_REPOSITORIES, REREAD_SOURCES,
    Request, exceptions, faults, requests, unnamed_tests,
};
use sluice_tests::scenario::{NAMESPACE, TIMEOUT, wait_for, wait_until_gone};

use crate::environment::{Origin, TestEnvironment, kubectl, ready};
use crate::features::{FeatureTest, run_scenarios};
use crate::{TEST_TIMEOUT, with_timeout_of, without_cluster};

const AUDIT_OF_JOBS: &str = "node::audit::controllers_and_runs_use_every_verb_of_their_roles";
const UNUSED_BY_TF_CONTROLLER: [Exception; 5] = [
    READ_BUCKETS,
    READ_OCI_REPOSITORIES,
    // A state that could not be written and outlives its stack.
    ("infra.sluice.dev", "terraformruns", "patch", AUDIT_OF_JOBS),
    // The lock of a killed run in a pod.
    ("", "pods", "get", AUDIT_OF_JOBS),
    FIND_STALE_LOCKS,
];
const UNUSED_BY_SOURCE_CONTROLLER: [Exception; 1] = [REREAD_SOURCES];
/// Of the repo-controller in [`crate::repos`].
const UNUSED_BY_REPO_CONTROLLER: [Exception; 2] = [
    // After a conflict.
    ("terraform.gitops.k8s.io", "repos", "get", CONFLICTS),
    // An event that is repeated.
    (
        "",
        "events",
        "patch",
        "sluice_runtime::event::tests::equal_events_count_up_within_ten_minutes",
    ),
];

/// Time between two looks at the audit log.
const AUDIT_INTERVAL: Duration = Duration::from_millis(200);
/// A module whose plan fails.
const BROKEN: &str = "resource \"terraform_data\" \"it\" { input = file(\"missing.txt\") }\n";

/// Returns the roles of the cluster and their bindings.
async fn roles(env: &TestEnvironment) -> Vec<Value> {
    let kinds = "clusterroles,roles,clusterrolebindings,rolebindings";
    let list = kubectl(env.folder.path(), &["get", kinds, "-A", "-o", "json"]).await;
    let list: Value = serde_json::from_str(&list).unwrap();
    list["items"].as_array().unwrap().clone()
}

/// Asserts that accounts in the namespace of the controllers use every verb of their roles, except in these tables.
async fn assert_used(env: &TestEnvironment, requests: &[Request], accounts: &[(&str, &[Exception])]) {
    let roles = roles(env).await;
    for (name, table) in accounts {
        let account = format!("{}:{name}", env.namespace);
        let found = faults(&roles, requests, &account, &exceptions(table));
        assert!(found.is_empty(), "{found:#?}");
    }
}

/// Asserts that the repo-controller uses every verb of the roles of its component. Waits for the first renewal of its Lease, which comes
/// seconds after its start.
pub(crate) async fn assert_repo_controller_uses_its_roles(env: &TestEnvironment) {
    let read = || requests(&env.plane.audit_log().unwrap()).unwrap();
    let account = format!("{}:repo-controller", env.namespace);
    let renewal = Permission::new("coordination.k8s.io/leases", "update");
    let is_renewal = |request: &Request| request.account == account && request.permission == renewal;
    let mut requests = read();
    while !requests.iter().any(is_renewal) {
        tokio::time::sleep(AUDIT_INTERVAL).await;
        requests = read();
    }
    let table = UNUSED_BY_REPO_CONTROLLER.as_slice();
    assert_used(env, &requests, &[("repo-controller", table)]).await;
}

/// Asserts that the API server refused nothing to the accounts of the namespace of the controllers but to read definitions, which no Role
/// can permit.
pub(crate) fn assert_only_definitions_are_refused(env: &TestEnvironment) {
    let requests = requests(&env.plane.audit_log().unwrap()).unwrap();
    let definitions = Permission::new("apiextensions.k8s.io/customresourcedefinitions", "get");
    let own = format!("{}:", env.namespace);
    let refused = |request: &&Request| request.is_refused && request.account.starts_with(&own);
    let refused: Vec<_> = requests.iter().filter(refused).collect();
    assert!(!refused.is_empty(), "the definitions were read");
    let others: Vec<_> = refused
        .iter()
        .filter(|request| request.permission != definitions)
        .collect();
    assert!(others.is_empty(), "the roles lack permissions: {others:#?}");
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

/// A source with an account of its own, whose token is not accepted anywhere.
async fn check_account_of_source(test: &FeatureTest, env: &TestEnvironment) {
    let annotations = json!({ "azure.workload.identity/client-id": "client", "azure.workload.identity/tenant-id": "tenant" });
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": "reader", "namespace": NAMESPACE, "annotations": annotations } });
    env.plane.apply(&account.to_string()).await.unwrap();
    let source = json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
        "metadata": { "name": "identity", "namespace": NAMESPACE },
        "spec": { "url": "https://sluice.invalid/org/project/_git/r", "interval": "1h", "provider": "azure", "serviceAccountName": "reader" } });
    env.plane.apply(&source.to_string()).await.unwrap();
    let shows = |object: &Value| ready(object).starts_with("False ");
    let found = wait_for(&test.scenario.sources(), "identity", "its failure", shows).await;
    found.unwrap_or_else(|error| panic!("{error}\n{}", env.logs()));
}

/// Waits until the first run of the stack whose runs fail at once is deleted: the controller keeps twenty.
async fn wait_for_pruned_run(env: &TestEnvironment) {
    let names = "-ojsonpath={.items[*].metadata.name}";
    let of_stack = "-linfra.sluice.dev/terraform=broken";
    let runs = ["-n", NAMESPACE, "get", "terraformruns", of_stack, names];
    let is_pruned = async {
        loop {
            let runs = kubectl(env.folder.path(), &runs).await;
            let mut names = runs.split_whitespace().peekable();
            if names.peek().is_some() && !names.any(|name| name.ends_with("-1")) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let pruned = tokio::time::timeout(TIMEOUT, is_pruned).await;
    pruned.unwrap_or_else(|_| panic!("{}", env.logs()));
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
        let broken = [("broken/main.tf", BROKEN)];
        origin
            .repository
            .commit_files(&broken, "A module without a plan")
            .unwrap();
        // No token is sent anywhere.
        let authority = ClosedPort::reserve().unwrap();
        let mut env = TestEnvironment::start_with_audit_log().await;
        let authority = format!("http://{}", authority.address().unwrap());
        env.source_controller
            .set_variable("AZURE_AUTHORITY_HOST", &authority);
        env.elect_leaders();
        env.seal_plans().await;
        env.start_controllers();
        let test = FeatureTest::new(&env).await;
        run_scenarios(&test, &origin, &env).await;
        test.stack("broken", &json!({ "retryInterval": "1s" })).await;
        check_inputs_and_shared_files(&test, &env).await;
        check_approval(&test, &env).await;
        check_credentials(&test, &origin, &env).await;
        check_account_of_source(&test, &env).await;
        wait_for_pruned_run(&env).await;
        for controller in [&mut env.source_controller, &mut env.tf_controller] {
            controller.end().await.unwrap();
        }
        let requests = requests(&env.plane.audit_log().unwrap()).unwrap();
        assert_nothing_refused(&requests);
        let accounts: [(&str, &[Exception]); 2] = [
            ("tf-controller", &UNUSED_BY_TF_CONTROLLER),
            ("source-controller", &UNUSED_BY_SOURCE_CONTROLLER),
        ];
        assert_used(&env, &requests, &accounts).await;
    });
}

#[test]
fn each_exception_is_in_the_page_about_security() {
    let all = [
        &UNUSED_BY_TF_CONTROLLER[..],
        &UNUSED_BY_SOURCE_CONTROLLER,
        &UNUSED_BY_REPO_CONTROLLER,
    ];
    assert_eq!(unnamed_tests(&all.concat()), Vec::<&str>::new());
}
