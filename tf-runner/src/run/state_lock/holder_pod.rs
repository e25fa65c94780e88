//! Whether the pod of a runner is over: the proof that nothing of it works any more where its file locks cannot be seen.

use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use sluice_api::run::Claim;

use crate::run::lifecycle::context::Context;

/// Whether the API says for certain that the pod of this claim works no more. Where it may not be asked, or has never been
/// told of pods, nothing is certain.
pub(crate) async fn is_over(context: &Context, claim: &Claim) -> bool {
    if claim.pod.is_empty() || claim.pod_namespace.is_empty() || claim.pod_uid.is_empty() {
        return false;
    }
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &claim.pod_namespace);
    over(&claim.pod_uid, api.get(&claim.pod).await)
}

/// A pod that was deleted is gone from the API once its node has said that its processes have ended, or an administrator, by
/// force. One that has ended says so in its phase. Another pod of the same name is made only when the first is gone.
fn over(uid: &str, answer: Result<Pod, kube::Error>) -> bool {
    match answer {
        Ok(pod) => {
            let phase = pod.status.and_then(|status| status.phase).unwrap_or_default();
            let ended = matches!(phase.as_str(), "Succeeded" | "Failed");
            pod.metadata.uid.is_some_and(|found| found != uid) || ended
        }
        // An API that knows no pods answers 404 too, and names none.
        Err(kube::Error::Api(status)) if status.is_not_found() => {
            status.details.is_some_and(|details| details.kind == "pods")
        }
        Err(error) => {
            tracing::warn!(%error, "whether the pod of a lock's holder is gone cannot be told");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn refused(status: Value) -> kube::Error {
        kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))
    }

    fn found(uid: &str, phase: &str) -> Pod {
        let pod = json!({ "metadata": { "name": "p", "uid": uid }, "status": { "phase": phase } });
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn only_a_pod_that_is_gone_replaced_or_ended_is_over() {
        let gone = json!({ "status": "Failure", "message": "", "reason": "NotFound", "code": 404,
            "details": { "kind": "pods", "name": "p" } });
        let unknown_kind =
            json!({ "status": "Failure", "message": "page not found", "reason": "NotFound", "code": 404 });
        let forbidden = json!({ "status": "Failure", "message": "", "reason": "Forbidden", "code": 403,
            "details": { "kind": "pods", "name": "p" } });
        for (uid, phase, wanted) in [
            ("other", "Running", true),
            ("u", "Failed", true),
            ("u", "Succeeded", true),
            ("u", "Running", false),
            ("u", "Unknown", false),
            ("u", "", false),
        ] {
            assert_eq!(over("u", Ok(found(uid, phase))), wanted, "{uid} {phase}");
        }
        assert!(over("u", Err(refused(gone))));
        assert!(!over("u", Err(refused(unknown_kind))));
        assert!(!over("u", Err(refused(forbidden))));
        assert!(!over("u", Err(kube::Error::Service("away".into()))));
    }
}
