//! A tenant of the overlay `multi-tenant` attacks: with the code of a module, from inside the pod of its run; and with the fields of its
//! stacks.
//!
//! The pod of a run has the role of runs in its namespace. The API server does not refuse what this role permits, and docs/security.md says
//! so.

mod attempt;
mod forged_plan;
mod report;
mod requests;

use std::time::Duration;

use attempt::{Attempt, NODE_FILES, OWN_TOKEN, Targets, token_secret};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use report::Report;
use serde_json::{Value, json};
use sluice_harness::git::Repository;
use sluice_harness::gobuild::{self, Tool};
use sluice_harness::skip::without_cluster;

use crate::images::RUNNER;
use crate::install::{Installation, NAMESPACE};
use crate::pending::{pod, wait_until_pending};
use crate::tenant::Tenant;

/// The namespace of the hostile module: that of `config/samples/tenant`.
const TENANT: &str = "team-a";
/// The namespace of another tenant.
const OTHER: &str = "team-b";
/// The account of runs.
const ACCOUNT: &str = "tf-runner";
const HOSTILE_MODULE: &str = r#"
resource "terraform_data" "attack" {
  provisioner "local-exec" {
    command = "./attack attempts.json"
  }
}

output "found" {
  value = "nothing"
}
"#;

/// Creates the namespace of a tenant, as an administrator does with a copy of the sample.
pub(crate) async fn new_tenant(
    installation: &'static Installation<'static>,
    namespace: &str,
) -> Tenant<'static> {
    let tenant = Tenant::new(installation.node, namespace).await;
    installation.apply_sample(namespace).await;
    tenant
}

/// Repeats a request that changes nothing until the API server refuses it with this text.
async fn wait_for_refusal<T, F>(text: &str, request: impl Fn() -> F)
where
    F: Future<Output = Result<T, kube::Error>>,
{
    for _ in 0..600 {
        match request().await {
            Err(kube::Error::Api(refused)) if refused.message.contains(text) => return,
            Err(error) => panic!("{error}"),
            Ok(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    panic!("not refused: {text}");
}

/// Two tenants.
struct Tenants {
    installation: &'static Installation<'static>,
    own: Tenant<'static>,
    other: Tenant<'static>,
}

impl Tenants {
    /// Creates the attacked objects: in the other namespace a stack with a state and one with a plan, in the own namespace a stack with a
    /// plan and with an account of its own.
    async fn create() -> Self {
        let installation = Installation::multi_tenant().await;
        let tenants = Self {
            installation,
            own: new_tenant(installation, TENANT).await,
            other: new_tenant(installation, OTHER).await,
        };
        let Self { own, other, .. } = &tenants;
        own.add_account("neighbour").await;
        own.apply(&token_secret(OWN_TOKEN, ACCOUNT)).await;
        own.add_stack("neighbour", &json!({ "serviceAccountName": "neighbour" }))
            .await;
        other
            .add_stack("applied", &json!({ "approvePlan": "auto" }))
            .await;
        other.add_stack("waiting", &json!({})).await;
        for (tenant, stack) in [(own, "neighbour"), (other, "waiting")] {
            if let Err(error) = tenant.wait_for_plan(stack).await {
                panic!("{error}\n{}", installation.describe_pods().await);
            }
        }
        tenants.wait_until_ready(OTHER, "applied").await;
        tenants
    }

    async fn kubectl(&self, namespace: &str, arguments: &[&str]) -> String {
        self.installation
            .kubectl(&[&["-n", namespace], arguments].concat())
            .await
    }

    async fn wait_until_ready(&self, namespace: &str, stack: &str) {
        let object = format!("terraform/{stack}");
        let wait = ["wait", "--for=condition=Ready", &object, "--timeout=300s"];
        self.kubectl(namespace, &wait).await;
    }

    async fn names(&self, namespace: &str, kind: &str) -> Vec<String> {
        let query = ["get", kind, "-ojsonpath={.items[*].metadata.name}"];
        let names = self.kubectl(namespace, &query).await;
        names.split_whitespace().map(str::to_owned).collect()
    }

    async fn targets(&self) -> Targets {
        let first = |names: &[String], start: &str| {
            let found = names.iter().find(|name| name.starts_with(start));
            found
                .unwrap_or_else(|| panic!("no {start}… in {names:?}"))
                .clone()
        };
        let secrets = self.names(OTHER, "secrets").await;
        first(&secrets, "tfstate-default-applied");
        first(&secrets, "tfplan-default-waiting-");
        let folder = self.installation.node.folder().to_owned();
        for name in NODE_FILES {
            assert!(folder.join(name).exists(), "the node has no {name}");
        }
        let neighbour_plan = first(&self.names(TENANT, "secrets").await, "tfplan-default-neighbour-");
        Targets {
            run: first(&self.names(OTHER, "terraformruns").await, "waiting-"),
            neighbour_run: first(&self.names(TENANT, "terraformruns").await, "neighbour-"),
            forged_plan: self.forged_plan(&neighbour_plan).await,
            neighbour_plan,
            secrets,
            folder,
        }
    }

    /// Waits until the API server enforces the policies of the component `run-admission`, which it loads in the background.
    async fn wait_for_policies(&self, run: &str) {
        let mut config = self.installation.node.admin().config().await.unwrap();
        config.auth_info.impersonate = Some(format!("system:serviceaccount:{TENANT}:{ACCOUNT}"));
        let client = Client::try_from(config).unwrap();
        let kind = GroupVersionKind::gvk("infra.sluice.dev", "v1alpha1", "TerraformRun");
        let resource = ApiResource::from_gvk(&kind);
        let runs: Api<DynamicObject> = Api::namespaced_with(client.clone(), TENANT, &resource);
        let params = PatchParams {
            dry_run: true,
            ..PatchParams::default()
        };
        let patch = Patch::Merge(json!({ "status": { "phase": "Failed" } }));
        wait_for_refusal("only by a pod of its Job", || {
            runs.patch_status(run, &params, &patch)
        })
        .await;
        let secrets: Api<Secret> = Api::namespaced(client, TENANT);
        let secret: Secret = serde_json::from_value(token_secret("dry-run", ACCOUNT)).unwrap();
        let params = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let text = "needs the right to create its tokens";
        wait_for_refusal(text, || secrets.create(&params, &secret)).await;
    }

    /// Applies the hostile module, and returns its report. Fields of the stack that its definition does not have ask for more.
    async fn attack(&mut self, attempts: &[Attempt]) -> Report {
        let repository = Repository::create().unwrap();
        let program = gobuild::build(Tool::Attack, &mut |line| eprintln!("{line}")).unwrap();
        let program = std::fs::read(program).unwrap();
        repository.write_executable("attack", program).unwrap();
        let files = [
            ("attempts.json", attempt::file(attempts)),
            ("main.tf", HOSTILE_MODULE.to_owned()),
        ];
        repository.commit_files(&files, "A hostile module").unwrap();
        self.own.add_source("hostile", repository).await;
        let fields = json!({ "suspend": true, "approvePlan": "auto",
            "sourceRef": { "kind": "GitRepository", "name": "hostile" } });
        self.own.add_stack("attack", &fields).await;
        let template = pod(&json!({
            "hostNetwork": true, "hostPID": true, "nodeName": "node-1", "serviceAccountName": "neighbour",
            "env": [{ "name": "NODE", "valueFrom": { "fieldRef": { "fieldPath": "status.hostIP" } } }],
        }));
        let fields = json!({ "suspend": false, "runnerPodTemplate": template["runnerPodTemplate"],
            "writeOutputsToSecret": { "name": "outputs", "namespace": OTHER } });
        self.own.edit("attack", &fields).await;
        self.wait_until_ready(TENANT, "attack").await;
        Report::read(self.installation.node.client().await.unwrap()).await
    }

    /// Returns the runs of the stacks that are attacked.
    async fn runs(&self) -> [Vec<String>; 3] {
        [
            self.other.runs("applied").await,
            self.other.runs("waiting").await,
            self.own.runs("neighbour").await,
        ]
    }

    /// Checks that nothing was changed, and that the fields of the stack had no effect.
    async fn check_objects(&self) {
        let query = ["get", "terraform/neighbour", "-ojsonpath={.spec.approvePlan}"];
        assert_eq!(self.kubectl(TENANT, &query).await, "");
        let attacking = ["-l", "infra.sluice.dev/terraform=attack"];
        let stacks = [
            "get",
            "terraformruns",
            "-ojsonpath={.items[*].spec.terraform.name}",
        ];
        let stacks = self.kubectl(TENANT, &[&stacks[..], &attacking].concat()).await;
        assert!(
            !stacks.is_empty() && stacks.split_whitespace().all(|name| name == "attack"),
            "{stacks}"
        );
        let (own, others) = (
            self.names(TENANT, "secrets").await,
            self.names(OTHER, "secrets").await,
        );
        let outputs = "outputs".to_owned();
        assert!(own.contains(&outputs) && !others.contains(&outputs), "{others:?}");
        for start in ["tfstate-default-applied", "tfplan-default-waiting-"] {
            assert!(others.iter().any(|name| name.starts_with(start)), "{others:?}");
        }
        let jobs = [&["get", "jobs", "-ojson"], &attacking[..]].concat();
        let jobs: Value = serde_json::from_str(&self.kubectl(TENANT, &jobs).await).unwrap();
        let pod = jobs.pointer("/items/0/spec/template/spec").unwrap();
        assert_eq!(pod["serviceAccountName"], ACCOUNT);
        for field in ["hostNetwork", "hostPID", "nodeName"] {
            assert!(pod[field].is_null(), "{field}: {pod:#}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_module_reaches_nothing_beyond_its_namespace_and_approves_nothing() {
    if without_cluster().unwrap() {
        return;
    }
    let mut tenants = Tenants::create().await;
    let targets = tenants.targets().await;
    tenants.wait_for_policies(&targets.neighbour_run).await;
    let runs = tenants.runs().await;
    let attempts = attempt::all(&targets);
    let report = tenants.attack(&attempts).await;
    report.check_attempts(&attempts);
    for namespace in [OTHER, NAMESPACE, "kube-system"] {
        report.check_rules(namespace);
    }
    report.check_pod();
    tenants.check_audit_log(&targets);
    tenants.check_objects().await;
    assert_eq!(tenants.runs().await, runs);
    tenants.check_forged_plan(&targets.neighbour_plan).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_template_reaches_neither_the_node_nor_an_account_of_another_namespace() {
    if without_cluster().unwrap() {
        return;
    }
    let installation = Installation::multi_tenant().await;
    let tenant = new_tenant(installation, "team-c").await;
    let volume = json!({ "volumes": [{ "name": "node", "hostPath": { "path": "/" } }],
        "volumeMounts": [{ "name": "node", "mountPath": "/node" }] });
    let privileged = json!({ "privileged": true });
    let root = json!({ "runAsUser": 0, "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] },
        "seccompProfile": { "type": "RuntimeDefault" } });
    let container = json!({ "name": "first", "image": RUNNER, "command": ["true"],
        "securityContext": privileged });
    let profile = "violates PodSecurity \"restricted:latest\"";
    let cases = [
        ("volume", pod(&volume), [profile, "\"hostPath\""]),
        (
            "privileged",
            pod(&json!({ "securityContext": privileged })),
            [profile, "securityContext.privileged=true"],
        ),
        (
            "root",
            pod(&json!({ "securityContext": root })),
            [profile, "runAsUser=0"],
        ),
        (
            "init",
            pod(&json!({ "initContainers": [container] })),
            [profile, "\"first\""],
        ),
        (
            "account",
            json!({ "serviceAccountName": "tf-controller" }),
            ["team-c/tf-controller", "create the ServiceAccount"],
        ),
    ];
    for (stack, fields, _) in &cases {
        tenant.add_stack(stack, fields).await;
    }
    for (stack, _, texts) in &cases {
        wait_until_pending(installation, &tenant, stack, texts).await;
    }
}

/// Stacks that refer to another namespace: name, fields, and what the object says.
fn references() -> [(&'static str, Value, [&'static str; 2]); 5] {
    let object = |name: &str| json!({ "name": name, "namespace": NAMESPACE });
    let namespace = format!("namespace = \"{NAMESPACE}\"");
    let backend = [
        "backend \"kubernetes\" {",
        "secret_suffix = \"net\"",
        "in_cluster_config = true",
        &namespace,
        "}",
    ];
    let disabled = "cross-namespace references have been disabled";
    [
        (
            "source",
            json!({ "sourceRef": { "kind": "GitRepository", "name": "code", "namespace": NAMESPACE } }),
            ["cannot access sluice-system/code", disabled],
        ),
        (
            "dependency",
            json!({ "dependsOn": [object("net")] }),
            ["cannot access sluice-system/net", disabled],
        ),
        (
            "configuration",
            json!({ "cliConfigSecretRef": object("cli") }),
            ["cannot access sluice-system/cli", disabled],
        ),
        (
            "account",
            json!({ "serviceAccountName": "sluice-system:tf-controller" }),
            [
                "\"sluice-system:tf-controller\"",
                "is not a valid name of a ServiceAccount",
            ],
        ),
        // The run is refused, by the role of its account.
        (
            "state",
            json!({ "backendConfig": { "customConfiguration": backend.join("\n") } }),
            ["forbidden", "sluice-system"],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn no_field_of_a_stack_leads_to_another_namespace() {
    if without_cluster().unwrap() {
        return;
    }
    let installation = Installation::multi_tenant().await;
    let tenant = new_tenant(installation, "team-d").await;
    let cases = references();
    for (stack, fields, _) in &cases {
        tenant.add_stack(stack, fields).await;
    }
    // The definition has no such field, so this names an object of the own namespace.
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "inputs", "namespace": NAMESPACE },
        "stringData": { "size": "large" } });
    tenant.apply(&secret).await;
    tenant.add_stack("inputs", &json!({ "suspend": true })).await;
    let inputs = json!([{ "kind": "Secret", "name": "inputs", "namespace": NAMESPACE }]);
    tenant
        .edit("inputs", &json!({ "suspend": false, "varsFrom": inputs }))
        .await;
    let absent = ["cannot read Secret inputs of varsFrom", "not found"];
    let cases = cases.iter().map(|(stack, _, texts)| (*stack, texts));
    for (stack, texts) in cases.chain([("inputs", &absent)]) {
        if let Err(error) = tenant.wait_for_message(stack, texts).await {
            panic!("{stack}: {error}\n{}", installation.describe_pods().await);
        }
    }
}
