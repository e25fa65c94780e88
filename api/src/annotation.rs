//! Keys of annotations and labels in the API of Flux, tofu-controller and Sluice.

use std::collections::BTreeMap;

/// Requests a reconciliation: a new value queues the object and is copied to `status.lastHandledReconcileAt`.
pub const REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";

/// Prefix of the annotations that are copied to every event of the object.
const EVENT_PREFIX: &str = "event.toolkit.fluxcd.io/";

/// Name part of an event annotation's key: the revision that the event is about.
pub const EVENT_REVISION: &str = "revision";

/// Name part of an event annotation's key: the digest that the event is about.
pub const EVENT_DIGEST: &str = "digest";

/// Sluice's own event annotation: number of files in a new artifact. Flux's receivers ignore unknown annotations.
pub const EVENT_FILES: &str = "infra.sluice.dev/files";

/// Key in the metadata of an artifact: the author of its commit, as `Name <address>`.
pub const COMMIT_AUTHOR: &str = "infra.sluice.dev/commit-author";

/// Key in the metadata of an artifact: the subject of its commit, as [`crate::source::short_subject`] returns it.
pub const COMMIT_SUBJECT: &str = "infra.sluice.dev/commit-subject";

/// Label on runs, and on the Secret with the object's key: the Terraform object that they belong to.
pub const TERRAFORM_LABEL: &str = "infra.sluice.dev/terraform";

/// Annotation on the pod of a run: the uid of the run.
pub const RUN_UID: &str = "infra.sluice.dev/run-uid";

/// Annotation on the GitRepository of a `Repo`: the Secret that the `Repo` names.
pub const REPO_SECRET: &str = "infra.sluice.dev/repo-secret";

/// Requests one break-glass session.
pub const BREAK_THE_GLASS: &str = "break-the-glass.tf-controller/requestedAt";

/// Annotation on a Terraform object: the plan that a user rejects, and by whom, when and why ([`crate::run::rejection_of`]).
pub const REJECTED_PLAN: &str = "infra.sluice.dev/rejected-plan";

/// Annotation on an active run: any value but an empty one interrupts it. The runner stops as at its deadline: the CLI completes the
/// operation in progress and writes its state.
pub const CANCEL: &str = "infra.sluice.dev/cancel";

/// Annotation on an outputs Secret: the keys whose values are not sensitive ([`crate::terraform::outputs_secret`]).
pub const NON_SENSITIVE_OUTPUTS: &str = "infra.sluice.dev/non-sensitive-outputs";

/// Label on a Secret that another owner created: allows Sluice to write outputs to it.
pub const ADOPT_LABEL: &str = "infra.contrib.fluxcd.io/adopt";

/// Label on stored plans: the shortened plan name.
pub const PLAN_NAME: &str = "infra.contrib.fluxcd.io/plan-name";

/// Label on stored plans: the shortened workspace.
pub const PLAN_WORKSPACE: &str = "infra.contrib.fluxcd.io/plan-workspace";

/// Annotation on stored plans: the full plan name.
pub const PLAN_FULL_NAME: &str = "infra.contrib.fluxcd.io/plan-full-name";

/// Annotation on stored plans: the full workspace.
pub const PLAN_FULL_WORKSPACE: &str = "infra.contrib.fluxcd.io/plan-full-workspace";

/// Annotation on stored plans: the index of the chunk.
pub const PLAN_CHUNK: &str = "infra.contrib.fluxcd.io/plan-chunk";

/// Annotation on stored plans: the SHA-256 of the plan.
pub const PLAN_HASH: &str = "infra.contrib.fluxcd.io/plan-hash";

/// Annotation on stored plans: the plan id.
pub const PLAN_ID: &str = "savedPlan";

/// Returns the value of a reconcile request; `None` for an absent or empty annotation.
#[must_use]
pub fn requested_at(annotations: &BTreeMap<String, String>) -> Option<&str> {
    annotations
        .get(REQUESTED_AT)
        .map(String::as_str)
        .filter(|token| !token.is_empty())
}

/// Returns whether a run is to be interrupted.
#[must_use]
pub fn is_cancelled(annotations: &BTreeMap<String, String>) -> bool {
    annotations.get(CANCEL).is_some_and(|value| !value.is_empty())
}

/// Returns the annotations that are copied to every event of an object.
pub fn event_annotations(annotations: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    let own = annotations.range(EVENT_PREFIX.to_owned()..);
    own.map(|(key, value)| (key.as_str(), value.as_str()))
        .take_while(|(key, _)| key.starts_with(EVENT_PREFIX))
}

/// Formats the key of an event annotation, e.g. `source.toolkit.fluxcd.io/revision`.
#[must_use]
pub fn event_key(group: &str, name: &str) -> String {
    format!("{group}/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn an_empty_request_is_ignored() {
        let one = annotations(&[(REQUESTED_AT, "one")]);
        assert_eq!(requested_at(&one), Some("one"));
        assert_eq!(requested_at(&annotations(&[])), None);
        assert_eq!(requested_at(&annotations(&[(REQUESTED_AT, "")])), None);
    }

    #[test]
    fn an_empty_cancellation_is_ignored() {
        assert!(is_cancelled(&annotations(&[(CANCEL, "now")])));
        assert!(!is_cancelled(&annotations(&[(CANCEL, "")])));
        assert!(!is_cancelled(&annotations(&[])));
    }

    #[test]
    fn only_annotations_with_the_event_prefix_are_copied() {
        let all = annotations(&[
            ("event.toolkit.fluxcd.io", "no"),
            ("event.toolkit.fluxcd.io/a", "1"),
            ("event.toolkit.fluxcd.io/b", "2"),
            ("event.toolkit.fluxcd.iox/c", "no"),
            ("z", "no"),
        ]);
        let copied: Vec<_> = event_annotations(&all).collect();
        assert_eq!(
            copied,
            [
                ("event.toolkit.fluxcd.io/a", "1"),
                ("event.toolkit.fluxcd.io/b", "2")
            ]
        );
    }
}
