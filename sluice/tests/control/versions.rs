//! Objects of the older version are served and read as the newer one.

use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use serde_json::json;

use crate::environment::{NAMESPACE, SOURCE, TestEnvironment};

#[tokio::test(flavor = "multi_thread")]
async fn an_object_of_v1alpha1_is_planned_and_applied() {
    let env = TestEnvironment::new().await;
    let module = r#"resource "terraform_data" "it" { input = "x" }"#;
    env.commit("a", &[("main.tf", module)]).await;
    let kind = GroupVersionKind::gvk("infra.contrib.fluxcd.io", "v1alpha1", "Terraform");
    let resource = ApiResource::from_gvk_with_plural(&kind, "terraforms");
    let api: Api<DynamicObject> = Api::namespaced_with(env.client.clone(), NAMESPACE, &resource);
    let old = json!({ "apiVersion": "infra.contrib.fluxcd.io/v1alpha1", "kind": "Terraform", "metadata": { "name": "net" },
        "spec": { "interval": "1h", "approvePlan": "auto", "sourceRef": { "kind": "GitRepository", "name": SOURCE } } });
    api.create(&PostParams::default(), &serde_json::from_value(old).unwrap())
        .await
        .unwrap();
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    let stack = api.get("net").await.unwrap();
    assert_eq!(
        stack.types.unwrap().api_version,
        "infra.contrib.fluxcd.io/v1alpha1"
    );
    assert_eq!(stack.data["status"]["conditions"][0]["type"], "Ready");
}
