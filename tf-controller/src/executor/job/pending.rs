//! Why the cluster does not start a run, and what the user can do about it. Pure.

use sluice_tf_core::cli::text::truncate;

use super::super::PendingReason;

/// Maximum length of a quoted message of the cluster, in bytes.
pub(super) const MESSAGE_LIMIT: usize = 1000;

/// Returns a reason of the cluster with what the user can do about it.
pub(super) fn pending_reason(reason: &str, message: Option<&str>) -> PendingReason {
    let message = truncate(message.unwrap_or_default().trim(), MESSAGE_LIMIT);
    let advice = advice(reason, &message);
    PendingReason {
        reason: reason.to_owned(),
        message: match (message.is_empty(), advice.is_empty()) {
            (_, true) => message,
            (true, false) => advice.to_owned(),
            (false, false) => format!("{}; {advice}", message.trim_end_matches('.')),
        },
    }
}

/// Returns whether a run begins only after a change by a user, which may take long. Otherwise it waits for capacity, or the cluster tries
/// again by itself.
pub(crate) fn waits_for_change(reason: &str, message: &str) -> bool {
    match reason {
        "Unschedulable" => !message.contains("Insufficient ") && !message.contains("Too many pods"),
        "FailedCreate" => !message.contains("exceeded quota"),
        "FailedMount" => message.contains("not found") || message.contains("non-existent"),
        "ErrImagePull"
        | "ImagePullBackOff"
        | "InvalidImageName"
        | "ErrImageNeverPull"
        | "CreateContainerConfigError"
        | "CreateContainerError"
        | "RunContainerError" => true,
        _ => false,
    }
}

/// Returns whether a pod is rejected for its memory request: by a `LimitRange` of the namespace, or because its limit is lower. A
/// `LimitRange` can also reject its limit, or demand one.
fn is_about_memory_request(message: &str) -> bool {
    let is_bound = message.contains("memory usage per ") && message.contains("but request is ");
    let is_ratio = message.contains("memory max limit to request ratio");
    is_bound || is_ratio || message.contains("memory limit of ")
}

/// Returns whether a Job cannot create its pod because the ServiceAccount does not exist, in the words of the API server: another account
/// may replace it, so those of an admission webhook do not count.
pub(crate) fn is_without_account(reason: &str, message: &str) -> bool {
    let is_missing = message.contains("error looking up service account ") && message.contains("not found");
    reason == "FailedCreate" && is_missing && !message.contains("admission webhook")
}

/// Returns whether a pod is not scheduled because of a `PersistentVolumeClaim`: more capacity of the nodes does not help.
fn is_about_claim(message: &str) -> bool {
    message.contains("persistentvolumeclaim \"")
        || message.contains("unbound immediate PersistentVolumeClaims")
}

/// What to do about a reason of the cluster.
fn advice(reason: &str, message: &str) -> &'static str {
    match reason {
        // In the words of the scheduler's plugin VolumeBinding.
        "Unschedulable" if is_about_claim(message) => {
            "create the PersistentVolumeClaim or the volume that it needs, or change the volumes of runnerPodTemplate"
        }
        "Unschedulable" => {
            "free capacity, or change resources, nodeSelector, affinity or tolerations in runnerPodTemplate"
        }
        "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => {
            "check runnerPodTemplate.spec.image and --runner-image, and the imagePullSecrets of the ServiceAccount"
        }
        "CreateContainerConfigError" | "FailedMount" => "create what is missing, or change runnerPodTemplate",
        "CreateContainerError" | "RunContainerError" => {
            "the image must contain the program tf-runner, and the volumes of runnerPodTemplate must leave /tmp writable"
        }
        "FailedCreate" if message.contains("exceeded quota") => {
            "raise the quota of the namespace, or wait until other pods end"
        }
        _ if is_without_account(reason, message) => {
            "create the ServiceAccount, or change spec.serviceAccountName"
        }
        // The quota limits a resource that the pod does not set.
        "FailedCreate" if message.contains("failed quota: ") => {
            "set what the quota demands in runnerPodTemplate.spec.resources, or with the defaults of a LimitRange"
        }
        "FailedCreate" if message.contains("no PriorityClass with name ") => {
            "create the PriorityClass, or change runnerPodTemplate.spec.priorityClassName"
        }
        "FailedCreate" if message.contains("because it is being terminated") => {
            "the namespace is being deleted, and no run can start there"
        }
        "FailedCreate" if is_about_memory_request(message) => {
            "set runnerPodTemplate.spec.resources.requests.memory, or start the controller with --runner-memory-request=none"
        }
        "FailedCreate" if message.contains("violates PodSecurity") => {
            "change runnerPodTemplate.spec.securityContext, or the Pod Security level of the namespace"
        }
        "FailedCreate" => {
            "an admission rule of the cluster rejects the pod: change runnerPodTemplate or the rule"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_waits_for_a_change_or_begins_by_itself() {
        let node = "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.";
        for (reason, message, expected) in [
            (
                "Unschedulable",
                "0/1 nodes are available: 1 Insufficient memory.",
                false,
            ),
            (
                "Unschedulable",
                "0/1 nodes are available: 1 Too many pods.",
                false,
            ),
            ("Unschedulable", node, true),
            (
                "FailedCreate",
                "pods \"a\" is forbidden: exceeded quota: pods",
                false,
            ),
            ("FailedCreate", "serviceaccount \"a\" not found", true),
            ("ImagePullBackOff", "not found", true),
            ("FailedMount", "secret \"a\" not found", true),
            ("FailedMount", "references non-existent secret key: a", true),
            ("FailedMount", "failed to sync secret cache: timed out", false),
            ("FailedCreatePodSandBox", "failed to setup network", false),
            (
                "FailedScheduling",
                "0/1 nodes are available: 1 Insufficient memory.",
                false,
            ),
        ] {
            assert_eq!(waits_for_change(reason, message), expected, "{reason}: {message}");
        }
    }

    #[test]
    fn a_rejected_memory_request_is_named() {
        for message in [
            "pods \"a\" is forbidden: minimum memory usage per Container is 256Mi, but request is 128Mi",
            "Pod \"a\" is invalid: spec.containers[0].resources.requests: Invalid value: \"600Mi\": must be less than or equal to \
             memory limit of 512Mi",
            "pods \"a\" is forbidden: memory max limit to request ratio per Container is 2, but provided ratio is 4.000000",
        ] {
            let found = pending_reason("FailedCreate", Some(message));
            assert!(
                found.message.contains("--runner-memory-request=none"),
                "{found:?}"
            );
        }
        for message in [
            "pods \"a\" is forbidden: maximum memory usage per Pod is 1Gi.  No limit is specified",
            "pods \"a\" is forbidden: maximum memory usage per Container is 1Gi, but limit is 2Gi",
            "pods \"a\" is forbidden: minimum cpu usage per Container is 1, but request is 500m",
        ] {
            let found = pending_reason("FailedCreate", Some(message));
            assert!(
                found.message.contains("an admission rule of the cluster"),
                "{found:?}"
            );
        }
        let quota = pending_reason(
            "FailedCreate",
            Some("exceeded quota: all, requested: requests.memory=1Gi"),
        );
        assert!(quota.message.contains("raise the quota"), "{quota:?}");
    }

    #[test]
    fn a_missing_account_is_told_from_other_refusals() {
        let account = "Error creating: pods \"a-\" is forbidden: error looking up service account team/own: \
            serviceaccount \"own\" not found";
        assert!(is_without_account("FailedCreate", account));
        for (reason, message) in [
            ("FailedCreate", "pods \"a\" is forbidden: exceeded quota: pods"),
            ("FailedCreate", "secret \"own\" not found"),
            (
                "FailedCreate",
                "admission webhook \"x\" denied the request: serviceaccount \"own\" not found",
            ),
            ("FailedMount", account),
        ] {
            assert!(!is_without_account(reason, message), "{reason}: {message}");
        }
    }

    #[test]
    fn a_missing_object_of_the_pod_is_named_in_the_advice() {
        for (reason, message, expected) in [
            (
                "Unschedulable",
                "0/1 nodes are available: persistentvolumeclaim \"cache\" not found.",
                "create the PersistentVolumeClaim",
            ),
            (
                "Unschedulable",
                "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
                "create the PersistentVolumeClaim",
            ),
            (
                "Unschedulable",
                "0/1 nodes are available: 1 Insufficient cpu.",
                "free capacity",
            ),
            (
                "FailedCreate",
                "pods \"a\" is forbidden: failed quota: team: must specify limits.cpu for: tf-runner",
                "set what the quota demands",
            ),
            (
                "FailedCreate",
                "pods \"a\" is forbidden: no PriorityClass with name low was found",
                "create the PriorityClass",
            ),
            (
                "FailedCreate",
                "pods \"a\" is forbidden: unable to create new content in namespace team because it is being terminated",
                "the namespace is being deleted",
            ),
        ] {
            let found = pending_reason(reason, Some(message));
            assert!(found.message.contains(expected), "{found:?}");
        }
    }

    #[test]
    fn a_pod_that_cannot_be_created_says_why_and_what_to_do() {
        let text = |message: &str| pending_reason("FailedCreate", Some(message)).message;
        insta::assert_snapshot!([
            text("pods \"a\" is forbidden: exceeded quota: pods, requested: pods=1, used: pods=0, limited: pods=0"),
            text("error looking up service account team/own: serviceaccount \"own\" not found"),
            text("pods \"a\" is forbidden: violates PodSecurity \"restricted:latest\": runAsNonRoot != true"),
            text("admission webhook \"x\" denied the request: no"),
        ].join("\n"), @r#"
        pods "a" is forbidden: exceeded quota: pods, requested: pods=1, used: pods=0, limited: pods=0; raise the quota of the namespace, or wait until other pods end
        error looking up service account team/own: serviceaccount "own" not found; create the ServiceAccount, or change spec.serviceAccountName
        pods "a" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true; change runnerPodTemplate.spec.securityContext, or the Pod Security level of the namespace
        admission webhook "x" denied the request: no; an admission rule of the cluster rejects the pod: change runnerPodTemplate or the rule
        "#);
    }
}
