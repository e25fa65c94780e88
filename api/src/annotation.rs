//! Keys of annotations and labels that people and controllers talk through.

use std::collections::BTreeMap;

/// Asks for a reconciliation: a new value queues the object, and is echoed in `status.lastHandledReconcileAt`.
pub const REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";

/// Annotations with this prefix are copied to every event of the object.
pub const EVENT_PREFIX: &str = "event.toolkit.fluxcd.io/";

/// The part of an event annotation's key behind the group: the revision that the event speaks of.
pub const EVENT_REVISION: &str = "revision";

/// The part of an event annotation's key behind the group: the digest that the event speaks of.
pub const EVENT_DIGEST: &str = "digest";

/// Event annotation of Sluice's own: how many files a new artifact holds. Receivers of Flux drop what they do not know.
pub const EVENT_FILES: &str = "infra.sluice.dev/files";

/// Label that ties a run, and the Secret with the object's own key, to their Terraform object.
pub const TERRAFORM_LABEL: &str = "infra.sluice.dev/terraform";

/// Asks for one break-the-glass session.
pub const BREAK_THE_GLASS: &str = "break-the-glass.tf-controller/requestedAt";

/// Label on a Secret that allows outputs to be written to it although another owner made it.
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
pub const SAVED_PLAN: &str = "savedPlan";

/// The value of a reconcile request, where there is one.
#[must_use]
pub fn requested_at(annotations: &BTreeMap<String, String>) -> Option<&str> {
    annotations
        .get(REQUESTED_AT)
        .map(String::as_str)
        .filter(|token| !token.is_empty())
}

/// Whether a request is there that status does not show as handled.
#[must_use]
pub fn is_requested(annotations: &BTreeMap<String, String>, last_handled: Option<&str>) -> bool {
    requested_at(annotations).is_some_and(|token| Some(token) != last_handled)
}

/// The annotations that go with every event of an object.
pub fn for_events(annotations: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    let own = annotations.range(EVENT_PREFIX.to_owned()..);
    own.map(|(key, value)| (key.as_str(), value.as_str()))
        .take_while(|(key, _)| key.starts_with(EVENT_PREFIX))
}

/// The key of an event annotation in a group, e.g. `source.toolkit.fluxcd.io/revision`.
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
    fn a_request_counts_until_status_echoes_it() {
        let asked = annotations(&[(REQUESTED_AT, "one")]);
        assert!(is_requested(&asked, None));
        assert!(is_requested(&asked, Some("zero")));
        assert!(!is_requested(&asked, Some("one")));
        assert!(!is_requested(&annotations(&[]), Some("one")));
        assert!(!is_requested(&annotations(&[(REQUESTED_AT, "")]), None));
    }

    #[test]
    fn only_annotations_for_events_go_with_events() {
        let all = annotations(&[
            ("event.toolkit.fluxcd.io", "no"),
            ("event.toolkit.fluxcd.io/a", "1"),
            ("event.toolkit.fluxcd.io/b", "2"),
            ("event.toolkit.fluxcd.iox/c", "no"),
            ("z", "no"),
        ]);
        let kept: Vec<_> = for_events(&all).collect();
        assert_eq!(
            kept,
            [
                ("event.toolkit.fluxcd.io/a", "1"),
                ("event.toolkit.fluxcd.io/b", "2")
            ]
        );
    }
}
