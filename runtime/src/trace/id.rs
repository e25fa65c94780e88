//! The ids of spans: digests of what identifies the work.

use opentelemetry::trace::{self as otel, SpanContext, TraceFlags, TraceState};
use sha2::{Digest as _, Sha256};

/// A span and its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanId {
    trace: [u8; 16],
    span: [u8; 8],
}

impl SpanId {
    /// Returns the root span of the trace of a revision: the reconciliation that stores its artifact.
    #[must_use]
    pub fn of_revision(source_uid: &str, revision: &str) -> Self {
        Self::root(&[source_uid.as_bytes(), revision.as_bytes()])
    }

    /// Returns the root span of a trace of its own, for an object with this uid.
    #[must_use]
    pub fn of_object(uid: &str) -> Self {
        Self::root(&[uid.as_bytes()])
    }

    /// Returns a child of this span, whose key is unique among its children.
    #[must_use]
    pub fn child(self, key: &str) -> Self {
        let digest = digest(&[&self.trace, &self.span, key.as_bytes()]);
        let mut span = [0; 8];
        span.copy_from_slice(&digest[..8]);
        Self { span, ..self }
    }

    fn root(fields: &[&[u8]]) -> Self {
        let digest = digest(fields);
        let (mut trace, mut span) = ([0; 16], [0; 8]);
        trace.copy_from_slice(&digest[..16]);
        span.copy_from_slice(&digest[16..24]);
        Self { trace, span }
    }

    /// Returns the id of the trace.
    #[must_use]
    pub const fn trace_bytes(self) -> [u8; 16] {
        self.trace
    }

    /// Returns the id of the span in its trace.
    #[must_use]
    pub const fn span_bytes(self) -> [u8; 8] {
        self.span
    }

    pub(super) fn span(self) -> otel::SpanId {
        otel::SpanId::from_bytes(self.span)
    }

    pub(super) fn context(self) -> SpanContext {
        let trace = otel::TraceId::from_bytes(self.trace);
        SpanContext::new(
            trace,
            self.span(),
            TraceFlags::SAMPLED,
            false,
            TraceState::default(),
        )
    }
}

/// Returns the SHA-256 of the fields, each after its length in eight bytes, so that no two lists have the same bytes.
fn digest(fields: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for field in fields {
        hash.update((field.len() as u64).to_be_bytes());
        hash.update(field);
    }
    hash.finalize().into()
}
