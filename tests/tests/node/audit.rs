//! The audit log of the node shows that the controllers and the account of runs use every verb of their own roles, and that none is
//! missing. Runs are Jobs, so their requests are not those of tf-controller.
//!
//! The log has the requests of all tests of this program; one more than these scenarios make is no fault.

use std::time::Duration;

use serde_json::{Value, json};
use sluice_harness::skip::without_cluster;
use sluice_tests::audit::{faults, permissions, requests};

use crate::install::{Installation, NAMESPACE};
use crate::tenant::Tenant;

const TENANT: &str = "audit";
/// The verbs that no scenario here uses, with the scenario that does.
const UNUSED_BY_TF_CONTROLLER: [(&str, &str, &str); 8] = [
    // Their definitions are not installed: control::foreign_sources::buckets_and_oci_repositories_are_read_in_any_served_version.
    ("source.toolkit.fluxcd.io", "buckets", "get list watch"),
    ("source.toolkit.fluxcd.io", "ocirepositories", "get list watch"),
    // More than twenty runs of a stack: control::run_files::pruned_runs_are_forgotten_by_their_executor.
    ("infra.sluice.dev", "terraformruns", "delete"),
    // A state that could not be written and outlives its stack: control::rescued_states.
    ("infra.sluice.dev", "terraformruns", "patch"),
    // Stacks with spec.approval: end_to_end::audit.
    ("infra.sluice.dev", "planapprovals", "patch"),
    ("infra.sluice.dev", "planapprovals/status", "patch"),
    ("", "secrets", "patch"),
    // With --destroy-service-account: control::blocked_deletions::a_destroy_without_its_account_has_the_one_that_the_policy_names.
    ("", "serviceaccounts", "get"),
];
const UNUSED_BY_SOURCE_CONTROLLER: [(&str, &str, &str); 1] = [
    // Only while the cache lags behind an own write: sluice_source_controller::reconcile::tests.
    ("source.toolkit.fluxcd.io", "gitrepositories", "get"),
];
const UNUSED_BY_RUNS: [(&str, &str, &str); 4] = [
    // The lock of a run that was killed: node::faults.
    ("", "pods", "get"),
    ("coordination.k8s.io", "leases", "list"),
    ("infra.sluice.dev", "terraformruns", "list"),
    // Stacks with spec.approval: end_to_end::audit.
    ("infra.sluice.dev", "planapprovals", "list"),
];

/// The scenarios, in one namespace.
struct Scenarios {
    installation: &'static Installation<'static>,
    tenant: Tenant<'static>,
}

impl Scenarios {
    async fn kubectl(&self, arguments: &[&str]) -> String {
        self.installation
            .kubectl(&[&["-n", TENANT], arguments].concat())
            .await
    }

    async fn wait_for_message(&self, stack: &str, texts: &[&str]) {
        if let Err(error) = self.tenant.wait_for_message(stack, texts).await {
            panic!("{error}\n{}", self.installation.describe_pods().await);
        }
    }

    async fn wait_until_ready(&self, stack: &str) {
        let object = format!("terraform/{stack}");
        self.kubectl(&["wait", "--for=condition=Ready", &object, "--timeout=300s"])
            .await;
    }

    /// Waits until so many runs of the stack have succeeded.
    async fn wait_for_runs(&self, stack: &str, count: usize) {
        for _ in 0..900 {
            let runs = self.tenant.runs(stack).await;
            if runs.iter().filter(|run| run.starts_with("Succeeded ")).count() >= count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{stack}: {:?}", self.tenant.runs(stack).await);
    }

    async fn set_size(&self, size: &str) {
        self.tenant
            .apply(
                &json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "size": size },
                "metadata": { "name": "sizes", "namespace": TENANT } }),
            )
            .await;
    }

    /// A missing ConfigMap, twice, so that an event is repeated; readable plans that are replaced and deleted; two stacks that share their
    /// files.
    async fn run_stacks(&self) {
        let missing = ["cannot read ConfigMap sizes of varsFrom"];
        let fields = json!({ "approvePlan": "", "storeReadablePlan": "human", "deletionPolicy": "Destroy",
            "varsFrom": [{ "kind": "ConfigMap", "name": "sizes" }] });
        self.tenant.add_stack("one", &fields).await;
        self.wait_for_message("one", &missing).await;
        self.set_size("small").await;
        self.wait_for_runs("one", 1).await;
        self.set_size("large").await;
        self.wait_for_runs("one", 2).await;
        self.kubectl(&["delete", "configmap", "sizes"]).await;
        self.wait_for_message("one", &missing).await;
        self.set_size("large").await;
        // A plan without a readable form deletes the one before.
        self.tenant
            .edit("one", &json!({ "storeReadablePlan": "none", "approvePlan": "auto", "vars": [{ "name": "more", "value": 1 }] }))
            .await;
        self.wait_until_ready("one").await;
        let mut fields = fields.clone();
        fields["approvePlan"] = json!("auto");
        self.tenant.add_stack("two", &fields).await;
        self.wait_until_ready("two").await;
        for stack in ["one", "two"] {
            self.kubectl(&["delete", "terraform", stack, "--timeout=300s"])
                .await;
        }
    }

    /// A Job that cannot create its pod, and is replaced; a state that is deleted with its stack.
    async fn run_a_pending_stack(&self) {
        let fields =
            json!({ "serviceAccountName": "absent", "approvePlan": "auto", "deletionPolicy": "Orphan" });
        self.tenant.add_stack("pending", &fields).await;
        self.wait_for_message("pending", &["FailedCreate"]).await;
        self.tenant
            .edit("pending", &json!({ "serviceAccountName": "tf-runner" }))
            .await;
        self.wait_until_ready("pending").await;
        self.kubectl(&["delete", "terraform", "pending", "--timeout=300s"])
            .await;
    }

    /// Credentials that are missing, twice, so that an event is repeated.
    async fn run_a_source(&self) {
        let url = self
            .kubectl(&["get", "gitrepository", "code", "-ojsonpath={.spec.url}"])
            .await;
        let source = json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": { "name": "private", "namespace": TENANT },
            "spec": { "interval": "5s", "url": url.trim(), "ref": { "branch": "main" }, "secretRef": { "name": "login" } } });
        self.tenant.apply(&source).await;
        let wait = async |status: &str| {
            let condition = format!("--for=condition=Ready={status}");
            self.kubectl(&["wait", &condition, "gitrepository/private", "--timeout=300s"])
                .await
        };
        for _ in 0..2 {
            wait("False").await;
            let login = [
                "create",
                "secret",
                "generic",
                "login",
                "--from-literal=username=git",
                "--from-literal=password=hunter2-hunter",
            ];
            self.kubectl(&login).await;
            wait("True").await;
            self.kubectl(&["delete", "secret", "login"]).await;
        }
        wait("False").await;
        self.kubectl(&["delete", "gitrepository", "private"]).await;
    }

    /// Returns the roles of the cluster and their bindings.
    async fn roles(&self) -> Vec<Value> {
        let kinds = "clusterroles,roles,clusterrolebindings,rolebindings";
        let list = self.installation.kubectl(&["get", kinds, "-A", "-ojson"]).await;
        let list: Value = serde_json::from_str(&list).unwrap();
        list["items"].as_array().unwrap().clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn controllers_and_runs_use_every_verb_of_their_roles() {
    if without_cluster().unwrap() {
        return;
    }
    let installation = Installation::shared().await;
    let scenarios = Scenarios {
        installation,
        tenant: Tenant::new(installation.node, TENANT).await,
    };
    scenarios.run_stacks().await;
    scenarios.run_a_pending_stack().await;
    scenarios.run_a_source().await;
    let requests = requests(&installation.node.audit_log().unwrap()).unwrap();
    let roles = scenarios.roles().await;
    let of_controllers = format!("{NAMESPACE}:");
    let runner = format!("{TENANT}:tf-runner");
    // Other tests have accounts without the role of runs.
    let refused: Vec<_> = requests
        .iter()
        .filter(|request| request.is_refused)
        .filter(|request| request.account.starts_with(&of_controllers) || request.account == runner)
        .collect();
    assert!(refused.is_empty(), "the roles lack permissions: {refused:#?}");
    let mut found = Vec::new();
    for (account, table) in [
        (
            format!("{NAMESPACE}:tf-controller"),
            UNUSED_BY_TF_CONTROLLER.as_slice(),
        ),
        (
            format!("{NAMESPACE}:source-controller"),
            &UNUSED_BY_SOURCE_CONTROLLER,
        ),
        (runner, &UNUSED_BY_RUNS),
    ] {
        found.extend(faults(&roles, &requests, &account, &permissions(table)));
    }
    assert!(found.is_empty(), "{found:#?}");
}
