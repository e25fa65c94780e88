//! A span of work that has ended.

use std::borrow::Cow;
use std::time::SystemTime;

use jiff::Timestamp;
use opentelemetry::trace::{self as otel, Link, SpanKind, Status};
use opentelemetry::{InstrumentationScope, Key, KeyValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use sluice_api::revision::Revision;

use super::SpanId;
use crate::schedule::ObjectKey;

/// Longest reason of a failure.
const MAX_REASON: usize = 64;
/// The type of an error without a public reason, as the conventions of OpenTelemetry name it.
const OTHER_REASON: &str = "_OTHER";

/// A span of work that has ended. It contains no message, since a message may quote a value or a URL.
#[derive(Clone, Debug, PartialEq)]
pub struct Span(SpanData);

impl Span {
    /// Creates a span. A clock that was set back gives no negative duration.
    #[must_use]
    pub fn new(id: SpanId, name: impl Into<Cow<'static, str>>, start: Timestamp, end: Timestamp) -> Self {
        Self(SpanData {
            span_context: id.context(),
            parent_span_id: otel::SpanId::INVALID,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: name.into(),
            start_time: SystemTime::from(start),
            end_time: SystemTime::from(end.max(start)),
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: InstrumentationScope::builder("sluice").build(),
        })
    }

    /// Sets the parent, which is in the same trace.
    #[must_use]
    pub fn below(mut self, parent: SpanId) -> Self {
        self.0.parent_span_id = parent.span();
        self
    }

    /// Adds a link to a span of another trace.
    #[must_use]
    pub fn linked_to(mut self, other: SpanId) -> Self {
        self.0.links.links.push(Link::with_context(other.context()));
        self
    }

    /// Adds an attribute.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl Into<Value>) -> Self {
        let key = Key::from_static_str(key);
        self.0.attributes.push(KeyValue::new(key, value));
        self
    }

    /// Adds a text, unless it is empty.
    #[must_use]
    pub fn with_text(self, key: &'static str, text: &str) -> Self {
        if text.is_empty() {
            self
        } else {
            self.with(key, text.to_owned())
        }
    }

    /// Adds namespace, kind and name of the object.
    #[must_use]
    pub fn with_object(self, kind: &'static str, key: &ObjectKey) -> Self {
        self.with_text("k8s.namespace.name", &key.namespace)
            .with("sluice.kind", kind)
            .with_text("sluice.name", &key.name)
    }

    /// Adds a revision: whole, and its commit and reference.
    #[must_use]
    pub fn with_revision(self, text: &str) -> Self {
        let revision = Revision::parse(text);
        self.with_text("sluice.revision", text)
            .with_text("vcs.ref.head.revision", revision.hash().unwrap_or_default())
            .with_text("vcs.ref.head.name", revision.reference().unwrap_or_default())
    }

    /// Marks the work as failed for this public reason. A text that is not one is left out: the status of a run is written by its pod.
    #[must_use]
    pub fn failed(mut self, reason: &str) -> Self {
        let is_reason = !reason.is_empty()
            && reason.len() <= MAX_REASON
            && reason.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let reason = if is_reason { reason } else { OTHER_REASON };
        self.0.status = Status::error(reason.to_owned());
        self.with("error.type", reason.to_owned())
    }

    /// Returns what is exported.
    #[must_use]
    pub const fn data(&self) -> &SpanData {
        &self.0
    }

    pub(super) fn into_data(self) -> SpanData {
        self.0
    }
}
