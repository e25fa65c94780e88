//! An init container that keeps a run waiting. Pure.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt as _;

use super::super::PendingReason;

/// How long an init container may run before it is reported. Most end within seconds, and say nothing of interest.
const UNREPORTED: SignedDuration = SignedDuration::from_mins(1);

/// Returns the reason of a pod whose init container has run for long. No event of the cluster says so.
pub(super) fn long_running(pod: &Pod, now: Timestamp) -> Option<PendingReason> {
    let statuses = pod.status.as_ref()?.init_container_statuses.iter().flatten();
    let mut blocking = statuses.filter(|status| !is_started_sidecar(pod, status));
    let (name, since) = blocking.find_map(|status| {
        let running = status.state.as_ref()?.running.as_ref()?;
        Some((&status.name, running.started_at.as_ref()?.0))
    })?;
    (now.duration_since(since) >= UNREPORTED).then(|| PendingReason {
        // In the words of the kubelet.
        reason: "PodInitializing".to_owned(),
        message: format!(
            "the init container {name} has run since {since}; its log says why (kubectl logs {} -c {name}), or change initContainers in \
             runnerPodTemplate",
            pod.name_any()
        ),
    })
}

/// Returns whether a container is a sidecar that has started: it runs as long as its pod, and the next container does not wait for it.
fn is_started_sidecar(pod: &Pod, status: &ContainerStatus) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| &spec.init_containers).flatten();
    let mut named = containers.filter(|container| container.name == status.name);
    let is_sidecar = named.any(|container| container.restart_policy.as_deref() == Some("Always"));
    is_sidecar && status.started == Some(true)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const START: &str = "2026-11-26T10:00:00Z";

    /// Returns a pod with the init containers `mesh`, a sidecar, and `warm`.
    fn pod(mesh: &Value, warm: &Value) -> Pod {
        let status = |name: &str, fields: &Value| {
            let mut status =
                json!({ "name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0 });
            let fields = fields.as_object().unwrap().clone();
            status.as_object_mut().unwrap().extend(fields);
            status
        };
        serde_json::from_value(json!({ "metadata": { "name": "net-7-x" },
            "spec": { "containers": [], "initContainers": [{ "name": "mesh", "restartPolicy": "Always" }, { "name": "warm" }] },
            "status": { "initContainerStatuses": [status("mesh", mesh), status("warm", warm)] } }))
        .unwrap()
    }

    fn after(pod: &Pod, seconds: i64) -> Option<PendingReason> {
        let start: Timestamp = START.parse().unwrap();
        long_running(pod, start + SignedDuration::from_secs(seconds))
    }

    #[test]
    fn an_init_container_is_named_after_a_minute() {
        let running = json!({ "state": { "running": { "startedAt": START } }, "started": false });
        let started = json!({ "state": { "running": { "startedAt": START } }, "started": true });
        let ended = json!({ "state": { "terminated": { "exitCode": 0 } } });
        let waiting = json!({ "state": { "waiting": { "reason": "PodInitializing" } } });
        let blocked = pod(&started, &running);
        assert_eq!(after(&blocked, 59), None);
        let found = after(&blocked, 60).unwrap();
        insta::assert_snapshot!(format!("{}: {}", found.reason, found.message), @"PodInitializing: the init container warm has run since 2026-11-26T10:00:00Z; its log says why (kubectl logs net-7-x -c warm), or change initContainers in runnerPodTemplate");
        assert_eq!(
            after(&blocked, 600),
            Some(found),
            "no further write of the status"
        );
        let sidecar = after(&pod(&running, &waiting), 60).unwrap();
        assert!(
            sidecar.message.contains("the init container mesh "),
            "{sidecar:?}"
        );
        assert_eq!(after(&pod(&started, &ended), 60), None, "the runner starts");
        assert_eq!(after(&Pod::default(), 60), None);
    }
}
