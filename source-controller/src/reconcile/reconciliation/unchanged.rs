//! Whether an object already has the status with which its reconciliation ends. Nearly every reconciliation finds no change, and a
//! comparison needs a fraction of the instructions that a new status needs.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use sluice_api::annotation::requested_at;
use sluice_api::condition::{ConditionType as _, SourceCondition as Kind, is_ordered};
use sluice_api::source::{GitRepository, GitRepositoryStatus};

use super::super::content::ContentConfig;
use super::super::observe::Observed;
use super::super::verify::SignatureState;
use super::finish::Outcome;

/// Reason of the conditions of a success.
pub(super) const SUCCEEDED: &str = "Succeeded";
/// The message about a stored artifact, up to its revision.
const STORED: &str = "stored artifact for revision '";

/// Returns the message about the stored artifact of a revision.
pub(super) fn stored_text(revision: &str) -> String {
    [STORED, revision, "'"].concat()
}

/// Returns whether the final status is the one that the object has. If not, it may still turn out equal once it is built.
pub(super) fn is_final(object: &GitRepository, observed: &Observed<'_>, outcome: &Outcome) -> bool {
    let (Some(status), Outcome::UpToDate { content, signatures }) = (&object.status, outcome) else {
        return false;
    };
    let Some(artifact) = observed.artifact.as_deref() else {
        return false;
    };
    let token = requested_at(object.annotations());
    status.artifact.as_ref() == Some(artifact)
        && status.observed_generation == object.metadata.generation
        && token.is_none_or(|token| status.last_handled_reconcile_at.as_deref() == Some(token))
        && show_success(&status.conditions, object, &artifact.revision)
        && is_recorded(signatures, content, object, status)
}

/// Returns whether the conditions are those of a success at this revision, in their order.
fn show_success(conditions: &[Condition], object: &GitRepository, revision: &str) -> bool {
    let is_succeeded = |condition: &Condition| {
        condition.status == "True"
            && condition.reason == SUCCEEDED
            && condition.observed_generation == object.metadata.generation
            // Of a longer message, only the beginning is written.
            && matches!(Kind::MESSAGE_LIMIT.truncate(&condition.message), Cow::Borrowed(_))
    };
    let is_stored = |condition: &Condition| {
        let rest = condition.message.strip_prefix(STORED);
        rest.and_then(|rest| rest.strip_suffix('\'')) == Some(revision)
    };
    let is_expected = |condition: &Condition| match kind(condition) {
        // The condition of another controller stays.
        None => true,
        Some(Kind::Ready | Kind::ArtifactInStorage) => is_succeeded(condition) && is_stored(condition),
        Some(Kind::SourceVerified) => object.spec.verify.is_some() && is_succeeded(condition),
        Some(_) => false,
    };
    let count = |wanted: Kind| {
        let found = conditions.iter().filter(|found| found.type_ == wanted.as_str());
        found.count()
    };
    conditions.iter().all(is_expected)
        && count(Kind::Ready) == 1
        && count(Kind::ArtifactInStorage) == 1
        && count(Kind::SourceVerified) <= 1
        && is_ordered(conditions)
}

/// Returns the type of a condition, if it is one of this controller.
fn kind(condition: &Condition) -> Option<Kind> {
    let mut kinds = Kind::ALL.iter().copied();
    kinds.find(|kind| kind.as_str() == condition.type_)
}

/// Returns whether the status has what it records of the signatures and the settings.
fn is_recorded(
    signatures: &SignatureState,
    content: &ContentConfig,
    object: &GitRepository,
    status: &GitRepositoryStatus,
) -> bool {
    match signatures {
        SignatureState::NotRequested => {
            let checksum = status.content_config_checksum.as_deref();
            object.spec.verify.is_none()
                && status.source_verification_mode.is_none()
                && checksum.is_none_or(|checksum| content.has_checksum(checksum))
        }
        // Both stay as they are.
        SignatureState::StillValid => object.spec.verify.is_some(),
        SignatureState::Verified(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};
    use sluice_api::annotation::REQUESTED_AT;

    use super::super::finish::final_status;
    use super::super::progress::UpstreamChange;
    use super::*;

    const REVISION: &str = "main@sha1:5f2c";

    fn up_to_date(object: &GitRepository, signatures: &SignatureState) -> Outcome {
        Outcome::UpToDate {
            content: ContentConfig::new(&object.spec, &[]),
            signatures: signatures.clone(),
        }
    }

    /// Builds the status at a later time.
    fn built(
        object: &GitRepository,
        observed: &Observed<'_>,
        outcome: &Outcome,
        second: i64,
    ) -> GitRepositoryStatus {
        let now = Timestamp::from_second(second).unwrap();
        final_status(object, observed, &UpstreamChange::default(), outcome, now)
    }

    /// Returns an object as it is after a reconciliation that ended with these signatures.
    fn reconciled(signatures: &SignatureState, revision: &str) -> GitRepository {
        let is_verified = *signatures == SignatureState::StillValid;
        let verify = is_verified.then(|| json!({ "mode": "HEAD", "secretRef": { "name": "keys" } }));
        let condition = |kind: &str| {
            json!({ "type": kind, "status": "True", "reason": "Succeeded", "message": "fine", "observedGeneration": 2,
                "lastTransitionTime": "2026-01-02T03:04:05Z" })
        };
        let mut conditions = vec![condition("Approved")];
        conditions.extend(is_verified.then(|| condition("SourceVerified")));
        let object = json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": { "name": "code", "namespace": "team", "generation": 2, "annotations": { REQUESTED_AT: "t1" } },
            "spec": { "url": "https://example.com/code", "interval": "1m", "verify": verify },
            "status": { "conditions": conditions, "contentConfigChecksum": "sha256:00",
                "artifact": { "digest": "sha256:01", "lastUpdateTime": "2026-01-01T00:00:00Z", "path": "a/b", "size": 7,
                    "metadata": { "a": "b" }, "revision": revision, "url": "http://source/a/b" } } });
        let mut object: GitRepository = serde_json::from_value(object).unwrap();
        let outcome = up_to_date(&object, signatures);
        let status = built(&object, &Observed::recorded(&object), &outcome, 10);
        object.status = Some(status);
        object
    }

    /// Returns changes of a reconciled object: a path and the value at it.
    fn changes(object: &GitRepository) -> Vec<(String, Value)> {
        let status = object.status.as_ref().unwrap();
        let conditions = json!(status.conditions);
        let (ready, foreign, stored) = (&conditions[0], &conditions[1], &conditions[2]);
        let checksum = status.content_config_checksum.as_ref().unwrap();
        let changes = [
            ("/status", Value::Null),
            ("/metadata/generation", json!(3)),
            ("/metadata/generation", Value::Null),
            ("/metadata/annotations", json!({})),
            ("/metadata/annotations", json!({ REQUESTED_AT: "" })),
            ("/metadata/annotations", json!({ REQUESTED_AT: "t2" })),
            ("/status/artifact", Value::Null),
            ("/status/artifact/digest", json!("sha256:02")),
            ("/status/artifact/lastUpdateTime", json!("2026-01-01T00:00:01Z")),
            ("/status/artifact/metadata", json!({ "a": "c" })),
            ("/status/artifact/path", json!("a/c")),
            ("/status/artifact/revision", json!("main@sha1:00")),
            ("/status/artifact/size", json!(8)),
            ("/status/artifact/url", json!("http://other/a/b")),
            ("/status/conditions", json!([])),
            ("/status/conditions", json!([ready, stored])),
            ("/status/conditions", json!([stored, ready])),
            ("/status/conditions", json!([ready, foreign])),
            ("/status/conditions", json!([foreign, stored])),
            ("/status/conditions", json!([ready, ready, stored])),
            ("/status/conditions", json!([ready, stored, stored])),
            ("/status/conditions", json!([ready, foreign, foreign, stored])),
            ("/status/conditions", json!([ready, stored, foreign])),
            ("/status/contentConfigChecksum", Value::Null),
            ("/status/contentConfigChecksum", json!("")),
            ("/status/contentConfigChecksum", json!("sha256:02")),
            ("/status/contentConfigChecksum", json!(checksum.to_uppercase())),
            ("/status/contentConfigChecksum", json!(format!("{checksum}0"))),
            ("/status/lastHandledReconcileAt", Value::Null),
            ("/status/lastHandledReconcileAt", json!("t0")),
            ("/status/lastHandledReconcileAt", json!("t2")),
            ("/status/observedGeneration", Value::Null),
            ("/status/observedGeneration", json!(1)),
            ("/status/observedGeneration", json!(3)),
            ("/status/observedIgnore", json!("x")),
            (
                "/status/observedInclude",
                json!([{ "repository": { "name": "x" } }]),
            ),
            ("/status/observedRecurseSubmodules", json!(true)),
            ("/status/observedSparseCheckout", json!(["x"])),
            ("/status/sourceVerificationMode", json!("HEAD")),
        ];
        let of_conditions = (0..status.conditions.len()).flat_map(condition_changes);
        let changes = changes.map(|(path, value)| (path.to_owned(), value));
        changes.into_iter().chain(of_conditions).collect()
    }

    /// Returns changes of one condition.
    fn condition_changes(index: usize) -> Vec<(String, Value)> {
        let types = Kind::ALL.iter().map(|kind| kind.as_str());
        let types = types.chain(["Another", "Zeta"]).map(|kind| ("type", json!(kind)));
        let fields = [
            ("status", json!("False")),
            ("status", json!("true")),
            ("reason", json!("Failed")),
            ("message", json!("x")),
            ("message", json!("stored artifact for revision 'main@sha1:00'")),
            ("message", json!("stored artifact for revision ''")),
            ("observedGeneration", json!(1)),
            ("observedGeneration", Value::Null),
            ("lastTransitionTime", json!("2026-01-03T00:00:00Z")),
        ];
        let changes = types.chain(fields);
        changes
            .map(|(field, value)| (format!("/status/conditions/{index}/{field}"), value))
            .collect()
    }

    /// Returns the object with changes; `None` if they do not fit together.
    fn changed(object: &GitRepository, changes: [&(String, Value); 2]) -> Option<GitRepository> {
        let mut object = json!(object);
        for (path, value) in changes {
            let (parent, field) = path.rsplit_once('/')?;
            object.pointer_mut(parent)?[field] = value.clone();
        }
        serde_json::from_value(object).ok()
    }

    #[test]
    fn a_final_status_is_the_one_that_would_be_built() {
        for signatures in [SignatureState::NotRequested, SignatureState::StillValid] {
            let before = reconciled(&signatures, REVISION);
            let (observed, outcome) = (Observed::recorded(&before), up_to_date(&before, &signatures));
            assert!(is_final(&before, &observed, &outcome), "{before:?}");
            assert_eq!(before.status, Some(built(&before, &observed, &outcome, 20)));
            let changes = changes(&before);
            // Each with itself, and with those after it.
            let pairs = changes
                .iter()
                .enumerate()
                .flat_map(|(index, one)| changes[index..].iter().map(move |other| [one, other]));
            let (mut equal, mut different) = (0, 0);
            for pair in pairs {
                let Some(object) = changed(&before, pair) else {
                    continue;
                };
                let is_equal = object.status == Some(built(&object, &observed, &outcome, 20));
                assert_eq!(is_final(&object, &observed, &outcome), is_equal, "{pair:?}");
                if is_equal {
                    equal += 1;
                } else {
                    different += 1;
                }
            }
            assert!(equal > 10 && different > 1000, "{equal} {different}");
        }
    }

    #[test]
    fn another_artifact_or_outcome_is_not_final() {
        let signatures = SignatureState::NotRequested;
        let object = reconciled(&signatures, REVISION);
        let outcome = up_to_date(&object, &signatures);
        let mut observed = Observed::recorded(&object);
        assert!(!is_final(&object, &observed, &Outcome::Suspended));
        let still_valid = up_to_date(&object, &SignatureState::StillValid);
        assert!(!is_final(&object, &observed, &still_valid));
        if let Some(artifact) = &mut observed.artifact {
            artifact.to_mut().url = "http://new/a/b".to_owned();
        }
        assert!(!is_final(&object, &observed, &outcome));
        assert!(!is_final(&object, &Observed::default(), &outcome));
    }

    #[test]
    fn a_message_over_the_limit_is_not_final() {
        let signatures = SignatureState::NotRequested;
        let mut object = reconciled(&signatures, &"x".repeat(40_000));
        let is_final_and_equal = |object: &GitRepository| {
            let (observed, outcome) = (Observed::recorded(object), up_to_date(object, &signatures));
            let is_equal = object.status == Some(built(object, &observed, &outcome, 20));
            (is_final(object, &observed, &outcome), is_equal)
        };
        assert_eq!(is_final_and_equal(&object), (false, true));
        for condition in &mut object.status.as_mut().unwrap().conditions {
            if condition.type_ != "Approved" {
                condition.message = stored_text(&"x".repeat(40_000));
            }
        }
        assert_eq!(is_final_and_equal(&object), (false, false));
    }
}
