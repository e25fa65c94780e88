//! The trace of a reconciliation: when its phases began, and its spans at the end.

use jiff::Timestamp;
use kube::ResourceExt as _;
use sluice_api::source::GitRepository;
use sluice_runtime::failure::Failure as _;
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::trace::{Span, SpanId};

use super::super::Context;
use super::Reconciliation;
use super::finish::Outcome;

/// When the phases of a reconciliation began. A phase ends where the next one begins.
#[derive(Clone, Debug)]
pub(super) struct PhaseTimes {
    start: Timestamp,
    /// The revision at the remote, once it is known.
    revision: Option<String>,
    phases: Vec<(&'static str, Timestamp)>,
}

impl PhaseTimes {
    /// Begins a reconciliation now, if traces are exported.
    pub(super) fn start(context: &Context) -> Option<Self> {
        context
            .tracer
            .is_enabled()
            .then(|| Self::new(context.clock.now()))
    }

    const fn new(start: Timestamp) -> Self {
        Self {
            start,
            revision: None,
            phases: Vec::new(),
        }
    }

    fn begin(&mut self, phase: &'static str, now: Timestamp) {
        self.phases.push((phase, now));
    }

    /// Returns the spans of a reconciliation that ends now. It has some if it stored an artifact, or failed at a known revision: a poll
    /// without a change has none.
    fn spans(&self, object: &GitRepository, outcome: &Outcome, end: Timestamp) -> Vec<Span> {
        let Some(revision) = &self.revision else {
            return Vec::new();
        };
        let root = SpanId::of_revision(&object.uid().unwrap_or_default(), revision);
        // The root is the first reconciliation that succeeds. Failed attempts and later builds, as after an edit, are its children.
        let is_root = matches!(outcome, Outcome::Stored(_)) && !has_artifact(object, revision);
        let id = if is_root {
            root
        } else {
            root.child(&format!("attempt {}", self.start))
        };
        let span = Span::new(id, "reconcile GitRepository", self.start, end)
            .with_object("GitRepository", &ObjectKey::of(object))
            .with_revision(revision);
        let span = if is_root { span } else { span.below(root) };
        let span = match outcome {
            Outcome::Stored(stored) => {
                let artifact = &stored.artifact;
                span.with_text("sluice.artifact.digest", &artifact.digest)
                    .with("sluice.artifact.size", artifact.size.unwrap_or_default())
                    .with(
                        "sluice.artifact.files",
                        i64::try_from(stored.files).unwrap_or(i64::MAX),
                    )
            }
            Outcome::Failed(error) => span.failed(error.reason()),
            Outcome::UpToDate { .. } | Outcome::Suspended => return Vec::new(),
        };
        let ends = self.phases.iter().skip(1).map(|(_, begin)| *begin).chain([end]);
        let phases = self
            .phases
            .iter()
            .zip(ends)
            .map(|((phase, begin), end)| Span::new(id.child(phase), *phase, *begin, end).below(id));
        std::iter::once(span).chain(phases).collect()
    }
}

/// Returns whether the object had an artifact of this revision before the reconciliation.
fn has_artifact(object: &GitRepository, revision: &str) -> bool {
    let artifact = object.status.as_ref().and_then(|status| status.artifact.as_ref());
    artifact.is_some_and(|artifact| artifact.revision == revision)
}

impl Reconciliation<'_> {
    /// Begins a phase now.
    pub(super) fn begin_phase(&mut self, phase: &'static str) {
        if let Some(times) = &mut self.times {
            times.begin(phase, self.context.clock.now());
        }
    }

    /// Begins a phase at this time.
    pub(super) fn begin_phase_at(&mut self, phase: &'static str, begin: Timestamp) {
        if let Some(times) = &mut self.times {
            times.begin(phase, begin);
        }
    }

    /// Sets the revision that the trace belongs to.
    pub(super) fn trace_revision(&mut self, revision: &str) {
        if let Some(times) = &mut self.times {
            times.revision = Some(revision.to_owned());
        }
    }

    /// Exports the trace of a reconciliation that has been reported.
    pub(super) fn export_trace(&self, outcome: &Outcome) {
        if let Some(times) = &self.times {
            let now = self.context.clock.now();
            self.context
                .tracer
                .record(|| times.spans(&self.object, outcome, now));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluice_api::source::Artifact;

    use super::super::super::content::ContentConfig;
    use super::super::super::error::ReconcileError;
    use super::super::super::verify::SignatureState;
    use super::super::finish::Stored;
    use super::*;
    use crate::git::FetchError;

    const REVISION: &str = "main@sha1:5f2c";

    fn object() -> GitRepository {
        let object = json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": { "name": "code", "namespace": "team", "uid": "s1" },
            "spec": { "url": "https://user:hunter2@example.com/code", "interval": "1m" } });
        serde_json::from_value(object).unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// A reconciliation from second 10, whose phases take two seconds each.
    fn times(revision: Option<&str>) -> PhaseTimes {
        let mut times = PhaseTimes::new(at(10));
        times.revision = revision.map(str::to_owned);
        for (phase, second) in [("lookup", 10), ("fetch", 12), ("pack", 14), ("report", 16)] {
            times.begin(phase, at(second));
        }
        times
    }

    fn stored() -> Outcome {
        let artifact = json!({ "digest": "sha256:00", "lastUpdateTime": "2026-01-01T00:00:00Z", "path": "a/b", "size": 7,
            "revision": REVISION, "url": "http://source/a/b" });
        Outcome::Stored(Box::new(Stored {
            artifact: serde_json::from_value::<Artifact>(artifact).unwrap(),
            files: 3,
            subject: "hunter2".to_owned(),
            content: ContentConfig::new(&object().spec, &[]),
            signatures: SignatureState::NotRequested,
        }))
    }

    fn names(spans: &[Span]) -> Vec<&str> {
        spans.iter().map(|span| &*span.data().name).collect()
    }

    #[test]
    fn a_new_artifact_is_the_root_of_the_trace() {
        let spans = times(Some(REVISION)).spans(&object(), &stored(), at(18));
        assert_eq!(
            names(&spans),
            ["reconcile GitRepository", "lookup", "fetch", "pack", "report"]
        );
        let root = SpanId::of_revision("s1", REVISION);
        let data = spans[0].data();
        assert_eq!(data.span_context.trace_id().to_bytes(), root.trace_bytes());
        assert_eq!(data.span_context.span_id().to_bytes(), root.span_bytes());
        assert_eq!(data.parent_span_id.to_bytes(), [0; 8]);
        for span in &spans[1..] {
            let data = span.data();
            assert_eq!(data.parent_span_id.to_bytes(), root.span_bytes());
            let took = data.end_time.duration_since(data.start_time).unwrap();
            assert_eq!(took.as_secs(), 2, "{}", data.name);
        }
        let text = format!("{spans:?}");
        assert!(text.contains("sha256:00"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }

    #[test]
    fn a_later_build_of_the_revision_is_below_the_root() {
        let mut object = object();
        let artifact = json!({ "artifact": { "digest": "sha256:01", "lastUpdateTime": "2026-01-01T00:00:00Z", "path": "a/b",
            "revision": REVISION, "url": "http://source/a/b" } });
        object.status = Some(serde_json::from_value(artifact).unwrap());
        let spans = times(Some(REVISION)).spans(&object, &stored(), at(18));
        let root = SpanId::of_revision("s1", REVISION);
        let rebuilt = spans[0].data();
        assert_eq!(rebuilt.parent_span_id.to_bytes(), root.span_bytes());
        assert_ne!(rebuilt.span_context.span_id().to_bytes(), root.span_bytes());
        // An artifact of an earlier revision is not part of this trace.
        object
            .status
            .as_mut()
            .unwrap()
            .artifact
            .as_mut()
            .unwrap()
            .revision = "main@sha1:0000".into();
        let spans = times(Some(REVISION)).spans(&object, &stored(), at(18));
        assert_eq!(
            spans[0].data().span_context.span_id().to_bytes(),
            root.span_bytes()
        );
    }

    #[test]
    fn a_failure_at_a_known_revision_is_an_attempt_below_the_root() {
        let failed = || Outcome::Failed(FetchError::Stopped.into());
        let spans = times(Some(REVISION)).spans(&object(), &failed(), at(18));
        let root = SpanId::of_revision("s1", REVISION);
        let attempt = spans[0].data();
        assert_eq!(attempt.parent_span_id.to_bytes(), root.span_bytes());
        assert_ne!(attempt.span_context.span_id().to_bytes(), root.span_bytes());
        let status = format!("{:?}", attempt.status);
        let reason = ReconcileError::from(FetchError::Stopped).reason();
        assert!(status.contains(reason), "{status}");
        assert_eq!(times(None).spans(&object(), &failed(), at(18)), []);
    }

    #[test]
    fn a_poll_without_a_change_is_not_exported() {
        let unchanged = Outcome::UpToDate {
            content: ContentConfig::new(&object().spec, &[]),
            signatures: SignatureState::NotRequested,
        };
        let times = times(Some(REVISION));
        assert_eq!(times.spans(&object(), &unchanged, at(18)), []);
        assert_eq!(times.spans(&object(), &Outcome::Suspended, at(18)), []);
    }
}
