//! The objects of tofu-controller 0.16: its definition, Deployment and Lease, and stacks with their Secrets. Two are up to date (one
//! written as v1alpha1 depends on the other), one is outdated, and one has a pending plan.

use std::io::Write;

use k8s_openapi::ByteString;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use sluice_runtime::clock::{Clock as _, SystemClock};

use super::Migration;

/// The modules at the older revision.
pub(crate) const MODULES: [(&str, &str); 4] = [
    (
        "net/main.tf",
        "variable \"copies\" { default = 2 }\n\
         resource \"terraform_data\" \"it\" {\n  count = var.copies\n  input = \"one\"\n}\noutput \"size\" { value = \"one\" }\n",
    ),
    ("app/main.tf", ONE),
    ("moved/main.tf", ONE),
    (
        "waits/main.tf",
        "resource \"terraform_data\" \"it\" {\n  count = 1\n  input = \"two\"\n}\n",
    ),
];
const ONE: &str = "resource \"terraform_data\" \"it\" {\n  count = 1\n  input = \"one\"\n}\n";
/// The change in the current revision.
pub(crate) const CHANGE: (&str, &str) = (
    "moved/more.tf",
    "resource \"terraform_data\" \"more\" { input = \"more\" }\n",
);
/// Returns tofu-controller's plan id for a revision.
pub(crate) fn plan_id(revision: &str) -> String {
    let (_, hash) = revision.split_once(':').unwrap();
    format!("plan-main-{}", &hash[..10])
}

/// The arguments of its chart.
pub(crate) const ARGUMENTS: [&str; 17] = [
    "--allow-cross-namespace-refs=false",
    "--watch-all-namespaces=true",
    "--log-level=info",
    "--log-encoding=json",
    "--enable-leader-election",
    "--concurrent=24",
    "--ca-cert-validity-duration=168h0m",
    "--cert-rotation-check-frequency=30m0s",
    "--cert-validity-duration=6h0m",
    "--runner-creation-timeout=5m0s",
    "--runner-grpc-max-message-size=4",
    "--kube-api-qps=50",
    "--kube-api-burst=100",
    "--allow-break-the-glass=false",
    "--cluster-domain=cluster.local",
    "--use-pod-subdomain-resolution=false",
    "--use-priority-queue=true",
];

/// Returns the controller's own objects, in its namespace and in that of the stacks.
pub(crate) fn installation() -> Vec<Value> {
    let labels = json!({ "app.kubernetes.io/name": "tofu-controller", "app.kubernetes.io/instance": "tofu-controller" });
    let container = |name: &str, arguments: &[&str]| {
        json!({ "containers": [{ "name": name, "image": format!("example/{name}"), "args": arguments }],
        "serviceAccountName": if name == "tf-runner" { "tf-runner" } else { "tofu-controller" } })
    };
    let runner = json!({ "app.kubernetes.io/created-by": "tofu-controller", "app.kubernetes.io/name": "tf-runner",
        "infra.contrib.fluxcd.io/terraform": "default" });
    vec![
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "tofu-controller", "namespace": "flux-system" } }),
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "tf-runner", "namespace": "default" } }),
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "tofu-controller", "namespace": "flux-system" },
            "spec": { "replicas": 1, "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": container("tofu-controller", &ARGUMENTS) } } }),
        json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": "1953de50.contrib.fluxcd.io", "namespace": "flux-system" },
            "spec": { "holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 3,
                "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z" } }),
        json!({ "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "immutable": true,
            "metadata": { "name": "terraform-runner.tls-1790000000", "namespace": "default",
                "labels": { "infra.contrib.fluxcd.io/terraform": "true" } },
            "stringData": { "ca.crt": "c", "ca.key": "k", "tls.crt": "c", "tls.key": "k" } }),
        json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "net-tf-runner", "namespace": "default", "labels": runner },
            "spec": container("tf-runner", &[]) }),
    ]
}

/// A stack and its status.
struct Stack {
    name: &'static str,
    version: &'static str,
    spec: Value,
    finalizers: Value,
    /// The revision of its last apply.
    revision: String,
    /// The pending plan.
    pending: String,
    /// Number of instances in its state.
    instances: usize,
}

/// Creates the stacks.
pub(crate) async fn stacks(migration: &Migration) {
    let own = "finalizers.tf.contrib.fluxcd.io";
    let now = &migration.revision;
    let stack = |name, spec, revision: &str| Stack {
        name,
        version: "v1alpha2",
        spec,
        finalizers: json!([own]),
        revision: revision.to_owned(),
        pending: String::new(),
        instances: 1,
    };
    let net = json!({ "approvePlan": "auto", "storeReadablePlan": "human", "writeOutputsToSecret": { "name": "net-outputs" } });
    let app = json!({ "approvePlan": "auto", "dependsOn": [{ "name": "net" }] });
    let all = [
        Stack {
            finalizers: json!([own, "tf.dependency.of.app"]),
            instances: 2,
            ..stack("net", net, now)
        },
        Stack {
            version: "v1alpha1",
            ..stack("app", app, now)
        },
        stack("moved", json!({ "approvePlan": "auto" }), &migration.old),
        Stack {
            pending: plan_id(now),
            // Approved while no controller was running.
            ..stack("waits", json!({ "approvePlan": plan_id(now) }), now)
        },
    ];
    for stack in all {
        let uid = create(migration, &stack).await;
        write_status(migration, &stack).await;
        for object in owned_objects(&stack, &uid) {
            migration.plane.apply(&object.to_string()).await.unwrap();
        }
    }
}

async fn create(migration: &Migration, stack: &Stack) -> String {
    let mut object = json!({ "apiVersion": format!("infra.contrib.fluxcd.io/{}", stack.version), "kind": "Terraform",
        "metadata": { "name": stack.name, "namespace": "default", "finalizers": stack.finalizers },
        "spec": { "interval": "24h", "path": format!("./{}", stack.name),
            "sourceRef": { "kind": "GitRepository", "name": "code" } } });
    for (field, value) in stack.spec.as_object().unwrap() {
        object["spec"][field] = value.clone();
    }
    migration.plane.apply(&object.to_string()).await.unwrap();
    let created = migration.scenario.stacks().get(stack.name).await.unwrap();
    created.uid().unwrap()
}

/// Writes the status. The last success is now, so that no drift detection is due.
async fn write_status(migration: &Migration, stack: &Stack) {
    let now = SystemClock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = |kind: &str, status: &str, reason: &str, message: &str| json!({ "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now, "observedGeneration": 1 });
    let revision = &stack.revision;
    let ready = if stack.pending.is_empty() {
        let message = format!("Applied successfully: {revision}");
        condition("Ready", "True", "TerraformAppliedSucceed", &message)
    } else {
        let id = &stack.pending;
        let message = format!("Plan generated: set approvePlan: \"{id}\" to approve this plan.");
        condition("Ready", "Unknown", "TerraformPlannedWithChanges", &message)
    };
    let applied = condition("Apply", "True", "TerraformAppliedSucceed", "Applied successfully");
    let planned = condition("Plan", "True", "TerraformPlannedWithChanges", "Plan generated");
    let status = json!({ "status": { "observedGeneration": 1, "lastAppliedRevision": revision, "lastAttemptedRevision": revision,
        "lastPlannedRevision": revision, "lastPlannedGeneration": 1, "lastPlanAt": now, "lastSuccessfulReconcileAt": now,
        "plan": { "lastApplied": plan_id(revision), "pending": stack.pending },
        "conditions": [ready, applied, planned] } });
    let (params, patch) = (PatchParams::default(), Patch::Merge(status));
    let api = migration.scenario.stacks();
    api.patch_status(stack.name, &params, &patch).await.unwrap();
}

/// Returns plan, state, lock and outputs.
fn owned_objects(stack: &Stack, uid: &str) -> Vec<Value> {
    let name = stack.name;
    let owner = json!({ "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform", "name": name, "uid": uid });
    let labels = json!({ "infra.contrib.fluxcd.io/plan-name": name, "infra.contrib.fluxcd.io/plan-workspace": "default" });
    let annotations = json!({ "savedPlan": plan_id(&stack.revision), "infra.contrib.fluxcd.io/plan-full-name": name,
        "infra.contrib.fluxcd.io/plan-full-workspace": "default", "infra.contrib.fluxcd.io/plan-hash": "00" });
    let meta = |prefix: &str| json!({ "name": format!("{prefix}-default-{name}"), "namespace": "default" });
    let mut plan = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": meta("tfplan"),
        "data": { "tfplan": ByteString(gzip(b"not ours")) } });
    plan["metadata"]["labels"] = labels;
    plan["metadata"]["annotations"] = annotations;
    plan["metadata"]["ownerReferences"] = json!([owner]);
    let mut readable = plan.clone();
    plan["metadata"]["annotations"]["encoding"] = json!("gzip");
    let label = json!({ "tfstate": "true", "tfstateSecretSuffix": name, "tfstateWorkspace": "default",
        "app.kubernetes.io/managed-by": "terraform" });
    let mut state = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": meta("tfstate"),
        "data": { "tfstate": ByteString(gzip(state(stack.instances).to_string().as_bytes())) } });
    state["metadata"]["labels"] = label.clone();
    state["metadata"]["annotations"] = json!({ "encoding": "gzip" });
    let mut lock =
        json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta("lock-tfstate") });
    lock["metadata"]["labels"] = label;
    let mut all = vec![plan, state, lock];
    if stack.spec.get("storeReadablePlan").is_some() {
        readable["kind"] = json!("ConfigMap");
        readable["data"] = json!({ "tfplan": "Plan: 2 to add" });
        all.push(readable);
        let mut controller = owner;
        controller["controller"] = json!(true);
        controller["blockOwnerDeletion"] = json!(true);
        all.push(
            json!({ "apiVersion": "v1", "kind": "Secret", "stringData": { "size": "one" },
            "metadata": { "name": "net-outputs", "namespace": "default", "ownerReferences": [controller] } }),
        );
    }
    all
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

/// Returns the state of a module after an apply.
fn state(count: usize) -> Value {
    let value = json!({ "value": "one", "type": "string" });
    let instance = |index: usize| {
        let attributes = json!({ "id": format!("0d9a6f9e-0000-0000-0000-00000000000{index}"), "input": value, "output": value,
            "triggers_replace": null });
        json!({ "index_key": index, "schema_version": 0, "attributes": attributes, "sensitive_attributes": [] })
    };
    let instances: Vec<_> = (0..count).map(instance).collect();
    let outputs = if count == 2 {
        json!({ "size": { "value": "one", "type": "string" } })
    } else {
        json!({})
    };
    json!({ "version": 4, "terraform_version": "1.9.0", "serial": 3, "outputs": outputs, "check_results": null,
        "lineage": "6ce0f7a2-0000-0000-0000-000000000000",
        "resources": [{ "mode": "managed", "type": "terraform_data", "name": "it",
            "provider": "provider[\"terraform.io/builtin/terraform\"]", "instances": instances }] })
}
