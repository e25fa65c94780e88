//! Tests of the control plane: permissions and faults.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use serde_json::json;

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

    assert_eq!(plane.process_ids().len(), 2, "etcd and kube-apiserver");

    plane.pause_api().unwrap();
    let result = tokio::time::timeout(Duration::from_millis(500), everything.get("settings")).await;
    assert!(result.is_err());
    plane.resume_api().unwrap();
    plane.kill_api();
    assert_eq!(plane.process_ids().len(), 1);
    assert!(plane.pause_api().is_err());
    plane.start_api().await.unwrap();
    let again: Api<ConfigMap> = Api::namespaced(access.client().await.unwrap(), "team");
    assert_eq!(
        again.get("settings").await.unwrap().metadata.name.as_deref(),
        Some("settings")
    );
}

#[tokio::test]
async fn the_job_controller_creates_pods_and_accounts_are_in_the_audit_log() {
    if crate::skip::without_cluster().unwrap() {
        return;
    }
    let plane = ControlPlane::start_with_audit_log().await.unwrap();
    let access = plane.service_account("team", "reader", READER).await.unwrap();
    for _ in 0..2 {
        plane.start_job_controller().unwrap();
    }
    let job = json!({ "metadata": { "name": "one" }, "spec": { "template": { "spec": {
        "serviceAccountName": "reader", "restartPolicy": "Never",
        "containers": [{ "name": "main", "image": "sluice.invalid/main:1" }] } } } });
    let job: Job = serde_json::from_value(job).unwrap();
    let client = plane.client().await.unwrap();
    let jobs: Api<Job> = Api::namespaced(client.clone(), "team");
    jobs.create(&PostParams::default(), &job).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client, "team");
    let of_job = ListParams::default().labels("batch.kubernetes.io/job-name=one");
    let started = Instant::now();
    while pods.list(&of_job).await.unwrap().items.is_empty() {
        assert!(started.elapsed() < READY_TIMEOUT, "the Job has no pod");
        tokio::time::sleep(POLL_INTERVAL).await;
    }

    let reader: Api<ConfigMap> = Api::namespaced(access.client().await.unwrap(), "team");
    reader.list(&ListParams::default()).await.unwrap();
    let log = plane.audit_log().unwrap();
    let has = |text: &str| log.lines().any(|line| line.contains(text));
    assert!(has("\"username\":\"system:serviceaccount:team:reader\""), "{log}");
    assert!(!has("\"username\":\"admin\""), "only accounts are logged: {log}");
}
