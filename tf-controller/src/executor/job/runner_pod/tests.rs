//! Pods and Jobs as the cluster shows them.

use serde_json::{Value, json};

use super::*;
use crate::memory::MemoryQuantity;

fn pod(status: &Value) -> Pod {
    let spec =
        json!({ "containers": [{ "name": "tf-runner", "resources": { "limits": { "memory": "64Mi" } } }] });
    serde_json::from_value(json!({ "metadata": {}, "spec": spec, "status": status })).unwrap()
}

fn job(conditions: &Value) -> Job {
    serde_json::from_value(json!({ "metadata": {}, "status": { "conditions": conditions } })).unwrap()
}

fn phase(phase: &str) -> Pod {
    pod(&json!({ "phase": phase }))
}

#[test]
fn a_run_is_gone_only_when_its_pod_has_ended() {
    let (new, ended) = (
        job(&json!([])),
        job(&json!([{ "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded" }])),
    );
    let cases = [
        ("created a moment ago", Some(&new), vec![], "pending"),
        ("not scheduled", Some(&new), vec![phase("Pending")], "pending"),
        ("at work", Some(&new), vec![phase("Running")], "alive"),
        (
            "its node does not answer",
            Some(&new),
            vec![phase("Unknown")],
            "alive",
        ),
        (
            "Job deleted, pod still ends",
            None,
            vec![phase("Running")],
            "alive",
        ),
        (
            "failed, pod still ends",
            Some(&ended),
            vec![phase("Running")],
            "alive",
        ),
        (
            "pod has ended, Job not yet",
            Some(&new),
            vec![phase("Failed")],
            "ended",
        ),
        ("failed", Some(&ended), vec![phase("Failed")], "ended"),
        ("failed, pod collected", Some(&ended), vec![], "ended"),
        ("both deleted", None, vec![], "gone"),
    ];
    for (case, job, pods, expected) in cases {
        let found = match liveness(job, &pods) {
            Liveness::Pending(_) => "pending",
            Liveness::Alive => "alive",
            Liveness::Ended(_) => "ended",
            Liveness::Gone => "gone",
            other => panic!("{case}: {other:?}"),
        };
        assert_eq!(found, expected, "{case}");
    }
}

/// The sidecar of a service mesh ends with its pod only.
#[test]
fn a_run_has_ended_although_a_sidecar_goes_on() {
    let container = |name: &str, state: Value| json!({ "name": name, "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state });
    let status = json!({ "phase": "Running", "containerStatuses": [
        container("istio-proxy", json!({ "running": {} })),
        container("tf-runner", json!({ "terminated": { "exitCode": 137, "reason": "OOMKilled" } })),
    ] });
    let PodState::Ended(end) = PodState::of(&pod(&status)) else {
        panic!("the runner has ended");
    };
    assert_eq!(end.reason, Reason::OomKilled);
}

#[test]
fn a_pending_pod_says_why_and_what_to_do() {
    let waiting = |reason: &str, message: &str| {
        json!({ "phase": "Pending", "containerStatuses": [{ "name": "tf-runner", "image": "own:2", "imageID": "",
            "ready": false, "restartCount": 0, "state": { "waiting": { "reason": reason, "message": message } } }] })
    };
    let unscheduled = json!({ "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": "0/1 nodes are available: 1 Insufficient memory." }] });
    let text = |status: &Value| match PodState::of(&pod(status)) {
        PodState::Waiting(Some(why)) => format!("{}: {}", why.reason, why.message),
        other => format!("{other:?}"),
    };
    insta::assert_snapshot!([
        text(&unscheduled),
        text(&waiting("ImagePullBackOff", "Back-off pulling image")),
        text(&waiting("CreateContainerConfigError", "secret \"login\" not found")),
        text(&waiting("ContainerCreating", "")),
        text(&json!({ "phase": "Pending" })),
    ].join("\n"), @r#"
    Unschedulable: 0/1 nodes are available: 1 Insufficient memory; free capacity, or change resources, nodeSelector, affinity or tolerations in runnerPodTemplate
    ImagePullBackOff: image own:2: Back-off pulling image; check runnerPodTemplate.spec.image and --runner-image, and the imagePullSecrets of the ServiceAccount
    CreateContainerConfigError: secret "login" not found; create what is missing, or change runnerPodTemplate
    Waiting(None)
    Waiting(None)
    "#);
}

#[test]
fn the_end_of_a_pod_has_a_reason() {
    let ended = |fields: &Value| {
        let mut status = json!({ "phase": "Failed" });
        status
            .as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        status
    };
    let container = |code: i32, reason: &str, message: &str| {
        json!({ "containerStatuses": [{ "name": "tf-runner", "image": "r", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "terminated": { "exitCode": code, "reason": reason, "message": message } } }] })
    };
    let init_container = |code: i32, reason: &str, message: &str| {
        json!({ "initContainerStatuses": [{ "name": "warm", "image": "w", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "terminated": { "exitCode": code, "reason": reason, "message": message } } }] })
    };
    let disrupted = |reason: &str| json!({ "conditions": [{ "type": "DisruptionTarget", "status": "True", "reason": reason, "message": "why" }] });
    let text = |status: &Value| match PodState::of(&pod(status)) {
        PodState::Ended(end) => format!("{}: {}", end.reason, end.message),
        other => format!("{other:?}"),
    };
    insta::assert_snapshot!([
        text(&ended(&json!({ "reason": "Evicted", "message": "The node was low on resource: memory." }))),
        text(&ended(&json!({ "reason": "DeadlineExceeded" }))),
        text(&ended(&json!({ "reason": "NodeShutdown", "message": "Pod was terminated" }))),
        text(&ended(&container(137, "OOMKilled", ""))),
        text(&ended(&container(1, "Error", "{\"level\":\"info\"}\ncannot claim run a: forbidden\n"))),
        text(&ended(&container(137, "Error", ""))),
        text(&ended(&init_container(2, "Error", "no route to host\n"))),
        text(&ended(&init_container(137, "OOMKilled", ""))),
        text(&json!({ "phase": "Succeeded" })),
        text(&ended(&disrupted("EvictionByEvictionAPI"))),
        text(&ended(&disrupted("DeletionByTaintManager"))),
        text(&ended(&disrupted("PreemptionByScheduler"))),
    ].join("\n"), @"
    Evicted: the pod was evicted: The node was low on resource: memory.
    DeadlineExceeded: the pod ran longer than its deadline
    NodeLost: the node of the pod was lost or shut down: Pod was terminated
    OOMKilled: the runner or its CLI used more memory than its limit (64Mi) and was killed; raise runnerPodTemplate.spec.resources.limits.memory
    RunLost: the runner ended with exit code 1: cannot claim run a: forbidden
    RunLost: the runner ended with exit code 137
    RunLost: the init container warm of runnerPodTemplate ended with exit code 2: no route to host
    OOMKilled: the init container warm used more memory than its limit and was killed; raise its limits.memory
    RunLost: the runner ended without a report
    Evicted: the pod was evicted: why
    NodeLost: the node of the pod was lost: why
    Evicted: a pod of higher priority replaced the pod: why
    ");
    let deadline = json!([{ "type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "Job was active" }]);
    assert_eq!(
        liveness(Some(&job(&deadline)), &[]),
        Liveness::Ended(RunnerEnd {
            reason: Reason::DeadlineExceeded,
            message: "the Job ran longer than its deadline: Job was active".into(),
            exceeded_memory: None,
            is_pod_deleted: false,
        })
    );
}

#[test]
fn a_deleted_pod_is_told_from_one_that_failed() {
    let is_deleted = |job: &Job, pods: &[Pod]| match liveness(Some(job), pods) {
        Liveness::Ended(end) => end.is_pod_deleted,
        other => panic!("{other:?}"),
    };
    let condition =
        |kind: &str, reason: &str| job(&json!([{ "type": kind, "status": "True", "reason": reason }]));
    let failed = condition("Failed", "BackoffLimitExceeded");
    let mut deleted = phase("Failed");
    deleted.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    assert!(is_deleted(&failed, &[]));
    assert!(is_deleted(&job(&json!([])), std::slice::from_ref(&deleted)));
    assert!(!is_deleted(&failed, &[phase("Failed")]));
    // The Job deletes the pod at its deadline.
    let ends = condition("FailureTarget", "DeadlineExceeded");
    assert!(!is_deleted(&ends, &[deleted]));
    assert!(!is_deleted(&condition("Failed", "DeadlineExceeded"), &[]));
}

#[test]
fn a_runner_that_ran_out_of_memory_shows_how_much_it_needs_at_least() {
    let exceeded = |list: &str, name: &str, reason: &str| {
        let state = json!({ "terminated": { "exitCode": 137, "reason": reason } });
        let status = json!({ "phase": "Failed", list: [{ "name": name, "image": "r", "imageID": "", "ready": false,
            "restartCount": 0, "state": state }] });
        match PodState::of(&pod(&status)) {
            PodState::Ended(end) => end.exceeded_memory.map(MemoryQuantity::bytes),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        exceeded("containerStatuses", "tf-runner", "OOMKilled"),
        Some(64 << 20)
    );
    assert_eq!(exceeded("containerStatuses", "tf-runner", "Error"), None);
    assert_eq!(exceeded("initContainerStatuses", "warm", "OOMKilled"), None);
}
