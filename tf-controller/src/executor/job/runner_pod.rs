//! What the Job and the pod of a run show about its runner: whether it waits, works, or how it ended. Pure.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod, PodCondition, PodStatus};
use kube::ResourceExt as _;
use sluice_api::annotation::RUN_UID;
use sluice_api::terraform::Reason;
use sluice_tf_core::cli::text::truncate;
use sluice_tf_core::disruption::{Disruption, RUNNER_CONTAINER, runner_has_ended};

use super::super::{Liveness, PendingReason, RunnerEnd};
use super::pending::{MESSAGE_LIMIT, pending_reason};

/// The state of a runner's pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PodState {
    /// Its containers have not started; why, if the pod shows it.
    Waiting(Option<PendingReason>),
    /// They have.
    Running,
    /// They have ended.
    Ended(RunnerEnd),
}

impl PodState {
    /// Returns the state of a pod. A pod that is being deleted runs until the kubelet has confirmed its end.
    pub(super) fn of(pod: &Pod) -> Self {
        let Some(status) = &pod.status else {
            return Self::Waiting(None);
        };
        if runner_has_ended(status) {
            return Self::Ended(RunnerEnd {
                is_pod_deleted: pod.metadata.deletion_timestamp.is_some(),
                ..end_of_pod(pod, status)
            });
        }
        match status.phase.as_deref() {
            Some("Pending") | None => Self::Waiting(waiting_reason(status)),
            Some(_) => Self::Running,
        }
    }
}

/// Returns the uid of the run that a pod belongs to; empty: it names none.
pub(super) fn run_uid(pod: &Pod) -> &str {
    pod.annotations().get(RUN_UID).map_or("", String::as_str)
}

/// Returns whether the runner of a run is alive. It is gone only when its pod has ended: a node that does not answer proves nothing.
pub(super) fn liveness(job: Option<&Job>, pods: &[Pod]) -> Liveness {
    let states: Vec<_> = pods.iter().map(PodState::of).collect();
    let mut waiting = None;
    for state in &states {
        match state {
            PodState::Running => return Liveness::Alive,
            PodState::Waiting(reason) => waiting = Some(reason.clone()),
            PodState::Ended(_) => {}
        }
    }
    if let Some(reason) = waiting {
        return Liveness::Pending(reason);
    }
    let ended = states.into_iter().find_map(|state| match state {
        PodState::Ended(end) => Some(end),
        PodState::Waiting(_) | PodState::Running => None,
    });
    match (ended, job) {
        (Some(end), _) => Liveness::Ended(RunnerEnd {
            is_pod_deleted: end.is_pod_deleted && !job.is_some_and(has_exceeded_deadline),
            ..end
        }),
        (None, Some(job)) => match finished(job) {
            Some(condition) => Liveness::Ended(end_of_job(condition)),
            None => Liveness::Pending(None),
        },
        (None, None) => Liveness::Gone,
    }
}

/// Returns the condition that ends a Job.
pub(super) fn finished(job: &Job) -> Option<&JobCondition> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| {
        matches!(condition.type_.as_str(), "Complete" | "Failed") && condition.status == "True"
    })
}

/// Returns whether a Job has exceeded its deadline. It deletes its pod then, and has failed when the pod has ended.
fn has_exceeded_deadline(job: &Job) -> bool {
    let status = job.status.iter();
    let mut conditions = status.flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| {
        condition.status == "True" && condition.reason.as_deref() == Some("DeadlineExceeded")
    })
}

/// Returns when a pod got its node.
pub(super) fn scheduled_at(pod: &Pod) -> Option<Timestamp> {
    let scheduled = condition(pod.status.as_ref()?, "PodScheduled")?;
    let since = scheduled.last_transition_time.as_ref()?;
    (scheduled.status == "True").then_some(since.0)
}

/// Returns why a pod has not started.
fn waiting_reason(status: &PodStatus) -> Option<PendingReason> {
    let unscheduled = condition(status, "PodScheduled").filter(|condition| condition.status == "False");
    if let Some(condition) = unscheduled {
        let reason = condition.reason.as_deref().unwrap_or("Unschedulable");
        return Some(pending_reason(reason, condition.message.as_deref()));
    }
    let waiting = containers(status).find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.as_deref()?;
        let is_progress = matches!(reason, "ContainerCreating" | "PodInitializing");
        (!is_progress).then_some((container, reason, waiting.message.as_deref()))
    });
    let (container, reason, message) = waiting?;
    let text = format!("image {}: {}", container.image, message.unwrap_or(reason));
    Some(pending_reason(
        reason,
        if reason.contains("Image") || message.is_none() {
            Some(&text)
        } else {
            message
        },
    ))
}

/// Returns how a pod ended.
fn end_of_pod(pod: &Pod, status: &PodStatus) -> RunnerEnd {
    let message = status.message.as_deref().unwrap_or_default();
    match status.reason.as_deref() {
        Some("Evicted") => return runner_end(Reason::Evicted, "the pod was evicted", message),
        Some("DeadlineExceeded") => {
            return runner_end(
                Reason::DeadlineExceeded,
                "the pod ran longer than its deadline",
                message,
            );
        }
        Some("NodeLost" | "NodeShutdown" | "Terminated" | "Shutdown") => {
            return runner_end(
                Reason::NodeLost,
                "the node of the pod was lost or shut down",
                message,
            );
        }
        _ => {}
    }
    if let Some((name, terminated)) =
        failed_container(status, |end| end.reason.as_deref() == Some("OOMKilled"))
    {
        let message = terminated.message.as_deref().unwrap_or_default();
        if name != RUNNER_CONTAINER {
            let text = format!(
                "the init container {name} used more memory than its limit and was killed; raise its limits.memory"
            );
            return runner_end(Reason::OomKilled, &text, message);
        }
        return RunnerEnd {
            exceeded_memory: memory_limit(pod).and_then(|limit| limit.parse().ok()),
            ..runner_end(Reason::OomKilled, &out_of_memory(pod), message)
        };
    }
    if let Some(disruption) = Disruption::of(pod) {
        return runner_end(disruption.reason, disruption.text, &disruption.message);
    }
    match failed_container(status, |end| end.exit_code != 0) {
        Some((name, end)) => {
            let code = end.exit_code;
            let text = if name == RUNNER_CONTAINER {
                format!("the runner ended with exit code {code}")
            } else {
                format!("the init container {name} of runnerPodTemplate ended with exit code {code}")
            };
            // The runner prints its error last, after its log.
            let last = end
                .message
                .as_deref()
                .and_then(|message| message.trim().lines().last());
            runner_end(Reason::RunLost, &text, last.unwrap_or_default())
        }
        None => runner_end(Reason::RunLost, "the runner ended without a report", message),
    }
}

/// Returns how a Job ended whose pod is gone.
fn end_of_job(condition: &JobCondition) -> RunnerEnd {
    let message = condition.message.as_deref().unwrap_or_default();
    match condition.reason.as_deref() {
        Some("DeadlineExceeded") => runner_end(
            Reason::DeadlineExceeded,
            "the Job ran longer than its deadline",
            message,
        ),
        _ => RunnerEnd {
            is_pod_deleted: true,
            ..runner_end(Reason::RunLost, "the pod of the run was deleted", message)
        },
    }
}

fn runner_end(reason: Reason, text: &str, message: &str) -> RunnerEnd {
    let message = truncate(message.trim(), MESSAGE_LIMIT);
    RunnerEnd {
        reason,
        message: if message.is_empty() {
            text.to_owned()
        } else {
            format!("{text}: {message}")
        },
        exceeded_memory: None,
        is_pod_deleted: false,
    }
}

fn condition<'a>(status: &'a PodStatus, kind: &str) -> Option<&'a PodCondition> {
    let mut conditions = status.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == kind)
}

/// Returns the containers of the pod, the init containers first.
fn containers(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let init = status.init_container_statuses.iter().flatten();
    init.chain(status.container_statuses.iter().flatten())
}

/// Returns the name and the end of the first container whose end matches.
fn failed_container(
    status: &PodStatus,
    matches: impl Fn(&ContainerStateTerminated) -> bool,
) -> Option<(&str, &ContainerStateTerminated)> {
    let mut ended = containers(status).filter_map(|container| {
        let end = container.state.as_ref()?.terminated.as_ref()?;
        Some((container.name.as_str(), end))
    });
    ended.find(|(_, end)| matches(end))
}

/// Describes the end of a runner that ran out of memory.
fn out_of_memory(pod: &Pod) -> String {
    let limit = memory_limit(pod).map_or_else(String::new, |limit| format!(" ({limit})"));
    format!(
        "the runner or its CLI used more memory than its limit{limit} and was killed; raise \
         runnerPodTemplate.spec.resources.limits.memory"
    )
}

/// Returns the memory limit of the runner, if it has one.
fn memory_limit(pod: &Pod) -> Option<&str> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut limits = containers
        .filter(|container| container.name == RUNNER_CONTAINER)
        .filter_map(|container| container.resources.as_ref()?.limits.as_ref()?.get("memory"));
    limits.next().map(|limit| limit.0.as_str())
}

#[cfg(test)]
mod tests;
