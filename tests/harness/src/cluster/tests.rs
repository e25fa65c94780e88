//! Tests of the control plane: permissions and faults.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta, PostParams};

use super::*;

const READER: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: { name: reader, namespace: team }
rules: [{ apiGroups: [''], resources: [configmaps], verbs: [get, list] }]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: { name: reader, namespace: team }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader }
subjects: [{ kind: ServiceAccount, name: reader, namespace: team }]
";

#[tokio::test]
async fn a_control_plane_enforces_roles_and_outlives_its_api_server() {
    if crate::skip::without_cluster().unwrap() {
        return;
    }
    let plane = ControlPlane::start().await.unwrap();
    let everything: Api<ConfigMap> = Api::namespaced(plane.client().await.unwrap(), "team");
    let access = plane.service_account("team", "reader", READER).await.unwrap();
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some("settings".into()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    };
    everything.create(&PostParams::default(), &map).await.unwrap();

    let allowed: Api<ConfigMap> = Api::namespaced(access.client().await.unwrap(), "team");
    assert_eq!(
        allowed.get("settings").await.unwrap().metadata.name.as_deref(),
        Some("settings")
    );
    let refused = allowed.create(&PostParams::default(), &map).await.unwrap_err();
    assert!(
        matches!(&refused, kube::Error::Api(status) if status.is_forbidden()),
        "{refused:?}"
    );

    plane.pause_api().unwrap();
    let result = tokio::time::timeout(Duration::from_millis(500), everything.get("settings")).await;
    assert!(result.is_err());
    plane.resume_api().unwrap();
    plane.kill_api();
    assert!(plane.pause_api().is_err());
    plane.start_api().await.unwrap();
    let again: Api<ConfigMap> = Api::namespaced(access.client().await.unwrap(), "team");
    assert_eq!(
        again.get("settings").await.unwrap().metadata.name.as_deref(),
        Some("settings")
    );
}
