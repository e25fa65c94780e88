//! How a run is asked to end: always, or only while nothing is lost by it.

use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::Pod;
use sluice_runtime::sync::lock;
use sluice_tf_core::disruption::Disruption;
use tokio_util::sync::CancellationToken;

use crate::run::lifecycle::error::RunError;

/// The request to end a run. A run that is asked to end before its work begins is repeated by the next one.
#[derive(Clone, Debug)]
pub struct RunStop {
    token: CancellationToken,
    /// Whether the work of the run has begun: the first command that changes something or makes a plan.
    has_begun: Arc<Mutex<bool>>,
}

impl From<CancellationToken> for RunStop {
    /// The run ends when this token is cancelled, and never cancels it.
    fn from(stop: CancellationToken) -> Self {
        Self {
            token: stop.child_token(),
            has_begun: Arc::default(),
        }
    }
}

impl RunStop {
    /// Ends the run, unless its work has begun.
    pub fn stop_unless_begun(&self) {
        let has_begun = lock(&self.has_begun);
        if !*has_begun {
            self.token.cancel();
        }
    }

    /// Cancelled when the run has to end.
    pub(crate) const fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Records that the work begins. Returns whether it may: not after a request to end.
    pub(crate) fn begin(&self) -> bool {
        let mut has_begun = lock(&self.has_begun);
        *has_begun |= !self.token.is_cancelled();
        *has_begun
    }

    /// Whether the run was asked to end before its work began.
    pub(crate) fn is_before_work(&self) -> bool {
        self.token.is_cancelled() && !*lock(&self.has_begun)
    }
}

/// Reads from the API before the work of a run. A request to end abandons the reads: while the API is away, they are repeated for minutes.
///
/// # Errors
/// Those of the reads, or [`RunError::PreparationStopped`].
pub(crate) async fn read_until<T>(
    stop: &CancellationToken,
    reads: impl Future<Output = Result<T, RunError>>,
) -> Result<T, RunError> {
    tokio::select! {
        biased;
        read = reads => read,
        () = stop.cancelled() => Err(RunError::PreparationStopped),
    }
}

/// Explains the error of a run that was asked to end: Kubernetes ends its pod, or its work had not begun, so that the next run does all
/// of it with the same plan.
///
/// A run before its work is interrupted if `may_repeat`, whatever ends its pod. After the last repeat it depends on what ends the pod. The
/// node ends a pod without a deletion if the pod exceeds its storage, or if the node shuts down. The kubelet may write the condition
/// `DisruptionTarget` after the signal then. A further run may end in the same way, so this one fails. A shared pod (`is_shared`) is that
/// of the controller, which asks its runners to end: also when its node is drained, which deletes the pod.
pub(crate) fn explain(
    stopped: RunError,
    pod: Option<&Pod>,
    is_shared: bool,
    is_before_work: bool,
    may_repeat: bool,
) -> RunError {
    let is_deleted = pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some());
    let disruption = pod.and_then(Disruption::of);
    let is_requested = if disruption.is_some() {
        is_shared && is_deleted
    } else {
        is_shared || is_deleted
    };
    let error = match disruption {
        Some(disruption) => RunError::Disrupted {
            stopped: Box::new(stopped),
            disruption,
        },
        None => stopped,
    };
    if is_before_work && (may_repeat || is_requested) {
        return RunError::Interrupted {
            error: Box::new(error),
        };
    }
    error
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use sluice_api::terraform::Reason;
    use sluice_runtime::failure::Failure as _;

    use super::*;

    fn pod(metadata: &Value, conditions: &Value) -> Pod {
        let status = json!({ "conditions": conditions });
        serde_json::from_value(json!({ "metadata": metadata, "status": status })).unwrap()
    }

    fn deletion() -> Value {
        json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" })
    }

    fn eviction() -> Value {
        json!([{ "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI" }])
    }

    #[test]
    fn an_eviction_before_the_work_interrupts_the_run_while_it_may_be_repeated() {
        let drained = pod(&deletion(), &eviction());
        let by_node = pod(&json!({}), &eviction());
        let by_node_without_condition = pod(&json!({}), &json!([]));
        for pod in [&drained, &by_node, &by_node_without_condition] {
            for is_shared in [false, true] {
                let error = explain(RunError::PreparationStopped, Some(pod), is_shared, true, true);
                assert_eq!(error.reason(), Reason::Interrupted.as_str());
            }
        }
        let text = explain(RunError::PreparationStopped, Some(&drained), false, true, true).to_string();
        assert!(
            text.contains("is repeated: ") && text.ends_with("; the pod was evicted"),
            "{text}"
        );
        let at_work = explain(RunError::PreparationStopped, Some(&drained), false, false, true);
        assert_eq!(at_work.reason(), Reason::Evicted.as_str());
    }

    #[test]
    fn after_the_last_repeat_a_run_fails_if_its_node_ends_the_pod() {
        let deleted = pod(&deletion(), &json!([]));
        let evicted = pod(&deletion(), &eviction());
        let other = pod(&json!({}), &json!([]));
        let exceeded = pod(&json!({}), &eviction());
        let (failed, disrupted, repeated) = (Reason::TfExecNewFailed, Reason::Evicted, Reason::Interrupted);
        for (case, pod, is_shared, is_before_work, expected) in [
            ("no pod", None, false, true, repeated),
            ("deleted", Some(&deleted), false, true, repeated),
            ("deleted at work", Some(&deleted), false, false, failed),
            ("drained", Some(&evicted), false, true, disrupted),
            ("ended by the node", Some(&other), false, true, failed),
            ("evicted by the node", Some(&exceeded), false, true, disrupted),
            ("process", Some(&other), true, true, repeated),
            ("process, drained", Some(&evicted), true, true, repeated),
            ("process, drained at work", Some(&evicted), true, false, disrupted),
            (
                "process, evicted by the node",
                Some(&exceeded),
                true,
                true,
                disrupted,
            ),
        ] {
            let error = explain(
                RunError::PreparationStopped,
                pod,
                is_shared,
                is_before_work,
                false,
            );
            assert_eq!(error.reason(), expected.as_str(), "{case}");
        }
    }

    #[test]
    fn a_request_ends_a_run_only_before_its_work() {
        let stop = RunStop::from(CancellationToken::new());
        assert!(stop.begin());
        stop.stop_unless_begun();
        assert!(!stop.token().is_cancelled() && !stop.is_before_work());
    }

    #[tokio::test]
    async fn reads_that_do_not_end_are_abandoned() {
        let stop = CancellationToken::new();
        let read = read_until(&stop, std::future::ready(Ok(1))).await;
        assert!(matches!(read, Ok(1)));
        stop.cancel();
        let read = read_until(&stop, std::future::pending::<Result<(), _>>()).await;
        assert!(matches!(read, Err(RunError::PreparationStopped)));
    }

    #[test]
    fn no_work_begins_after_a_request_to_end() {
        let program = CancellationToken::new();
        let early = RunStop::from(program.clone());
        early.clone().stop_unless_begun();
        assert!(!early.begin() && early.is_before_work());
        assert!(!program.is_cancelled(), "only the run ends");
        let terminated = RunStop::from(program.clone());
        program.cancel();
        assert!(!terminated.begin() && terminated.is_before_work());
    }

    #[test]
    fn a_run_that_is_terminated_during_its_work_is_not_before_it() {
        let program = CancellationToken::new();
        let stop = RunStop::from(program.clone());
        assert!(stop.begin());
        program.cancel();
        assert!(stop.token().is_cancelled() && !stop.is_before_work());
    }
}
