//! The policies that bind the status of a run to its pod, and an approval to its user, and the commands of the program under the roles of
//! users, installed with the overlay `multi-tenant` on a real API server.

mod approvals;
mod commands;

use std::time::Duration;

use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::config::AuthInfo;
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use sluice_harness::cluster::ControlPlane;
use sluice_tests::wait_for_definitions;
use tempfile::TempDir;

use crate::environment::{config, kubectl};
use crate::{with_timeout, without_cluster};

const TENANT: &str = "team-a";
const RUN: &str = "net-0123456789-1";
/// A run with the longest name of a stack and a large number: the names of its pods contain only the first 58 characters.
const LONG_RUN: &str = "a-stack-with-a-name-of-exactly-40-charac-0123456789-1000000";

/// A control plane with the overlay, a tenant and its run.
struct Tenant {
    plane: ControlPlane,
    folder: TempDir,
}

impl Tenant {
    async fn start() -> Self {
        let plane = ControlPlane::start().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("admin"), plane.admin().kubeconfig()).unwrap();
        let tenant = Self { plane, folder };
        tenant.apply("overlays/multi-tenant/setup").await;
        wait_for_definitions(tenant.plane.admin().client().await.unwrap())
            .await
            .unwrap();
        tenant.apply("overlays/multi-tenant").await;
        tenant.apply("samples/tenant").await;
        for name in [RUN, LONG_RUN] {
            let run = json!({ "apiVersion": "infra.sluice.dev/v1alpha1", "kind": "TerraformRun",
                "metadata": { "name": name, "namespace": TENANT },
                "spec": { "action": "Plan", "attempt": 1, "deadline": "1h", "trigger": "Revision",
                    "source": { "kind": "GitRepository", "name": "code", "namespace": TENANT },
                    "terraform": { "name": "net", "uid": "u", "generation": 1 } } });
            tenant.plane.apply(&run.to_string()).await.unwrap();
        }
        tenant
    }

    async fn kubectl(&self, arguments: &[&str]) -> String {
        kubectl(self.folder.path(), arguments).await
    }

    async fn apply(&self, folder: &str) {
        self.kubectl(&["apply", "-k", &config(folder)]).await;
    }

    /// Creates a pod under the account of runs; nothing starts it.
    async fn pod(&self, name: &str) -> Writer {
        let security = json!({ "allowPrivilegeEscalation": false, "runAsNonRoot": true,
            "capabilities": { "drop": ["ALL"] }, "seccompProfile": { "type": "RuntimeDefault" } });
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": TENANT },
            "spec": { "serviceAccountName": "tf-runner", "containers": [
                { "name": "tf-runner", "image": "sluice.invalid/tf-runner:0.1.0", "securityContext": security } ] } });
        self.plane.apply(&pod.to_string()).await.unwrap();
        let uid = self
            .kubectl(&["-n", TENANT, "get", "pod", name, "-o", "jsonpath={.metadata.uid}"])
            .await;
        let bound = format!("--bound-object-name={name}");
        let writer = self
            .writer(TENANT, "tf-runner", &["--bound-object-kind=Pod", &bound])
            .await;
        Writer { uid, ..writer }
    }

    /// Returns a client with a token of an account.
    async fn writer(&self, namespace: &str, account: &str, arguments: &[&str]) -> Writer {
        let create = ["-n", namespace, "create", "token", account];
        let token = self.kubectl(&[&create, arguments].concat()).await;
        let mut config = self.plane.admin().config().await.unwrap();
        config.auth_info = AuthInfo {
            token: Some(token.trim().to_owned().into()),
            ..AuthInfo::default()
        };
        Writer {
            client: Client::try_from(config).unwrap(),
            uid: String::new(),
        }
    }
}

/// A client with a token.
struct Writer {
    client: Client,
    /// The uid of its pod; empty without one.
    uid: String,
}

impl Writer {
    /// Returns why the API server refuses this status; empty if it accepts it.
    async fn write(&self, status: &Value, params: &PatchParams) -> String {
        self.write_run(RUN, status, params).await
    }

    /// As [`Self::write`], for another run.
    async fn write_run(&self, run: &str, status: &Value, params: &PatchParams) -> String {
        let kind = GroupVersionKind::gvk("infra.sluice.dev", "v1alpha1", "TerraformRun");
        let resource = ApiResource::from_gvk_with_plural(&kind, "terraformruns");
        let runs: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), TENANT, &resource);
        let patch = Patch::Merge(json!({ "status": status }));
        match runs.patch_status(run, params, &patch).await {
            Ok(_) => String::new(),
            Err(kube::Error::Api(refused)) => refused.message.clone(),
            Err(error) => panic!("{error}"),
        }
    }

    /// Claims the run for the pod with this uid.
    async fn claim(&self, uid: &str, params: &PatchParams) -> String {
        self.write(&claim_of(uid), params).await
    }
}

/// Returns the status of a run that the pod with this uid has claimed.
fn claim_of(uid: &str) -> Value {
    json!({ "phase": "Claimed", "claim": { "holder": "h", "pod": "p", "podNamespace": TENANT, "podUid": uid } })
}

/// Waits until the API server enforces the policy, which it loads in the background.
async fn wait_for_policy(foreign: &Writer) {
    let dry_run = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    for _ in 0..600 {
        let refusal = foreign.claim(&foreign.uid, &dry_run).await;
        if refusal.contains("only by a pod of its Job") {
            return;
        }
        assert_eq!(refusal, "", "before it is loaded, the policy refuses nothing");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the policy is not enforced");
}

#[test]
fn only_the_pod_that_claimed_a_run_writes_its_status_and_users_approve_only_for_themselves() {
    if without_cluster() {
        return;
    }
    with_timeout(async {
        let tenant = Tenant::start().await;
        let (own, second) = (
            tenant.pod(&format!("{RUN}-abcde")).await,
            tenant.pod(&format!("{RUN}-fghij")).await,
        );
        let foreign = tenant.pod("app-0123456789-1-abcde").await;
        wait_for_policy(&foreign).await;
        let params = PatchParams::default();
        let without_pod = tenant.writer(TENANT, "tf-runner", &[]).await;
        let refusal = without_pod.claim("", &params).await;
        assert!(refusal.contains("only by a pod of its Job"), "{refusal}");
        // The pod of a stack that has the name of the run.
        let namesake = tenant.pod(&format!("{RUN}-0123456789-1-abcde")).await;
        let refusal = namesake.claim(&namesake.uid, &params).await;
        assert!(refusal.contains("only by a pod of its Job"), "{refusal}");
        let refusal = own.claim(&second.uid, &params).await;
        assert!(refusal.contains("only for itself"), "{refusal}");
        let long = tenant.pod(&format!("{}abcde", &LONG_RUN[..58])).await;
        assert_eq!(long.write_run(LONG_RUN, &claim_of(&long.uid), &params).await, "");

        assert_eq!(own.claim(&own.uid, &params).await, "");
        let planning = json!({ "phase": "Planning" });
        let refusal = second.write(&planning, &params).await;
        assert!(refusal.contains("is claimed by another pod"), "{refusal}");
        let refusal = second.claim(&second.uid, &params).await;
        assert!(refusal.contains("is claimed by another pod"), "{refusal}");
        assert_eq!(own.write(&planning, &params).await, "");
        // It ends runs that were lost.
        let controller = tenant.writer("sluice-system", "tf-controller", &[]).await;
        assert_eq!(controller.write(&json!({ "phase": "Lost" }), &params).await, "");

        // On the same control plane, because its start takes longer than each of these tests.
        approvals::check(&tenant).await;
        commands::check(&tenant).await;
    });
}
