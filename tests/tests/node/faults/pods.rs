//! Pods that have not ended.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::Api;
use kube::api::ListParams;
use sluice_tests::scenario::retry;

/// Returns the pods with these labels that have not ended.
pub(super) async fn running(pods: &Api<Pod>, selector: &str) -> Result<Vec<Pod>, String> {
    let selected = ListParams::default().labels(selector);
    let found = retry(|| pods.list(&selected)).await;
    let mut found = found.map_err(|error| format!("list pods: {error}"))?.items;
    found.retain(is_running);
    Ok(found)
}

/// Returns whether a pod has not ended.
pub(super) fn is_running(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}

/// Returns the id of the container of a pod, as the container runtime names it.
pub(crate) fn container_id(pod: &Pod) -> Option<&str> {
    let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
    let id = containers.first()?.container_id.as_deref()?;
    Some(id.trim_start_matches("containerd://"))
}

/// Returns whether the pod is ready and does not end.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    pod.metadata.deletion_timestamp.is_none() && ready.any(|condition| condition.status == "True")
}

/// Returns whether a container of the pod has ended and waits until it may start again.
pub(super) fn waits_for_restart(pod: &Pod) -> bool {
    let mut waiting = containers(pod).filter_map(|container| container.state.as_ref()?.waiting.as_ref());
    waiting.any(|waiting| waiting.reason.as_deref() == Some("CrashLoopBackOff"))
}

/// Returns how often the containers of the pod were started again.
pub(super) fn restarts(pod: &Pod) -> i32 {
    containers(pod).map(|container| container.restart_count).sum()
}

fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let statuses = pod.status.iter();
    statuses.flat_map(|status| status.container_statuses.iter().flatten())
}
