use super::*;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;

#[tokio::test]
async fn the_pod_of_a_job_runs_on_the_node() {
    if crate::skip::without_cluster().unwrap() {
        return;
    }
    let node = Node::shared().await.unwrap();
    let client = node.client().await.unwrap();
    node.apply("apiVersion: batch/v1\nkind: Job\nmetadata: {name: one, namespace: default}\nspec:\n  backoffLimit: 0\n  template:\n    spec:\n      restartPolicy: Never\n      containers: [{name: one, image: 'localhost/pause:1', imagePullPolicy: Never}]\n").await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let deadline = Instant::now() + READY_TIMEOUT;
    loop {
        let all = pods
            .list(&ListParams::default().labels("job-name=one"))
            .await
            .unwrap();
        let phase = all.items.first().and_then(|pod| pod.status.clone()?.phase);
        if phase.as_deref() == Some("Running") {
            break;
        }
        assert!(Instant::now() < deadline, "{all:?}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    let jobs: Api<Job> = Api::namespaced(client, "default");
    drop(jobs.delete("one", &kube::api::DeleteParams::background()).await);
}
