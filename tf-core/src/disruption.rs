//! What the pod of a run shows about its end: whether its runner has ended, and why Kubernetes ends a pod, as its condition
//! `DisruptionTarget` says (<https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions>). Pure.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use sluice_api::terraform::Reason;

/// The container of the runner.
pub const RUNNER_CONTAINER: &str = "tf-runner";

/// Returns whether the runner of a pod has ended: the pod has, or the runner's container has and another one goes on, such as the sidecar
/// of a service mesh. The kubelet never restarts it (`restartPolicy: Never`). Without another one the phase of the pod follows in a
/// moment, with the reason of the end.
#[must_use]
pub fn runner_has_ended(status: &PodStatus) -> bool {
    let containers = || status.container_statuses.iter().flatten();
    let state = |container: &ContainerStatus| container.state.clone().unwrap_or_default();
    let has_terminated = |container: &ContainerStatus| {
        container.name == RUNNER_CONTAINER && state(container).terminated.is_some()
    };
    let pod_has_ended = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    pod_has_ended
        || containers().any(has_terminated)
            && containers().any(|container| state(container).running.is_some())
}

/// How many runs in a row are repeated with the same plan after Kubernetes ended their pods before their work began. The limit exists
/// because a node that is short of memory or disk may evict each repeat.
pub const INTERRUPTION_LIMIT: i64 = 5;

/// Returns whether a run is repeated that Kubernetes ends before its work begins, after this number of interrupted runs in a row.
#[must_use]
pub const fn is_repeated(interruptions: i64) -> bool {
    interruptions < INTERRUPTION_LIMIT
}

/// Why Kubernetes ends a pod, or has ended it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disruption {
    /// The reason of a run that ends with the pod.
    pub reason: Reason,
    /// What happens to the pod.
    pub text: &'static str,
    /// The message of Kubernetes; may be empty.
    pub message: String,
}

impl Disruption {
    /// Returns why Kubernetes ends the pod; `None`: it does not, or a user deletes it.
    #[must_use]
    pub fn of(pod: &Pod) -> Option<Self> {
        let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
        let condition = conditions
            .find(|condition| condition.type_ == "DisruptionTarget" && condition.status == "True")?;
        let (reason, text) = match condition.reason.as_deref() {
            Some("DeletionByTaintManager" | "DeletionByPodGC") => {
                (Reason::NodeLost, "the node of the pod was lost")
            }
            Some("PreemptionByScheduler") => (Reason::Evicted, "a pod of higher priority replaced the pod"),
            _ => (Reason::Evicted, "the pod was evicted"),
        };
        Some(Self {
            reason,
            text,
            message: condition.message.clone().unwrap_or_default(),
        })
    }
}

impl std::fmt::Display for Disruption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text)?;
        if self.message.is_empty() {
            return Ok(());
        }
        write!(f, ": {}", self.message)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_runner_has_ended_although_a_sidecar_goes_on() {
        let container = |name: &str, state: &str| {
            json!({ "name": name, "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                "state": { state: if state == "terminated" { json!({ "exitCode": 137 }) } else { json!({}) } } })
        };
        let has_ended = |phase: &str, runner: &str, sidecar: &str| {
            let containers = [container("istio-proxy", sidecar), container("tf-runner", runner)];
            let status = json!({ "phase": phase, "containerStatuses": containers });
            runner_has_ended(&serde_json::from_value(status).unwrap())
        };
        assert!(has_ended("Running", "terminated", "running"));
        assert!(has_ended("Failed", "terminated", "terminated"));
        assert!(
            !has_ended("Running", "terminated", "terminated"),
            "the phase follows"
        );
        assert!(!has_ended("Running", "running", "terminated"));
        assert!(!has_ended("Unknown", "running", "running"));
        assert!(!has_ended("Pending", "waiting", "waiting"));
        assert!(!runner_has_ended(&PodStatus::default()));
    }

    #[test]
    fn a_pod_that_kubernetes_ends_says_why() {
        let text = |status: &str, reason: &str, message: &str| {
            let condition =
                json!({ "type": "DisruptionTarget", "status": status, "reason": reason, "message": message });
            let pod = json!({ "metadata": {}, "status": { "conditions": [condition] } });
            let disruption = Disruption::of(&serde_json::from_value(pod).unwrap())?;
            Some(format!("{}: {disruption}", disruption.reason))
        };
        let of = |reason, message| text("True", reason, message).unwrap();
        assert_eq!(
            of("EvictionByEvictionAPI", "Eviction API: evicting"),
            "Evicted: the pod was evicted: Eviction API: evicting"
        );
        assert_eq!(
            of("PreemptionByScheduler", ""),
            "Evicted: a pod of higher priority replaced the pod"
        );
        assert_eq!(
            of("DeletionByTaintManager", ""),
            "NodeLost: the node of the pod was lost"
        );
        assert_eq!(text("False", "EvictionByEvictionAPI", ""), None);
        assert_eq!(Disruption::of(&Pod::default()), None);
    }
}
