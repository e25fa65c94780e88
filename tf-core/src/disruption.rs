//! Why Kubernetes ends a pod: its condition `DisruptionTarget`
//! (<https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions>). Pure.

use k8s_openapi::api::core::v1::Pod;
use sluice_api::terraform::Reason;

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
