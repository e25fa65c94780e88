//! The audit log of the node shows that the controllers and the account of runs use every verb of their own roles, and that none is
//! missing. Runs are Jobs, so their requests are not those of tf-controller.
//!
//! The log has the requests of all tests of this program; one more than these scenarios make is not an error.

use std::time::Duration;

use serde_json::{Value, json};
use sluice_harness::node::Node;
use sluice_harness::skip::without_cluster;
use sluice_tests::audit::{
    Exception, FIND_STALE_LOCKS, Permission, READ_BUCKETS, READ_OCI_REPOSITORIES, REREAD_SOURCES, Request,
    exceptions, faults, requests, unnamed_tests, used,
};

use crate::install::{Installation, NAMESPACE};
use crate::overlays::wait_until;
use crate::tenant::Tenant;

const TENANT: &str = "audit";
const OTHER_AUDIT: &str = "end_to_end::audit::each_verb_of_a_role_is_used_and_none_is_missing";
const OVERLAYS: &str =
    "node::overlays::the_controllers_of_one_namespace_and_two_replicas_work_and_leave_what_is_not_theirs";
const UNUSED_BY_TF_CONTROLLER: [Exception; 6] = [
    READ_BUCKETS,
    READ_OCI_REPOSITORIES,
    // More than twenty runs of a stack.
    ("infra.sluice.dev", "terraformruns", "delete", OTHER_AUDIT),
    // Stacks with spec.approval.
    ("infra.sluice.dev", "planapprovals", "patch", OTHER_AUDIT),
    ("infra.sluice.dev", "planapprovals/status", "patch", OTHER_AUDIT),
    // With --destroy-service-account.
    ("", "serviceaccounts", "get", OVERLAYS),
];
const UNUSED_BY_SOURCE_CONTROLLER: [Exception; 1] = [REREAD_SOURCES];
const UNUSED_BY_RUNS: [Exception; 2] = [
    // Stacks with spec.approval.
    ("infra.sluice.dev", "planapprovals", "list", OTHER_AUDIT),
    FIND_STALE_LOCKS,
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

    /// A run that is killed while it holds the state lock: the next one reads why it may release it. Then the object is deleted, and a state
    /// that could not be written stays with its resources.
    async fn run_a_killed_stack(&self) {
        let fields = json!({ "path": "./held", "approvePlan": "auto", "retryInterval": "1s",
            "vars": [{ "name": "hold", "value": true }] });
        self.tenant.add_stack("held", &fields).await;
        let container = self.wait_for_provisioner("held").await;
        // For the next run.
        self.tenant
            .edit("held", &json!({ "vars": [{ "name": "hold", "value": false }] }))
            .await;
        self.installation.node.kill_container(&container).await.unwrap();
        self.wait_until_ready("held").await;
        self.store_errored_state("held").await;
        self.kubectl(&["delete", "terraform", "held", "--timeout=300s"])
            .await;
    }

    /// Waits until the run of a stack applies. Returns the id of its container.
    async fn wait_for_provisioner(&self, stack: &str) -> String {
        let of_stack = of_stack(stack);
        let id = "-ojsonpath={.items[*].status.containerStatuses[*].containerID}";
        let (logs, id) = (
            ["-n", TENANT, "logs", &of_stack, "--tail=-1"],
            ["-n", TENANT, "get", "pods", &of_stack, id],
        );
        wait_until(self.installation, "the apply of the held stack", async || {
            let log = self.installation.try_kubectl(&logs).await.ok()?;
            let id = self.installation.try_kubectl(&id).await.ok()?;
            let id = id.strip_prefix("containerd://")?;
            log.contains("local-exec").then(|| id.to_owned())
        })
        .await
    }

    /// Stores a state as the newest run of a stack does that can write it nowhere else, and records it in that run.
    async fn store_errored_state(&self, stack: &str) {
        let uid = ["get", "terraform", stack, "-ojsonpath={.metadata.uid}"];
        let uid = self.kubectl(&uid).await;
        let owner = json!({ "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform", "name": stack, "uid": uid });
        let metadata = json!({ "name": "errored", "namespace": TENANT,
            "labels": { "infra.sluice.dev/errored-state": stack }, "ownerReferences": [owner] });
        self.tenant
            .apply(&json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata }))
            .await;
        let names = "-ojsonpath={.items[*].metadata.name}";
        let runs = self
            .kubectl(&["get", "terraformruns", &of_stack(stack), names])
            .await;
        // Names of runs end with their numbers.
        let newest = runs.split_whitespace().last().unwrap();
        let recorded = json!({ "status": { "erroredStates": [{ "digest": "sha256:0" }] } }).to_string();
        let patch = ["--subresource=status", "--type=merge", "-p", &recorded];
        self.kubectl(&[&["patch", "terraformrun", newest], &patch[..]].concat())
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

/// Returns how many requests of `ServiceAccounts` a node has had.
pub(crate) fn count_requests(node: &Node) -> usize {
    requests(&node.audit_log().unwrap()).unwrap().len()
}

/// Asserts that no request of a controller was refused. A request that another account sent in its name is none.
pub(crate) fn assert_not_refused(requests: &[Request], account: &str) {
    let own = requests
        .iter()
        .filter(|request| request.sender == account && request.account == account);
    let (refused, accepted): (Vec<_>, Vec<_>) = own.partition(|request| request.is_refused);
    assert!(!accepted.is_empty(), "{account} has sent no request");
    assert!(refused.is_empty(), "the roles lack permissions: {refused:#?}");
}

/// Asserts what an installation with `--destroy-service-account` shows: tf-controller has looked for the account of a stack, and no request
/// of the controllers after the first `before` ones was refused.
pub(crate) fn assert_account_was_read(node: &Node, before: usize) {
    let requests = requests(&node.audit_log().unwrap()).unwrap();
    let since = &requests[before..];
    let account = format!("{NAMESPACE}:tf-controller");
    let get = Permission::new("/serviceaccounts", "get");
    assert!(used(since, &account).contains(&get));
    assert_not_refused(since, &account);
    assert_not_refused(since, &format!("{NAMESPACE}:source-controller"));
}

fn of_stack(name: &str) -> String {
    format!("-linfra.sluice.dev/terraform={name}")
}

#[test]
fn each_exception_is_in_the_page_about_security() {
    let all = [
        &UNUSED_BY_TF_CONTROLLER[..],
        &UNUSED_BY_SOURCE_CONTROLLER,
        &UNUSED_BY_RUNS,
    ];
    assert_eq!(unnamed_tests(&all.concat()), Vec::<&str>::new());
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
    scenarios.run_a_killed_stack().await;
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
        found.extend(faults(&roles, &requests, &account, &exceptions(table)));
    }
    assert!(found.is_empty(), "{found:#?}");
}
