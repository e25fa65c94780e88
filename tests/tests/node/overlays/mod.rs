//! Overlays that no other test uses with pods, on a node of their own: `single-namespace`, and then `ha` with a volume for source-controller,
//! and with a stack whose provider obeys the test.

mod checks;

use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, EvictParams, ListParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use sluice_harness::node::Node;
use sluice_harness::skip::without_cluster;
use sluice_harness::trial::TrialProvider;
use sluice_tests::scenario::TIMEOUT;

use self::checks::{assert_nothing_refused, check_pod_security, cluster_wide_roles, delete};
use crate::audit::{assert_account_was_read, count_requests};
use crate::faults::pods::{container_id, is_ready};
use crate::install::{Installation, NAMESPACE, config};
use crate::storage::{VOLUME, Volume};
use crate::tenant::{Tenant, pods_with_provider};

/// Interval of the requests of a wait.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The Leases of source-controller and of tf-controller.
const LEASES: [&str; 2] = ["source-controller-leader-election", "1953de50.contrib.fluxcd.io"];
/// What a user adds to `ha`: the account of a destroy that has lost its own.
const ARGUMENT: &str = "--destroy-service-account=destroyer";
/// The duration of the Lease, in seconds. No overlay sets a flag of it.
const LEASE_SECONDS: i32 = 35;
/// Maximum time from the kill of the leader until another replica leads. It sees the last renewal within 11 s (the retry period of 5 s with its
/// jitter), and tries within 11 s after the end of the Lease: 57 s. A busy machine gets half of that again.
const TAKEOVER: Duration = Duration::from_secs(85);
/// The namespace of the stack with the provider.
const TEAM: &str = "team";
/// The module after the block of the provider.
const RESOURCE: &str = r#"
variable "content" {}
variable "name" {}
resource "trial_thing" "it" {
  name    = var.name
  content = var.content
}
"#;

/// Runs `kubectl` in a namespace. Returns its output.
pub(crate) async fn kubectl(installation: &Installation<'_>, namespace: &str, arguments: &[&str]) -> String {
    let all = [&["-n", namespace], arguments].concat();
    installation.kubectl(&all).await.trim().to_owned()
}

/// Repeats an attempt until it has a result.
pub(crate) async fn wait_until<T>(
    installation: &Installation<'_>,
    what: &str,
    attempt: impl AsyncFn() -> Option<T>,
) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(result) = attempt().await {
            return result;
        }
        assert!(
            Instant::now() < deadline,
            "waited for {what}\n{}",
            installation.describe_pods().await
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Waits until a stack is applied.
async fn wait_until_ready(installation: &Installation<'_>, namespace: &str) {
    let wait = ["wait", "--for=condition=Ready", "terraform/net", "--timeout=300s"];
    kubectl(installation, namespace, &wait).await;
}

/// Applies a stack by a Job in the namespace of the controllers, without a cluster-wide role.
async fn use_one_namespace(installation: &Installation<'_>) {
    let overlay = config("overlays/single-namespace");
    installation.set_up("single-namespace").await;
    installation.kubectl(&["apply", "-k", &overlay]).await;
    installation.wait_until_available().await;
    check_pod_security(installation).await;
    // The overlay contains the account of runs and its role.
    let tenant = Tenant::without_role(installation.node, NAMESPACE).await;
    tenant.add_stack("net", &json!({ "approvePlan": "auto" })).await;
    wait_until_ready(installation, NAMESPACE).await;
    let (runs, jobs) = (tenant.runs("net").await, tenant.jobs().await);
    assert!(
        runs.len() == 1 && runs[0].starts_with("Succeeded ") && jobs.len() == 1,
        "{runs:?} {jobs:?}"
    );
    let roles = cluster_wide_roles(installation).await;
    assert!(roles.is_empty(), "{roles:?}");
    assert_nothing_refused(installation).await;

    // As docs/operations.md says.
    tenant.edit("net", &json!({ "suspend": true })).await;
    delete(installation, &overlay).await;
    // The controllers were killed without their roles, and may hold their Leases.
    kubectl(installation, NAMESPACE, &["delete", "pods", "--all"]).await;
    let leases = ["delete", "lease", LEASES[0], LEASES[1], "--ignore-not-found"];
    kubectl(installation, NAMESPACE, &leases).await;
}

/// `ha` with a volume, and a stack in the namespace of a team.
struct Replicas<'n> {
    installation: &'n Installation<'n>,
    volume: Volume,
    tenant: Tenant<'n>,
    provider: TrialProvider,
    controllers: Api<Pod>,
    leases: Api<Lease>,
}

impl<'n> Replicas<'n> {
    async fn new(installation: &'n Installation<'n>, volume: Volume) -> Self {
        let provider = TrialProvider::create().unwrap();
        provider.open_to_pods().unwrap();
        let module = format!("{}{RESOURCE}", provider.provider_block());
        let files = [("main.tf", module.as_str())];
        let tenant = Tenant::with_files(installation.node, TEAM, &files).await;
        for account in ["deployer", "destroyer"] {
            tenant.add_account(account).await;
        }
        let client = installation.node.client().await.unwrap();
        Self {
            installation,
            volume,
            tenant,
            provider,
            controllers: Api::namespaced(client.clone(), NAMESPACE),
            leases: Api::namespaced(client, NAMESPACE),
        }
    }

    /// From now on the provider waits in this step until [`Replicas::release`].
    fn hold(&self, step: &str) {
        let behaviour = json!({ "steps": { step: { "hold": true } } });
        self.provider.set_behaviour(&behaviour).unwrap();
    }

    fn release(&self) {
        self.provider.set_behaviour(&json!({})).unwrap();
    }

    async fn wait_for_call(&self, step: &str) {
        let has_step = || self.provider.calls().iter().any(|call| call == step);
        wait_until(self.installation, step, async || has_step().then_some(())).await;
    }

    async fn kubectl(&self, arguments: &[&str]) -> String {
        kubectl(self.installation, TEAM, arguments).await
    }

    /// Returns who leads: the name of a pod, `_` and a random part.
    async fn leader(&self) -> Option<String> {
        let lease = self.leases.get(LEASES[1]).await.ok()?;
        lease.spec?.holder_identity.filter(|holder| !holder.is_empty())
    }

    /// Ends the leader as the loss of its node does: it releases nothing. Returns who it was.
    async fn kill_leader(&self) -> String {
        let leader = wait_until(self.installation, "a leader", async || self.leader().await).await;
        let (name, _) = leader.split_once('_').unwrap();
        let pod = self.controllers.get(name).await.unwrap();
        let killed = self.installation.node.kill_container(container_id(&pod).unwrap());
        killed.await.unwrap();
        let now = DeleteParams {
            grace_period_seconds: Some(0),
            ..DeleteParams::default()
        };
        self.controllers.delete(name, &now).await.unwrap();
        leader
    }

    /// Downloads the artifact of the source from its Service.
    async fn check_artifact(&self) {
        let path = ["get", "gitrepository/code", "-ojsonpath={.status.artifact.path}"];
        let path = self.kubectl(&path).await;
        assert!(path.ends_with(".tar.gz"), "{path:?}");
        let service = format!("/api/v1/namespaces/{NAMESPACE}/services/source-controller:http/proxy/{path}");
        let artifact = self.installation.kubectl(&["get", "--raw", &service]).await;
        assert!(!artifact.is_empty());
    }

    /// Replaces both replicas, as an upgrade does, while the run applies.
    async fn roll_out(&self) {
        let leader = self.leader().await;
        let namespace = ["-n", NAMESPACE, "rollout"];
        for action in [&["restart"][..], &["status", "--timeout=300s"]] {
            let all = [&namespace[..], action, &["deployment/tf-controller"]].concat();
            self.installation.kubectl(&all).await;
        }
        let replaced = async || self.leader().await.filter(|next| Some(next) != leader.as_ref());
        wait_until(self.installation, "a leader of the new pods", replaced).await;
    }

    /// All replicas are replaced during the apply of a run, and then the leader dies: another one leads, and the same run continues to its
    /// end.
    async fn check_takeover(&self) {
        self.hold("create it");
        for input in inputs() {
            self.tenant.apply(&input).await;
        }
        let fields = json!({ "approvePlan": "auto", "deletionPolicy": "Destroy", "retryInterval": "5s",
            "serviceAccountName": "deployer",
            "varsFrom": [{ "kind": "Secret", "name": "inputs" }, { "kind": "ConfigMap", "name": "names" }],
            "runnerPodTemplate": pods_with_provider(&self.provider) });
        self.tenant.add_stack("net", &fields).await;
        self.wait_for_call("create it").await;
        let jobs = self.tenant.jobs().await;
        assert_eq!(jobs.len(), 1, "{jobs:?}");
        let lease = self.leases.get(LEASES[1]).await.unwrap().spec.unwrap();
        assert_eq!(lease.lease_duration_seconds, Some(LEASE_SECONDS), "as shipped");
        self.roll_out().await;
        let leader = self.kill_leader().await;
        let since = Instant::now();
        self.check_artifact().await;
        let takeover = async {
            let next = wait_until(self.installation, "another leader", async || {
                self.leader().await.filter(|next| *next != leader)
            });
            (next.await, since.elapsed())
        };
        // Until the Lease has expired, source-controller can be restarted: the run has its files.
        let restarts = self.volume.check_restarts(self.installation, &self.tenant);
        let ((next, after), ()) = tokio::join!(takeover, Box::pin(restarts));
        assert!(after < TAKEOVER, "{next} leads after {after:?}");
        self.check_artifact().await;
        self.release();
        wait_until_ready(self.installation, TEAM).await;
        assert_eq!(self.tenant.jobs().await, jobs, "no other run");
        let runs = self.tenant.runs("net").await;
        assert!(runs.len() == 1 && runs[0].starts_with("Succeeded "), "{runs:?}");
        let calls = self.provider.calls();
        let creates = calls.iter().filter(|call| *call == "create it").count();
        assert_eq!(creates, 1, "{calls:?}");
        assert_eq!(self.provider.resources().unwrap(), ["it"]);
    }

    /// A drain that evicts one replica has to wait until another one is ready before it evicts the next.
    async fn check_disruption_budget(&self) {
        let client = self.controllers.clone().into_client();
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(client, NAMESPACE);
        // The budget may not count the replica yet that has replaced the killed one.
        let permits_one = async || {
            let status = budgets.get("tf-controller").await.unwrap().status?;
            (status.current_healthy == 2 && status.disruptions_allowed == 1).then_some(())
        };
        wait_until(self.installation, "two replicas in the budget", permits_one).await;
        let selected = ListParams::default().labels("app=tf-controller");
        let replicas = self.controllers.list(&selected).await.unwrap().items;
        let replicas: Vec<_> = replicas
            .iter()
            .filter(|pod| is_ready(pod))
            .map(Pod::name_any)
            .collect();
        let [one, other] = replicas.as_slice() else {
            panic!("not two replicas: {replicas:?}");
        };
        self.controllers
            .evict(one, &EvictParams::default())
            .await
            .unwrap();
        // Our client repeats a request that is refused with 429, until another replica is ready.
        let folder = tempfile::tempdir().unwrap();
        let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": other, "namespace": NAMESPACE } });
        let file = folder.path().join("eviction.json").display().to_string();
        std::fs::write(&file, eviction.to_string()).unwrap();
        let address = format!("/api/v1/namespaces/{NAMESPACE}/pods/{other}/eviction");
        let evict = ["create", "--raw", &address, "-f", &file];
        let refused = self.installation.try_kubectl(&evict).await.unwrap_err();
        assert!(refused.contains("disruption budget"), "{refused}");
    }

    /// Source, Secret, ConfigMap and account of the stack are gone: a Job under the other account destroys from the last applied record.
    async fn check_destroy(&self) {
        self.hold("delete it");
        for object in [
            "gitrepository/code",
            "secret/inputs",
            "configmap/names",
            "serviceaccount/deployer",
        ] {
            self.kubectl(&["delete", object]).await;
        }
        self.kubectl(&["delete", "terraform/net", "--wait=false"]).await;
        self.wait_for_call("delete it").await;
        let recorded = [
            "get",
            "terraformruns",
            "-ojsonpath={.items[*].spec.serviceAccountName}",
        ];
        assert_eq!(self.kubectl(&recorded).await, "destroyer");
        let accounts = "-ojsonpath={.items[*].spec.template.spec.serviceAccountName}";
        let jobs = self.kubectl(&["get", "jobs", accounts]).await;
        assert_eq!(jobs, "deployer destroyer", "of the apply and of the destroy");
        self.release();
        self.kubectl(&["wait", "--for=delete", "terraform/net", "--timeout=300s"])
            .await;
        let left = self.provider.resources().unwrap();
        assert!(left.is_empty(), "{left:?}");
    }
}

fn inputs() -> [Value; 2] {
    let object = |kind: &str, name: &str| json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name, "namespace": TEAM } });
    let (mut secret, mut map) = (object("Secret", "inputs"), object("ConfigMap", "names"));
    secret["stringData"] = json!({ "content": "one" });
    map["data"] = json!({ "name": "it" });
    [secret, map]
}

/// Installs `ha` as a user does who adds an argument and a volume. Returns the folder of the user's overlay.
async fn install_two_replicas(installation: &Installation<'_>) -> String {
    installation.set_up("ha").await;
    let addition =
        json!([{ "op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": ARGUMENT }]);
    let path = |folder: &str| installation.relative(Path::new(&config(folder)));
    let kustomization = json!({
        "namespace": NAMESPACE,
        "resources": [path("overlays/ha")],
        "components": [path("components/source-storage")],
        "patches": [{ "target": { "kind": "Deployment", "name": "tf-controller" }, "patch": addition.to_string() }],
    });
    let folder = installation
        .apply_kustomization("two-replicas", &kustomization)
        .await;
    installation.wait_until_available().await;
    let replicas = "-ojsonpath={.items[*].status.readyReplicas}";
    let replicas = kubectl(installation, NAMESPACE, &["get", "deployments", replicas]).await;
    assert_eq!(replicas, "1 2", "of source-controller and of tf-controller");
    folder
}

async fn use_two_replicas(installation: &Installation<'_>) {
    let requests = count_requests(installation.node);
    let volume = Volume::create(installation.node).await;
    let overlay = install_two_replicas(installation).await;
    let replicas = Replicas::new(installation, volume).await;
    Box::pin(replicas.check_takeover()).await;
    replicas.check_destroy().await;
    replicas.check_disruption_budget().await;
    assert_account_was_read(installation.node, requests);
    delete(installation, &overlay).await;
    // The administrator's volume stays, without its claim.
    let phase = ["get", "persistentvolume", VOLUME, "-ojsonpath={.status.phase}"];
    wait_until(installation, "the release of the volume", async || {
        (installation.kubectl(&phase).await == "Released").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controllers_of_one_namespace_and_two_replicas_work_and_leave_what_is_not_theirs() {
    if without_cluster().unwrap() {
        return;
    }
    let node = Node::start().await.unwrap();
    let installation = Installation::empty(&node).await;
    Box::pin(use_one_namespace(&installation)).await;
    Box::pin(use_two_replicas(&installation)).await;
}
