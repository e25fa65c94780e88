//! What a receiver of events gets: the JSON that Flux's notification-controller reads.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use serde::Serialize;

use super::{Event, Reporter, Severity};

/// Metadata with these keys is for receivers, whatever the kind.
const EVENT_GROUP: &str = "event.toolkit.fluxcd.io";

/// The body of one POST.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Body {
    involved_object: InvolvedObject,
    severity: &'static str,
    timestamp: String,
    message: String,
    reason: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, String>,
    reporting_controller: String,
    reporting_instance: String,
}

/// The object; the receiver derives the API group of the metadata from `apiVersion`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct InvolvedObject {
    kind: String,
    namespace: String,
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    resource_version: String,
}

impl Body {
    /// The body for an event; none for routine events, and none for an object that a receiver could not name.
    pub(super) fn of(
        object: &ObjectReference,
        event: &Event,
        reporter: &Reporter,
        now: Timestamp,
    ) -> Option<Self> {
        let severity = match event.severity {
            Severity::Normal => "info",
            Severity::Warning => "error",
            Severity::ClusterOnly | Severity::Trace => return None,
        };
        let named = |part: &Option<String>| part.clone().filter(|text| !text.is_empty());
        let involved_object = InvolvedObject {
            kind: named(&object.kind)?,
            namespace: named(&object.namespace)?,
            name: named(&object.name)?,
            uid: object.uid.clone().unwrap_or_default(),
            api_version: object.api_version.clone().unwrap_or_default(),
            resource_version: object.resource_version.clone().unwrap_or_default(),
        };
        let metadata = metadata(&involved_object.api_version, &event.annotations);
        Some(Self {
            involved_object,
            severity,
            timestamp: now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            message: event.message.clone(),
            reason: event.reason.clone(),
            metadata,
            reporting_controller: reporter.component.clone(),
            reporting_instance: reporter.instance.clone(),
        })
    }

    /// What it is about, for the log.
    pub(super) fn subject(&self) -> String {
        let object = &self.involved_object;
        format!(
            "{} {}/{} {}",
            object.kind, object.namespace, object.name, self.reason
        )
    }
}

/// Returns the annotations to send. Receivers drop every key that belongs neither to the object's group nor to events.
fn metadata(api_version: &str, annotations: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let group = api_version.split_once('/').map(|(group, _)| group);
    let is_theirs = |key: &str| {
        let owner = key.split_once('/').map(|(owner, _)| owner);
        owner.is_some_and(|owner| owner == EVENT_GROUP || Some(owner) == group)
    };
    annotations
        .iter()
        .filter(|(key, _)| is_theirs(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> ObjectReference {
        ObjectReference {
            api_version: Some("source.toolkit.fluxcd.io/v1".into()),
            kind: Some("GitRepository".into()),
            name: Some("app".into()),
            namespace: Some("team".into()),
            uid: Some("0b1c".into()),
            resource_version: Some("41".into()),
            field_path: None,
        }
    }

    fn text(object: &ObjectReference, event: &Event) -> Option<String> {
        let reporter = Reporter {
            component: "source-controller".into(),
            instance: "source-controller-7d9f".into(),
            trace: true,
        };
        let now = "2026-01-02T03:04:05.678Z".parse().unwrap();
        Body::of(object, event, &reporter, now).map(|body| serde_json::to_string(&body).unwrap())
    }

    #[test]
    fn the_body_of_a_new_artifact_matches_the_golden_file() {
        let event = Event::normal("NewArtifact", "stored artifact for commit 'first'")
            .with("source.toolkit.fluxcd.io/revision", "main@sha1:ab")
            .with("source.toolkit.fluxcd.io/digest", "sha256:cd")
            .with("event.toolkit.fluxcd.io/team", "a")
            .with("infra.sluice.dev/files", "3");
        assert_eq!(
            text(&object(), &event).unwrap(),
            concat!(
                r#"{"involvedObject":{"kind":"GitRepository","namespace":"team","name":"app","uid":"0b1c","#,
                r#""apiVersion":"source.toolkit.fluxcd.io/v1","resourceVersion":"41"},"severity":"info","#,
                r#""timestamp":"2026-01-02T03:04:05Z","message":"stored artifact for commit 'first'","#,
                r#""reason":"NewArtifact","metadata":{"event.toolkit.fluxcd.io/team":"a","#,
                r#""source.toolkit.fluxcd.io/digest":"sha256:cd","#,
                r#""source.toolkit.fluxcd.io/revision":"main@sha1:ab"},"reportingController":"source-controller","#,
                r#""reportingInstance":"source-controller-7d9f"}"#
            )
        );
    }

    #[test]
    fn the_body_of_a_failure_matches_the_golden_file() {
        let event = Event::warning("GitOperationFailed", "no \"luck\" <here>");
        assert_eq!(
            text(&object(), &event).unwrap(),
            concat!(
                r#"{"involvedObject":{"kind":"GitRepository","namespace":"team","name":"app","uid":"0b1c","#,
                r#""apiVersion":"source.toolkit.fluxcd.io/v1","resourceVersion":"41"},"severity":"error","#,
                r#""timestamp":"2026-01-02T03:04:05Z","message":"no \"luck\" <here>","#,
                r#""reason":"GitOperationFailed","reportingController":"source-controller","#,
                r#""reportingInstance":"source-controller-7d9f"}"#
            )
        );
    }

    #[test]
    fn a_routine_event_has_no_body() {
        assert_eq!(text(&object(), &Event::trace("ArtifactUpToDate", "same")), None);
        assert_eq!(
            text(
                &object(),
                &Event::cluster_only("GarbageCollectionSucceeded", "gone")
            ),
            None
        );
    }

    #[test]
    fn an_object_without_kind_name_or_namespace_has_no_body() {
        let event = Event::normal("A", "a");
        for part in ["kind", "name", "namespace"] {
            for absent in [None, Some(String::new())] {
                let mut object = object();
                match part {
                    "kind" => object.kind = absent,
                    "name" => object.name = absent,
                    _ => object.namespace = absent,
                }
                assert_eq!(text(&object, &event), None, "{part}");
            }
        }
    }
}
