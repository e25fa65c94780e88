//! The overlay `multi-tenant` on a real API server: tf-controller reads what a stack names with the rights of the stack's account.

use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use sluice_tests::audit::{Permission, requests, used};
use sluice_tests::scenario::wait_for;

use crate::environment::{CONTROLLERS, Origin, TestEnvironment, ready};
use crate::{with_timeout, without_cluster};

/// The namespace of `config/samples/tenant`.
const TENANT: &str = "team-a";
/// A namespace in which tf-controller may write, but not impersonate.
const OTHER_TENANT: &str = "team-b";
const MODULE: &str = "variable \"size\" {}\nresource \"terraform_data\" \"it\" { input = var.size }\n";

/// Returns an account that may read the Secret `open` only.
fn account_with_one_secret() -> Vec<Value> {
    let subject = json!({ "kind": "ServiceAccount", "name": "reader", "namespace": TENANT });
    let rbac = "rbac.authorization.k8s.io";
    vec![
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "reader", "namespace": TENANT } }),
        json!({ "apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": { "name": "reader", "namespace": TENANT },
            "rules": [{ "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["open"], "verbs": ["get"] }] }),
        json!({ "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": { "name": "reader", "namespace": TENANT },
            "roleRef": { "apiGroup": rbac, "kind": "Role", "name": "reader" }, "subjects": [subject] }),
    ]
}

/// Returns a namespace in which tf-controller may write Secrets, but has no role of the tenants' sample.
fn other_tenant() -> Vec<Value> {
    let subject = json!({ "kind": "ServiceAccount", "name": "tf-controller", "namespace": CONTROLLERS });
    let rbac = "rbac.authorization.k8s.io";
    vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": OTHER_TENANT } }),
        json!({ "apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": { "name": "writer", "namespace": OTHER_TENANT },
            "rules": [{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "delete"] }] }),
        json!({ "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": { "name": "writer", "namespace": OTHER_TENANT },
            "roleRef": { "apiGroup": rbac, "kind": "Role", "name": "writer" }, "subjects": [subject] }),
    ]
}

/// Returns the source of a namespace, a Secret and a ConfigMap in it.
fn inputs(namespace: &str, origin: &Origin) -> Vec<Value> {
    let object = |version: &str, kind: &str, name: &str, field: &str, content: Value| json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name, "namespace": namespace }, field: content });
    let size = json!({ "size": "hunter2-hunter" });
    vec![
        object(
            "source.toolkit.fluxcd.io/v1",
            "GitRepository",
            "code",
            "spec",
            json!({ "url": origin.url, "interval": "2s", "ref": { "branch": "main" } }),
        ),
        object("v1", "Secret", "open", "stringData", size.clone()),
        object("v1", "Secret", "closed", "stringData", size.clone()),
        object("v1", "ConfigMap", "sizes", "data", size),
    ]
}

fn stack(namespace: &str, name: &str, account: &str, from: &Value) -> Value {
    json!({ "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
        "metadata": { "name": name, "namespace": namespace },
        "spec": { "interval": "10m", "retryInterval": "2s", "path": "./tenant", "approvePlan": "auto", "serviceAccountName": account,
            "sourceRef": { "kind": "GitRepository", "name": "code" }, "varsFrom": [from] } })
}

async fn wait_for_stack(env: &TestEnvironment, (namespace, name): (&str, &str), text: &str) {
    let kind = GroupVersionKind::gvk("infra.contrib.fluxcd.io", "v1alpha2", "Terraform");
    let resource = ApiResource::from_gvk(&kind);
    let client = env.plane.client().await.unwrap();
    let stacks: Api<DynamicObject> = Api::namespaced_with(client, namespace, &resource);
    let found = wait_for(&stacks, name, "its Ready", |object| {
        ready(object).starts_with(text)
    })
    .await;
    found.unwrap_or_else(|error| panic!("{text:?}: {error}\n{}", env.logs()));
}

#[test]
fn a_tenant_reads_inputs_with_the_rights_of_the_account_of_its_stack() {
    if without_cluster() {
        return;
    }
    with_timeout(async {
        let origin = Origin::start().await;
        let files = [("tenant/main.tf", MODULE)];
        origin
            .repository
            .commit_files(&files, "A stack of a tenant")
            .unwrap();
        let mut env = TestEnvironment::start_for_tenants().await;
        let secret = |name: &str| json!({ "kind": "Secret", "name": name });
        let map = json!({ "kind": "ConfigMap", "name": "sizes" });
        let stacks = [
            stack(TENANT, "own", "reader", &secret("open")),
            stack(TENANT, "foreign", "reader", &secret("closed")),
            stack(TENANT, "maps", "reader", &map),
            stack(TENANT, "usual", "tf-runner", &map),
            stack(OTHER_TENANT, "net", "tf-runner", &map),
        ];
        let objects = account_with_one_secret().into_iter().chain(other_tenant());
        let objects = objects.chain(
            [TENANT, OTHER_TENANT]
                .into_iter()
                .flat_map(|name| inputs(name, &origin)),
        );
        for object in objects.chain(stacks) {
            env.plane.apply(&object.to_string()).await.unwrap();
        }
        env.start_controllers();
        for name in ["own", "usual"] {
            wait_for_stack(&env, (TENANT, name), "True TerraformAppliedSucceed").await;
        }
        let text = "False AccessDenied ServiceAccount team-a/reader may not get Secret team-a/closed of varsFrom: in namespace team-a";
        wait_for_stack(&env, (TENANT, "foreign"), text).await;
        let text =
            "False AccessDenied ServiceAccount team-a/reader may not get ConfigMap team-a/sizes of varsFrom";
        wait_for_stack(&env, (TENANT, "maps"), text).await;
        let text = "False AccessDenied tf-controller may not impersonate ServiceAccount team-b/tf-runner to read varsFrom";
        wait_for_stack(&env, (OTHER_TENANT, "net"), text).await;
        env.tf_controller.end().await.unwrap();

        let requests = requests(&env.plane.audit_log().unwrap()).unwrap();
        let controller = format!("{CONTROLLERS}:tf-controller");
        let reads = ["open", "closed", "sizes"].map(|name| format!("{TENANT}/{name}"));
        let own: Vec<_> = requests
            .iter()
            .filter(|request| request.account == controller && reads.contains(&request.object))
            .collect();
        assert!(
            own.is_empty(),
            "inputs read with the rights of the controller: {own:#?}"
        );
        let permissions = used(&requests, &controller);
        assert!(permissions.contains(&Permission::new("/serviceaccounts", "impersonate")));
        let permissions = used(&requests, &format!("{TENANT}:tf-runner"));
        assert!(permissions.contains(&Permission::new("/configmaps", "get")));
    });
}
