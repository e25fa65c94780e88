//! What dashboards read about the token cache, under the names that they read.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use sluice_runtime::metrics::Metrics;
use sluice_runtime::schedule::ObjectKey;

/// The kind whose passes need tokens.
const KIND: &str = "GitRepository";
/// The only operation of this controller that needs tokens.
const OPERATION: &str = "reconcile";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventLabels {
    event_type: &'static str,
    kind: &'static str,
    name: String,
    namespace: String,
    operation: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabel {
    status: &'static str,
}

/// The families. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Series {
    events: Family<EventLabels, Counter>,
    requests: Family<StatusLabel, Counter>,
    evictions: Counter,
    items: Gauge,
}

impl Series {
    /// Registered, and empty.
    pub(super) fn new(metrics: &Metrics) -> Self {
        let series = Self::default();
        // Counters get their `_total` when they are printed.
        metrics.register(
            "gotk_token_cache_events",
            "Tokens found in the cache, or not, by object",
            series.events.clone(),
        );
        metrics.register(
            "gotk_token_cache_requests",
            "Requests to the token cache by outcome",
            series.requests.clone(),
        );
        metrics.register(
            "gotk_token_cache_evictions",
            "Tokens that made room for others",
            series.evictions.clone(),
        );
        metrics.register(
            "gotk_token_cached_items",
            "Tokens in the cache",
            series.items.clone(),
        );
        let events = series.events.clone();
        metrics.on_forget(move |kind, object| {
            if kind == KIND {
                for found in [true, false] {
                    events.remove(&labels(object, found));
                }
            }
        });
        series
    }

    /// An object's token was found in the cache, or not.
    pub(super) fn looked_up(&self, object: &ObjectKey, found: bool) {
        self.events.get_or_create(&labels(object, found)).inc();
    }

    /// A request for a token ended.
    pub(super) fn answered(&self, succeeded: bool) {
        let status = if succeeded { "success" } else { "failure" };
        self.requests.get_or_create(&StatusLabel { status }).inc();
    }

    /// A token made room.
    pub(super) fn evicted(&self) {
        self.evictions.inc();
    }

    /// So many tokens are there.
    pub(super) fn hold(&self, items: usize) {
        self.items.set(i64::try_from(items).unwrap_or(i64::MAX));
    }
}

fn labels(object: &ObjectKey, found: bool) -> EventLabels {
    EventLabels {
        event_type: if found { "cache_hit" } else { "cache_miss" },
        kind: KIND,
        name: object.name.clone(),
        namespace: object.namespace.clone(),
        operation: OPERATION,
    }
}
