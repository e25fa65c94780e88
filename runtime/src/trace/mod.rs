//! Traces over OTLP, if `--otlp-endpoint` is set: one trace for each revision of a source, from its poll to the applies.
//!
//! The ids of spans are functions of the objects ([`SpanId`]). So programs that share nothing export parts of one trace, and a part
//! that is exported twice has the same ids. A [`Span`] is created when its work has ended. The [`Tracer`] queues spans, and a task
//! exports them in batches: a slow or unavailable collector loses spans at worst and never delays a reconciliation.

mod collector;
mod export;
mod id;
mod span;
#[cfg(test)]
mod tests;

pub use collector::{Endpoint, InvalidEndpoint, TraceError};
pub use export::Tracer;
pub use id::SpanId;
pub use span::Span;
